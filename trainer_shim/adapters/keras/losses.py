"""Each step's own loss, kept aside while Keras computes it.

It is the very tensor that Keras differentiates, so rounding is not changed.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from trainer_shim.adapters.keras import private

_found: dict[str, Any] | None = None


def hook_losses() -> None:
    """Have the losses put aside while a step is traced (or run eagerly)."""
    _after(private.find(private.COMPILE, "CompileLoss"), "__call__", _saw_data_loss)
    _after(private.find(private.BASE_TRAINER, "Trainer"), "compute_loss", _saw_total)
    _after(private.find(private.BASE_TRAINER, "Trainer"), "_compute_loss", _saw_total)
    _after(private.find(private.REDUCTIONS, "Mean"), "update_state", _saw_mean)


def _after(owner: Any, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if _found is not None:
            note(_found, self, result, *args, **kwargs)
        return result

    setattr(owner, name, wrapper)


def _saw_data_loss(found: dict[str, Any], _: Any, result: Any, *__: Any, **___: Any) -> None:
    found["data"] = result


def _saw_total(found: dict[str, Any], _: Any, result: Any, *__: Any, **___: Any) -> None:
    found["total"] = result


def _saw_mean(found: dict[str, Any], mean: Any, _: Any, values: Any, *__: Any, **___: Any) -> None:
    if mean.name == "loss":
        found["mean"] = values


class Capturing:
    """What is found of the losses of one step, by the time it is done: not of one within it."""

    __slots__ = ("_before",)

    def __enter__(self) -> dict[str, Any]:
        global _found
        found: dict[str, Any] = {}
        self._before, _found = _found, found
        return found

    def __exit__(self, *_: object) -> None:
        global _found
        _found = self._before


def under_way() -> dict[str, Any] | None:
    """What was found by now of the step under way; None if there is none."""
    return _found


def choose(
    found: dict[str, Any], logs: Any, scalar: Callable[[Any], Any], unknown: Callable[[], Any]
) -> dict[str, Any]:
    """The step's loss without penalties, and where there are penalties the total too.

    `scalar` is what can be told of a value, or None; `unknown` makes one that is not known.
    """
    data, total = scalar(found.get("data")), scalar(found.get("total"))
    loss = data if data is not None else total
    if loss is None:
        loss = scalar(found.get("mean"))
    if loss is None and isinstance(logs, dict):
        loss = scalar(logs.get("loss"))
    if loss is None:
        loss = unknown()
    if total is None or data is None or found["total"] is found["data"]:
        return {"loss": loss}
    return {"loss": loss, "total_loss": total}
