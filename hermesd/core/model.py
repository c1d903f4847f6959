"""The nouns: what a study, a trial, a device, a run and a quantum are.

Everything here is a frozen value: a change makes a new one, a difference is `==`. Ids, times (UTC
seconds that never decrease) and seeds come in from outside; nothing here asks a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from hermesd.core.program import Program as Program
from hermesd.core.program import Venv as Venv
from hermesd.core.retrying import OnSameFailure, OnStall, OnThirdFailure, RetryRule

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
Setting: TypeAlias = Scalar | tuple[Scalar, ...]
# Of all nodes that no other pool claims.
DEFAULT_POOL = "default"
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

    Whether it is `final` or `on_device` is asked for every trial of a large study at once: hence
    attributes, since to look a member up in a set takes ten times as long.
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
        self.final = word in ("completed", "failed", "stopped", "cancelled")
        self.on_device = word in ("starting", "running", "suspending")


class Tier(StrEnum):
    """How a suspended trial is kept, cheapest first."""

    PARK = "park"
    CHECKPOINT = "checkpoint"
    KILL = "kill"


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
    """A grant of device time; whichever limit is met first ends it, none means for ever.

    `seconds` counts from the grant, `until_step` is a step of the trial, `loss` a value of the
    signal. With `exact` the run parks by itself at `until_step`; otherwise it reports there, the
    end of a quantum is only an event, and the run goes on until it is answered.
    `milestones` are those still ahead.
    """

    seconds: float | None = None
    until_step: int | None = None
    loss: float | None = None
    exact: bool = False
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
    """What a trial occupies. `id` is `<node>/<local id>`; `cores` are a CPU slot's."""

    id: DeviceId
    node: NodeId
    kind: str
    memory_bytes: int
    cores: tuple[int, ...] = ()

    @property
    def owns_memory(self) -> bool:
        """Whether its memory is its own: that of CPU slots is the machine's, and theirs a share."""
        return not self.cores


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The durable form of a trial's progress; `nodes` are where its files lie."""

    id: CheckpointId
    trial: TrialId
    attempt: int
    step: int
    sha256: str
    size_bytes: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A policy or a placement by name, with its settings."""

    name: str
    settings: tuple[tuple[str, Setting], ...] = ()


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a trial has had enough. `target` is in the signal's own direction."""

    max_steps: int | None = None
    max_seconds: float | None = None
    target: float | None = None
    on_nan: bool = True


@dataclass(frozen=True, slots=True)
class Study:
    """One submitted search, as accepted. `source` is the study file's content for clones.

    `identity` tells it from any other that ever bears or bore its name, here or at another head.
    So many `replicas` of each durable checkpoint are to lie on other nodes. Its trials run where
    there are all `paths`. `program_sha256` is of the file that they run, "" if unknown. With
    `metric_chosen` a person has chosen the metric since, over what `source` says.
    """

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
    source: bytes
    tier: Tier | None = None
    durability_seconds: float = 60.0
    suspend_deadline_seconds: float = 60.0
    max_failures: int = 3
    on_third_failure: OnThirdFailure = OnThirdFailure.TRIAL
    hung_seconds: float = HUNG_SECONDS
    stalled: OnStall = OnStall.TELL
    retry_rules: tuple[RetryRule, ...] = ()
    device_kind: str = ""
    memory_bytes: int = 0
    identity: str = ""
    priority: int = 0
    replicas: int = 0
    required_paths: tuple[str, ...] = ()
    program_sha256: str = ""
    metric_chosen: bool = False
    # What is submitted today stops (the study file's default); studies of older journals went on.
    on_same_failure: OnSameFailure = OnSameFailure.GO_ON

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that nodes must have: those that it requires, and its interpreter's."""
        return (*self.required_paths, *self.program.interpreter)

    @property
    def needs(self) -> tuple[str, ...]:
        """What nodes must have: paths, and the name of its environment."""
        environment = self.program.environment_need
        return (*self.paths, environment) if environment else self.paths


class Stage(NamedTuple):
    """Hyper-parameters in force until a step (None: to the end)."""

    until_step: int | None
    values: tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One point of a study's space."""

    id: TrialId
    study: StudyId
    number: int
    stages: tuple[Stage, ...]
    argv: tuple[str, ...]
    seed: int

    @property
    def parameters(self) -> tuple[tuple[str, Scalar], ...]:
        return self.stages[0].values


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run as a node knows it when it says Hello; `ended` ones still have their event to come.

    `identity` is its study's.
    """

    run: RunId
    condition: str
    devices: tuple[DeviceId, ...]
    step: int = 0
    identity: str = ""


def study_of(trial: TrialId) -> StudyId:
    """The study of a trial, by the trial's id."""
    return trial.rpartition("/")[0]
