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
        import tensorflow as tf

        if isinstance(value, tf.data.Iterator):
            raise pickle.PicklingError("the position of an iterator is not known")
        number = self._number(value)
        if number is not None:
            return ("known", number)
        if isinstance(value, tf.Variable):
            return ("variable", value.dtype.name, value.numpy(), value.trainable)
        if isinstance(value, tf.Tensor):
            return ("tensor", value.dtype.name, value.numpy())  # a symbolic one raises
        if is_made_again(value):
            raise pickle.PicklingError(f"a {type(value).__name__} made after the fit began")
        return None


class Unpickler(pickle.Unpickler):
    """Gives back what a Pickler was given, with the program's own `known` objects in it."""

    def __init__(self, stream: io.BytesIO, buffers: Iterable[Any], known: list[Any]) -> None:
        super().__init__(stream, buffers=buffers)
        self._known = known

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        import tensorflow as tf

        if pid[0] == "known":
            return self._known[pid[1]]
        if pid[0] == "variable":
            return tf.Variable(pid[2], dtype=pid[1], trainable=pid[3])
        return tf.constant(pid[2], dtype=pid[1])


def is_made_again(value: Any) -> bool:
    """Whether it belongs to the graph, or is code that has no name of its own."""
    import keras
    import tensorflow as tf

    if isinstance(value, types.FunctionType):
        return "<" in value.__qualname__
    if isinstance(value, (tf.Tensor, tf.DType, tf.TensorShape)):
        return False
    of_graph = (keras.Layer, keras.Optimizer, keras.Metric, keras.Loss, keras.Variable)
    others = (keras.KerasTensor, keras.random.SeedGenerator)
    is_frameworks = type(value).__module__.startswith("tensorflow.")
    return isinstance(value, (*of_graph, *others)) or is_frameworks


def variables_in(one: Any) -> list[Any]:
    """The TensorFlow variables of an object of the graph."""
    import keras
    import tensorflow as tf

    if isinstance(one, keras.Model):
        return state.variables_of(one, ())
    found = [one] if isinstance(one, (tf.Variable, keras.Variable)) else []
    if isinstance(one, (keras.Layer, keras.Optimizer, keras.Metric, tf.Module)):
        found = found or list(one.variables)
    elif isinstance(one, (keras.random.SeedGenerator, tf.random.Generator)):
        found = [one.state]
    return [v.value if isinstance(v, keras.Variable) else v for v in found]
