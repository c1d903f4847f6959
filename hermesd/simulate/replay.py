"""An exported study under other policies, against what really happened.

Rule: of what trials would have shown beyond their recorded end nothing is made up. Losses are
the smoothed signal, as everywhere in the figures; lower is better until they are told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.core.model import Goal, Phase, Time
from hermesd.core.policy import BadSetting
from hermesd.policy import POLICIES, make_policy
from hermesd.simulate.bound import bound_of, check
from hermesd.simulate.contenders import Contender
from hermesd.simulate.drive import Drive, Outcome, Stalled
from hermesd.simulate.exports import Exported, open_export
from hermesd.simulate.figures import Figures, best_place, figures_of, final_loss
from hermesd.simulate.giving_up import Course, courses
from hermesd.simulate.orders import ALL, Order, draw, goal_of
from hermesd.simulate.past import away_seconds, decided_by, devices_of, happened
from hermesd.spelling import label_of


@dataclass(frozen=True, slots=True)
class Told:
    """One trial under a policy that ends whom it holds back.

    `held_back` if it would have been ended at `step` of `steps`, `seconds` after the submission,
    with `loss`. `rank` is its place among all by `final_loss`, from 1; both are values of the
    study's signal, None where it was no number.
    """

    trial: str
    held_back: bool
    step: int
    steps: int
    seconds: Time
    words: str
    loss: float | None
    final_loss: float | None
    rank: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What would have come of it, had the policy ended the trials that it holds back.

    `pick` is the trial that then stands first by the losses seen; `regret` how much worse its
    final loss is than the best, `regret_share` the same as a share of the way from where trials
    usually start to the best. None if the pick ends without a loss.
    """

    held_back: int
    best_held_back: bool
    pick: str
    regret: float | None
    regret_share: float | None
    seconds: Time
    iterations: int
    trials: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A policy's figures in seconds, with nothing given up, and what giving up would mean."""

    policy: str
    figures: Figures
    switches: int
    given_up: GivenUp


@dataclass(frozen=True, slots=True)
class Happened:
    """What really happened.

    `simulated` are the figures of the study's `own` policy in virtual time; `error` is the median
    over the trials of how far these put the end of a trial off its real one. None where that
    policy cannot be simulated: `unsimulated` says why. `policy` is `own`, and what decided in its
    place if it failed. In so many `away_seconds`, of all devices together, one was not the study's
    though a trial of it waited; simulations have every device all of the time.
    """

    policy: str
    figures: Figures
    switches: int
    simulated: Figures | None
    error: float | None
    own: str
    unsimulated: str = ""
    simulated_switches: int | None = None
    away_seconds: Time = 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """A study under other policies. `partly` of its `trials` were trained, but not to their end;
    `untrained` others have shown no loss and are left out.

    `best` ends with the best value of the signal of those that were trained; so many are `good`:
    they come to `good_loss`. It ran on `devices_had`, and is simulated on `devices`.
    """

    study: str
    signal: str
    devices: int
    trials: int
    iterations: int
    partly: int
    untrained: int
    best: str
    best_loss: float
    good: int
    good_loss: float
    happened: Happened
    policies: tuple[Replayed, ...]
    devices_had: int


def replay(path: Path, chosen: Sequence[Contender], devices: int | None) -> Replay:
    """The study of an export under each policy, on as many devices as it had unless told.

    Raises:
        Refused: the file cannot be read, or is no export with trained trials.
        Stalled: a policy failed.
        Beaten: the simulator is wrong.
    """
    exported = open_export(path)
    curves = exported.curves
    order = draw(curves, goal_of(curves), ALL, len(curves.jobs), 0, 0)
    devices = devices or devices_of(exported)
    used = min(devices, len(order.jobs))  # the others stand idle
    best = best_place(order)
    return Replay(
        study=exported.study.id,
        signal=exported.study.signal,
        devices=devices,
        trials=len(exported.trials),
        iterations=sum(job.steps for job in order.jobs),
        partly=sum(trial.phase is not Phase.COMPLETED for trial in exported.trials),
        untrained=exported.untrained,
        best=exported.trials[best].id,
        best_loss=_sign(exported) * float(order.jobs[best].smoothed[-1]),
        good=len(order.good),
        good_loss=_sign(exported) * order.goal.theta,
        happened=_happened(exported, order),
        policies=tuple(_replayed(exported, order, used, each) for each in chosen),
        devices_had=devices_of(exported),
    )


def _sign(exported: Exported) -> float:
    return -1.0 if exported.study.signal_goal is Goal.MAXIMIZE else 1.0


def _happened(exported: Exported, order: Order) -> Happened:
    real, study = happened(exported), exported.study
    own = Contender(label_of(study.policy, study.placement), study.policy, study.placement)
    simulated, switches, error, why = None, None, None, ""
    try:
        make_policy(own.policy)
        again, simulated = _simulated(order, devices_of(exported), own)
    except BadSetting as bad:
        known = study.policy.name in POLICIES
        why = f"policy {own.label}: {bad}" if known else f"policy {own.label} is not installed here"
    except Stalled as stalled:
        why = str(stalled)
    else:
        switches = again.switches
        error = statistics.median(
            abs(ours / theirs - 1)
            for ours, theirs in zip(again.finished, real.finished, strict=True)
            if theirs > 0
        )
    figures = figures_of(order, real)
    return Happened(
        decided_by(exported),
        figures,
        real.switches,
        simulated,
        error,
        own.label,
        why,
        switches,
        away_seconds(exported),
    )


def _simulated(order: Order, devices: int, contender: Contender) -> tuple[Outcome, Figures]:
    outcome = Drive(order, devices, contender.policy, contender.placement).run()
    figures = figures_of(order, outcome)
    check(figures, bound_of(order, devices), contender.label)
    return outcome, figures


def _replayed(exported: Exported, order: Order, devices: int, each: Contender) -> Replayed:
    outcome, figures = _simulated(order, devices, each)
    up = exported.study.signal_goal is Goal.MAXIMIZE
    ended = courses(order, devices, each.policy, each.placement, up)
    given = _given_up(exported, order, ended)
    return Replayed(each.label, figures, outcome.switches, given)


def _given_up(exported: Exported, order: Order, courses: Sequence[Course]) -> GivenUp:
    finals = [final_loss(job) for job in order.jobs]
    ranked = sorted(range(len(finals)), key=lambda place: (finals[place], place))
    shown = [
        final if course.finished else _shown(order, place, course.step)
        for place, (course, final) in enumerate(zip(courses, finals, strict=True))
    ]
    best = ranked[0]
    pick = min(range(len(shown)), key=lambda place: (shown[place], place))
    regret, span = finals[pick] - finals[best], order.goal.start - finals[best]
    sign = _sign(exported)
    told = [
        Told(
            trial=exported.trials[place].id,
            held_back=not course.finished,
            step=course.step,
            steps=order.jobs[place].steps,
            seconds=course.at,
            words=course.words,
            loss=_known(sign * shown[place]),
            final_loss=_known(sign * finals[place]),
            rank=ranked.index(place) + 1,
        )
        for place, course in enumerate(courses)
    ]
    return GivenUp(
        held_back=sum(not course.finished for course in courses),
        best_held_back=not courses[best].finished,
        pick=exported.trials[pick].id,
        regret=_known(regret),
        regret_share=_known(regret / span) if span > 0 else None,
        seconds=max(course.at for course in courses),
        iterations=sum(course.step for course in courses),
        trials=tuple(told),
    )


def _shown(order: Order, place: int, step: int) -> float:
    """The loss that a trial has shown by a step; infinite before its first."""
    return float(order.jobs[place].smoothed[step - 1]) if step else math.inf


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
