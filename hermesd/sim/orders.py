"""Which jobs are good, and the random orders in which they are submitted.

Order r of bin b is a pure function of the file, b, r and the seed, and every policy gets the same
orders. When all trials are used, order 0 is the file's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from hermesd.refusal import FieldError, Refused
from hermesd.sim.curves import Curves, Job, Switch

# What makes a loss good: 90 % of the way from the start to the best, or 90 % of the best itself.
Good: TypeAlias = Literal["way", "optimum"]
WITHIN = 0.1
FEWEST_GOOD = 16
LARGEST_GOOD_SHARE, LOWERED_TO = 0.4, 0.25
# The share of good trials in each type of bin; ALL takes every trial of the file.
GOOD_IN_BIN: Mapping[int, float] = MappingProxyType({1: 4 / 16, 2: 12 / 16})
ALL = 0
BINS: Mapping[str, int] = MappingProxyType({"1": 1, "2": 2, "all": ALL})
SEED_STRIDE = 1_000_000


@dataclass(frozen=True, slots=True)
class LossGoal:
    """The loss that makes a trial good, the usual loss at the start and the lowest of all."""

    theta: float
    start: float
    best: float


@dataclass(frozen=True, slots=True)
class SubmissionOrder:
    """Jobs in order of submission."""

    jobs: tuple[Job, ...]
    #: The positions of those that reach the goal.
    good: tuple[int, ...]
    goal: LossGoal
    switch: Switch


def goal_of(curves: Curves, good: Good = "way") -> LossGoal:
    """Within 10 % of (start - best) above the best smoothed loss of the whole file.

    Or at least 90 % of the optimum, as the Hermes paper's words can be read: `best / 0.9`. Raised
    until 16 trials are good; lowered to the 25 % quantile if more than 40 % are.
    """
    lows = np.sort([job.smoothed.min() for job in curves.jobs])
    start = float(np.median([job.losses[0] for job in curves.jobs]))
    best = float(lows[0])
    if good == "way":
        wanted = best + WITHIN * (start - best)
    else:
        # A signal that was maximized is below zero here.
        wanted = best / (1 - WITHIN) if best > 0 else best * (1 - WITHIN)
    theta = max(wanted, float(lows[min(FEWEST_GOOD, len(lows)) - 1]))
    if (lows <= theta).mean() > LARGEST_GOOD_SHARE:
        theta = float(np.quantile(lows, LOWERED_TO))
    return LossGoal(theta, start, best)


def good_jobs(curves: Curves, goal: LossGoal) -> list[int]:
    """The numbers of the jobs that reach the goal."""
    return [i for i, job in enumerate(curves.jobs) if job.smoothed.min() <= goal.theta]


def draw(
    curves: Curves, goal: LossGoal, bin_type: int, trials: int, number: int, seed: int
) -> SubmissionOrder:
    """Order `number` of a bin: so many good jobs, the rest of the others, shuffled.

    Raises:
        Refused: the file has too few jobs of either sort.
    """
    good = good_jobs(curves, goal)
    chance = np.random.default_rng(SEED_STRIDE * seed + 1_000 * bin_type + number)
    if bin_type == ALL:
        chosen = np.arange(len(curves.jobs))
        if number:
            chance.shuffle(chosen)
    else:
        others = sorted(set(range(len(curves.jobs))) - set(good))
        wanted = round(GOOD_IN_BIN[bin_type] * trials)
        if len(good) < wanted or len(others) < trials - wanted or not wanted:
            raise _too_few(curves, bin_type, trials, wanted, len(good), len(others))
        chosen = np.concatenate(
            (
                chance.choice(good, wanted, replace=False),
                chance.choice(others, trials - wanted, replace=False),
            )
        )
        chance.shuffle(chosen)
    reaching = set(good)
    return SubmissionOrder(
        tuple(curves.jobs[each] for each in chosen.tolist()),
        tuple(place for place, each in enumerate(chosen.tolist()) if each in reaching),
        goal,
        curves.switch,
    )


def _too_few(
    curves: Curves, bin_type: int, trials: int, wanted: int, good: int, others: int
) -> Refused:
    """What the bin takes, what there is, and the number nearest to `trials` that would do."""
    fitting = [
        count
        for count in range(1, good + others + 1)
        if 0 < (taken := round(GOOD_IN_BIN[bin_type] * count)) <= good and count - taken <= others
    ]
    near = min(fitting, key=lambda count: abs(count - trials), default=None)
    instead = "--bin all" if near is None else f"--trials {near}, or --bin all"
    return Refused(
        FieldError(
            "curves",
            curves.name,
            f"{trials} trials for bin {bin_type}, {wanted} good and {trials - wanted} not; it has"
            f" {good + others}, {good} and {others}: give {instead}",
        )
    )
