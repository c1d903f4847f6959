"""A recorded training: the loss of every iteration and how long one takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recording:
    """One training; `losses[i]` is what iteration i + 1 reported."""

    losses: Sequence[float]
    step_seconds: float

    @property
    def steps(self) -> int:
        return len(self.losses)
