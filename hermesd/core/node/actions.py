"""What comes out of the node's state machine: actions for its shell, and events for the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hermesd.core.events import CopyEvent, DeviceFailed, Looked, RunEvent
from hermesd.core.model import Checkpoint, RunId, Tier, Time, TrialId, Venv
from hermesd.core.node.messages import Assignment, Fetch, Series


@dataclass(frozen=True, slots=True)
class Spawn:
    """Journal the run, then start its program."""

    assignment: Assignment
    #: Where it goes on from; None to begin.
    checkpoint: Checkpoint | None
    limit_step: int | None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Start the program of a run that ended from its checkpoint, on these cores, and hold it there.

    It trains nothing before a ResumeRun of a newer run, which may come before it is there.
    """

    assignment: Assignment
    checkpoint: Checkpoint
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DiscardRebuilt:
    """End a process that was rebuilt and not let go; nothing is lost with it."""

    trial: TrialId


@dataclass(frozen=True, slots=True)
class ResumeRun:
    """Journal the run, then let the parked or rebuilt process of its trial go on."""

    assignment: Assignment
    limit_step: int | None


@dataclass(frozen=True, slots=True)
class ContinueRun:
    """Let a run go on that parked at a limit which was moved meanwhile."""

    run: RunId
    limit_step: int | None


@dataclass(frozen=True, slots=True)
class SuspendRun:
    """Ask the host to give the device back in this tier by the deadline."""

    run: RunId
    tier: Tier
    deadline_seconds: float
    #: The trial does not come back.
    final: bool = False


@dataclass(frozen=True, slots=True)
class AskReport:
    """Ask a run for what it has done since its last report: now, or at a step. It goes on."""

    run: RunId
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Ask for a durable checkpoint of this name while the run goes on."""

    run: RunId
    name: str
    #: The head asked for it, and is to hear if none can be written.
    is_asked: bool = False


@dataclass(frozen=True, slots=True)
class WriteCheckpointAndExit:
    """Ask for a parked process to be written down under this name and ended."""

    run: RunId
    name: str


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Ask the host to end the process now."""

    run: RunId


@dataclass(frozen=True, slots=True)
class KillUnresponsive:
    """The host does not answer: end it and everything of the run, then say Gone."""

    run: RunId


@dataclass(frozen=True, slots=True)
class ExtendLeases:
    """Tell every host how long it may go on."""

    expires: Time


@dataclass(frozen=True, slots=True)
class DeleteTrialFiles:
    """Remove every file of a trial of which no process is left."""

    trial: TrialId


@dataclass(frozen=True, slots=True)
class FetchCheckpoint:
    """Fetch a copy of a checkpoint, and say what came of it."""

    order: Fetch


@dataclass(frozen=True, slots=True)
class DeleteCheckpoints:
    """Remove the checkpoints of a trial that was never here, or is over here."""

    trial: TrialId
    identity: str


@dataclass(frozen=True, slots=True)
class WatchRequirements:
    """Say what there is of these paths and environments, and again whenever that changes."""

    paths: tuple[str, ...]
    #: Made if they are not there.
    venvs: tuple[Venv, ...] = ()
    condas: tuple[str, ...] = ()
    #: Stop saying it after some minutes.
    briefly: bool = False


@dataclass(frozen=True, slots=True)
class TellHead:
    """An event for the head; it is repeated until acknowledged."""

    event: RunEvent | DeviceFailed | CopyEvent | Looked
    points: tuple[Series, ...] = ()
    #: The study's.
    identity: str = ""


Action: TypeAlias = (
    Spawn
    | Rebuild
    | DiscardRebuilt
    | ResumeRun
    | ContinueRun
    | SuspendRun
    | AskReport
    | WriteCheckpoint
    | WriteCheckpointAndExit
    | EndProcess
    | KillUnresponsive
    | ExtendLeases
    | DeleteTrialFiles
    | FetchCheckpoint
    | DeleteCheckpoints
    | WatchRequirements
    | TellHead
)
