"""Keras on JAX: a step is a compiled function from a state to the next one.

During an epoch the trainer has the state, not the variables. It is put into them before a copy,
without waiting for a device, and the next step takes it from there again. A step's loss is the one
that the gradient is taken of, penalties included: when the other loss was returned too, the last
bit of Keras' own mean changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.keras import losses, private
from trainer_shim.adapters.keras.around import around
from trainer_shim.adapters.keras.backend import StepFunction
from trainer_shim.adapters.keras.iterated_data import Iterated
from trainer_shim.adapters.keras.state import KerasVariables

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import FitSession

_NAN = float("nan")


class _Jax(KerasVariables):
    traces_at_once = False
    needs_a_step = True  # it looks at the logs of an epoch that has no step left

    def hook(self, session: FitSession) -> None:
        trainer = private.trainer()
        around(trainer, "make_train_function", _make_train_function)
        around(trainer, "_update_metrics_variables", _update_metrics_variables)

    def is_seeded(self) -> bool:
        import keras

        return keras.utils.get_random_seed() is not None

    def look_at(self, session: FitSession, model: Any) -> None:
        import jax
        import keras

        if private.find(private.TRAINER.format("jax"), "is_nnx_enabled")():
            session.obstacle("variables of Flax NNX hold what is not seen")
        if keras.distribution.distribution() is not None:
            session.obstacle("training under a keras.distribution")
        if not model.jit_compile and not model.run_eagerly:
            session.obstacle("jit_compile=False: what a step keeps in Python is not seen")
        if jax.default_backend() != "cpu":
            session.doubt("operations on a GPU may not be deterministic")

    def source(self, session: FitSession, number: int) -> Iterated:
        return Iterated(session)

    def settle(self, model: Any) -> None:
        model.jax_state_sync()

    # -- variables

    def others(self, model: Any) -> list[Any]:
        return []

    def assign(self, variable: Any, array: Any) -> None:
        import jax

        # A step may overwrite what it is given: it must be nobody else's.
        variable.assign(jax.numpy.array(array, copy=True))

    # -- objects that callbacks keep

    def pickled(self, value: Any) -> tuple[Any, ...] | None:
        import jax
        import numpy as np

        if not isinstance(value, jax.Array) or jax.dtypes.issubdtype(
            value.dtype, jax.dtypes.extended
        ):
            return None
        array = np.asarray(value)
        return ("tensor", array.dtype.name, array.shape, np.frombuffer(array.tobytes(), np.uint8))

    def unpickled(self, pid: tuple[Any, ...]) -> Any:
        import jax

        _, dtype, shape, content = pid
        array = content.view(jax.numpy.dtype(dtype)).reshape(shape)
        return jax.numpy.array(array, copy=True)

    def is_made_again(self, value: Any) -> bool | None:
        return None

    def variables_in(self, one: Any) -> list[Any]:
        return []

    def is_constant(self, value: Any) -> bool:
        import jax

        return isinstance(value, jax.Array)


def _make_train_function(original: Any, model: Any, force: bool = False) -> None:
    """Keras' function over an iterator, with one more outcome of each step: its loss."""
    before, step = model.train_function, model.train_step
    watched = StepFunction("train")

    def train_step(state: Any, data: Any) -> Any:
        with losses.Capturing() as found:
            logs, state = step(state, data)
        told = {"total": found["out"]} if "out" in found else found
        return (logs, losses.choose(told, logs, _Reach(data).scalar, lambda: _NAN)), state

    has_own = "train_step" in vars(model)
    vars(model)["train_step"] = train_step
    try:
        original(model, force)
    finally:
        del vars(model)["train_step"]
        if has_own:
            vars(model)["train_step"] = step
    inner = model.train_function
    if inner is before:
        return
    watched.compiled = inner

    def function(state: Any, iterator: Any) -> Any:
        if watched.past_logs is not None:
            logs, watched.past_logs = watched.past_logs, None
            return logs, state
        (logs, watched.losses), state = inner(state, iterator)
        watched.logs = logs
        return logs, state

    function.watched = watched  # type: ignore[attr-defined]
    model.train_function = function


class _Reach:
    """What is known where a step returns: what was made inside of a gradient or a loop is not."""

    def __init__(self, data: Any) -> None:
        import jax

        self._traces = {id(_trace(one)) for one in jax.tree_util.tree_leaves(data)} | {id(None)}

    def scalar(self, value: Any) -> Any:
        import jax

        if not isinstance(value, jax.Array) or id(_trace(value)) not in self._traces:
            return None
        return value if not value.ndim else jax.numpy.mean(value)


def _trace(value: Any) -> Any:
    return getattr(value, "_trace", None)


def _update_metrics_variables(
    original: Any, model: Any, metrics: Any, loss: Any, *args: Any, **kwargs: Any
) -> Any:
    found = losses.under_way()
    if found is not None:
        found["out"] = loss
    return original(model, metrics, loss, *args, **kwargs)


BACKEND = _Jax()
