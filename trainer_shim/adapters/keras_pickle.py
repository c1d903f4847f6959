"""Pickles of what callbacks keep, and the objects of the graph that these name.

Rule: a tensor is pickled as its values; what the program makes again when it is run again (a
layer, a variable, a function without a name) is pickled as a number, and found by it again.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Iterable
from typing import Any, Callable

from trainer_shim.adapters import keras_state as state
from trainer_shim.adapters.keras_backend import here


class Pickler(pickle.Pickler):
    """Puts tensors as arrays, and by its number what `number` knows."""

    def __init__(
        self,
        stream: io.BytesIO,
        keep: Callable[[pickle.PickleBuffer], None],
        number: Callable[[Any], int | None],
    ) -> None:
        super().__init__(stream, protocol=5, buffer_callback=keep)
        self._number = number

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        number = self._number(value)
        if number is not None:
            return ("known", number)
        pickled = here().pickled(value)
        if pickled is not None:
            return pickled
        if is_made_again(value):
            raise pickle.PicklingError(f"a {type(value).__name__} made after the fit began")
        return None


class Unpickler(pickle.Unpickler):
    """Gives back what a Pickler was given, with the program's own `known` objects in it."""

    def __init__(self, stream: io.BytesIO, buffers: Iterable[Any], known: list[Any]) -> None:
        super().__init__(stream, buffers=buffers)
        self._known = known

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        return self._known[pid[1]] if pid[0] == "known" else here().unpickled(pid)


def is_made_again(value: Any) -> bool:
    """Whether it belongs to the graph, or is code that has no name of its own."""
    import keras

    if isinstance(value, types.FunctionType):
        return "<" in value.__qualname__
    of_framework = here().is_made_again(value)
    if of_framework is not None:
        return of_framework
    of_graph = (keras.Layer, keras.Optimizer, keras.Metric, keras.Loss, keras.Variable)
    others = (keras.KerasTensor, keras.random.SeedGenerator)
    return isinstance(value, (*of_graph, *others))


def variables_in(one: Any) -> list[Any]:
    """The variables of an object of the graph."""
    import keras

    backend = here()
    if isinstance(one, keras.Model):
        return state.variables_of(one, ())
    if isinstance(one, keras.Variable):
        found = [one]
    elif isinstance(one, (keras.Layer, keras.Optimizer, keras.Metric)):
        found = list(one.variables)
    elif isinstance(one, keras.random.SeedGenerator):
        found = [one.state]
    else:
        found = backend.variables_in(one)
    return [backend.plain(variable) for variable in found]
