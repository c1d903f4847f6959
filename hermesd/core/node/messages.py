"""What goes into the node's state machine: orders of the head, and facts from the hosts of trials.

All of these are frozen values. What comes out is in `actions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from hermesd.core.commands import Kill, Launch, Look, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.events import Checkpointed, FidelityKnown, Reported, RunCompleted, RunFailed
from hermesd.core.failures import kept_parked
from hermesd.core.model import (
    Checkpoint,
    CheckpointId,
    Goal,
    NodeId,
    Program,
    RunId,
    RunTerms,
    Setting,
    Stage,
    Study,
    Tier,
    Time,
    TrialId,
)
from hermesd.core.trial import Trial
from hermesd.core.widths import as_told

START_ALLOWANCE = 2.0  # times the longest start of a trial, for the next one


@dataclass(frozen=True, slots=True)
class Work:
    """What a trial's process is made from; the machine only passes it on."""

    #: Its `argv` is the trial's own command line.
    program: Program
    parameters: tuple[tuple[str, Setting], ...]
    signal: str
    signal_goal: Goal
    seed: int
    #: Of the parameters that change while it trains.
    stages: tuple[Stage, ...] = ()
    #: When so many steps are done, a checkpoint is written in passing, from which other trials go
    #: on.
    forks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """A node that has a checkpoint, where it gives it away (empty: it is not there), the ticket."""

    node: NodeId
    address: str
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Assignment:
    """A Launch with everything a node must know to carry it out."""

    launch: Launch
    checkpoint: Checkpoint | None
    work: Work
    #: Of its study.
    terms: RunTerms
    #: The other nodes that have the checkpoint and are there.
    sources: tuple[CheckpointSource, ...] = ()
    #: The one that the trial has again if it gets no further: the run never begins anew.
    result_checkpoint: str = ""
    #: Why no checkpoint is to be relied on; else empty.
    kept_parked: str = ""
    #: What its program may take to its first boundary, if that is more than any program may.
    start_allowance_seconds: float = 0.0
    #: Whose study it is.
    user: str = ""
    #: It begins from a checkpoint of another trial: the run never begins anew.
    never_anew: bool = False

    @property
    def run(self) -> RunId:
        return self.launch.run

    @property
    def identity(self) -> str:
        """Of its study."""
        return self.terms.identity


def assignment(
    launch: Launch, study: Study, trial: Trial, parts: Iterable[int | None] = ()
) -> Assignment:
    """The Launch of a trial of `study`, ready for its node; others part from it at these steps."""
    spec, result = trial.spec, trial.result
    held = result.checkpoint if result is not None else None
    program = replace(study.program, argv=spec.argv)
    work = Work(program, spec.given, study.signal, study.signal_goal, spec.seed, spec.sequences)
    work = replace(work, forks=tuple(sorted({each for each in parts if each is not None})))
    return Assignment(
        launch,
        as_told(trial, study) if launch.checkpoint else None,
        work,
        study,
        result_checkpoint=held.id if held is not None else "",
        kept_parked=kept_parked(trial),
        start_allowance_seconds=START_ALLOWANCE * trial.longest_start_seconds,
        user=study.owner,
        never_anew=trial.is_fork,
    )


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A hint: the waiting trials that this node keeps, the one that runs soonest first.

    Each replaces the one before; nothing answers it and nothing is lost with it.
    """

    trials: tuple[TrialId, ...] = ()
    #: So many of the trials, from the first, have the next turns.
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Save:
    """A wish: a checkpoint of where a run is now. The run goes on, or stays parked. What answers it
    is the checkpoint; a word to the head that writing it failed, which nothing keeps; or nothing,
    where no checkpoint can be begun now, as while the run is being suspended."""

    run: RunId


@dataclass(frozen=True, slots=True)
class Fetch:
    """A Copy for its node: fetch the checkpoint from a source, then keep no others but these."""

    checkpoint: Checkpoint
    #: None: it is its own, for its shared directory, or for the trial `into`.
    sources: tuple[CheckpointSource, ...]
    keep: tuple[CheckpointId, ...]
    node: NodeId
    #: Of the study for which it is done.
    identity: str
    #: Another trial, which begins from the checkpoint.
    into: TrialId = ""
    #: Of the study that has the checkpoint; empty: it is the same.
    parent_identity: str = ""
    #: Whose study it is.
    user: str = ""

    @property
    def trial(self) -> TrialId:
        """Whose it is to be."""
        return self.into or self.checkpoint.trial


@dataclass(frozen=True, slots=True)
class DropCopies:
    """A Drop for its node: no checkpoint of this trial is to be kept there."""

    trial: TrialId
    identity: str


Order: TypeAlias = (
    Assignment
    | Renew
    | Suspend
    | Stop
    | Kill
    | WriteDown
    | Release
    | Upcoming
    | Save
    | Fetch
    | DropCopies
    | Look
)


class Series(NamedTuple):
    """Points of one metric as the program reported them, by step."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


# Facts from hosts. Those that the head is to know just so are its own events: `Checkpointed`,
# `FidelityKnown`, `RunCompleted` and `RunFailed`.


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    """The head answered a heartbeat: until then (boot time) everything here may go on."""

    expires: Time


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """All that the program of a run needs is there, and it was started: until here the machine
    was at work."""

    run: RunId


@dataclass(frozen=True, slots=True)
class Started:
    """The program of a run stands at its first boundary, or goes on after a park."""

    run: RunId
    step: int
    #: This process has done nothing of its training yet: it may still import something, read its
    #: data, or compile its first step.
    awaits_step: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """How many steps the program will do."""

    run: RunId
    steps: int


@dataclass(frozen=True, slots=True)
class StepPace:
    """How a process comes from one step to the next, by its host, which outlives this daemon."""

    #: The longest took so long, with whatever lay between (a validation, a checkpoint); 0 while it
    #: has not done two.
    longest_step_seconds: float = 0.0
    #: What the device spent since the last step.
    silent_seconds: float = 0.0
    #: What its cores spent since then.
    silent_cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Iterations were done."""

    report: Reported
    #: They travel beside the report.
    points: tuple[Series, ...] = ()
    pace: StepPace = StepPace()


@dataclass(frozen=True, slots=True)
class Parked:
    """Every thread of the run is stopped."""

    run: RunId
    step: int
    memory_bytes: int = 0
    cause: str = ""
    #: So long after the request, at a boundary.
    boundary_seconds: float = 0.0
    #: It was stopped in an iteration that did not end by the deadline.
    midway: bool = False
    #: It is being written down already, without being asked for that, and ends then.
    demoting: bool = False


@dataclass(frozen=True, slots=True)
class LeftDevice:
    """The run's process is gone and its device free."""

    run: RunId
    tier: Tier
    step: int
    #: The newest that verifies.
    checkpoint: Checkpoint | None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class HostLost:
    """The run's host died without a word; nothing of the run is left on the device."""

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class RunFound:
    """After a restart of the daemon: a run of its journal, as its host (if any) tells it."""

    assignment: Assignment
    #: "starting", "running", "parked" or "ended"; the outcome of one that ended follows.
    condition: str
    step: int
    #: What its processes hold.
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeAcknowledged:
    """The head has the outcome of this run safe; nothing of it need be remembered."""

    run: RunId


@dataclass(frozen=True, slots=True)
class EvacuateNode:
    """Nothing is to run or stay parked on this node: write everything down and end it."""

    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Attached:
    """A stream to the head begins; what was not acknowledged is said again, and is said first."""


Ended: TypeAlias = LeftDevice | RunCompleted | RunFailed | HostLost
HostFact: TypeAlias = (
    ProcessStarted | Started | Planned | Progress | FidelityKnown | Parked | Checkpointed | Ended
)
Input: TypeAlias = (
    Order | LeaseExtended | RunFound | OutcomeAcknowledged | EvacuateNode | Attached | HostFact
)
