"""One trial's stay on a node: its condition, what it was granted, and what is due when.

A stay keeps no history. It holds only what the node's state machine must remember to carry out the
next order once, and to notice when a limit is reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hermesd.core.events import (
    FidelityKnown,
    MilestonePassed,
    ParkLost,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunFailed,
    RunStalled,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Checkpoint, Fidelity, LiveRun, Quantum, RunId, Tier, Time
from hermesd.core.node.messages import Assignment, Progress, StepPace
from hermesd.core.trial import NOT_WRITTEN

REPORT_SECONDS = 1.0
"""How long the end of a quantum waits for the report that was asked for."""
FIRST_STEP_SECONDS = 60.0
"""How long a quantum is at least before the first step of a process: of its seconds none count
until then, but a program that comes to no step gives its device back all the same."""

STALL_SECONDS, STALL_TIMES = 120.0, 20.0
"""A program has stalled when a step takes so many times what the longest one took, with whatever
lay between two of them (a validation, a checkpoint), and so many seconds of its device at least; or
its study's `hung_seconds`, if it computes meanwhile or has done all that it planned."""
IDLE_CORES = 0.01

Outcome = RunSuspended | RunCompleted | RunFailed | ParkLost


class Condition(StrEnum):
    """Where a stay is. WAITING: accepted, but its device or the lease is not there yet. PROMOTED:
    nothing is asked for; its last run is being rebuilt from its checkpoint, or is held there."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    HALTING = "halting"
    PARKED = "parked"
    DEMOTING = "demoting"
    PROMOTED = "promoted"
    ENDED = "ended"

    @property
    def on_device(self) -> bool:
        return self in ON_DEVICE


ON_DEVICE = frozenset({Condition.STARTING, Condition.RUNNING, Condition.HALTING})
_LIVE_WORDS = {
    Condition.WAITING: "starting",
    Condition.STARTING: "starting",
    Condition.RUNNING: "running",
    Condition.HALTING: "running",
    Condition.PARKED: "parked",
    Condition.DEMOTING: "parked",
    Condition.ENDED: "ended",
}


@dataclass(slots=True)
class Stay:
    """A trial on this node."""

    assignment: Assignment
    condition: Condition
    #: When the present condition was entered.
    since: Time
    received: Time
    #: The run whose attempt the live process was last told; None while there is no process.
    process: RunId | None = None
    #: A newer attempt, which waits for this one's process to be gone.
    next: Assignment | None = None
    step: int = 0
    planned: int | None = None
    start_seconds: float = 0.0
    judged: FidelityKnown | None = None
    grant: int = 0
    quantum: Quantum = field(default_factory=Quantum)
    #: When the quantum began.
    granted: Time | None = None
    #: When its seconds were over and a report was asked for.
    inquired: Time | None = None
    #: When its steps were over and the program had done all that it planned.
    finishing: Time | None = None
    over: bool = False
    passed: float = 0.0
    #: What was trained since the last durable checkpoint when the process was parked, in seconds.
    trained: float = 0.0
    #: When the last durable checkpoint was taken, moved by the time that was not trained.
    saved: Time = 0.0
    saving: Time | None = None
    #: When the device was asked back.
    asked: Time | None = None
    #: By when it was asked back.
    limit: Time | None = None
    #: When the process was told to end.
    ending: Time | None = None
    fenced: bool = False
    failing: tuple[str, str] | None = None
    final: bool = False
    #: A demotion failed: it is not tried again unless the head asks for it (`leaving`).
    unwritable: bool = False
    leaving: bool = False
    #: It was parked where it can't be written down.
    midway: bool = False
    #: Its program was started.
    begun: bool = False
    #: Its process has not done a step yet.
    awaits_step: bool = False
    #: The last that its host told of it.
    pace: StepPace = field(default_factory=StepPace)
    #: It was told that it takes too long.
    stalled: bool = False
    #: The run as which the process was rebuilt before it was asked for.
    rebuilding: RunId | None = None
    #: The checkpoint from which it was.
    rebuilt: Checkpoint | None = None
    #: What was rebuilt stands there.
    held: bool = False
    forget: bool = False
    memory_bytes: int = 0
    #: What was last seen taken on its GPU; a park moves that to the machine's memory.
    device_memory_bytes: int = 0
    outcome: Outcome | None = None

    @property
    def run(self) -> RunId:
        return self.assignment.run

    def enter(self, condition: Condition, now: Time) -> None:
        self.condition = condition
        self.since = now

    @property
    def start(self) -> RunStarted:
        """What there is to say of the start of its run."""
        return RunStarted(self.run, self.step, self.start_seconds, self.planned)

    # The quantum.

    def grants(self, grant: int, quantum: Quantum, began: Time | None) -> None:
        """A new quantum; `began` is None until the program runs."""
        self.grant, self.quantum, self.granted, self.over = grant, quantum, began, False
        self.inquired, self.finishing = None, None

    def passes(self, report: Reported, now: Time) -> list[MilestonePassed | QuantumEnded]:
        """What a report of the running program means for its quantum; each said once."""
        said: list[MilestonePassed | QuantumEnded] = []
        loss = report.chunks[-1].mean if report.chunks else math.nan
        for percent in self.quantum.passed(loss, self.passed):
            self.passed = percent
            said.append(MilestonePassed(self.run, percent, loss, report.step))
        until, target = self.quantum.until_step, self.quantum.loss
        met = target is not None and loss <= target
        if until is not None and report.step >= until:
            if self.has_done:
                self.finishing = now if self.finishing is None else self.finishing
            else:
                met = True
        return said + (self.expire() if met or self.inquired is not None else [])

    def expire(self) -> list[MilestonePassed | QuantumEnded]:
        """The quantum is over, if it was not before."""
        if self.over:
            return []
        self.over = True
        return [QuantumEnded(self.run, self.grant, self.step)]

    @property
    def quantum_due(self) -> Time:
        """When the seconds of the quantum are over, or the report that was asked for is overdue.

        A program that has done its planned steps is given as long again to end.
        """
        if self.over or self.granted is None:
            return math.inf
        if self.inquired is not None:
            return self.inquired + REPORT_SECONDS
        seconds = math.inf if self.quantum.seconds is None else self.quantum.seconds
        if self.awaits_step:
            return self.granted + max(FIRST_STEP_SECONDS, seconds)
        if self.has_done:
            seconds *= 2
        due = self.granted + seconds
        if self.finishing is not None:
            began = self.granted if self.grant else self.since
            due = min(due, began + 2 * (self.finishing - began))
        return due

    def steps_on(self, fact: Progress, now: Time) -> None:
        """Note how far the program is: the first step of its process begins the quantum."""
        if fact.report.step > self.step:
            self.granted = now if self.awaits_step and self.granted is not None else self.granted
            self.awaits_step = self.stalled = False
        self.step, self.pace = fact.report.step, fact.pace

    def stalls(self) -> RunStalled | None:
        """That the program comes to no further step, once; never of one that has not done two: what
        such a program does can only be seen by its host."""
        pace, silent = self.pace, self.pace.silent_seconds
        computes = pace.silent_cpu_seconds >= IDLE_CORES * silent
        hung = self.assignment.terms.hung_seconds
        least = hung if computes or self.has_done else STALL_SECONDS
        longest = max(least, STALL_TIMES * pace.longest_step_seconds)
        if self.stalled or not pace.longest_step_seconds or silent < longest:
            return None
        self.stalled = True
        return RunStalled(self.run, self.step, silent)

    @property
    def has_done(self) -> bool:
        """Whether the program has done its planned steps, and is about to end."""
        return self.planned is not None and self.step >= self.planned

    @property
    def mark_step(self) -> int | None:
        """The step at which the program is to report, since it ends the quantum; None if none."""
        return None if self.quantum.exact else self.quantum.until_step

    @property
    def limit_step(self) -> int | None:
        """The step at which the program parks by itself; None if at none."""
        return self.quantum.until_step if self.quantum.exact else None

    @property
    def may_go_on(self) -> bool:
        """Whether the program has not come to its limit yet."""
        return self.limit_step is None or self.step < self.limit_step

    # Checkpoints.

    @property
    def restorable(self) -> bool:
        """Whether this trial can go on from a checkpoint at all."""
        return self.judged is not None and self.judged.fidelity.restorable

    def judges(self, judged: FidelityKnown) -> FidelityKnown:
        """What the agent promises of a resume, unless the trial's restores have shown otherwise."""
        if not (why := self.assignment.kept_parked):
            return judged
        return replace(judged, fidelity=Fidelity.PARK_ONLY, reason=why)

    @property
    def to_write_again(self) -> bool:
        """Whether it is still to be written down, which could not be done."""
        return self.leaving and self.unwritable and not self.midway

    @property
    def save_due(self) -> Time:
        """When a durable checkpoint is to be asked for (again, if none came)."""
        if not self.restorable:
            return math.inf
        return max(self.saved, self.saving or 0.0) + self.assignment.terms.durability_seconds

    # The end.

    def left(
        self, tier: Tier, step: int, kept: Checkpoint | None, cause: str, now: Time
    ) -> Outcome:
        """The outcome of a run whose process is gone from its device, or parked on it."""
        if self.failing is not None:
            kind, detail = self.failing
            return RunFailed(self.run, kind, detail, "", step)
        if tier is Tier.CHECKPOINT and kept is None:
            tier = Tier.KILL
        seconds = now - self.asked if self.asked is not None else 0.0
        memory = self.memory_bytes if tier.in_process else 0
        return RunSuspended(self.run, tier, step, kept, seconds, cause, memory)

    def unwritten(self) -> RunSuspended:
        """What to say of what was to be written down, and could not be: it is parked still."""
        parked = RunSuspended(self.run, Tier.PARK, self.step, None, 0.0, NOT_WRITTEN)
        return replace(parked, memory_bytes=self.memory_bytes)

    def planned_report(self, report: Reported) -> Reported:
        """The report with what is known of the program's length."""
        return replace(report, planned_steps=report.planned_steps or self.planned)

    def live(self) -> list[LiveRun]:
        """The runs of this stay as Hello names them; what was rebuilt ahead is no run yet."""
        if self.condition is Condition.PROMOTED:
            return []
        runs = [(self.run, _LIVE_WORDS[self.condition], self.step)]
        if self.process is not None and self.process not in (self.run, self.rebuilding):
            runs.append((self.process, "parked", self.step))
        mine = self.assignment
        listed = [
            LiveRun(run, word, mine.launch.devices, at, mine.identity) for run, word, at in runs
        ]
        if (following := self.next) is not None:
            devices = following.launch.devices
            listed.append(LiveRun(following.run, "starting", devices, 0, following.identity))
        return listed
