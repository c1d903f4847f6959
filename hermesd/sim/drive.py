"""Simulates one order of jobs under the production scheduler, in virtual time.

It plays the node's part. It says what a node says (started, a report after a new trial's first
second, one at each end of a quantum and wherever a milestone is passed, suspended, completed), and
does what it is told at the next iteration boundary. Suspending, resuming and starting a trial take
their seconds; there is no other delay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from hermesd.config.policy_line import label_of
from hermesd.core.commands import (
    Bind,
    Command,
    Copy,
    Drop,
    Gather,
    Kill,
    Launch,
    Look,
    Miss,
    Quarantine,
    Release,
    Renew,
    Stop,
    Suspend,
    Trust,
    WriteDown,
)
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Checkpointed,
    Copied,
    Event,
    FidelityKnown,
    MilestonePassed,
    NodeJoined,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunStarted,
    RunSuspended,
    Submitted,
)
from hermesd.core.losses import extend
from hermesd.core.model import (
    Checkpoint,
    Device,
    DeviceId,
    Fidelity,
    Goal,
    MetricMode,
    Phase,
    Plugin,
    Program,
    RunId,
    Stage,
    StopRule,
    Study,
    StudyId,
    Tier,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.policy import Earlier, Policy
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.policy import make_policy
from hermesd.sim.agenda import Agenda
from hermesd.sim.curves import Job
from hermesd.sim.orders import SubmissionOrder
from hermesd.sim.stay import LiveRecording, RecordedStay

# What a simulated head is told first: a study of recorded jobs, and a node with devices.

STUDY, NODE = "study", "node"


def submitted(
    jobs: Sequence[Job],
    policy: Plugin,
    placement: Plugin,
    specs: Sequence[TrialSpec] = (),
    widest: int = 1,
) -> Submitted:
    """A study of one trial a job, in this order, submitted at time 0; a trial may have up to
    `widest` devices."""
    study = Study(
        id=STUDY,
        owner="simulate",
        pool="default",
        metric="loss",
        goal=Goal.MINIMIZE,
        mode=MetricMode.LAST,
        signal="loss",
        signal_goal=Goal.MINIMIZE,
        policy=policy,
        placement=placement,
        program=Program((), "", "", ""),
        stop=StopRule(),
        submitted=0.0,
        fingerprint="",
        source=b"",
        most_devices=widest,
    )
    return Submitted(study, tuple(specs) or tuple(_specs(STUDY, jobs)), "submit")


def _specs(study: StudyId, jobs: Sequence[Job]) -> Iterator[TrialSpec]:
    for place, job in enumerate(jobs):
        stages = (Stage(None, job.parameters),)
        yield TrialSpec(_id(study, place), study, place, stages, (), place)


def earlier_study(name: str, jobs: Sequence[Job]) -> Earlier:
    """What a study of these jobs has come to, when all are trained."""
    trials = [
        Trial(
            spec,
            0.0,
            0.0,
            Phase.COMPLETED,
            step=job.steps,
            planned_steps=job.announced,
            curve=extend((), job.told(0, job.steps)),
            not_finite=job.diverges,
        )
        for spec, job in zip(_specs(name, jobs), jobs, strict=True)
    ]
    return Earlier(name, trials)


def joined(devices: int, speeds: Sequence[float] = ()) -> NodeJoined:
    """A node with so many devices: equal ones, or one kind for each relative speed."""
    kinds = [f"{speed:.0%}" for speed in speeds] or ["simulated"] * devices
    named = tuple(Device(_id(NODE, place), NODE, k, 1 << 34) for place, k in enumerate(kinds))
    return NodeJoined(NODE, "boot", named, ())


def place_of(name: TrialId | DeviceId) -> int:
    """Which trial of the study, or device of the node, an id means."""
    return int(name.rpartition("/")[2])


def _checkpoint(run: RunId, step: int) -> Checkpoint:
    return Checkpoint(f"{run}@{step}", run.trial, run.attempt, step, "", 1, (NODE,))


def _id(owner: str, place: int) -> str:
    return f"{owner}/{place}"


class SimulationStalled(Exception):
    """A simulation that came to no end, or whose policy raised."""


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """What came of an order: its stays as they ended, and when each trial was finished."""

    stays: tuple[RecordedStay, ...]
    finished: tuple[Time, ...]
    switches: int
    #: Spent on suspending and resuming; first starts are not among them.
    overhead_seconds: float
    decisions: int
    decision_seconds: float


class _Remembering(State):
    """A head that knows studies from before its one."""

    def __init__(self, history: tuple[Earlier, ...]) -> None:
        super().__init__()
        self._history = history

    def earlier(self, study_id: StudyId) -> tuple[Earlier, ...]:
        return self._history


class Drive:
    """One simulation; `run` carries it through to the end of every job.

    The devices are equal, or one for each of `speeds`, beside the one that was recorded on. The
    jobs are trials as they are in `specs`, if there are any; losses of those with a root are the
    same as long as these are alike. With a `widest` above 1 trials may have several devices, on
    which they are `gain(width)` times as fast as on one.
    """

    def __init__(
        self,
        order: SubmissionOrder,
        devices: int,
        policy: Plugin,
        placement: Plugin,
        speeds: Sequence[float] = (),
        make: Callable[[Plugin], Policy] = make_policy,
        specs: Sequence[TrialSpec] = (),
        history: tuple[Earlier, ...] = (),
        widest: int = 1,
        gain: Callable[[int], float] = lambda width: 1.0,
    ) -> None:
        self._jobs = order.jobs
        self._widest, self._gain = widest, gain
        self._policy = label_of(policy, placement)
        self._speeds = speeds or (1.0,) * devices
        self._switch = order.switch
        study = submitted(order.jobs, policy, placement, specs, widest)
        self._opening = (study, joined(devices, speeds))
        self._agenda = Agenda()
        self._scheduler = Scheduler(_Remembering(history), make, make_placement)
        self._live: dict[int, LiveRecording] = {}
        self._steps = [0] * len(order.jobs)
        #: The runs that have ended.
        self.stays: list[RecordedStay] = []
        self._finished: dict[int, Time] = {}
        self._switches = 0
        self._overhead = 0.0
        self._decisions = 0
        self._seconds = 0.0

    def run(self) -> SimulatedOutcome:
        """The whole simulation.

        Raises:
            SimulationStalled: the policy raised, or left trials unfinished for ever.
        """
        for trial in self.play():
            if trial.phase.final:  # some are finished with the one that trained for them
                self._finished.setdefault(place_of(trial.id), trial.finished or 0.0)
        left = [place for place in range(len(self._jobs)) if place not in self._finished]
        if left:
            raise SimulationStalled(
                f"policy {self._policy} claims none of the trials that are left"
                f" ({len(left)} of {len(self._jobs)}), though no device is in use"
            )
        return SimulatedOutcome(
            tuple(self.stays),
            tuple(self._finished[place] for place in range(len(self._jobs))),
            self._switches,
            self._overhead,
            self._decisions,
            self._seconds,
        )

    def play(self, until: Time = math.inf) -> tuple[Trial, ...]:
        """Go on until nothing is left to happen, or a time is over; the trials as they are then.

        Raises:
            SimulationStalled: the policy raised.
        """
        self._tell(*self._opening)
        while self._agenda.now <= until and self._agenda.step():
            pass
        state = self._scheduler.state
        state.check()
        return tuple(state.trials.values())

    def _tell(self, *events: Event) -> None:
        """A batch as the head takes it: every event, one decision, then the commands."""
        now = self._agenda.now
        for event in events:
            self._scheduler.observe(event, now)
        began = time.perf_counter()
        commands = self._scheduler.decide(now)
        self._seconds += time.perf_counter() - began
        self._decisions += 1
        for failure in self._scheduler.take_failures():
            raised = failure.event.detail
            advice = f"try `hermesd policy check {self._policy}`"
            raise SimulationStalled(
                f"policy {self._policy} raised {raised}; {advice}"
            ) from failure.error
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Launch():
                self._launch(command)
            case Renew(run, grant, quantum, _, extends):
                live = self._live[place_of(run.trial)]
                live.grants(grant, quantum, live.granted if extends else self._agenda.now)
                self._plan(live, live.next_step())
            case Suspend(run) | Stop(run):
                live = self._live[place_of(run.trial)]
                live.leaving = True
                live.saved = isinstance(command, Suspend) and command.tier is Tier.CHECKPOINT
                self._plan(live, live.boundary(self._agenda.now))
            case Copy(trial, checkpoint, _, node):
                self._agenda.after(0.0, lambda: self._tell(Copied(node, trial, checkpoint)))
            case Bind() | Gather() | WriteDown() | Quarantine() | Trust() | Release() | Kill():
                pass
            case Drop() | Look() | Miss():
                pass
            case _:
                assert_never(command)

    # A stay.

    def _launch(self, command: Launch) -> None:
        trial, now = place_of(command.run.trial), self._agenda.now
        device = place_of(command.devices[0])
        if command.checkpoint:  # others have trained up to there
            self._steps[trial] = self._scheduler.state.trials[command.run.trial].step
        live = LiveRecording(
            command.run,
            trial,
            device,
            self._jobs[trial].at(self._speeds[device] * self._gain(len(command.devices))),
            now,
            self._steps[trial],
            command.quantum,
        )
        self._live[trial] = live
        seconds = self._switch.starting if live.fresh else self._switch.resuming
        self._agenda.after(seconds, lambda: self._started(live, seconds))

    def _started(self, live: LiveRecording, seconds: float) -> None:
        live.begin(self._agenda.now)
        self._overhead += 0.0 if live.fresh else seconds
        self._plan(live, live.next_step())
        self._tell(RunStarted(live.run, live.first, seconds, live.job.announced))
        if self._scheduler.state.trials[live.run.trial].spec.root or self._widest > 1:
            self._tell(FidelityKnown(live.run, Fidelity.EXACT, "", "explicit"))

    def _plan(self, live: LiveRecording, step: int) -> None:
        """Put down the step at which the run next has something to say; no plan before holds."""
        if live.done:
            return
        live.plan += 1
        plan = live.plan
        riders = self._scheduler.state.riding.riders.get(live.run.trial, {})
        parts = (each for each in riders.values() if each is not None and each > live.told)
        step = min((step, *parts))
        self._agenda.at(
            live.time_of(step), lambda: self._reached(live, step) if live.plan == plan else None
        )

    def _reached(self, live: LiveRecording, step: int) -> None:
        """A planned step is done: say what it means."""
        job, now = live.job, self._agenda.now
        events = self._report(live, step)
        if step in self._scheduler.state.riding.riders.get(live.run.trial, {}).values():
            events += (Checkpointed(live.run, _checkpoint(live.run, step)),)
        if step == job.steps and not job.diverges:
            live.done = True
            self._agenda.after(self._switch.ending, lambda: self._completed(live, now, events))
        elif live.leaving:
            if events:
                self._tell(*events)
            self._agenda.after(self._switch.leaving, lambda: self._suspended(live, now))
        else:
            plan = live.plan
            self._tell(*events, *(self._limits_met(live, step) if step < job.steps else ()))
            if live.plan == plan:
                self._plan(live, live.next_step())

    def _report(self, live: LiveRecording, step: int) -> tuple[Event, ...]:
        job, before = live.job, live.told
        if step == before:
            return ()
        live.told = step
        chunks = job.told(before, step)
        report = Reported(
            live.run,
            step,
            chunks,
            (("loss", job.losses[step - 1]),) if chunks else (),
            busy_seconds=job.seconds(before, step) + (0.0 if before else live.opening),
            not_finite=job.diverges and step == job.steps,
        )
        return (report,)

    def _limits_met(self, live: LiveRecording, step: int) -> list[Event]:
        """The milestones that were passed, and the end of the quantum."""
        loss = live.seen.get(step)
        said: list[Event] = []
        for percent in live.pass_milestones(loss):
            assert loss is not None
            said.append(MilestonePassed(live.run, percent, loss, step))
        if live.expires(step, loss):
            said.append(QuantumEnded(live.run, live.grant, step))
        return said

    def _completed(self, live: LiveRecording, ended: Time, events: tuple[Event, ...]) -> None:
        self._leave(live, ended)
        self._finished[live.trial] = self._agenda.now
        self._tell(*events, RunCompleted(live.run, live.told))

    def _suspended(self, live: LiveRecording, ended: Time) -> None:
        now = self._agenda.now
        final = live.job.diverges and live.told == live.job.steps
        self._overhead += self._switch.leaving
        self._switches += 0 if final else 1
        self._leave(live, ended)
        if final:
            self._finished[live.trial] = now
        saved = _checkpoint(live.run, live.told) if live.saved else None
        tier = Tier.CHECKPOINT if live.saved else Tier.PARK
        self._tell(RunSuspended(live.run, tier, live.told, saved, self._switch.leaving))

    def _leave(self, live: LiveRecording, ended: Time) -> None:
        self._steps[live.trial] = live.told
        self.stays.append(live.stay(ended, self._agenda.now))
        del self._live[live.trial]
