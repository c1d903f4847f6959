"""The outcome of an order as figures, in seconds: less is better.

A figure is computed from the smoothed losses and the stays alone; `bound` computes the same figures
for a scheduler that knows the future.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hermesd.core.model import Time
from hermesd.sim.curves import Floats, Job, elapsed
from hermesd.sim.drive import SimulatedOutcome
from hermesd.sim.orders import SubmissionOrder

TOP = 4
NEAR = 0.02


@dataclass(frozen=True, slots=True)
class Figures:
    """One order's figures, in seconds."""

    #: Mean over the good trials of the time at which each reaches the goal.
    time_to_good: float
    #: When the trial that ends with the lowest loss of all is fully trained.
    time_to_best: float
    #: As `time_to_good`, over the four good trials that end with the lowest loss.
    top4: float
    #: For how long the lowest loss so far stood above the lowest of all, weighted by how far, the
    #: usual start being 1.
    auc: float
    #: When it first stood less than 2 % above, which trials of equal merit do not blur.
    near_best: float
    makespan: float
    #: Mean time at which a trial is finished.
    jct: float


@dataclass(frozen=True, slots=True)
class Effort:
    """What an order took of the scheduler: suspends, their share of all device time, decisions."""

    switches: int
    overhead: float
    decisions: int
    decision_seconds: float


def steps_to_goal(order: SubmissionOrder) -> dict[int, int]:
    """The iteration at which each good trial reaches the goal."""
    return {
        place: int(np.argmax(order.jobs[place].smoothed <= order.goal.theta)) + 1
        for place in order.good
    }


def final_loss(job: Job) -> float:
    """The smoothed loss that a job ends with; infinite for one that diverges."""
    return float("inf") if job.diverges else float(job.smoothed[-1])


def best_place(order: SubmissionOrder) -> int:
    """The trial that ends with the lowest loss."""
    return min(range(len(order.jobs)), key=lambda place: (final_loss(order.jobs[place]), place))


def top_places(order: SubmissionOrder) -> list[int]:
    """The good trials that end with the lowest losses, four at most."""
    return sorted(order.good, key=lambda place: (final_loss(order.jobs[place]), place))[:TOP]


def figures_of(order: SubmissionOrder, outcome: SimulatedOutcome) -> Figures:
    """The figures of a simulated order."""
    reached = {place: time_of(outcome, place, step) for place, step in steps_to_goal(order).items()}
    curve = incumbent(order, outcome)
    return Figures(
        time_to_good=float(np.mean(list(reached.values()))),
        time_to_best=outcome.finished[best_place(order)],
        top4=float(np.mean([reached[place] for place in top_places(order)])),
        auc=area(order, *curve),
        near_best=first_near(order, *curve),
        makespan=max(outcome.finished),
        jct=float(np.mean(outcome.finished)),
    )


def effort_of(outcome: SimulatedOutcome) -> Effort:
    """What the order took of the scheduler."""
    held = sum(stay.freed - stay.taken for stay in outcome.stays)
    return Effort(
        outcome.switches,
        outcome.overhead_seconds / held,
        outcome.decisions,
        outcome.decision_seconds,
    )


def time_of(outcome: SimulatedOutcome, trial: int, step: int) -> Time:
    """When a trial's step was done."""
    for stay in outcome.stays:
        if stay.trial == trial and stay.first < step <= stay.last:
            return stay.time_of(step)
    raise ValueError(f"trial {trial} never did step {step}")


def incumbent(order: SubmissionOrder, outcome: SimulatedOutcome) -> tuple[Floats, Floats]:
    """The times at which smoothed losses were seen, and the lowest of all up to each."""
    times = [
        stay.begun
        + elapsed(
            stay.first,
            np.arange(stay.first + 1.0, stay.last + 1),
            stay.step_seconds,
            stay.passes,
        )
        for stay in outcome.stays
    ]
    losses = [order.jobs[stay.trial].smoothed[stay.first : stay.last] for stay in outcome.stays]
    return lowest_so_far(np.concatenate(times), np.concatenate(losses))


def lowest_so_far(times: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Both by time, each loss replaced by the lowest up to then."""
    by_time = np.argsort(times, kind="stable")
    return times[by_time], np.minimum.accumulate(losses[by_time])


def gaps(order: SubmissionOrder, lowest: Floats) -> Floats:
    """How far an incumbent stands above the lowest loss of all; the usual start is 1."""
    floor = min(float(job.smoothed.min()) for job in order.jobs)
    span = max(order.goal.start - floor, np.finfo(float).tiny)
    above: Floats = np.clip(lowest - floor, 0.0, span) / span
    return above


def area(order: SubmissionOrder, times: Floats, lowest: Floats) -> float:
    """The area under an incumbent curve, in seconds; it ends when the lowest loss is found."""
    before = np.concatenate(([1.0], gaps(order, lowest)[:-1]))
    return float(np.sum(np.diff(times, prepend=0.0) * before))


def first_near(order: SubmissionOrder, times: Floats, lowest: Floats) -> Time:
    """When an incumbent curve first is within 2 % of the lowest loss of all."""
    return float(times[np.argmax(gaps(order, lowest) <= NEAR)])


def gaps_at(order: SubmissionOrder, outcome: SimulatedOutcome, at: Floats) -> Floats:
    """How far the incumbent stands above the lowest loss of all, at these times."""
    times, lowest = incumbent(order, outcome)
    known = np.concatenate(([1.0], gaps(order, lowest)))
    sampled: Floats = known[np.searchsorted(times, at, side="right")]
    return sampled
