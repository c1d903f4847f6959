"""When a planned study can be expected to have results, going by the curves of an earlier one.

Its trials are drawn from completed trials of the earlier study, with their lengths, speeds and
costs. A forecast is as good as the two studies are alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hermesd.core.model import Phase, Time
from hermesd.refusal import FieldError, Refused
from hermesd.sim.contenders import Contender
from hermesd.sim.curves import Curves
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.exports import Exported, open_export
from hermesd.sim.figures import figures_of, steps_to_goal, time_of
from hermesd.sim.orders import SubmissionOrder, goal_of, good_jobs

# A draw of many more trials than a study may have, or very many draws, takes all memory or all day.
MOST_DRAWN = 1_000_000
# By itself, or by a rule that the study to come may have as well.
ENDED = frozenset({Phase.COMPLETED, Phase.STOPPED})


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds since the submission over all draws: the median, the least and the most."""

    median: Time
    least: Time
    most: Time


@dataclass(frozen=True, slots=True)
class Expected:
    """Under a policy: when the first good trial reaches the goal, when the lowest loss first is
    within 2 % of the lowest of all, when the best trial is fully trained, when all are done."""

    policy: str
    first_good: Span
    near_best: Span
    best: Span
    all_done: Span


@dataclass(frozen=True, slots=True)
class StudyForecast:
    """What to expect of trials on some devices."""

    #: The earlier one, from whose trials is drawn.
    study: str
    #: So many of its trials came to their end.
    trained: int
    trials: int
    devices: int
    #: How often was drawn.
    draws: int
    #: Usually so many of a draw are good.
    good: int
    policies: tuple[Expected, ...]


def forecast(
    path: Path, chosen: Sequence[Contender], devices: int, trials: int, draws: int
) -> StudyForecast:
    """The policies on draws of the earlier study that was exported to `path`.

    Raises:
        Refused: the file cannot be read, or is no export with trials that came to their end; or
            there are too many draws of so many trials.
        SimulationStalled: a policy failed.
    """
    if trials * draws > MOST_DRAWN:
        most = f"at most {MOST_DRAWN:,} trials in all draws together, not {trials * draws:,}"
        raise Refused(FieldError("draws", str(draws), most))
    exported = open_export(path)
    curves = ended(exported)
    if not curves.jobs:
        raise Refused(FieldError("curves", str(path), "at least one trial that came to its end"))
    orders = [drawn(curves, trials, number) for number in range(draws)]
    used = min(devices, trials)  # the others stand idle
    expected = []
    for each in chosen:
        ends = [(o, Drive(o, used, each.policy, each.placement).run()) for o in orders]
        figures = [figures_of(order, outcome) for order, outcome in ends]
        expected.append(
            Expected(
                each.label,
                first_good=_span([first_good(order, outcome) for order, outcome in ends]),
                near_best=_span([one.near_best for one in figures]),
                best=_span([one.time_to_best for one in figures]),
                all_done=_span([one.makespan for one in figures]),
            )
        )
    study = exported.study.id
    good = round(statistics.median(len(order.good) for order in orders))
    return StudyForecast(study, len(curves.jobs), trials, devices, draws, good, tuple(expected))


def ended(exported: Exported) -> Curves:
    """The trials that came to their end: how long others would have been nobody knows."""
    jobs = zip(exported.curves.jobs, exported.trials, strict=True)
    return replace(exported.curves, jobs=tuple(j for j, trial in jobs if trial.phase in ENDED))


def drawn(curves: Curves, trials: int, number: int) -> SubmissionOrder:
    """Draw `number`: so many of the jobs, each at most once while there are enough.

    What is good is decided among those drawn, as it will be in the study to come.
    """
    chance = np.random.default_rng(number)
    there = len(curves.jobs)
    chosen = chance.choice(there, trials, replace=trials > there).tolist()
    jobs = tuple(curves.jobs[place] for place in chosen)
    sample = Curves(curves.name, jobs, curves.switch)
    goal = goal_of(sample)
    return SubmissionOrder(jobs, tuple(good_jobs(sample, goal)), goal, curves.switch)


def first_good(order: SubmissionOrder, outcome: SimulatedOutcome) -> Time:
    """When the first of the good trials reaches the goal."""
    return min(time_of(outcome, place, step) for place, step in steps_to_goal(order).items())


def _span(seconds: Sequence[Time]) -> Span:
    return Span(statistics.median(seconds), min(seconds), max(seconds))
