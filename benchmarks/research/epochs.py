"""What searchers of others are told of recorded trainings: losses by epoch, and settings by their
range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hermesd.sim.curves import Floats, Job

EPOCHS = 50
# A parameter whose largest value is so many times its smallest is searched by its logarithm.
BY_LOGARITHM = 100


class Range(NamedTuple):
    """Where a parameter's values lie, all of them numbers."""

    low: float
    high: float

    @property
    def by_logarithm(self) -> bool:
        return 0 < self.low * BY_LOGARITHM < self.high

    def share(self, value: float) -> float:
        """How far up the range a value lies, 0 to 1."""
        ends = self.low, value, self.high
        low, at, high = map(math.log, ends) if self.by_logarithm else ends
        return (at - low) / (high - low) if high > low else 0.0


def ends_of_epochs(job: Job) -> list[int]:
    """The steps that a job has done after 0, 1, ... epochs."""
    return [round(job.steps * epoch / EPOCHS) for epoch in range(EPOCHS + 1)]


def ranges_of(jobs: Sequence[Job]) -> dict[str, Range]:
    """The ranges that the jobs' parameters were drawn from."""
    values = [numbers(job) for job in jobs]
    return {
        name: Range(min(each[name] for each in values), max(each[name] for each in values))
        for name in values[0]
    }


def numbers(job: Job) -> dict[str, float]:
    """A job's parameters that are numbers."""
    return {name: each for name, each in job.parameters if isinstance(each, int | float)}


def shares_of(ranges: dict[str, Range], jobs: Sequence[Job]) -> Floats:
    """The jobs' settings as shares of their ranges, a row for each job."""
    rows = [[ranges[name].share(each) for name, each in numbers(job).items()] for job in jobs]
    return np.array(rows)
