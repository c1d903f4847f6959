"""The values of hyper-parameters that change while a program trains: which are in force when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Stages"]


class Stages:
    """Stages in order: until which step each lasts (None: to the end), its values, and whether a
    checkpoint is written as it ends, from which other trials go on."""

    def __init__(self, stages: Sequence[Sequence[Any]] = ()) -> None:
        self._stages = [(until, dict(values)) for until, values, *_ in stages]
        self._forks = {until for until, _, *forks in stages if any(forks)}

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

    def forks(self, step: int) -> bool:
        """Whether other trials go on from where so many steps are done."""
        return step in self._forks
