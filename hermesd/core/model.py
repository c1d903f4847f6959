"""The nouns: what a study, a trial, a device, a run and a quantum are.

Everything here is a frozen value: a change makes a new one, and `==` compares two. Ids, times (UTC
seconds that never decrease) and seeds come from outside; nothing here reads a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from hermesd.core.fast_replace import replace

# What a trial's process is made of: its command line, its interpreter, what that has
# installed.


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment: an interpreter, and what a requirements file wants installed."""

    python: str
    requirements: str

    @property
    def name(self) -> str:
        """The same wherever it is made: of what it is made of."""
        made_of = f"{self.python}\n{self.requirements}".encode()
        return f"venv-{hashlib.sha256(made_of).hexdigest()[:16]}"


def conda_need(name: str) -> str:
    """What a conda environment is called among what studies need, which are paths besides."""
    return f"conda environment {name}"


@dataclass(frozen=True, slots=True)
class Program:
    """What a node needs to run a study's trials; each trial's argv is built from its parameters."""

    argv: tuple[str, ...]
    python: str
    code_sha256: str
    submit_directory: str
    environment: tuple[tuple[str, str], ...] = ()
    data: tuple[str, ...] = ()
    requirements: str = ""
    # The name of a conda environment, which has the interpreter.
    conda: str = ""
    # By metric, the regular expression that finds it in a line of output.
    metrics: tuple[tuple[str, str], ...] = ()
    # What of the working copy stays when the disk budget is used up.
    keep: tuple[str, ...] = ()

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The path of the interpreter that nodes must have; none where each finds its own."""
        return (self.python,) if self.python.startswith("/") and not self.conda else ()

    @property
    def environment_need(self) -> str:
        """What the environment is called that nodes must have; empty without one."""
        if self.conda:
            return conda_need(self.conda)
        return "" if self.venv is None else self.venv.name

    @property
    def venv(self) -> Venv | None:
        """What it runs in, if not in its interpreter as that is."""
        return Venv(self.python, self.requirements) if self.requirements else None


# What a study wants done about failures beside what is done anyway.


class OnThirdFailure(StrEnum):
    """What the last failure that a trial may have ends."""

    TRIAL = "trial"
    STUDY = "study"


class FailureRule(StrEnum):
    """How failures are judged: by what they say of the trial, its device and its node, or as Hops
    does, which looks at nothing but their number."""

    EVIDENCE = "evidence"
    HOPS = "hops"


class OnSameFailure(StrEnum):
    """What it ends when the first three trials meet the same failure before their first step."""

    STUDY = "study"
    GO_ON = "go_on"


class OnStall(StrEnum):
    """What is done about a program that comes to no further step: it is only told, or ended and
    tried again as after a failure, or has failed for good."""

    TELL = "tell"
    RETRY = "retry"
    FAIL = "fail"


class Share(StrEnum):
    """Whether trials that begin alike train what they have in common once: none, or by a tree of
    stages, with those of other studies that are alike."""

    NO = "no"
    TREE = "tree"


class Processes(StrEnum):
    """What of a trial runs on its devices: a process for each, as torchrun starts them (each sees
    all of them, and takes that of its rank), or that sees its own device alone, or one process for
    all of them."""

    RANKS = "ranks"
    WORKERS = "workers"
    ONE = "one"


class RetryAction(StrEnum):
    """What a rule does about a failure: no run of the trial on that device again, none on a device
    of no more memory, no further run at all, or no run of any trial of the study on that node."""

    NOT_HERE = "not_here"
    MORE_MEMORY = "more_memory"
    NO_RETRY = "no_retry"
    EXCLUDE_NODE = "exclude_node"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What to do about some errors. Nothing in it makes it slow on a long error."""

    #: Found in the error in any case, its pieces between asterisks in this order.
    match: str
    do: RetryAction

    def fits(self, error: str) -> bool:
        """Whether the error's text is one of those."""
        text, position = error.lower(), 0
        for piece in self.match.lower().split("*"):
            found = text.find(piece, position)
            if found < 0:
                return False
            position = found + len(piece)
        return True


# How frameworks say that a device's memory is full: CUDA and PyTorch, TensorFlow, XLA, ROCm.
OUT_OF_DEVICE_MEMORY = tuple(
    RetryRule(words, RetryAction.MORE_MEMORY)
    for words in (
        "CUDA*out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "HIP out of memory",
        "OOM when allocating",
        "RESOURCE_EXHAUSTED*out of memory",
    )
)


def ruled(rules: Iterable[RetryRule], error: str) -> RetryAction | None:
    """What the first rule that fits wants done."""
    return next((rule.do for rule in rules if rule.fits(error)), None)


Time: TypeAlias = float
StudyId: TypeAlias = str
UserId: TypeAlias = str
TrialId: TypeAlias = str
NodeId: TypeAlias = str
DeviceId: TypeAlias = str
# Of a device or of a node: the ids of devices hold a slash, the names of nodes none.
Place: TypeAlias = str
CheckpointId: TypeAlias = str
Scalar: TypeAlias = str | int | float | bool
# Of policies and of hyper-parameters: lists have no lists in them.
Setting: TypeAlias = Scalar | tuple[Scalar, ...]
# Of all nodes that no other pool claims.
DEFAULT_POOL = "default"
# What people call the pool of the nodes that they brought themselves.
OWN_POOL = "own"
# How long a program that shows no iterations may show no sign of life, unless its study says so.
HUNG_SECONDS = 900.0


class RunId(NamedTuple):
    """One stay of a trial on a device; the attempt fences off messages of earlier stays."""

    trial: TrialId
    attempt: int

    def __str__(self) -> str:
        return f"{self.trial}#{self.attempt}"


class Phase(StrEnum):
    """Where a trial stands. WAITING covers never run and suspended alike; see `Trial.kept`.

    What is asked for every trial of a large study at once is an attribute, since to look a member
    up in a set takes ten times as long.
    """

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"

    def __init__(self, word: str) -> None:
        #: Whether the trial is over.
        self.final = word in ("completed", "failed", "stopped", "cancelled")
        #: Whether it has its devices.
        self.on_device = word in ("starting", "running", "suspending")


class Tier(StrEnum):
    """How a suspended trial is kept, cheapest first."""

    PARK = "park"
    CHECKPOINT = "checkpoint"
    KILL = "kill"

    def __init__(self, word: str) -> None:
        #: Whether its process is what is kept: on one device alone, lost with its node, and able to
        #: come to its own end meanwhile.
        self.in_process = word == "park"


class Fidelity(StrEnum):
    """What is promised about a resume of a trial."""

    UNKNOWN = "unknown"
    EXACT = "exact"
    EXACT_IF_DETERMINISTIC = "exact-if-deterministic"
    PARAMETERS_EXACT = "parameters-exact"
    PARK_ONLY = "park-only"
    AUTHOR = "author"

    @property
    def restorable(self) -> bool:
        """Whether a trial of which this is known can go on from a checkpoint at all."""
        return self not in (Fidelity.UNKNOWN, Fidelity.PARK_ONLY)


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricMode(StrEnum):
    """Which value of a metric counts; `smoothed` is `Trial.loss`, which only the signal has."""

    LAST = "last"
    BEST = "best"
    SMOOTHED = "smoothed"


@dataclass(frozen=True, slots=True)
class Milestone:
    """A percentage decrease of a trial's loss, and the loss that means it."""

    percent: float
    loss: float


@dataclass(frozen=True, slots=True)
class Quantum:
    """A grant of device time; whichever limit is met first ends it, none means for ever."""

    #: From the grant.
    seconds: float | None = None
    #: A step of the trial.
    until_step: int | None = None
    #: A value of the signal; lower is better.
    loss: float | None = None
    #: The run parks by itself at `until_step`. Otherwise it reports there: the end of a quantum is
    #: only an event, and the run goes on until it is answered.
    exact: bool = False
    #: Those that are still ahead.
    milestones: tuple[Milestone, ...] = ()

    @property
    def endless(self) -> bool:
        """Whether no limit ends it."""
        return self.seconds is None and self.until_step is None and self.loss is None

    def passed(self, loss: float, last: float) -> list[float]:
        """The percentages of the milestones that a loss passes, those past `last`, in order."""
        ahead = sorted((each.percent, each.loss) for each in self.milestones)
        return [percent for percent, below in ahead if percent > last and loss <= below]


@dataclass(frozen=True, slots=True)
class Device:
    """What a trial occupies."""

    #: `<node>/<local id>`.
    id: DeviceId
    node: NodeId
    kind: str
    memory_bytes: int
    #: A CPU slot's.
    cores: tuple[int, ...] = ()
    #: Where it sits in its machine, from the outside in: the NUMA node, PCIe bridges. The more
    #: of it two have in common, the nearer they are to each other.
    seat: tuple[str, ...] = ()

    @property
    def owns_memory(self) -> bool:
        """Whether its memory is its own: that of CPU slots is the machine's, and theirs a share."""
        return not self.cores


# In the name of a checkpoint that was written where other trials part from its own.
FORK_IN_NAME = "-fork-s"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The durable form of a trial's progress."""

    id: CheckpointId
    trial: TrialId
    attempt: int
    step: int
    sha256: str
    size_bytes: int
    #: Where its files lie.
    nodes: tuple[NodeId, ...]
    #: The node that told of it, if it is an image of processes: others need all that this one has.
    image_of: NodeId = ""
    #: Why it has the form that it has, for people.
    why: str = ""
    #: The GPU to which alone an image can be brought back, since it holds what was there.
    image_device: DeviceId = ""
    #: Whether it was written where other trials part from this one, for them to go on from. Of
    #: those in journals of before this was said, and of hosts of then, the name says it.
    is_fork: bool = False
    #: On how many devices it was made; 0: that is not known, or says nothing.
    devices: int = 0

    def is_of_other(self, devices: int) -> bool:
        """Whether it was made on another number of devices than so many, as far as is known."""
        return self.devices not in (0, devices)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A policy or a placement by name, with its settings."""

    name: str
    settings: tuple[tuple[str, Setting], ...] = ()


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a trial has had enough."""

    max_steps: int | None = None
    max_seconds: float | None = None
    #: In the signal's own direction.
    target: float | None = None
    on_nan: bool = True


@dataclass(frozen=True, slots=True)
class Searcher:
    """What proposes trials while the others train."""

    name: str
    #: To so many trials it brings the study, with those that it was submitted with.
    trials: int
    #: So many that have not begun are to be there, so that no device waits for a proposal.
    ahead: int = 1
    #: Earlier studies whose trials it knows of, as long as they are there.
    warm_start: tuple[StudyId, ...] = ()


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What a study asks of a node for each of its runs."""

    #: Tells the study from any other that ever bears or bore its name, here or at another head.
    identity: str = ""
    #: How long a trial may train until a durable checkpoint is due.
    durability_seconds: float = 60.0
    #: How long a suspend may take.
    suspend_deadline_seconds: float = 60.0
    #: For how long a program that shows no iterations may show no sign of life.
    hung_seconds: float = HUNG_SECONDS
    #: What is done about a program that comes to no further step.
    stalled: OnStall = OnStall.TELL
    #: What runs on its devices; None: ranks, of several.
    processes: Processes | None = None
    #: Each time that so many further steps are done a checkpoint is written in passing; 0: at none.
    checkpoint_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(RunTerms):
    """One submitted search, as accepted."""

    id: StudyId
    owner: str
    pool: str
    metric: str
    goal: Goal
    mode: MetricMode
    signal: str
    signal_goal: Goal
    policy: Plugin
    placement: Plugin
    program: Program
    stop: StopRule
    submitted: Time
    fingerprint: str
    #: The study file's content, for clones.
    source: bytes
    tier: Tier | None = None
    max_failures: int = 3
    on_third_failure: OnThirdFailure = OnThirdFailure.TRIAL
    retry_rules: tuple[RetryRule, ...] = ()
    failure_rule: FailureRule = FailureRule.EVIDENCE
    device_kind: str = ""
    memory_bytes: int = 0
    #: So many each trial has at a time, all of one node and one kind.
    devices: int = 1
    #: Or up to so many, where that is more: its width may change from run to run.
    most_devices: int = 0
    priority: int = 0
    #: So many copies of each durable checkpoint are to lie on other nodes.
    replicas: int = 0
    required_paths: tuple[str, ...] = ()
    #: Of the file that its trials run; empty: unknown.
    program_sha256: str = ""
    #: Of its code without the study's own file, as its client says; empty: as `code_sha256`.
    code_identity_sha256: str = ""
    #: A person has chosen the metric since, over what `source` says.
    metric_chosen: bool = False
    #: So for the signal, or the head has.
    signal_chosen: bool = False
    #: What is submitted today stops (the study file's default); studies of older journals went on.
    on_same_failure: OnSameFailure = OnSameFailure.GO_ON
    #: None: it was submitted with all its trials.
    searcher: Searcher | None = None
    #: Its trials are asked for, and told, by a loop of its author's: none is run.
    outside: bool = False
    share: Share = Share.NO
    #: The other users with whose studies it shares, if these name its owner, and all of the others.
    share_with: tuple[str, ...] = ()

    @property
    def widest(self) -> int:
        """No trial of it has more devices at a time."""
        return max(self.devices, self.most_devices)

    def as_own(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint of a trial without a number of devices that none of its trials can have: a
        node may tell any, and what a fork begins from is of another study."""
        is_possible = self.devices <= checkpoint.devices <= self.widest
        return checkpoint if is_possible else replace(checkpoint, devices=0)

    @property
    def elastic(self) -> bool:
        """Whether its trials may have now more devices and now fewer."""
        return self.most_devices > self.devices

    @property
    def reads(self) -> str:
        """The signal and its direction, as one word."""
        return f"{self.signal_goal} {self.signal}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that nodes must have: those that it requires, and its interpreter's."""
        return (*self.required_paths, *self.program.interpreter)

    @property
    def needs(self) -> tuple[str, ...]:
        """What nodes must have: paths, and the name of its environment."""
        environment = self.program.environment_need
        return (*self.paths, environment) if environment else self.paths


def as_argument(value: Setting) -> str:
    """A value as it stands on a command line: what Python's own parsers read; a list is JSON."""
    if isinstance(value, tuple):
        return str(json.dumps(value))
    return value if isinstance(value, str) else repr(value)


class Stage(NamedTuple):
    """Hyper-parameters in force until a step (None: to the end).

    The first stage of a trial has all of them, a later one those of its sequences.
    """

    until_step: int | None
    values: tuple[tuple[str, Setting], ...]


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One point of a study's space."""

    id: TrialId
    study: StudyId
    number: int
    stages: tuple[Stage, ...]
    argv: tuple[str, ...]
    seed: int
    #: Of the parameters, those that only say how its sequences run: the program is not given them.
    shape: tuple[str, ...] = ()
    #: What the searcher that proposed it wants to know of it later.
    proposal: str = ""
    #: Trials of the same root train the same until their sequences part; empty: it shares nothing.
    root: str = ""

    @property
    def parameters(self) -> tuple[tuple[str, Setting], ...]:
        """The point, with the first value of each sequence."""
        return self.stages[0].values

    @property
    def given(self) -> tuple[tuple[str, Setting], ...]:
        """The parameters that the program is given."""
        return tuple(each for each in self.parameters if each[0] not in self.shape)

    @property
    def sequences(self) -> tuple[Stage, ...]:
        """The values of what changes while it trains, stage by stage; empty if nothing does."""
        first, *later = self.stages
        if not later:
            return ()
        names = dict(later[0].values)
        values = tuple(each for each in first.values if each[0] in names)
        return (Stage(first.until_step, values), *later)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run as a node knows it when it says Hello; `ended` ones still have their event to come."""

    run: RunId
    condition: str
    devices: tuple[DeviceId, ...]
    step: int = 0
    #: Its study's.
    identity: str = ""


def study_of(trial: TrialId) -> StudyId:
    """The study of a trial, by the trial's id."""
    return trial.rpartition("/")[0]


# Pools: named sets of nodes, each with a policy and a placement of its own.
#
# A node belongs to one pool. A pool that names it outright goes before one whose pattern
# fits, and among those the one that was written first; a node that none claims is of the pool
# `default`.

PoolId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes, and how their devices are shared.

    The policy and the placement hold for all studies of the pool, since its devices have one order;
    without them each study has those that it asks for.
    """

    name: PoolId
    #: By name or by pattern (`a100-*`).
    nodes: tuple[str, ...] = ()
    policy: Plugin | None = None
    placement: Plugin | None = None
    #: Gives no copies of its studies' checkpoints to nodes of other pools, and takes none of
    #: theirs.
    private: bool = False


def own_pool(user: str) -> PoolId:
    """The pool of the nodes that a user brought."""
    return f"{OWN_POOL}.{user}"


def is_own(pool: PoolId) -> bool:
    """Whether it is the pool of somebody's own nodes."""
    return pool.startswith(f"{OWN_POOL}.")


def pool_of(node: NodeId, pools: Iterable[Pool], owner: str = "") -> PoolId:
    """The pool to which a node of this name belongs, or, if it has one, its owner's."""
    if owner:
        return own_pool(owner)
    pools = tuple(pools)
    named = (pool.name for pool in pools if node in pool.nodes)
    fitting = (
        pool.name for pool in pools if any(fnmatchcase(node, pattern) for pattern in pool.nodes)
    )
    return next(named, None) or next(fitting, DEFAULT_POOL)


# Nodes and their devices, as the head sees them.


@dataclass(frozen=True, slots=True)
class Slot:
    """A device as the head sees it now."""

    device: Device
    run: RunId | None = None
    reserved: TrialId | None = None
    healthy: bool = True
    reason: str = ""
    busy_seconds: float = 0.0
    #: To whom its machine has left it for now; else empty.
    yielded: str = ""

    @property
    def sound(self) -> bool:
        """Whether it works and is ours to use."""
        return self.healthy and not self.yielded


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with a node daemon, as the head knows it."""

    id: NodeId
    boot_id: str
    devices: tuple[DeviceId, ...]
    connected: bool = True
    #: Set while no stream to it is open.
    silent_since: Time | None = None
    facts: tuple[str, ...] = field(default=())
    version: str = ""
    #: A person wants it emptied: it gets nothing new, and gives up what it has.
    draining: bool = False
    pool: str = DEFAULT_POOL
    #: So, at once, for this reason: its machine wants it, or its daemon ends its trials.
    resting: str = ""
    disk: str = ""
    #: It is about to go, with its files.
    parting: bool = False
    #: It has gone, and is kept for the record alone.
    left: bool = False
    shared: str = ""
    machine: tuple[str, ...] = ()
    parked_memory_bytes: int = 0
    #: Programs of all users run as the daemon's own account there.
    runs_as_itself: bool = False
    #: It runs this user's trials, and no others.
    owner: str = ""
    #: What images of processes find on its machine, and may need on others; empty: it makes none.
    image_features: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether it may be given anything new."""
        return self.connected and not self.leaving

    @property
    def leaving(self) -> bool:
        """Whether it gives up what it has."""
        return self.draining or bool(self.resting)

    @property
    def lost(self) -> bool:
        """Whether it was silent for so long that nothing is expected of it any more."""
        return not self.boot_id
