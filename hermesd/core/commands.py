"""What the scheduler has decided, in the imperative. Each command is journaled before it is sent,
and has one effect per run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hermesd.core.model import (
    CheckpointId,
    DeviceId,
    NodeId,
    Place,
    Quantum,
    RunId,
    Tier,
    Time,
    TrialId,
    Venv,
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Put a trial on devices."""

    run: RunId
    devices: tuple[DeviceId, ...]
    quantum: Quantum
    reason: str
    #: The parked run to let go on. With neither this nor a checkpoint, the trial starts over.
    parked: RunId | None = None
    #: What to restore.
    checkpoint: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class Renew:
    """Let a run go on with a new grant."""

    run: RunId
    #: Its number.
    grant: int
    quantum: Quantum
    reason: str
    #: It counts from the beginning of the quantum in progress (a milestone was passed), not from
    #: now.
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Suspend:
    """Give the device back at the next boundary."""

    run: RunId
    tier: Tier | None
    deadline_seconds: float
    #: The trial that the device is reserved for.
    successor: TrialId | None
    reason: str
    #: On how many devices it is to continue (if as many as now, on others); 0: it makes room.
    width: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """End a run for good, with a last checkpoint."""

    run: RunId
    deadline_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End whatever is left of this run on this node."""

    run: RunId
    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Make a device the home of a waiting trial (placement `homes`), or keep one for a trial that
    leaves another device for it (placement `free`)."""

    trial: TrialId
    device: DeviceId


@dataclass(frozen=True, slots=True)
class Gather:
    """Keep these devices of one node for a waiting trial that needs them all, until they are free;
    none: they are not kept for it any more."""

    trial: TrialId
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """A waiting trial misses from now on what its checkpoint needs: as many devices as it is of, or
    a node that its image fits."""

    trial: TrialId
    #: "width" or "image".
    what: str
    #: It is there again, or nothing else could take the trial.
    found: bool = False


@dataclass(frozen=True, slots=True)
class WriteDown:
    """Write a parked run to disk as a checkpoint, and end its process."""

    run: RunId
    node: NodeId


@dataclass(frozen=True, slots=True)
class Copy:
    """Have a node fetch a copy of a trial's newest checkpoint from another that has it; from
    itself: put it where all nodes with the same shared directory have it."""

    trial: TrialId
    checkpoint: CheckpointId
    source: NodeId
    target: NodeId


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove the checkpoints of this trial from this node, since nothing refers to them. Repeated
    when the node has come back without an answer."""

    trial: TrialId
    node: NodeId


@dataclass(frozen=True, slots=True)
class Look:
    """Have a node say whether paths and environments are there, and again whenever that changes."""

    node: NodeId
    paths: tuple[str, ...]
    #: Made by the node if they are not there.
    venvs: tuple[Venv, ...] = ()
    condas: tuple[str, ...] = ()
    #: Stop reporting it after some minutes.
    briefly: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Keep a device or node, where different trials failed, from trials that can run elsewhere."""

    place: Place
    until: Time
    reason: str


@dataclass(frozen=True, slots=True)
class Trust:
    """Let trials run again on a device or node that was in quarantine."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Nothing is running or parked for this trial any more on this node."""

    trial: TrialId
    node: NodeId
    #: The trial's files go, too.
    forget: bool


Command: TypeAlias = (
    Launch
    | Renew
    | Suspend
    | Stop
    | Kill
    | Bind
    | Gather
    | Miss
    | WriteDown
    | Copy
    | Drop
    | Look
    | Quarantine
    | Trust
    | Release
)

# Where a decision goes: the scheduler folds and collects it.
Issue: TypeAlias = Callable[[Command], None]
