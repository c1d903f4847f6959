"""The tf.data iterators of a program: what steps take from them, and whether they repeat.

When the program runs again, every element is read again, so that shuffles and random operations of
a pipeline give the same results: by the program's own code as before, and here in place of steps
that are not run again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import function_graph, private
from trainer_shim.adapters.tensorflow.fidelity import LoopFidelity


class DatasetIterators:
    """Every eager iterator, by its resource."""

    def __init__(self, standing: LoopFidelity) -> None:
        self.are_being_built = False  # what is traced now is of a pipeline
        self._standing = standing
        self._made: dict[int, weakref.ref[Any]] = {}
        self._looked_at: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def hook(self, is_on: Callable[[], bool]) -> None:
        """Watch the iterators that are made from here on."""
        import tensorflow as tf

        owner = private.find(private.ITERATORS, "OwnedIterator")
        original = owner._create_iterator

        @functools.wraps(original)
        def create_iterator(iterator: Any, dataset: Any) -> None:
            original(iterator, dataset)
            if tf.executing_eagerly() and is_on():
                key = iterator._iterator_resource._id
                self._made[key] = weakref.ref(iterator, lambda _: self._made.pop(key, None))
                self._look_at(dataset)

        owner._create_iterator = create_iterator
        wrapper = private.find(private.STRUCTURED, "StructuredFunctionWrapper")
        wrap = wrapper.__init__

        @functools.wraps(wrap)
        def wrapped(function: Any, *args: Any, **kwargs: Any) -> None:
            before, self.are_being_built = self.are_being_built, True
            try:
                wrap(function, *args, **kwargs)
            finally:
                self.are_being_built = before

        wrapper.__init__ = wrapped

    def knows(self, resource: Any) -> bool:
        """Whether this is the resource of an iterator."""
        return resource._id in self._made

    def drain(self, resource: Any, count: int) -> None:
        """Take the elements that a step takes which is not run."""
        iterator = self._made[resource._id]()
        if iterator is not None:
            for _ in zip(range(count), iterator):
                pass

    # Whether a pipeline repeats itself.

    def _look_at(self, dataset: Any) -> None:
        if dataset in self._looked_at:
            return
        self._looked_at[dataset] = None
        if dataset.options().deterministic is False:
            self._standing.lower("parameters-exact", "the order of the tf.data elements is free")
        context = private.find(private.CONTEXT, "context")()
        for part in _parts(dataset):
            kind = type(part).__name__.strip("_")
            if getattr(part, "_deterministic", None) == "false":
                self._standing.lower("parameters-exact", f"the order of a {kind} is free")
            elif kind == "ParallelInterleaveDataset":  # which does not keep what it was told
                reason = f"the order of a {kind} must not be free"
                self._standing.lower("exact-if-deterministic", reason)
            for function in part._functions():
                definition = function_graph.study(context, function.function.name)
                for operation in definition.stateful:
                    self._doubt(kind, operation)

    def _doubt(self, kind: str, operation: str) -> None:
        if operation.endswith("PyFunc"):
            self._standing.lower(
                "exact-if-deterministic",
                "the Python functions of the tf.data pipeline must repeat themselves",
            )
        elif "Parallel" in kind or "MapAndBatch" in kind:
            self._standing.lower(
                "parameters-exact",
                f"{kind} runs {operation}, which is stateful, in parallel: "
                "the data after a resume are other ones",
            )


def _parts(dataset: Any) -> Iterator[Any]:
    yield dataset
    for source in dataset._inputs():
        yield from _parts(source)
