"""Recorded trainings as jobs: the losses that policies see and how long an iteration takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Scalar

Floats: TypeAlias = NDArray[np.float64]
Loss: TypeAlias = Literal["base", "total"]


@dataclass(frozen=True)
class Job:
    """One recorded training: `losses[i]` is what iteration i + 1 reported, all finite.

    `planned` is the length that the program announces; one that `diverges` reports a loss that is
    no number after its last finite one, and is stopped. `smoothing` is the number of iterations
    of the trailing mean that figures are read off; policies see the losses themselves.
    """

    losses: tuple[float, ...]
    step_seconds: float
    planned: int
    smoothing: int
    parameters: tuple[tuple[str, Scalar], ...] = ()

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def diverges(self) -> bool:
        return self.steps < self.planned

    @cached_property
    def smoothed(self) -> Floats:
        return smoothed(np.array(self.losses), self.smoothing)


@dataclass(frozen=True, slots=True)
class Curves:
    """A file of recorded trainings; `switch_seconds` is what it takes to suspend and resume one.

    `whole` if they are one study's own, to be run again as they are, not a stock to draw from.
    """

    name: str
    jobs: tuple[Job, ...]
    switch_seconds: float
    whole: bool = False


def smoothed(losses: Floats, window: int) -> Floats:
    """The mean of the last `window` losses at each iteration; of all so far before that many."""
    sums = np.concatenate(([0.0], np.cumsum(losses)))
    ends = np.arange(1, len(losses) + 1)
    starts = np.maximum(ends - window, 0)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def until_broken(losses: Floats) -> tuple[float, ...]:
    """The losses before the first that is no finite number."""
    broken = np.flatnonzero(~np.isfinite(losses))
    return tuple(losses[: broken[0] if len(broken) else len(losses)].tolist())
