"""An exported study under other policies, compared with what really happened.

Nothing is made up about what trials would have shown after their recorded end. Losses are the
smoothed signal, as in all figures; lower is better until they are printed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from hermesd.config.policy_line import label_of
from hermesd.core.commands import Launch
from hermesd.core.events import (
    PolicyFailed,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Goal, Phase, Plugin, Time, TrialId
from hermesd.core.policy import BadSetting, Claim, Planning, Policy, View
from hermesd.core.trial import Trial
from hermesd.policy import POLICIES, make_policy
from hermesd.record import Entry
from hermesd.sim.bound import bound_of, check
from hermesd.sim.contenders import FIFO, Contender
from hermesd.sim.drive import Drive, SimulatedOutcome, SimulationStalled
from hermesd.sim.exports import Exported, open_export
from hermesd.sim.figures import Figures, best_place, figures_of, final_loss
from hermesd.sim.orders import ALL, SubmissionOrder, draw, goal_of
from hermesd.sim.stay import RecordedStay

# What really became of an exported study, told as a simulation tells what would have.
#
# Only the journal's own times count. Between two reports of a run its iterations are taken
# to be evenly spread.


def devices_of(exported: Exported) -> int:
    """How many devices the study's trials were launched on; 1 if no launch is in the export."""
    launches = [entry for _, entry in exported.entries if isinstance(entry, Launch)]
    return len({device for launch in launches for device in launch.devices}) or 1


def decided_by(exported: Exported) -> str:
    """The study's own policy with its settings, and what went on in its place if it failed."""
    own = label_of(exported.study.policy, exported.study.placement)
    failed = any(isinstance(entry, PolicyFailed) for _, entry in exported.entries)
    return f"{own}, then {FIFO.label}" if failed else own


def away_seconds(exported: Exported) -> Time:
    """Seconds, over all its devices, in which one was not the study's though a trial waited.

    They were with other studies then, away or held back, or the trial was: what a simulation in
    which the study has its devices to itself knows nothing of.
    """
    devices, at, away = devices_of(exported), exported.study.submitted, 0.0
    going = {trial.id for trial in exported.trials}
    holding: set[TrialId] = set()
    ends = [(each.finished, each.id) for each in exported.trials if each.finished is not None]
    timeline: list[tuple[Time, Entry | TrialId]] = [*exported.entries, *ends]
    for now, what in sorted(timeline, key=lambda each: each[0]):
        free, waiting = devices - len(holding), len(going - holding)
        away += max(0.0, now - at) * max(0, min(free, waiting))
        at = max(at, now)
        match what:
            case Launch(run):
                holding.add(run.trial)
            case RunSuspended(run) | RunCompleted(run) | RunFailed(run):
                holding.discard(run.trial)
            case str():
                going.discard(what)
                holding.discard(what)
            case _:
                pass
    return away


def happened(exported: Exported) -> SimulatedOutcome:
    """The study as it ran, in seconds since its submission; a trial going on ends at its last
    report. Of iterations that were trained twice the first time counts."""
    origin = exported.study.submitted
    places = {trial.id: place for place, trial in enumerate(exported.trials)}
    histories = [_History(place, job.steps) for place, job in enumerate(exported.curves.jobs)]
    for at, entry in exported.entries:
        match entry:
            case RunStarted(run, step) if run.trial in places:
                histories[places[run.trial]].began(at - origin, step)
            case Reported(run, step) | RunCompleted(run, step) if run.trial in places:
                histories[places[run.trial]].reached(at - origin, step)
    finished = []
    for trial, history in zip(exported.trials, histories, strict=True):
        history.close()
        over = trial.finished if trial.phase.final else None
        finished.append(history.last if over is None else over - origin)
    return SimulatedOutcome(
        stays=tuple(stay for history in histories for stay in history.stays),
        finished=tuple(finished),
        switches=sum(trial.preemptions for trial in exported.trials),
        overhead_seconds=sum(trial.use.overhead_seconds for trial in exported.trials),
        decisions=0,
        decision_seconds=0.0,
    )


class _History:
    """One trial's stretches between reports, which together are its `steps` iterations."""

    def __init__(self, place: int, steps: int) -> None:
        self.stays: list[RecordedStay] = []
        self.last: Time = 0.0
        self._place = place
        self._steps = steps
        self._done = 0
        self._mark: tuple[Time, int] = (0.0, 0)

    def began(self, at: Time, step: int) -> None:
        """A run goes on from a step."""
        self._mark = (at, step)
        self.last = max(self.last, at)

    def reached(self, at: Time, step: int) -> None:
        """A run has done a step."""
        (begun, first), self._mark, self.last = self._mark, (at, step), max(self.last, at)
        first, step = min(first, self._done), min(step, self._steps)
        if step <= self._done:
            return
        each = (at - begun) / (step - first)
        begun += (self._done - first) * each
        self.stays.append(
            RecordedStay(self._place, 0, begun, begun, at, at, self._done, step, each)
        )
        self._done = step

    def close(self) -> None:
        """Points without a report of their own came with the last one."""
        self.reached(self.last, self._steps)


# What a policy would have given up, had it ended the trials that it holds back.
#
# It is the same scheduler and the same policy; only the claims that are `held_back` are
# left out of its plans. A trial that then is never finished is one that it would have given up.
# When only such are left and no trial came to its end, the foremost goes on, as in tools that end
# trials the last one does: the share of a few that goes on is less than one.


@dataclass(frozen=True, slots=True)
class Course:
    """How far a trial came: whether to its end, to which step, when it last had a device."""

    finished: bool
    step: int
    at: Time
    words: str


class WithoutHeldBack:
    """A planning policy that leaves out of its plan who would only get an idle device, but for the
    last one."""

    name: ClassVar[str] = "without_held_back"

    def __init__(self, policy: Planning) -> None:
        self._policy = policy

    def plan(self, view: View) -> Iterator[Claim]:
        held_back = []
        through = any(trial.phase is Phase.COMPLETED for trial in view.finished)
        alone = not through and not any(trial.phase.on_device for trial in view.trials)
        for claim in self._policy.plan(view):
            if claim.held_back:
                held_back.append(claim)
            else:
                alone = False
                yield claim
        if alone:
            yield from held_back[:1]

    def words(self, trial: Trial) -> str:
        return self._policy.words(trial)


def courses(
    order: SubmissionOrder, devices: int, policy: Plugin, placement: Plugin, maximized: bool
) -> tuple[Course, ...]:
    """Every trial's course, if one that is held back gets nothing, not even an idle device.

    Of a signal that was `maximized` the words give its values.

    Raises:
        SimulationStalled: the policy raised.
    """
    drive = Drive(order, devices, policy, placement, make=_giving_up)
    trials = drive.play()
    last = {stay.trial: stay.freed for stay in drive.stays}
    words = make_policy(policy).words
    return tuple(
        Course(
            trial.phase.final,
            trial.step,
            last.get(place, 0.0),
            words(replace(trial, maximized=maximized)),
        )
        for place, trial in enumerate(trials)
    )


def _giving_up(plugin: Plugin) -> Policy:
    policy = make_policy(plugin)
    return WithoutHeldBack(policy) if isinstance(policy, Planning) else policy


@dataclass(frozen=True, slots=True)
class Told:
    """One trial under a policy that ends whom it holds back."""

    trial: str
    #: It would have been ended at `step` of `steps`.
    held_back: bool
    step: int
    steps: int
    #: After the submission.
    seconds: Time
    words: str
    #: Then, as a value of the study's signal; None where it was no number. So is `final_loss`.
    loss: float | None
    final_loss: float | None
    #: Its place among all by `final_loss`, from 1.
    rank: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What would have come of it, had the policy ended the trials that it holds back."""

    held_back: int
    best_held_back: bool
    #: The trial that then stands first by the losses seen.
    pick: str
    #: How much worse its final loss is than the best; None if it ends without a loss.
    regret: float | None
    #: The same, as a share of the way from where trials usually start to the best.
    regret_share: float | None
    seconds: Time
    iterations: int
    trials: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class ReplayedPolicy:
    """A policy's figures in seconds, with nothing given up, and what giving up would mean."""

    policy: str
    figures: Figures
    switches: int
    given_up: GivenUp


@dataclass(frozen=True, slots=True)
class Happened:
    """What really happened."""

    #: The study's `own`, and what decided in its place if it failed.
    policy: str
    figures: Figures
    switches: int
    #: The figures of the study's own policy in virtual time; None where it cannot be simulated.
    simulated: Figures | None
    #: The median over the trials of how far these put the end of a trial off its real one.
    error: float | None
    own: str
    #: Why the policy cannot be simulated; else empty.
    unsimulated: str = ""
    simulated_switches: int | None = None
    #: For so long, of all devices together, one was not the study's though a trial of it waited;
    #: simulations have every device all of the time.
    away_seconds: Time = 0.0


@dataclass(frozen=True, slots=True)
class StudyReplay:
    """A study under other policies."""

    study: str
    signal: str
    #: On so many it is simulated.
    devices: int
    trials: int
    iterations: int
    #: So many of its `trials` were trained, but not to their end.
    partly: int
    #: So many others have shown no loss and are left out.
    untrained: int
    #: So many of its `trials` went on where another one was; in virtual time they train that too.
    forks: int
    #: It ends with the best value of the signal of those that were trained.
    best: str
    best_loss: float
    #: So many come to `good_loss`.
    good: int
    good_loss: float
    happened: Happened
    policies: tuple[ReplayedPolicy, ...]
    #: On so many it ran.
    devices_had: int


def replay(path: Path, chosen: Sequence[Contender], devices: int | None) -> StudyReplay:
    """The study of an export under each policy, on as many devices as it had unless told.

    Raises:
        Refused: the file cannot be read, or is no export with trained trials.
        SimulationStalled: a policy failed.
        Beaten: the simulator is wrong.
    """
    exported = open_export(path)
    curves = exported.curves
    order = draw(curves, goal_of(curves), ALL, len(curves.jobs), 0, 0)
    devices = devices or devices_of(exported)
    used = min(devices, len(order.jobs))  # the others stand idle
    best = best_place(order)
    return StudyReplay(
        study=exported.study.id,
        signal=exported.study.signal,
        devices=devices,
        trials=len(exported.trials),
        iterations=sum(job.steps for job in order.jobs),
        partly=sum(trial.phase is not Phase.COMPLETED for trial in exported.trials),
        untrained=exported.untrained,
        forks=exported.forks,
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


def _happened(exported: Exported, order: SubmissionOrder) -> Happened:
    real, study = happened(exported), exported.study
    own = Contender(label_of(study.policy, study.placement), study.policy, study.placement)
    simulated, switches, error, why = None, None, None, ""
    try:
        make_policy(own.policy)
        again, simulated = _simulated(order, devices_of(exported), own)
    except BadSetting as bad:
        known = study.policy.name in POLICIES
        why = f"policy {own.label}: {bad}" if known else f"policy {own.label} is not installed here"
    except SimulationStalled as stalled:
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


def _simulated(
    order: SubmissionOrder, devices: int, contender: Contender
) -> tuple[SimulatedOutcome, Figures]:
    outcome = Drive(order, devices, contender.policy, contender.placement).run()
    figures = figures_of(order, outcome)
    check(figures, bound_of(order, devices), contender.label)
    return outcome, figures


def _replayed(
    exported: Exported, order: SubmissionOrder, devices: int, each: Contender
) -> ReplayedPolicy:
    outcome, figures = _simulated(order, devices, each)
    up = exported.study.signal_goal is Goal.MAXIMIZE
    ended = courses(order, devices, each.policy, each.placement, up)
    given = _given_up(exported, order, ended)
    return ReplayedPolicy(each.label, figures, outcome.switches, given)


def _given_up(exported: Exported, order: SubmissionOrder, courses: Sequence[Course]) -> GivenUp:
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


def _shown(order: SubmissionOrder, place: int, step: int) -> float:
    """The loss that a trial has shown by a step; infinite before its first."""
    return float(order.jobs[place].smoothed[step - 1]) if step else math.inf


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
