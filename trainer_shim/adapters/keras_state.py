"""Copies a model's and the process' state out at a boundary, and puts it back.

Rule: a copy shares no memory that training writes to. Variables are copied, everything of
Python's is pickled on the spot.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from trainer_shim.adapters import keras_private as private
from trainer_shim.adapters import seeds

State = dict[str, Any]


class OtherProgram(Exception):
    """Run again, the program made something else than it did before the checkpoint."""


# -- variables -----------------------------------------------------------------------------------


def variables_of(model: Any, extra: Iterable[Any]) -> list[Any]:
    """The TensorFlow variables behind a model, its optimizer and metrics, then `extra`."""
    import keras

    listed = [*model.variables, *model.metrics_variables]
    if model.optimizer is not None:
        listed += model.optimizer.variables
    generator = _global_seed_generator()
    if generator is not None:
        listed.append(generator.state)
    unique: dict[Any, Any] = {}
    plain = [one.value if isinstance(one, keras.Variable) else one for one in listed]
    for variable in [*plain, *extra]:
        unique.setdefault(variable.ref(), variable)
    return list(unique.values())


def _global_seed_generator() -> Any:
    name = private.find(private.SEED_GENERATOR, "GLOBAL_SEED_GENERATOR")
    return private.find(private.GLOBAL_STATE, "get_global_attribute")(name)


def copy_variables(variables: Iterable[Any]) -> list[tuple[str, Any]]:
    """(dtype, values) of each; types that only TensorFlow has are kept as bytes."""
    import numpy as np

    copies = []
    for variable in variables:
        array = np.asarray(variable.numpy())
        if array.dtype.isbuiltin != 1:
            array = np.frombuffer(array.tobytes(), np.uint8)
        copies.append((variable.dtype.name, array))
    return copies


def share_arrays(copies: list[tuple[str, Any]], others: list[tuple[str, Any]]) -> None:
    """Where a copy in `copies` has the bytes of its like in `others`, keep that one in its place:
    a checkpoint of both then holds it once."""
    for at, ((dtype, array), (other_dtype, other)) in enumerate(zip(copies, others)):
        alike = (dtype, array.shape) == (other_dtype, other.shape)
        if alike and array.tobytes() == other.tobytes():
            copies[at] = (dtype, other)


def set_variables(variables: list[Any], copies: list[tuple[str, Any]]) -> None:
    """Assign what `copy_variables` copied. Raises OtherProgram when they do not fit."""
    import numpy as np
    import tensorflow as tf

    if len(variables) != len(copies):
        raise OtherProgram(f"{len(variables)} variables, the checkpoint has {len(copies)}")
    for variable, (dtype, array) in zip(variables, copies):
        if array.dtype.isbuiltin == 1 and variable.dtype.name != dtype:
            raise OtherProgram(f"{variable.name} is {variable.dtype.name}, expected {dtype}")
        if np.dtype(variable.dtype.as_numpy_dtype).isbuiltin != 1:
            array = array.view(variable.dtype.as_numpy_dtype).reshape(variable.shape)
        if tuple(variable.shape) != array.shape:
            shapes = f"{tuple(variable.shape)}, expected {array.shape}"
            raise OtherProgram(f"{variable.name} has shape {shapes}")
        variable.assign(tf.constant(array, dtype=variable.dtype))


# -- random numbers ------------------------------------------------------------------------------


def copy_random() -> State:
    """The generators of Python, NumPy and TensorFlow's eager operations."""
    import numpy as np

    context = private.find(private.CONTEXT, "context")()
    own = getattr(context, "_rng", None)
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "tensorflow": None if own is None else own.getstate(),
        "made": seeds.counters(),
    }


def same_random(one: State, other: State) -> bool:
    """Whether Python's and NumPy's are the same in both."""
    import numpy as np

    pairs = zip(one["numpy"], other["numpy"])
    same = all(np.array_equal(this, that) for this, that in pairs)
    return same and one["python"] == other["python"]


def set_random(state: State, is_read_on: bool = False) -> None:
    """Put them back; not Python's and NumPy's where data that are `read on` draw from those."""
    import numpy as np

    if not is_read_on:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
    seeds.set_counters(state["made"])
    if state["tensorflow"] is not None:
        private.find(private.CONTEXT, "context")()._rng.setstate(state["tensorflow"])
