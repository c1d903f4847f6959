"""The loss of a run that trains: the tensor that the graph's gradients are taken of.

Rule: a loss that the program fetches is taken from its results. One that it does not is fetched
along with them; nothing is added to the graph.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from trainer_shim.adapters import tf_private as private
from trainer_shim.adapters.tf1_graph import Run, look_at

_WORDS = ("loss", "cost")


class Losses:
    """What gradients were taken of, in each graph."""

    def __init__(self) -> None:
        self._targets: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def hook(self) -> None:
        """Watch the gradients that are built from here on."""
        import tensorflow as tf

        module = private.find(private.GRADIENTS, "_GradientsHelper").__globals__
        original = module["_GradientsHelper"]

        @functools.wraps(original)
        def gradients(ys: Any, *args: Any, **kwargs: Any) -> Any:
            for target in tf.nest.flatten(ys):
                if tf.is_tensor(target) and not tf.executing_eagerly():
                    self._targets.setdefault(target.graph, []).append(target)
            return original(ys, *args, **kwargs)

        module["_GradientsHelper"] = gradients

    def within(self, run: Run, graph: Any, fed: Sequence[Any]) -> Any:
        """The loss that this run computes, or could without drawing more; None if there is none."""
        for target in self._targets.get(graph, ()):
            if target.shape.rank in (0, None) and graph.is_fetchable(target):
                alone = look_at([target], [], fed, {})
                if alone.is_fed and not alone.written and set(alone.sources) <= set(run.sources):
                    return target
        for tensor in run.fetches:
            if tensor.shape.rank == 0 and any(word in tensor.name.lower() for word in _WORDS):
                return tensor
        return None

    def with_loss(self, run: Run, fetches: Sequence[Any]) -> Sequence[Any]:
        """What to fetch."""
        wanted = run.loss if run.trains else None
        if wanted is None or any(tensor is wanted for tensor in fetches):
            return fetches
        return [*fetches, wanted]

    def of(self, run: Run, fetches: Sequence[Any], results: Sequence[Any]) -> Any:
        """The loss among the results."""
        for tensor, result in zip(fetches, results):
            if tensor is run.loss:
                return result
        return None
