"""A trial as the scheduler knows it: everything that policies may read, folded from its events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from hermesd.core.commands import Stop, Suspend
from hermesd.core.losses import Chunk, QuantumLosses, recent
from hermesd.core.model import (
    Checkpoint,
    DeviceId,
    Fidelity,
    NodeId,
    Phase,
    Quantum,
    RetryAction,
    RunId,
    StudyId,
    Tier,
    Time,
    TrialId,
    TrialSpec,
)

# What lies behind a trial: how it is kept, what it used and measured, how its runs ended.

# What a run was to go on from was elsewhere, and could not be had: nobody was there, or gave it.
NOT_FETCHED = "not_fetched"
# What its study needs of a node, its interpreter for example, was not there.
UNMET = "unmet"
# Its host was gone when the node looked for it.
LOST = "lost"
# Failures for which the program cannot be blamed: its process could not be made, or went with its
# machine.
MACHINES_FAULT = frozenset({LOST, "not_started", "killed", NOT_FETCHED, UNMET})
# Its processes were killed for the memory of their machine, or of their share of it.
OUT_OF_MEMORY = "out_of_memory"
# What takes a process that only waits to go on. Everything else a program has come to by itself.
TAKEN_AWAY = MACHINES_FAULT | {OUT_OF_MEMORY, "signal"}
# The cause that a node gives of what is parked when it was asked to write that down, and could not.
NOT_WRITTEN = "it could not be written down"
# The program refused its arguments, which are the same wherever it runs.
USAGE = "usage"
# Its code cannot be unpacked, on whichever machine.
CODE = "code"
# What is wrong with the study itself, and would go wrong on any device.
WRONG_EVERYWHERE = frozenset({USAGE, CODE})
# It came to no further step, and its study wants it ended then.
STALLED = "stalled"
# A checkpoint's: the trial goes on from the one before.
RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Kept:
    """How a suspended trial is kept: parked as `run` on `device`, or by its checkpoint.

    `leaving` says that its node was asked to write down what is parked, `unwritable` that the node
    could not at first; `midway` that it was stopped in the middle of an iteration, where nothing
    can be written before that has ended.
    """

    tier: Tier
    run: RunId
    device: DeviceId
    memory_bytes: int = 0
    leaving: bool = False
    unwritable: bool = False
    midway: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, with enough to tell the device's fault from the program's.

    `ruled` is what a rule of the study wanted done about it.
    """

    attempt: int
    device: DeviceId
    error_kind: str
    detail: str
    signature: str
    step: int
    at: Time
    ruled: RetryAction | None = None

    @property
    def machines(self) -> bool:
        """Whether it was the machine's fault and not the program's."""
        return self.error_kind in MACHINES_FAULT or self.ruled is RetryAction.EXCLUDE_NODE

    @property
    def restores(self) -> bool:
        """Whether it was a checkpoint that could not be used."""
        return self.error_kind == RESTORE

    @property
    def programs(self) -> bool:
        """Whether it was the program's own fault."""
        return not (self.machines or self.restores)


class Strike(NamedTuple):
    """A trial's failure on a device after `step`; `mark` tells its error from others.

    `further` is the other device on which the trial has trained past that since; empty: on none.
    `together` says that what ran on other devices of the node went with it.
    """

    trial: TrialId
    study: StudyId
    error_kind: str
    detail: str
    mark: str
    at: Time
    step: int
    further: DeviceId = ""
    together: bool = False


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Until when a place is kept from trials if nothing else happens, and why."""

    until: Time
    reason: str


class Exclusion(NamedTuple):
    """Why a study is to have no more of a node: the trial that failed there, and its error."""

    trial: TrialId
    error: str

    @property
    def reason(self) -> str:
        return f"{self.trial} failed there (retry.rules: exclude_node): {self.error}"


@dataclass(frozen=True, slots=True)
class Pace:
    """What an iteration of a trial took, in the quickest report of its last quantum on a device."""

    device: DeviceId
    seconds: float


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Measured seconds of the last suspend and resume in one tier."""

    suspend_seconds: float = 0.0
    resume_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.suspend_seconds + self.resume_seconds


@dataclass(frozen=True, slots=True)
class Use:
    """What a trial has used so far, in seconds of its device, from its own reports.

    `overhead_seconds` went into suspending and resuming it; its first start is not counted. Of the
    memory of its processes and of its devices it is the most that was seen.
    """

    busy_seconds: float = 0.0
    overhead_seconds: float = 0.0
    cpu_seconds: float = 0.0
    examples: int = 0
    memory_bytes: int = 0
    device_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Last, lowest and highest value of a metric; NaN never replaces a number as an extreme.

    `last` is None while what it was is to be trained again. `low_step` and `high_step` are by when
    the extremes were seen. While no number was seen, `low` is above every number and `high` below.
    """

    step: int
    last: float | None
    low: float = math.inf
    high: float = -math.inf
    low_step: int = 0
    high_step: int = 0

    @property
    def measured(self) -> bool:
        """Whether any number was seen."""
        return self.low <= self.high


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy of a checkpoint that a node was asked to fetch from another."""

    checkpoint: Checkpoint
    source: NodeId
    target: NodeId


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What was heard of a run that was given up, before its trial fell back: the truth about all
    steps up to a checkpoint of it that may still turn up."""

    attempt: int
    step: int
    curve: tuple[Chunk, ...]
    metrics: dict[str, MetricSummary]


class Ending(NamedTuple):
    """A final phase that awaits the release of the device, and why."""

    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial had come to when it was asked to go on: it has that again if it cannot."""

    spec: TrialSpec
    phase: Phase
    step: int
    planned_steps: int | None
    curve: tuple[Chunk, ...]
    metrics: dict[str, MetricSummary]
    not_finite: bool
    checkpoint: Checkpoint | None
    fidelity: Fidelity
    fidelity_reason: str
    framework: str
    finished: Time | None


LONGEST_WAIT_SECONDS = 60.0
MOST_DOUBLINGS = 12


@dataclass(frozen=True, slots=True)
class Run:
    """A trial's present stay on its devices.

    `grant` counts the quanta given within it, the present one since `granted`; `expired` says that
    it is over, `milestone` that one was passed and not answered yet, `asked` what it was asked to
    do. Until it is `warm` its times say little: a new process compiles within its first iterations.
    `heard` is the number of its last report, `silent_seconds` how long it had come to no step by
    then, `restored_step` that of the checkpoint it was launched from, 0 if from none of its node's;
    `started` says that it was heard to have begun, `stalled_since` since when it has come to no
    step, if that is far too long. `paced` says that its pace was measured since it was last
    compared with that on other devices. `reads` is the signal that its study had as it began, by
    which its node judges losses and milestones (`Study.reads`).
    """

    id: RunId
    devices: tuple[DeviceId, ...]
    quantum: Quantum
    since: Time
    granted: Time = 0.0
    grant: int = 0
    expired: bool = False
    milestone: float | None = None
    asked: Suspend | Stop | None = None
    warm: bool = False
    heard: int = 0
    silent_seconds: float = 0.0
    restored_step: int = 0
    started: bool = False
    stalled_since: Time | None = None
    paced: bool = False
    reads: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """The fold of a trial's events.

    `quanta` counts finished quanta; `first`, `before`, `latest` are the losses of the first, the
    last but one and the last finished quantum, `current` those of the quantum that is running.
    `served_seconds` is device time from launch to release, `rested` when it last gave a device
    back (its submission before that). `reason` says why it ended, or why its last run did.
    `misfortunes` counts the failures that were the machine's since a checkpoint last moved on.
    `checkpoint` is the newest; `copied` the last of which a copy came to another node, `copying`
    the copy that is under way, `copy_after` when the next may be asked for if one was not made.
    `result` is what it had come to before it was extended, until that has ended some way, and
    `not_extended` why nothing came of that. Where the signal is `maximized`, losses are its values
    with the other sign. `abandoned` is what was heard of its last run, if that was given up and
    none has begun since.
    `began_busy` is what it had trained, in seconds, when its present process began.
    `longest_start_seconds` is what any of its starts took, from the launch to the first boundary.
    `overdue` counts the suspends in which it came to no boundary by the deadline and was ended.
    `forked` is the checkpoint of another trial from which this one began, as its first.
    `carrier` is the trial that trains for this one as long as both are alike (see `fold.riding`);
    of its steps, others have trained `carried_steps` for it.
    `tags` and `note` are what people have made of it, for themselves.
    `last_node` is where it was launched last: what it printed lies there when all else is over.
    `step_seconds` are those of an iteration on each kind of device, as of the device of that kind
    on which it ran last; `paces` has that device and the one before it, of each kind.
    """

    spec: TrialSpec
    submitted: Time
    rested: Time
    phase: Phase = Phase.WAITING
    paused: bool = False
    run: Run | None = None
    attempt: int = 0
    step: int = 0
    planned_steps: int | None = None
    passes: int = 0
    curve: tuple[Chunk, ...] = ()
    metrics: dict[str, MetricSummary] = field(default_factory=dict)
    quanta: int = 0
    first: QuantumLosses | None = None
    before: QuantumLosses | None = None
    latest: QuantumLosses | None = None
    current: QuantumLosses = field(default_factory=QuantumLosses)
    milestone_percent: float = 0.0
    milestones_passed: int = 0
    not_finite: bool = False
    served_seconds: float = 0.0
    use: Use = field(default_factory=Use)
    step_seconds: dict[str, float] = field(default_factory=dict)
    paces: dict[str, tuple[Pace, ...]] = field(default_factory=dict)
    costs: dict[Tier, SwitchCost] = field(default_factory=dict)
    preemptions: int = 0
    kept: Kept | None = None
    checkpoint: Checkpoint | None = None
    failures: tuple[Failure, ...] = ()
    misfortunes: int = 0
    ending: Ending | None = None
    result: Result | None = None
    not_extended: str = ""
    reason: str = ""
    home: DeviceId | None = None
    fidelity: Fidelity = Fidelity.UNKNOWN
    fidelity_reason: str = ""
    framework: str = ""
    finished: Time | None = None
    copied: Checkpoint | None = None
    copying: Copying | None = None
    copy_after: Time = 0.0
    maximized: bool = False
    abandoned: Abandoned | None = None
    overdue: int = 0
    began_busy: float = 0.0
    longest_start_seconds: float = 0.0
    last_node: NodeId | None = None
    tags: tuple[str, ...] = ()
    note: str = ""
    forked: Checkpoint | None = None
    carrier: TrialId | None = None
    carried_steps: int = 0

    @property
    def id(self) -> TrialId:
        return self.spec.id

    @property
    def run_id(self) -> RunId | None:
        return self.run.id if self.run else None

    @property
    def next_run(self) -> RunId:
        return RunId(self.id, self.attempt + 1)

    def notice(self, seconds: float) -> float:
        """How long it is given to come to a boundary, in a study that gives `seconds`: twice as
        long each time that it was ended for want of one, or it would never get over that place."""
        return float(seconds * 2 ** min(self.overdue, MOST_DOUBLINGS))

    @property
    def explored(self) -> bool:
        """Whether at least one quantum of this trial has been seen to its end."""
        return self.quanta > 0

    @property
    def not_before(self) -> Time:
        """When it may be launched again; before its submission if no machine failed it lately.

        One fault of a machine is tried again at once, further ones after 1, 2, 4 ... 60 s: a full
        disk must not use up all the tries of a study before a person can see to it.
        """
        if self.misfortunes < 2 or not self.failures or not self.failures[-1].machines:
            return -math.inf
        wait = min(LONGEST_WAIT_SECONDS, 2.0 ** (self.misfortunes - 2))
        return self.failures[-1].at + wait

    @property
    def candidate(self) -> bool:
        """Whether the next decision may give this trial a device or a new quantum."""
        if self.phase is Phase.WAITING:
            is_held = self.paused or self.ending is not None or self.carrier is not None
            return not (is_held or self.awaits_fork)
        return self.phase is Phase.RUNNING and self.run is not None and self.run.expired

    @property
    def awaits_fork(self) -> bool:
        """Whether it has nothing yet, or any more, of what it was forked from."""
        lacks = self.forked is not None and self.checkpoint is None and self.kept is None
        return lacks and self.phase is Phase.WAITING

    @property
    def extending(self) -> bool:
        """Whether it has a result that it is to go on from, and has got no further yet."""
        if self.result is None or self.result.checkpoint is None:
            return self.result is not None
        return self.checkpoint is None or self.checkpoint.step <= self.result.checkpoint.step

    @property
    def shelved(self) -> bool:
        """Whether a person keeps the trial from its policy for now."""
        return self.paused and not self.phase.final

    @property
    def loss(self) -> float | None:
        """Mean of the last max(3, 10 %) losses (lower is better); None before the first."""
        return recent(self.curve, self.step)

    @property
    def switch_cost(self) -> SwitchCost | None:
        """What suspending and resuming this trial last cost, in the tier it is kept in."""
        tier = self.kept.tier if self.kept else Tier.PARK
        return self.costs.get(tier) or next(iter(self.costs.values()), None)

    def device_of(self, run: RunId) -> DeviceId | None:
        """Where a run is or was, as far as that is remembered: its present, kept or failed ones."""
        if self.run is not None and self.run.id == run:
            return self.run.devices[0]
        if self.kept is not None and self.kept.run == run:
            return self.kept.device
        failed = (each.device for each in self.failures if each.attempt == run.attempt)
        return next(failed, None)

    @property
    def seconds_per_step(self) -> float | None:
        """Training seconds an iteration, on the fastest kind seen; None while unmeasured."""
        return min(self.step_seconds.values(), default=None)
