"""Keras on PyTorch: each step is Python code, and its variables are parameters, assigned in
place."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.keras import losses, private
from trainer_shim.adapters.keras.around import around
from trainer_shim.adapters.keras.backend import StepFunction
from trainer_shim.adapters.keras.iterated_data import Iterated
from trainer_shim.adapters.keras.state import KerasVariables

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import FitSession

_NAN = float("nan")


class _Torch(KerasVariables):
    traces_at_once = False
    needs_a_step = False

    def hook(self, session: FitSession) -> None:
        def make_train_function(original: Any, model: Any, force: bool = False) -> Any:
            before = model.train_function
            made = original(model, force)
            if model.train_function is not before:
                watch = _watch_compiled if model.jit_compile else _watch
                model.train_function = watch(model.train_function)
            return made

        around(private.trainer(), "make_train_function", make_train_function)

    def is_seeded(self) -> bool:
        import keras

        return keras.utils.get_random_seed() is not None

    def look_at(self, session: FitSession, model: Any) -> None:
        import torch

        if model.jit_compile:
            session.obstacle("jit_compile: what torch.compile makes of a step is not looked into")
        for kind in _own_kinds(model):
            session.doubt(f"what {kind} keeps in Python, outside of its variables, is not seen")
        if torch.cuda.is_available() and not torch.are_deterministic_algorithms_enabled():
            session.doubt("operations on a GPU may not be deterministic")

    def source(self, session: FitSession, number: int) -> Iterated:
        return Iterated(session)

    def settle(self, model: Any) -> None:
        """They always do."""

    # -- variables

    def others(self, model: Any) -> list[Any]:
        """Buffers and parameters of PyTorch modules among its layers."""
        listed = {id(one.value) for one in (*model.variables, *model.metrics_variables)}
        return [one for one in (*model.parameters(), *model.buffers()) if id(one) not in listed]

    def assign(self, variable: Any, array: Any) -> None:
        import keras
        import torch

        if isinstance(variable, keras.Variable):
            variable.assign(array)
        else:
            with torch.no_grad():
                variable.copy_(keras.ops.convert_to_tensor(array))

    # -- objects that callbacks keep

    def pickled(self, value: Any) -> tuple[Any, ...] | None:
        import torch

        if not isinstance(value, torch.Tensor):
            return None
        kept = {
            "dtype": str(value.dtype).rpartition(".")[2],
            "bytes": value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(),
            "shape": tuple(value.shape),
            "device": str(value.device),
            "requires_grad": value.requires_grad,
            "is_parameter": isinstance(value, torch.nn.Parameter),
        }
        return ("tensor", kept)

    def unpickled(self, pid: tuple[Any, ...]) -> Any:
        import torch

        kept = pid[1]
        values = torch.from_numpy(kept["bytes"].copy()).view(getattr(torch, kept["dtype"]))
        tensor = values.reshape(kept["shape"]).to(kept["device"])
        if kept["is_parameter"]:
            return torch.nn.Parameter(tensor, requires_grad=kept["requires_grad"])
        return tensor.requires_grad_(kept["requires_grad"])

    def is_made_again(self, value: Any) -> bool | None:
        import torch

        # Unlike other frameworks' its tensors change, and the script may hold them too.
        return True if isinstance(value, torch.Tensor) else None

    def variables_in(self, one: Any) -> list[Any]:
        import torch

        return [one] if isinstance(one, torch.Tensor) else []

    def is_constant(self, value: Any) -> bool:
        return False


def _watch(inner: Any) -> Any:
    """Keras' function over a batch, with the losses put aside."""
    import torch

    tensor = torch.Tensor
    watched = StepFunction("train")
    watched.compiled = inner

    def is_tensor(value: Any) -> Any:
        return value if isinstance(value, tensor) else None

    def unknown() -> Any:
        return _NAN

    def function(data: Any) -> Any:
        with losses.Capturing() as found:
            logs = inner(data)
        chosen = losses.choose(found, logs, is_tensor, unknown)
        watched.losses = {name: _scalar(value) for name, value in chosen.items()}
        watched.logs = logs
        return logs

    function.watched = watched  # type: ignore[attr-defined]
    return function


def _watch_compiled(inner: Any) -> Any:
    """As `_watch`, of a function that nobody can look into: the loss is its epoch's so far."""
    watched = StepFunction("train")
    watched.compiled = inner

    def function(data: Any) -> Any:
        watched.logs = logs = inner(data)
        watched.losses = {"loss": logs["loss"]} if isinstance(logs, dict) else {}
        return logs

    function.watched = watched  # type: ignore[attr-defined]
    return function


def _scalar(value: Any) -> Any:
    if value is _NAN:
        return value
    value = value.detach()  # whoever holds it does not hold what it was computed from
    return value if not value.dim() else value.mean()


def _own_kinds(model: Any) -> list[str]:
    """The classes and functions of its own that a program computes a step with."""
    import keras

    parts = [model, *model._flatten_layers(), *model.metrics, model.optimizer]
    kinds: set[Any] = {type(one) for one in parts}
    named = keras.tree.flatten([model.loss, [getattr(one, "_fn", None) for one in model.metrics]])
    kinds |= {one if inspect.isfunction(one) else type(one) for one in named}
    kinds = {one for one in kinds if one.__module__.partition(".")[0] not in ("keras", "builtins")}
    if any(isinstance(one, keras.layers.Lambda) for one in parts):
        kinds.add(keras.layers.Lambda)
    return sorted(one.__name__ for one in kinds)


BACKEND = _Torch()
