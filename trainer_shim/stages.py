"""The values of hyper-parameters that change while a program trains: which are in force when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Stages"]


class Stages:
    """Stages in order, each a pair: until which step it lasts (None: to the end), its values."""

    def __init__(self, stages: Sequence[Sequence[Any]] = ()) -> None:
        self._stages = [(until, dict(values)) for until, values in stages]

    @property
    def names(self) -> list[str]:
        """What changes."""
        return list(self._stages[0][1]) if self._stages else []

    def at(self, step: int) -> Mapping[str, Any]:
        """The values of the iteration that comes after `step` of them."""
        return next((v for until, v in self._stages if until is None or step < until), {})

    def end(self, step: int) -> int | None:
        """Until which step those values are in force; None: to the end."""
        return next((until for until, _ in self._stages if until is None or step < until), None)
