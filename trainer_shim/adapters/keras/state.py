"""Copies a model's variables at a boundary, and restores them.

A copy shares no memory that training writes to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.keras.backend import here
from trainer_shim.saver import OtherProgram

State = dict[str, Any]


def variables_of(model: Any, extra: Iterable[Any]) -> list[Any]:
    """The variables of a model, its optimizer and metrics, then `extra`."""
    backend = here()
    listed = [*model.variables, *model.metrics_variables]
    if model.optimizer is not None:
        listed += model.optimizer.variables
    generator = _global_seed_generator()
    if generator is not None:
        listed.append(generator.state)
    unique: dict[Any, Any] = {}
    plain = [backend.plain(variable) for variable in [*listed, *backend.others(model)]]
    for variable in [*plain, *extra]:
        unique.setdefault(backend.key(variable), variable)
    return list(unique.values())


def _global_seed_generator() -> Any:
    lookup = private.find(private.GLOBAL_STATE, "get_global_attribute")
    return lookup(private.GLOBAL_SEED_GENERATOR)


def copy_variables(variables: Iterable[Any]) -> list[tuple[str, Any]]:
    """(dtype, values) of each; types that NumPy itself does not have are kept as bytes."""
    import numpy as np

    backend, copies = here(), []
    for variable in variables:
        _, dtype, _ = backend.described(variable)
        array = backend.values(variable)
        if array.dtype.isbuiltin != 1:
            array = np.frombuffer(array.tobytes(), np.uint8)
        copies.append((dtype.name, array))
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
    if len(variables) != len(copies):
        raise OtherProgram(f"it has {len(variables)} variables, the checkpoint {len(copies)}")
    backend = here()
    for variable, (then, array) in zip(variables, copies):
        name, dtype, shape = backend.described(variable)
        if dtype.name != then:
            raise OtherProgram(f"{name} is {dtype.name}, at the checkpoint it was {then}")
        if dtype.isbuiltin != 1:
            array = array.view(dtype).reshape(shape)
        if shape != array.shape:
            raise OtherProgram(f"{name} is {shape}, at the checkpoint it was {array.shape}")
        backend.assign(variable, array)


# The variables of Keras, on backends whose own variables or arrays it holds.


class KerasVariables:
    """They are known by Keras' own object."""

    def plain(self, variable: Any) -> Any:
        return variable

    def key(self, variable: Any) -> Any:
        return id(variable)

    def described(self, variable: Any) -> tuple[str, Any, tuple[int, ...]]:
        import ml_dtypes
        import numpy as np

        name = str(variable.dtype).rpartition(".")[2]
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        return getattr(variable, "name", "a tensor"), dtype, tuple(variable.shape)

    def values(self, value: Any) -> Any:
        import keras
        import numpy as np

        plain = value.value if isinstance(value, keras.Variable) else value
        return np.array(keras.ops.convert_to_numpy(plain))
