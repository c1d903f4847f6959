"""What lies behind a trial: how it is kept, what it used and measured, how its runs ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hermesd.core.losses import Chunk
from hermesd.core.model import (
    Checkpoint,
    DeviceId,
    Fidelity,
    NodeId,
    Phase,
    RunId,
    StudyId,
    Tier,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.retrying import RetryAction

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
