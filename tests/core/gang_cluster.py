"""Trials of one and of several devices under the production scheduler, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hermesd.core.commands import Command, Gather, Launch, Renew, Suspend
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import Event, QuantumEnded, RunCompleted, RunStarted, RunSuspended
from hermesd.core.model import Plugin, RunId, Tier, Time, TrialId
from hermesd.core.placement import make_placement
from hermesd.core.state import State
from hermesd.policy import make_policy
from hermesd.sim.agenda import Agenda
from tests.core.playbook import checkpoint, joined, submitted


@dataclass
class GangOutcome:
    """What came of a mix. A wait is from when a trial last gave its devices back (or was
    submitted) to its next launch; `gathering_seconds` those of the waits in which devices were kept
    for it. `idle_device_seconds` were lost while a trial waited."""

    waits: dict[TrialId, list[float]] = field(default_factory=dict)
    gathering_seconds: list[float] = field(default_factory=list)
    idle_device_seconds: float = 0.0
    wanted_device_seconds: float = 0.0
    finished: int = 0
    switches: int = 0

    @property
    def utilization(self) -> float:
        """The part of device time that was used, of that in which trials waited."""
        return 1.0 - self.idle_device_seconds / self.wanted_device_seconds


class GangCluster:
    """Nodes of equal devices; each trial's work is in seconds on all of its devices.

    `widths` has the number of devices of each study, with the work of each of its trials.
    """

    def __init__(
        self,
        nodes: Sequence[int],
        widths: Mapping[int, Sequence[float]],
        quanta: Mapping[int, float],
        switch_seconds: float,
    ) -> None:
        self.agenda = Agenda()
        self.state = State()
        self.outcome = GangOutcome()
        self._scheduler = Scheduler(self.state, make_policy, make_placement)
        self._switch = switch_seconds
        self._left: dict[TrialId, float] = {}
        self._plan: dict[TrialId, int] = {}
        self._began: dict[TrialId, Time] = {}
        self._since: dict[TrialId, Time] = {}
        self._gathered: dict[TrialId, Time] = {}
        self._counted: Time = 0.0
        opening: list[Event] = [joined(n, f"n{place}") for place, n in enumerate(nodes)]
        for width, work in widths.items():
            policy = Plugin("round_robin", (("quantum_seconds", quanta[width]),))
            opening.append(submitted(len(work), f"w{width}", devices=width, policy=policy))
            self._left.update((f"w{width}/{n}", seconds) for n, seconds in enumerate(work))
        self._since = dict.fromkeys(self._left, 0.0)
        self._tell(*opening)

    def play(self) -> GangOutcome:
        """Until all have come to their end."""
        while self.agenda.step():
            pass
        self.state.check()
        assert self.outcome.finished == len(self._left), "trials are left that get no device"
        return self.outcome

    def _tell(self, *events: Event) -> None:
        now = self.agenda.now
        self._count(now)
        for event in events:
            self._scheduler.observe(event, now)
        for command in self._scheduler.decide(now):
            self._carry_out(command, now)

    def _count(self, now: Time) -> None:
        """The time since the last event, in which nothing changed."""
        seconds, self._counted = now - self._counted, now
        slots = self.state.slots.values()
        if any(trial.candidate and trial.run is None for trial in self.state.trials.values()):
            self.outcome.wanted_device_seconds += seconds * len(slots)
            self.outcome.idle_device_seconds += seconds * sum(slot.run is None for slot in slots)

    def _carry_out(self, command: Command, now: Time) -> None:
        match command:
            case Launch(run, quantum=quantum):
                trial = run.trial
                self.outcome.waits.setdefault(trial, []).append(now - self._since[trial])
                if trial in self._gathered:
                    self.outcome.gathering_seconds.append(now - self._gathered.pop(trial))
                self.agenda.after(self._switch, lambda: self._started(run, quantum.seconds))
            case Gather(trial, devices) if devices:
                self._gathered[trial] = now
            case Renew(run, grant, quantum):
                self._trained(run.trial)
                self._grant(run, grant, quantum.seconds)
            case Suspend(run):
                self._trained(run.trial)
                self._plan[run.trial] += 1
                self.agenda.after(self._switch, lambda: self._suspended(run))
            case _:
                pass

    def _started(self, run: RunId, seconds: float | None) -> None:
        self._began[run.trial] = self.agenda.now
        self._tell(RunStarted(run, 0, self._switch))
        self._grant(run, 0, seconds)

    def _grant(self, run: RunId, grant: int, seconds: float | None) -> None:
        trial = run.trial
        plan = self._plan[trial] = self._plan.get(trial, 0) + 1
        assert seconds is not None
        ends = self._left[trial] <= seconds

        def over() -> None:
            if self._plan[trial] == plan:
                self._trained(trial)
                self._over(run, grant, ends)

        self.agenda.after(min(seconds, self._left[trial]), over)

    def _trained(self, trial: TrialId) -> None:
        now = self.agenda.now
        self._left[trial] -= now - self._began[trial]
        self._began[trial] = now

    def _over(self, run: RunId, grant: int, ends: bool) -> None:
        if ends:
            self.outcome.finished += 1
            self._tell(RunCompleted(run, 1))
        else:
            self._tell(QuantumEnded(run, grant, 0))

    def _suspended(self, run: RunId) -> None:
        """By a checkpoint, as on GPUs: what is parked would not leave its node."""
        self._since[run.trial] = self.agenda.now
        self.outcome.switches += 1
        node = self.state.node_of(self.state.trials[run.trial]) or ""
        saved = replace(checkpoint(str(run), 0), nodes=(node,))
        self._tell(RunSuspended(run, Tier.CHECKPOINT, 0, saved, self._switch))
