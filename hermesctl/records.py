"""What the SDK hands out: frozen records of studies and trials.

Rule: units are in the names, absent is None, enums are the words of the study file. Nothing here
knows the wire; from_wire.py makes these from its messages. A record's repr is one short line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from hermesctl.node_records import DEFAULT_POOL, Usage
from hermesctl.text import count
from hermesctl.yaml_text import Data

Params: TypeAlias = Mapping[str, Data]


class TrialState(StrEnum):
    """Where a trial stands; `waiting` is one that never ran or is suspended."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether it ended; a trial that ended can still be extended or retried."""
        return self in (self.COMPLETED, self.FAILED, self.STOPPED, self.CANCELLED)

    @property
    def on_device(self) -> bool:
        """Whether it occupies a device now."""
        return self in (self.STARTING, self.RUNNING, self.SUSPENDING)


class Stopped(list[str]):
    """The ids of the trials that were stopped; `notes` say what was lost with them."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric's newest, lowest and highest value; `best` only of the metric that ranks.

    `last` is None while the trial has yet to train again what it was, after a fall-back.
    """

    name: str
    last: float | None
    best: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The durable form of a trial's progress, and the nodes that hold its files."""

    id: str
    step: int
    sha256: str
    size_bytes: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed run of a trial."""

    device: str
    kind: str
    detail: str
    step: int
    at_unix_seconds: float
    attempt: int

    @property
    def untold(self) -> bool:
        """Whether only the exit status is known: what was wrong is in the program's output."""
        return self.kind == "exit"


@dataclass(frozen=True, slots=True)
class Quantum:
    """A grant of device time; whichever limit is met first ends it."""

    seconds: float | None
    until_step: int | None
    loss: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """One point of a study's space and how far its training is.

    `not_extended` says why it is as it was though it was to go on; else it is empty.
    `stalled_since_unix_seconds` is since when its program has come to no step, None if it goes on.
    """

    id: str
    study: str
    number: int
    state: TrialState
    paused: bool
    params: Params
    step: int
    planned_steps: int
    signal: float | None
    metric: float | None
    metrics: tuple[MetricValue, ...]
    attempt: int
    preemptions: int
    device: str
    quantum: Quantum | None
    kept_tier: str
    kept_node: str
    fidelity: str
    fidelity_reason: str
    busy_seconds: float
    overhead_seconds: float
    checkpoint: Checkpoint | None
    failures: tuple[Failure, ...]
    reason: str
    not_extended: str
    last_run_reason: str
    examples_per_second: float
    steps_per_second: float
    memory_bytes: int
    cpu_use: float
    milestone_percent: float
    rank: int | None
    framework: str
    argv: tuple[str, ...]
    stalled_since_unix_seconds: float | None = None

    @property
    def overhead_share(self) -> float:
        """Share of its device time that went into starting and suspending."""
        return share(self.overhead_seconds, self.busy_seconds)

    @property
    def progress(self) -> float | None:
        """Share of the planned steps done; None while the plan is not known."""
        return min(1.0, self.step / self.planned_steps) if self.planned_steps > 0 else None

    def __repr__(self) -> str:
        step = f"{self.step}/{self.planned_steps}" if self.planned_steps else str(self.step)
        metric = "" if self.metric is None else f", metric {self.metric:.4g}"
        return f"<Trial {self.id}: {self.state}, step {step}{metric}>"


@dataclass(frozen=True, slots=True, repr=False)
class Study:
    """A submitted search. `spec` is its study file's content as plain data.

    `metric` names what ranks its trials, `metric_reason` why if the study names none, `metric_goal`
    and `metric_mode` which of its values is the best and which one counts (`last`, `best`, or
    `smoothed`, the mean of the last tenth), empty if the head does not say. `paused`:
    nothing happens until some of its trials are resumed. `waits_for`: none of its trials is on a
    device, and this says who has those that it could use. `reported` names the metrics that were
    seen, `program_sha256` is of the file that it runs, `notices` say what its author should know.
    `policy_label` is the policy with its settings and its placement, `deciding` what decides in its
    place since it failed.
    """

    id: str
    spec: Mapping[str, Data]
    owner: str
    submitted_unix_seconds: float
    counts: Mapping[TrialState, int]
    best_trial: str
    best_metric: float | None
    busy_seconds: float
    overhead_seconds: float
    preemptions: int
    remaining_seconds: float | None
    finished: bool
    finished_unix_seconds: float | None
    checkpoint_bytes: int
    code_sha256: str
    submit_directory: str
    metric: str
    metric_reason: str
    policy: str
    paused: bool
    pool: str = DEFAULT_POOL
    waits_for: str = ""
    reported: tuple[str, ...] = ()
    program_sha256: str = ""
    notices: tuple[str, ...] = ()
    policy_label: str = ""
    deciding: str = ""
    metric_goal: str = ""
    metric_mode: str = ""

    @property
    def ranked_by(self) -> str:
        """The metric as it heads a table: `loss (smoothed)`."""
        return ranked_by(self.metric, self.metric_mode)

    @property
    def trial_count(self) -> int:
        """All its trials."""
        return sum(self.counts.values())

    @property
    def overhead_share(self) -> float:
        """Share of its device time that went into starting and suspending."""
        return share(self.overhead_seconds, self.busy_seconds)

    def __repr__(self) -> str:
        states = ", ".join(f"{amount} {state}" for state, amount in self.counts.items())
        best = f"; best {self.best_trial}" if self.best_trial else ""
        return f"<Study {self.id}: {states or 'no trials'}{best}>"


@dataclass(frozen=True, slots=True, repr=False)
class StudyDetail:
    """A study with its trials by number; `next_up` is the order in which they would run next."""

    study: Study
    trials: tuple[Trial, ...]
    next_up: tuple[str, ...]
    journal_sequence: int

    def __repr__(self) -> str:
        return f"<StudyDetail of {self.study!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class TrialDetail:
    """A trial, the last lines of what it printed, and its use of the device over time.

    `parked_memory` says that what is parked on its node exceeds its memory, it among that.
    """

    trial: Trial
    output_tail: str
    usage: tuple[Usage, ...]
    parked_memory: str = ""

    def __repr__(self) -> str:
        return f"<TrialDetail of {self.trial!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class Submission:
    """What a submit led to.

    `identical_to` names the study that was there already, in which case nothing new was begun
    and `study` is that one. After a dry run `study` is only what it would be called,
    `fitting_devices` how many devices could be given its trials now, and `misfits` says why none of
    its pool can ever take one, a line for each node; empty if one can. `policy` is what it is run
    by, its own or its pool's, with its settings: `hermes:quantum_seconds=20`.
    """

    study: str
    trials: tuple[Trial, ...]
    identical_to: str
    notes: tuple[str, ...]
    policy: str = ""
    fitting_devices: int = 0
    misfits: tuple[str, ...] = ()

    def __repr__(self) -> str:
        before = ", submitted before" if self.identical_to else ""
        return f"<Submission {self.study}: {count(len(self.trials), 'trial')}{before}>"


@dataclass(frozen=True, slots=True, repr=False)
class Curve:
    """A metric's values by step."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    metrics_available: tuple[str, ...]

    def __repr__(self) -> str:
        points = count(len(self.steps), "point")
        steps = f" from step {self.steps[0]} to {self.steps[-1]}" if self.steps else ""
        return f"<Curve {self.metric}: {points}{steps}>"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The head: its version and what it can do."""

    version: str
    cluster_id: str
    started_unix_seconds: float
    policies: tuple[str, ...]
    placements: tuple[str, ...]
    read_only: bool
    read_only_reason: str
    journal_sequence: int


class Leaderboard(list[Trial]):
    """Trials, best first, and what ranks them: see `Study.metric`."""

    def __init__(self, trials: Iterable[Trial], metric: str, goal: str, mode: str) -> None:
        super().__init__(trials)
        self.metric = metric
        self.metric_goal = goal
        self.metric_mode = mode

    @property
    def ranked_by(self) -> str:
        """The metric as it heads a table: `loss (smoothed)`."""
        return ranked_by(self.metric, self.metric_mode)


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """What a study is ranked by from now on; `notes` say what its author should know."""

    metric: str
    goal: str
    mode: str
    notes: tuple[str, ...]


def ranked_by(metric: str, mode: str) -> str:
    """A metric as it heads a table."""
    return f"{metric} (smoothed)" if mode == "smoothed" else metric


def share(part: float, rest: float) -> float:
    """`part` as a share of both; 0 when there is nothing yet."""
    return part / (part + rest) if part + rest > 0 else 0.0
