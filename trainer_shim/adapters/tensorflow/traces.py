"""What is seen of a function while it is traced; above all its loss, which it differentiates.

A step that returns its loss is left as it is. Only if no result can be the loss, the step also
assigns the loss to a variable of ours, in the same graph; nothing else is changed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import function_graph, private
from trainer_shim.adapters.tensorflow.store import Kind
from trainer_shim.adapters.tensorflow.variables import of_ours


class Traces:
    """What was seen of each traced function, by its name."""

    def __init__(self, signal: str, peek: Callable[[Any], Any]) -> None:
        self._names = (signal, "loss")
        self._peek = peek  # reads a variable without the program noticing
        self.optionals: dict[bytes, dict[int, Any]] = {}  # among the outputs of each function
        # The kinds of the outputs of each function that returns single numbers alone.
        self.scalars: dict[bytes, tuple[Kind, ...]] = {}
        self.is_in_a_step = False  # what is traced now is of a function that the program called
        self._outputs: dict[bytes, int] = {}
        self._given: dict[bytes, int] = {}
        self._traces: dict[int, _Trace] = {}  # of each graph being traced
        self._kept: Any = None  # our variable

    def given(self, name: bytes) -> int | None:
        """How many inputs the function is given; the others it has captured. None: not known."""
        return self._given.get(name)

    def loss_of(self, name: bytes, outputs: Any) -> Any:
        """The loss of the step that has just run, to be turned into a number later."""
        position = self._outputs.get(name)
        if position is not None:
            return outputs[position]
        return None if self._kept is None else self._peek(self._kept)

    def hook(self, is_on: Callable[[], bool], eager: Callable[[Any, Any], None]) -> None:
        """Watch what is traced; `eager(target, sources)` is called for a gradient outside."""
        import tensorflow as tf

        module = private.find(private.TRACING, "trace_function").__globals__
        create = module["_create_concrete_function"]

        def create_concrete(kind: Any, context: Any, graph: Any, options: Any) -> Any:
            if not is_on():
                return create(kind, context, graph, options)
            watched = self._watched(options.python_function, graph)
            trace = self._traces[id(graph)] = _Trace()
            before, self.is_in_a_step = self.is_in_a_step, _is_of_the_program(options)
            options = dataclasses.replace(options, python_function=watched)
            try:
                concrete = create(kind, context, graph, options)
            finally:
                del self._traces[id(graph)]
                self.is_in_a_step = before
            name = concrete.inference_fn.name
            if trace.position is not None:
                self._outputs[name] = trace.position
            if not graph.deferred_internal_captures:
                self._given[name] = len(graph.inputs) - len(graph.internal_captures)
            self.optionals[name] = function_graph.find(graph.structured_outputs)
            if all(_is_number(output) for output in graph.outputs):
                self.scalars[name] = tuple([(one.dtype.name, ()) for one in graph.outputs])
            return concrete

        module["_create_concrete_function"] = create_concrete
        original = tf.GradientTape.gradient

        @functools.wraps(original)
        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            if is_on() and tf.executing_eagerly():
                eager(target, sources)
            elif is_on():
                self._saw(target)
            return original(tape, target, sources, *args, **kwargs)

        tf.GradientTape.gradient = gradient

    def _watched(self, python_function: Any, graph: Any) -> Any:
        """The function to be traced, which keeps its loss if it does not return it."""

        def function(*args: Any, **kwargs: Any) -> Any:
            result = python_function(*args, **kwargs)
            trace = self._traces[id(graph)]
            trace.position = _choose(result, trace.targets, self._names)
            if trace.targets and trace.position is None:
                self._keep(trace.targets[-1])
            return result

        return function

    def _saw(self, target: Any) -> None:
        """A gradient of `target` is taken in the graph being built."""
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
        if not tf.is_tensor(target) or not target.dtype.is_floating:
            return
        if id(graph) in self._traces:
            self._traces[id(graph)].targets.append(target)
        elif graph.building_function:
            self._keep(target)  # in a branch or a loop, whose tensors are out of reach outside

    def _keep(self, target: Any) -> None:
        import tensorflow as tf

        if self._kept is None:
            self._kept = of_ours(float("nan"), tf.float32)
        self._kept.assign(tf.cast(tf.reduce_mean(target), tf.float32), read_value=False)


class _Trace:
    """What was seen of one graph while it was built."""

    def __init__(self) -> None:
        self.targets: list[Any] = []
        self.position: int | None = None


def _choose(result: Any, targets: list[Any], names: Iterable[str]) -> int | None:
    """The position of the loss among the outputs; None if no output can be it."""
    import tensorflow as tf

    leaves = [leaf for leaf in tf.nest.flatten(result, expand_composites=True) if leaf is not None]
    scalars = [at for at, leaf in enumerate(leaves) if _is_scalar(leaf)]
    named = [id(value) for value in _named(result, names)]
    called = [at for at in scalars if id(leaves[at]) in named]
    likely = called[-1:] or (scalars if len(scalars) == 1 else [])
    if not targets:
        return likely[0] if likely else None
    for at in scalars:
        if any(leaves[at] is target for target in targets):
            return at
    # A part of what is differentiated, such as the loss without penalties; not a running mean.
    parts = _behind(targets)
    return likely[0] if likely and leaves[likely[0]].op in parts else None


def _behind(tensors: Iterable[Any]) -> set[Any]:
    """The operations that these tensors are computed by, in their own graph."""
    waiting, seen = [tensor.op for tensor in tensors], set()
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return seen


def _is_of_the_program(options: Any) -> bool:
    """Whether a trace is neither of a nested function, nor for XLA."""
    import tensorflow as tf

    for_xla = private.find(private.ATTRIBUTES, "XLA_COMPILE")
    return tf.executing_eagerly() and not (options.attributes or {}).get(for_xla, False)


def _is_scalar(leaf: Any) -> bool:
    import tensorflow as tf

    return bool(tf.is_tensor(leaf) and leaf.shape.rank == 0 and leaf.dtype.is_floating)


def _is_number(output: Any) -> bool:
    """Whether the output of a graph is always a single number of a type that NumPy has, too."""
    import numpy as np

    if output.shape.rank != 0 or not output.dtype.is_numpy_compatible:
        return False
    plain = np.dtype(output.dtype.as_numpy_dtype)
    return plain.isbuiltin == 1 and plain.kind in "biufc"


def _named(result: Any, names: Iterable[str]) -> list[Any]:
    """What stands under one of these names, in dictionaries at any depth."""
    found: list[Any] = []
    if isinstance(result, dict):
        found += [value for name, value in result.items() if name in names]
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            found += _named(part, names)
    return found
