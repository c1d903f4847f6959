"""What nodes say of files, when they are asked: events like those of `events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hermesd.core.model import Checkpoint, CheckpointId, NodeId, TrialId


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a trial's checkpoint, verified, lies on this node."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class NotCopied:
    """The copy that this node was asked for did not come about; if it is the `way`'s fault, or this
    node's, another checkpoint would fare no better."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId
    reason: str
    way: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """No checkpoint of the trial lies on this node any more."""

    node: NodeId
    trial: TrialId


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A node that was to give this checkpoint found that it does not have it, or not what it was;
    `instead` is the furthest that it does have."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId
    reason: str
    instead: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """What a node sees of paths and environments: why trials cannot use each, "" if they can."""

    node: NodeId
    sights: tuple[tuple[str, str], ...]


CopyEvent: TypeAlias = Copied | NotCopied | Dropped | Spoilt
