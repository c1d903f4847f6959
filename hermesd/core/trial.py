"""A trial as the scheduler knows it: everything that policies may read, folded from its events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from hermesd.core.commands import Stop, Suspend
from hermesd.core.losses import Chunk, QuantumLosses, recent
from hermesd.core.model import (
    Checkpoint,
    CheckpointId,
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
# Its image of processes found something else on the node than it needs.
UNFIT = "unfit"
# What its study needs of a node, its interpreter for example, was not there.
UNMET = "unmet"
# Its host was gone when the node looked for it.
LOST = "lost"
# By SIGKILL, which somebody sent: a person, or the kernel for want of memory.
KILLED = "killed"
# Failures for which the program cannot be blamed: its process could not be made, or went with its
# machine.
MACHINES_FAULT = frozenset({LOST, "not_started", KILLED, NOT_FETCHED, UNFIT, UNMET})
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
# So often a trial's restores may fail on another number of devices before it has no other any more:
# one failure may have been a passing one.
RESIZES_THAT_FAIL = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """How a suspended trial is kept."""

    tier: Tier
    #: As which it is parked.
    run: RunId
    #: On which it is parked.
    device: DeviceId
    memory_bytes: int = 0
    #: So many devices its processes are made for.
    width: int = 1
    #: Its node was asked to write down what is parked.
    leaving: bool = False
    #: The node could not do so at first.
    unwritable: bool = False
    #: It was stopped in the middle of an iteration, and nothing can be written before that ends.
    midway: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, with enough to tell the device's fault from the program's."""

    attempt: int
    device: DeviceId
    error_kind: str
    detail: str
    signature: str
    step: int
    at: Time
    #: What a rule of the study wanted done about it.
    ruled: RetryAction | None = None
    #: It was to go on from a checkpoint of another number of devices than it had.
    resized: bool = False
    #: On how many devices it was; 0: that is not known.
    devices: int = 0

    @property
    def outgrew(self) -> bool:
        """Whether it was for want of memory, on so many devices as is known."""
        return self.ruled is RetryAction.MORE_MEMORY and self.devices > 0

    @property
    def starved(self) -> bool:
        """Whether it was for want of memory, as far as is known."""
        return self.ruled is RetryAction.MORE_MEMORY or self.error_kind == OUT_OF_MEMORY

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
    """A trial's failure on a device."""

    trial: TrialId
    study: StudyId
    error_kind: str
    detail: str
    #: Tells its error from others.
    mark: str
    at: Time
    #: What it had come to.
    step: int
    #: The other device on which the trial has trained past that since; empty: on none.
    further: DeviceId = ""
    #: What ran on other devices of the node went with it.
    together: bool = False


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Until when a place is kept from trials if nothing else happens, and why."""

    until: Time
    reason: str


class Exclusion(NamedTuple):
    """Why a study is to have no more of a place: the trial that failed there, its error, and what
    of the study says so."""

    trial: TrialId
    error: str
    rule: str = "retry.rules: exclude_node"

    @property
    def reason(self) -> str:
        return f"{self.trial} failed there ({self.rule}): {self.error}"


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
    """What a trial has used so far, in seconds of its device, from its own reports."""

    busy_seconds: float = 0.0
    #: What went into suspending and resuming it; its first start is not counted.
    overhead_seconds: float = 0.0
    cpu_seconds: float = 0.0
    examples: int = 0
    #: The iterations that these reports were about, those trained twice counted twice.
    steps: int = 0
    #: The most that its processes were seen to hold.
    memory_bytes: int = 0
    #: The most that was seen to be taken on its devices.
    device_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Last, lowest and highest value of a metric; NaN never replaces a number as an extreme."""

    step: int
    #: None while what it was is to be trained again.
    last: float | None
    #: Above every number while none was seen.
    low: float = math.inf
    #: Below every number while none was seen.
    high: float = -math.inf
    #: By when the lowest was seen.
    low_step: int = 0
    #: By when the highest was.
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
    """A trial's present stay on its devices."""

    id: RunId
    devices: tuple[DeviceId, ...]
    quantum: Quantum
    since: Time
    #: When the present quantum began.
    granted: Time = 0.0
    #: How many quanta were given within this stay.
    grant: int = 0
    #: The present quantum is over.
    expired: bool = False
    #: One was passed and is not answered yet.
    milestone: float | None = None
    #: What it was asked to do.
    asked: Suspend | Stop | None = None
    #: Until then its times say little: a new process compiles within its first iterations.
    warm: bool = False
    #: The number of its last report.
    heard: int = 0
    #: How long it had come to no step by its last report.
    silent_seconds: float = 0.0
    #: Of the checkpoint that it was launched from; 0 if from none of its node.
    restored_step: int = 0
    #: It was heard to have begun, at the step `begun`.
    started: bool = False
    begun: int = 0
    #: Since when it has come to no step, if that is far too long.
    stalled_since: Time | None = None
    #: Its pace was measured since it was last compared with that on other devices.
    paced: bool = False
    #: The signal that its study had as it began, by which its node judges losses and milestones
    #: (`Study.reads`).
    reads: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """The fold of a trial's events."""

    spec: TrialSpec
    submitted: Time
    #: When it last gave a device back; its submission before that.
    rested: Time
    phase: Phase = Phase.WAITING
    paused: bool = False
    # Somebody's own loop trains it: see `Study.outside`.
    asked: bool = False
    run: Run | None = None
    attempt: int = 0
    step: int = 0
    planned_steps: int | None = None
    #: The shortest length known in its study at its last report, if it has told none itself.
    likely_steps: int | None = None
    passes: int = 0
    curve: tuple[Chunk, ...] = ()
    metrics: dict[str, MetricSummary] = field(default_factory=dict)
    #: How many are finished.
    quanta: int = 0
    #: The losses of its first finished quantum.
    first: QuantumLosses | None = None
    #: Of the last but one.
    before: QuantumLosses | None = None
    #: Of the last one.
    latest: QuantumLosses | None = None
    #: Of the quantum that is running.
    current: QuantumLosses = field(default_factory=QuantumLosses)
    milestone_percent: float = 0.0
    milestones_passed: int = 0
    not_finite: bool = False
    #: Device time from launch to release.
    served_seconds: float = 0.0
    use: Use = field(default_factory=Use)
    #: Of an iteration on each kind of device, as of the one of that kind on which it ran last.
    step_seconds: dict[str, float] = field(default_factory=dict)
    #: That device and the one before it, of each kind.
    paces: dict[str, tuple[Pace, ...]] = field(default_factory=dict)
    costs: dict[Tier, SwitchCost] = field(default_factory=dict)
    preemptions: int = 0
    kept: Kept | None = None
    #: The newest.
    checkpoint: Checkpoint | None = None
    failures: tuple[Failure, ...] = ()
    #: The failures that were the machine's since a checkpoint last moved on.
    misfortunes: int = 0
    ending: Ending | None = None
    #: What it had come to before it was extended, until that has ended some way.
    result: Result | None = None
    #: Why nothing came of that.
    not_extended: str = ""
    #: Why it ended, or why its last run did.
    reason: str = ""
    home: DeviceId | None = None
    fidelity: Fidelity = Fidelity.UNKNOWN
    fidelity_reason: str = ""
    framework: str = ""
    finished: Time | None = None
    #: The last checkpoint of which a copy came to another node.
    copied: Checkpoint | None = None
    #: The newest that is no image of processes, while the newest of all is one.
    before_image: Checkpoint | None = None
    #: The copy that is under way.
    copying: Copying | None = None
    #: When the next copy may be asked for, if one was not made.
    copy_after: Time = 0.0
    #: Its losses are the values of the signal with the other sign.
    maximized: bool = False
    #: What was heard of its last run, if that was given up and none has begun since.
    abandoned: Abandoned | None = None
    #: The suspends in which it came to no boundary by the deadline and was ended.
    overdue: int = 0
    #: What it had trained, in seconds, when its present process began.
    began_busy: float = 0.0
    #: What any of its starts took, from the launch to the first boundary.
    longest_start_seconds: float = 0.0
    #: Where it was launched last: what it printed lies there when all else is over.
    last_node: NodeId | None = None
    #: What people have made of it, for themselves; so is `note`.
    tags: tuple[str, ...] = ()
    note: str = ""
    #: The checkpoint of another trial from which this one began, as its first.
    forked: Checkpoint | None = None
    #: The trial that trains in its place while it is held back; empty: none.
    replaced_by: TrialId = ""
    #: The trial that trains for this one as long as both are alike (see `fold.riding`).
    carrier: TrialId | None = None
    #: How many of its steps others have trained for it.
    carried_steps: int = 0
    #: Their failures for want of memory in those.
    lent: tuple[Failure, ...] = ()
    #: How many devices it was launched on last, of a study whose trials may have more or fewer.
    width: int = 0
    #: On how many it is to go on; 0: that is open.
    aim: int = 0
    #: The devices on which it was last too slow: it has others as soon, if there are any.
    shunned: tuple[DeviceId, ...] = ()
    #: How often it had another number of them than before.
    resizes: int = 0
    #: Seconds of an iteration, by the number of devices.
    width_seconds: dict[int, float] = field(default_factory=dict)
    #: The checkpoints of others that it could not begin from, as the node that has them said.
    refused: tuple[CheckpointId, ...] = ()
    #: Its checkpoint that is to be tried on any number of devices, whichever it was made on.
    freed: CheckpointId = ""

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
    def is_at_rest(self) -> bool:
        """Whether no process of it is anywhere, nor has it to do with any other trial."""
        return not (self.run or self.kept or self.forked or self.spec.root)

    @property
    def is_fork(self) -> bool:
        """Whether a checkpoint of another trial is its only beginning. A trial of a stage tree that
        begins from one comes to the same from its own beginning."""
        return self.forked is not None and not self.spec.root

    @property
    def awaits_fork(self) -> bool:
        """Whether it has nothing yet, or any more, of what it was forked from."""
        lacks = self.forked is not None and self.checkpoint is None and self.kept is None
        return lacks and self.phase is Phase.WAITING

    @property
    def keeps_width(self) -> bool:
        """Whether it goes on with as many devices as its checkpoint was made on: that one could not
        be used on another number, or earlier ones could not, so that none is expected to."""
        tried = [old.attempt for old in self.failures if old.resized]
        if self.run is not None or self.checkpoint is None:
            return len(tried) >= RESIZES_THAT_FAIL  # to be resized, it would write another one
        return len(tried) >= RESIZES_THAT_FAIL or max(tried, default=0) > self.checkpoint.attempt

    @property
    def warnings(self) -> tuple[Failure, ...]:
        """The failures that tell where it would fail as well: its own, and those of others that
        have trained what it has."""
        return (*self.lent, *self.failures)

    @property
    def has_outgrown(self) -> bool:
        """Whether it ran out of memory on some number of devices, and was to have more."""
        return any(old.outgrew for old in self.failures)

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


def remembered(trial: Trial) -> tuple[Checkpoint, ...]:
    """The checkpoints of a trial to which something refers, that of its earlier result included."""
    flying = trial.copying.checkpoint if trial.copying else None
    result = trial.result.checkpoint if trial.result else None
    known = (trial.checkpoint, trial.copied, trial.before_image, flying, result)
    return tuple(each for each in known if each is not None)
