"""What has happened, in the past tense. The head journals each event before it acts on it.

Every event about a run carries its `RunId`; an event of an older attempt changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hermesd.core.losses import Chunk
from hermesd.core.model import (
    Checkpoint,
    CheckpointId,
    Device,
    DeviceId,
    Fidelity,
    Goal,
    LiveRun,
    MetricMode,
    NodeId,
    Place,
    Pool,
    RunId,
    Setting,
    StopRule,
    Study,
    StudyId,
    Tier,
    TrialId,
    TrialSpec,
    UserId,
)
from hermesd.core.sharing import Terms

# What nodes say of files, when they are asked: events like those of `events`.


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a trial's checkpoint, verified, lies on this node."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class NotCopied:
    """The copy that this node was asked for was not made."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId
    reason: str
    #: The connection between the nodes is at fault, or this node: another checkpoint would fare
    #: no better.
    way: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """No checkpoint of the trial lies on this node any more."""

    node: NodeId
    trial: TrialId


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A node that was asked for this checkpoint found that it is missing there, or damaged."""

    node: NodeId
    trial: TrialId
    checkpoint: CheckpointId
    reason: str
    #: The furthest checkpoint that it does have.
    instead: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class ImageGivenUp:
    """For too long no node could use a trial's image of processes, or had as many devices as it is
    of: the trial goes on from the checkpoint before it, or from its beginning."""

    trial: TrialId


@dataclass(frozen=True, slots=True)
class WidthGivenUp:
    """For too long no node had as many devices as a trial's checkpoint is of: the trial goes on
    from it on another number or, if that can't be, from an earlier one or the beginning."""

    trial: TrialId


@dataclass(frozen=True, slots=True)
class Looked:
    """What a node found of paths and environments: why trials can't use each, "" if they can."""

    node: NodeId
    sights: tuple[tuple[str, str], ...]


CopyEvent: TypeAlias = Copied | NotCopied | Dropped | Spoilt


# What operators make of machines and of who shares them, and what machines leave to others,
# in the past tense.
#
# Part of the events; what they have in common is said there.


@dataclass(frozen=True, slots=True)
class PoolsConfigured:
    """From now on these are the operator's pools."""

    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Yielded:
    """A node leaves itself, or one of its devices, to others for now: it gives back what runs."""

    place: Place
    reason: str
    #: It leaves for good, with its files.
    parting: bool = False


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Trials can use a place again that was yielded."""

    place: Place


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A person wants a node emptied: nothing new starts there, and its trials leave in time."""

    node: NodeId
    request_id: str


@dataclass(frozen=True, slots=True)
class NodeUndrained:
    """A drained or draining node may be used again."""

    node: NodeId
    request_id: str


@dataclass(frozen=True, slots=True)
class Forgiven:
    """A person trusts a device again, or a node with all its devices; their strikes are gone."""

    place: Place
    request_id: str


@dataclass(frozen=True, slots=True)
class TermsSet:
    """The terms by which users share have changed: users who are not named have the usual ones."""

    half_life_seconds: float
    terms: tuple[tuple[UserId, Terms], ...]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A study was accepted."""

    study: Study
    trials: tuple[TrialSpec, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Paused:
    """A person holds these trials back; running ones are suspended."""

    trials: tuple[TrialId, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Unpaused:
    """These trials may run again."""

    trials: tuple[TrialId, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A person ended these trials."""

    trials: tuple[TrialId, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Retried:
    """Failed, stopped or cancelled trials may go on from their last checkpoint."""

    trials: tuple[TrialId, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A person gave these trials tags, or took some from them, or wrote a note (None: left it)."""

    trials: tuple[TrialId, ...]
    add: tuple[str, ...]
    remove: tuple[str, ...]
    note: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Extended:
    """A study was changed: its stop rule, its parameters, its space."""

    study: StudyId
    #: Finished ones that go on.
    trials: tuple[TrialId, ...]
    stop: StopRule
    parameters: tuple[tuple[str, Setting], ...]
    #: The new command line of each.
    argv: tuple[tuple[str, ...], ...]
    request_id: str
    #: The study file's content from now on; empty: as it was.
    source: bytes = b""
    #: Trials that have not begun, with other points.
    redrawn: tuple[TrialSpec, ...] = ()
    #: New ones.
    added: tuple[TrialSpec, ...] = ()
    #: Unfinished ones that are to end, each with the reason.
    ended: tuple[tuple[TrialId, str], ...] = ()
    #: Ones that were ended before they began, and now run after all.
    resumed: tuple[TrialId, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """Trials were added to a study; one that was finished is so no longer."""

    study: StudyId
    trials: tuple[TrialSpec, ...]
    request_id: str
    #: For each of them, unless it is empty, the checkpoint of another trial of the study from which
    #: it goes on.
    forked: tuple[Checkpoint, ...] = ()
    #: Their runs are numbered on from those that took these checkpoints. (Older journals have
    #: launched forks as their first.)
    counts_on: bool = False
    #: What proposed them; empty if a person added them.
    searcher: str = ""
    #: For each of them, unless it is empty, the trial in whose place it trains: that is held back
    #: from now on.
    instead: tuple[TrialId, ...] = ()


@dataclass(frozen=True, slots=True)
class PopulationEnded:
    """All trials of a population have ended: those that others have replaced end as well."""

    study: StudyId


@dataclass(frozen=True, slots=True)
class Asked:
    """A person's own loop trains this trial."""

    trial: TrialId
    request_id: str


@dataclass(frozen=True, slots=True)
class OutcomeTold:
    """The result of a trial in a person's own loop."""

    trial: TrialId
    metrics: tuple[tuple[str, float], ...]
    #: Why it failed; empty if it did not.
    failure: str
    request_id: str


@dataclass(frozen=True, slots=True)
class SearchLimited:
    """The study's searcher is to bring it to so many trials, or to propose no more (None): by a
    person's wish, or as not even points drawn at random are to be had."""

    study: StudyId
    run_cap: int | None
    request_id: str


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """A searcher failed to propose a trial; the study's other trials are drawn at random."""

    study: StudyId
    detail: str
    #: It could not be asked, and is again after so long: none is drawn instead. 0: it was asked.
    again_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricChosen:
    """A person has chosen this metric for the study's leaderboard."""

    study: StudyId
    metric: str
    goal: Goal
    mode: MetricMode
    request_id: str


@dataclass(frozen=True, slots=True)
class SignalChosen:
    """Policies read this metric of the study from now on."""

    study: StudyId
    signal: str
    goal: Goal
    #: What its trials have reported of the metric so far; lower is better.
    curves: tuple[tuple[TrialId, tuple[Chunk, ...]], ...]
    request_id: str
    #: Why the head has chosen it; empty if a person has.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """A finished study and everything that is kept of it is removed."""

    study: StudyId
    request_id: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node said Hello with everything it knows; what it does not name, it does not have."""

    node: NodeId
    boot_id: str
    devices: tuple[Device, ...]
    live: tuple[LiveRun, ...]
    facts: tuple[str, ...] = ()
    version: str = ""
    #: The places that it leaves to others now (see `Yielded`, also for `parting`), and why.
    yields: tuple[tuple[Place, str], ...] = ()
    #: The identity of its state directory; if it changes, the files of before are gone.
    disk: str = ""
    parting: bool = False
    #: The directory that it shares with all nodes that name the same one.
    shared: str = ""
    #: Marks of the machine: a machine that has none of these is another one.
    machine: tuple[str, ...] = ()
    #: How much of its memory parked trials may hold in all; 0: it did not say.
    parked_memory_bytes: int = 0
    #: Programs of all users run as the daemon's own account there.
    runs_as_itself: bool = False
    #: The user who brought it for their own trials; the head says so, not the node.
    owner: str = ""
    #: What images of processes find on the machine, and may need on others; none: it makes no
    #: images.
    image_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """The stream to a node ended; its runs go on until their lease is out."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The lease, a grace period and a margin have passed since the node was last granted anything,
    or somebody says that it is off."""

    node: NodeId
    #: The id of the request, if a person said that it is off; else empty.
    request_id: str = ""
    #: It has left for good, with its files.
    left: bool = False


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """A device is not to be used until its node says Hello again with it."""

    device: DeviceId
    reason: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The program reached its first iteration boundary."""

    run: RunId
    step: int
    #: Since the launch came.
    start_seconds: float
    planned_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """Progress since the last report of this run. The points themselves are stored beside the
    journal and never folded."""

    run: RunId
    step: int
    #: The signal's losses; lower is better.
    chunks: tuple[Chunk, ...]
    #: The last value of each metric.
    metrics: tuple[tuple[str, float], ...] = ()
    planned_steps: int | None = None
    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0
    examples: int = 0
    #: The memory that its processes hold.
    memory_bytes: int = 0
    not_finite: bool = False
    #: The lowest and the highest value of each metric that was seen more than once.
    ranges: tuple[tuple[str, float, float], ...] = ()
    #: Increases from report to report of a run, so that one that comes twice counts once; 0: it
    #: has none.
    number: int = 0
    #: How much memory is in use on its devices, if these have memory of their own.
    device_memory_bytes: int = 0
    #: Those over its data that it has begun, but for the first of its process.
    passes: int = 0


@dataclass(frozen=True, slots=True)
class RunStalled:
    """The program has taken far longer for a step than ever before. Its next report ends this."""

    run: RunId
    #: The last step that it has made.
    step: int
    #: How long it has held its device since then.
    seconds: float


@dataclass(frozen=True, slots=True)
class QuantumEnded:
    """A limit of a grant of the run was met; the run goes on until answered."""

    run: RunId
    #: The grant's number.
    grant: int
    step: int


@dataclass(frozen=True, slots=True)
class MilestonePassed:
    """The loss fell below a milestone of the run's quantum."""

    run: RunId
    percent: float
    loss: float
    step: int


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """The run's device is confirmed free."""

    run: RunId
    #: How its progress is kept.
    tier: Tier
    #: All progress up to here is kept.
    step: int
    checkpoint: Checkpoint | None
    release_seconds: float
    cause: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The program ended well."""

    run: RunId
    step: int
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The program ended badly or could not be started; its device is confirmed free."""

    run: RunId
    error_kind: str
    detail: str
    signature: str = ""
    step: int = 0
    #: If not 0, nothing failed: the node has seen this attempt of the trial, or later ones, before.
    #: A head meets this when its state was restored from an older copy.
    newest_attempt: int = 0
    #: Which of its processes failed, if each has a device of its own.
    rank: int = 0
    #: On how many devices it was; 0: its node did not say so yet. Only where that is known, what is
    #: left to be tried is told by numbers of devices.
    devices: int = 0


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A durable checkpoint exists; the run goes on."""

    run: RunId
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ParkLost:
    """A parked process is gone; its trial goes on from its last durable checkpoint."""

    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class FidelityKnown:
    """How exact a resume of this trial is, going by what its agent has seen."""

    run: RunId
    fidelity: Fidelity
    reason: str
    framework: str


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """A policy raised; the study is scheduled first in, first out until its schedule changes."""

    study: StudyId
    detail: str


RunEvent: TypeAlias = (
    RunStarted
    | Reported
    | RunStalled
    | QuantumEnded
    | MilestonePassed
    | RunSuspended
    | RunCompleted
    | RunFailed
    | Checkpointed
    | ParkLost
    | FidelityKnown
)
Event: TypeAlias = (
    Submitted
    | Paused
    | Unpaused
    | Cancelled
    | Retried
    | Added
    | PopulationEnded
    | SearchLimited
    | SearchFailed
    | Asked
    | OutcomeTold
    | Extended
    | Marked
    | MetricChosen
    | SignalChosen
    | Removed
    | NodeJoined
    | NodeSilent
    | NodeLost
    | NodeDrained
    | NodeUndrained
    | Forgiven
    | TermsSet
    | PoolsConfigured
    | DeviceFailed
    | Yielded
    | Reclaimed
    | PolicyFailed
    | CopyEvent
    | ImageGivenUp
    | WidthGivenUp
    | Looked
    | RunEvent
)
