"""What the SDK returns: frozen records of studies and trials.

Units are in the names, a missing value is None, and enums are the words of the study file. Nothing
here knows the wire; from_wire.py makes these from its messages. A record's repr is one short line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hermesctl.sdk import notebook
from hermesctl.text import count
from hermesctl.yaml_text import Data
from hermesd.security.identity import Role

# About machines: nodes, their devices, and how much of these is used.

# Of the nodes that no other pool claims, and of the studies that name none.
DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used over one interval: a share of the device, and memory."""

    utilization: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A device or node that is kept from trials that can run elsewhere: until when, and why."""

    until_unix_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A study that runs nothing more on a node, by a rule of its own, and why."""

    study: str
    reason: str


@dataclass(frozen=True, slots=True)
class Strike:
    """A trial's failure on a device, as it is held against it."""

    trial: str
    kind: str
    detail: str
    at_unix_seconds: float


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node, and who is on it."""

    id: str
    node: str
    kind: str
    memory_bytes: int
    cores: tuple[int, ...]
    #: Empty: none, or one of `others`.
    trial: str
    #: The trial that gets it once the one on it is suspended; else empty.
    reserved_for: str
    healthy: bool
    #: Why it is not healthy.
    reason: str
    usage: Usage
    #: How long trials have trained on it.
    busy_seconds: float
    quarantine: Quarantine | None = None
    #: Failures that count against it.
    strikes: tuple[Strike, ...] = ()
    #: It runs a trial that is not shown to the caller, who does not own it.
    others: bool = False
    #: To whom its machine leaves it for now; empty: trials can use it.
    yielded: str = ""
    #: Its speed relative to its kind; 1 if it is as fast, or not known to differ.
    speed: float = 1.0
    #: How often trials that ran on it ran on another device of its kind as well.
    comparisons: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """A node daemon and its devices."""

    id: str
    connected: bool
    devices: tuple[Device, ...]
    #: What it found out about its machine, for people.
    facts: tuple[str, ...]
    version: str
    #: How long it has not been heard; 0 while it is connected.
    silent_seconds: float
    #: It is to be emptied: nothing new starts there.
    draining: bool = False
    #: If it is draining or resting: the trials that are parked there.
    parked: tuple[str, ...] = ()
    #: If so: the trials that no checkpoint could bring back elsewhere.
    stuck: tuple[str, ...] = ()
    #: If so: how many unfinished trials have their only checkpoint there.
    only_copies: int = 0
    #: Set while it gets only trials that can run nowhere else.
    quarantine: Quarantine | None = None
    #: The studies that run nothing on it any more.
    exclusions: tuple[Exclusion, ...] = ()
    pool: str = DEFAULT_POOL
    #: Why its machine wants it back for now; else empty.
    resting: str = ""
    #: What studies require and it lacks, each with the reason.
    lacking: tuple[str, ...] = ()
    #: What its administrators should know about its daemon.
    warnings: tuple[str, ...] = ()
    #: It counts as lost.
    lost: bool = False

    @property
    def running(self) -> tuple[str, ...]:
        """The trials on its devices."""
        return tuple(device.trial for device in self.devices if device.trial)

    @property
    def drained(self) -> bool:
        """Whether it was to be emptied and nothing runs or is parked there any more."""
        taken = any(device.trial or device.others for device in self.devices)
        return self.draining and not taken and not self.parked

    @property
    def state(self) -> str:
        """`connected`, `resting`, `quarantined`, `silent` or `lost`; `draining` or `drained` also
        of one that is not connected."""
        if self.draining:
            return "drained" if self.drained else "draining"
        if self.connected and self.resting:
            return "resting"
        if self.connected and self.quarantine is not None:
            return "quarantined"
        if self.connected:
            return "connected"
        return "lost" if self.lost else "silent"

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.state}, {count(len(self.devices), 'device')}>"


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


class ChangedTrials(list[str]):
    """The ids of the trials that were changed."""

    def __init__(self) -> None:
        super().__init__()
        #: What became of them, in sentences.
        self.notes: list[str] = []


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric's newest, lowest and highest value."""

    name: str
    #: None while the trial trains again what was lost.
    last: float | None
    #: Set only for the metric that ranks.
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
    #: The node that made it, if it is an image of processes; else empty.
    image_of: str = ""
    #: The only GPU on which it can be restored, if the image holds what was there; else empty.
    image_device: str = ""
    #: Whether it was written where other trials part from this one.
    is_fork: bool = False
    #: Why it has this form; may be empty.
    why: str = ""
    #: On how many devices it was made; 0: unknown.
    devices: int = 0


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


@dataclass(frozen=True, slots=True)
class WidthSpeed:
    """How fast a trial is on so many devices; 0 while that is not known."""

    devices: int
    steps_per_second: float


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """One point of a study's space, and how far its training is."""

    id: str
    study: str
    number: int
    state: TrialState
    paused: bool
    params: Params
    step: int
    planned_steps: int
    signal: float | None
    #: Its value of the study's metric; None if it has none.
    metric: float | None
    metrics: tuple[MetricValue, ...]
    attempt: int
    #: How often it was suspended for another trial.
    preemptions: int
    device: str
    quantum: Quantum | None
    kept_tier: str
    kept_node: str
    #: How exact a resume of it is; `fidelity_reason` says why.
    fidelity: str
    fidelity_reason: str
    #: How long it trained on a device.
    busy_seconds: float
    #: How long its device was busy starting and suspending it.
    overhead_seconds: float
    checkpoint: Checkpoint | None
    failures: tuple[Failure, ...]
    reason: str
    #: Why it could not be extended and is as it was; else empty.
    not_extended: str
    last_run_reason: str
    examples_per_second: float
    steps_per_second: float
    memory_bytes: int
    cpu_use: float
    milestone_percent: float
    #: Its place on the leaderboard, from 1; None without a metric, or if it failed.
    rank: int | None
    framework: str
    argv: tuple[str, ...]
    #: Since when its program has made no step; None if it makes progress.
    stalled_since_unix_seconds: float | None = None
    #: What people wrote about it, like `note`.
    tags: tuple[str, ...] = ()
    note: str = ""
    #: How many steps it will take in all: those planned, or fewer where a stop rule or the study's
    #: completed trials tell; 0 if that is not known, or it has ended.
    expected_steps: int = 0
    #: Seconds of training until it ends, at its present speed; None if unknown.
    remaining_seconds: float | None = None
    #: The trial that it was forked from, at which of its steps; empty: none.
    forked_from: str = ""
    forked_at_step: int = 0
    #: In a population: the trial that goes on in its place while it is held back; else empty.
    replaced_by: str = ""
    #: The most that was seen to be taken on its GPUs, by which it is kept from smaller ones.
    device_memory_bytes: int = 0
    #: The trial that trains for this one as long as both are the same; empty: none.
    rides_on: str = ""
    #: How many of its steps others have trained for it.
    shared_steps: int = 0
    #: What its steps took, those in common with others divided among them; 0 if it shares nothing.
    shared_out_seconds: float = 0.0
    #: Its speed on each number of devices, if it may have more or fewer; else empty.
    widths: tuple[WidthSpeed, ...] = ()
    #: How often it was launched on another number of devices than before.
    resizes: int = 0

    @property
    def overhead_share(self) -> float:
        """Share of its device time that went into starting and suspending."""
        return share(self.overhead_seconds, self.busy_seconds)

    @property
    def progress(self) -> float | None:
        """Share of its steps done; None while nobody knows how many there will be."""
        steps = self.expected_steps or self.planned_steps
        return min(1.0, self.step / steps) if steps > 0 else None

    def columns(self) -> dict[str, Data]:
        """What a row of a table has of it: its hyper-parameters, progress and latest metrics."""
        names = {"trial", "state", "step", "metric", "rank"}
        given = {f"params.{n}" if n in names else n: value for n, value in self.params.items()}
        values = {each.name: each.last for each in self.metrics}
        named = {f"metrics.{n}" if n in names | given.keys() else n: v for n, v in values.items()}
        return {
            "rank": self.rank,
            "trial": self.id,
            "state": str(self.state),
            **given,
            "step": self.step,
            "metric": self.metric,
            **named,
        }

    def __repr__(self) -> str:
        step = f"{self.step}/{self.planned_steps}" if self.planned_steps else str(self.step)
        metric = "" if self.metric is None else f", metric {self.metric:.4g}"
        return f"<Trial {self.id}: {self.state}, step {step}{metric}>"


@dataclass(frozen=True, slots=True, repr=False)
class Study:
    """A submitted search."""

    id: str
    #: Its study file's content as plain data.
    spec: Mapping[str, Data]
    owner: str
    submitted_unix_seconds: float
    counts: Mapping[TrialState, int]
    best_trial: str
    best_metric: float | None
    #: How long its trials trained on devices.
    busy_seconds: float
    #: How long devices were busy starting and suspending them.
    overhead_seconds: float
    preemptions: int
    #: Until its last trial ends, at the present rate; None if unknown.
    remaining_seconds: float | None
    finished: bool
    finished_unix_seconds: float | None
    checkpoint_bytes: int
    code_sha256: str
    submit_directory: str
    #: The metric that ranks its trials.
    metric: str
    #: Why that one, if the study names none.
    metric_reason: str
    policy: str
    #: All its unfinished trials are paused.
    paused: bool
    pool: str = DEFAULT_POOL
    #: If none of its trials is on a device: which trials have those that it could use.
    waits_for: str = ""
    #: The names of the metrics that its trials have reported.
    reported: tuple[str, ...] = ()
    #: Of the file that it runs.
    program_sha256: str = ""
    #: What its author should know.
    notices: tuple[str, ...] = ()
    #: The policy with its settings and its placement.
    policy_label: str = ""
    #: What decides instead of the policy, which has failed; else empty.
    deciding: str = ""
    #: Of all its trials together; those in common are trained once.
    steps: int = 0
    trained_steps: int = 0
    #: How many trials it will have once its searcher has proposed all; 0: it has them all.
    trials_wanted: int = 0
    #: As `remaining_seconds`, if all trials that were not measured yet are as fast, or as slow, as
    #: any that was; None from a head that does not tell.
    remaining_least_seconds: float | None = None
    remaining_most_seconds: float | None = None
    #: Which value is the best: `minimize`, `maximize`; empty if the head does not say.
    metric_goal: str = ""
    #: Which value counts: `last`, `best`, or `smoothed`, the mean of the last tenth; empty if the
    #: head does not say.
    metric_mode: str = ""
    #: The metric that policies read; empty if the head does not say.
    signal: str = ""

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


@dataclass(frozen=True, slots=True)
class TrialFile:
    """A file of a trial's working copy."""

    #: Relative to the working copy.
    path: str
    size_bytes: int
    modified_unix_seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class StudyDetail:
    """A study with its trials by number."""

    study: Study
    trials: tuple[Trial, ...]
    #: The order in which the policy would run them next.
    next_up: tuple[str, ...]
    journal_sequence: int

    @property
    def progress(self) -> float | None:
        """The share of all trials' steps that is done, of those to be proposed too; a trial that
        ended counts as whole.

        None while not one trial's is known.
        """
        trials = self.trials
        if not any(t.state.final or t.progress is not None for t in trials):
            return None
        count = max(len(trials), self.study.trials_wanted)
        return sum(1.0 if t.state.final else t.progress or 0.0 for t in trials) / count

    def frame(self) -> Any:
        """Its trials by number, as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        return notebook.frame([trial.columns() for trial in self.trials])

    def __repr__(self) -> str:
        return f"<StudyDetail of {self.study!r}>"

    def _repr_html_(self) -> str:
        caption = repr(self.study).strip("<>").removeprefix("Study ")
        return notebook.table(caption, [trial.columns() for trial in self.trials])


@dataclass(frozen=True, slots=True, repr=False)
class Fork(Trial):
    """A trial that goes on from another one. It never equals a `Trial`: compare their `id`."""

    #: Why it begins before the step that the other trial has come to, or from a third one.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TrialDetail:
    """A trial, the last lines of what it printed, and its use of the device over time."""

    trial: Trial
    output_tail: str
    usage: tuple[Usage, ...]
    #: Says if trials parked on its node, it among them, take more memory than they should.
    parked_memory: str = ""
    #: Its training processes as their node numbers them, as far as is known.
    pids: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<TrialDetail of {self.trial!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class Submission:
    """What a submit led to."""

    #: Its id; after a dry run, the id that it would have.
    study: str
    trials: tuple[Trial, ...]
    #: The identical study, if there is one; then nothing was started, and `study` is that one.
    identical_to: str
    #: What is worth knowing.
    notes: tuple[str, ...]
    #: Its policy, or its pool's, with the settings: `hermes:quantum_seconds=20`.
    policy: str = ""
    #: How many of its trials could have their devices now, at the same time.
    fitting_devices: int = 0
    #: Why no node of its pool can ever take a trial, a line for each node; empty if one can.
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

    def frame(self) -> Any:
        """Its values by step, as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        points = zip(self.steps, self.values, strict=True)
        rows = [{"step": step, self.metric: value} for step, value in points]
        return notebook.frame(rows).set_index("step") if rows else notebook.frame(rows)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw it.

        Args:
            ax: matplotlib's axes to draw on; by default new ones.
            style: what matplotlib's `plot` takes, such as `label`.

        Returns:
            The axes.

        Raises:
            UsageError: matplotlib is not installed.
        """
        ax = notebook.axes(ax)
        ax.plot(self.steps, self.values, **style)
        ax.set_xlabel("step")
        ax.set_ylabel(self.metric)
        return ax


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

    def __init__(
        self,
        trials: Iterable[Trial],
        metric: str,
        goal: str,
        mode: str,
        objectives: Mapping[str, str] | None = None,
        front: Iterable[str] = (),
    ) -> None:
        super().__init__(trials)
        self.metric = metric
        self.metric_goal = goal
        self.metric_mode = mode
        #: If the study has several objectives: each with its goal, the metric first.
        self.objectives = dict(objectives or {})
        #: The trials that no other surpasses in one of these without being worse in another. They
        #: come first.
        self.front = frozenset(front)

    def frame(self) -> Any:
        """Its trials, best first, as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        return notebook.frame([trial.columns() for trial in self])

    def _repr_html_(self) -> str:
        return notebook.table(f"by {self.ranked_by}", [trial.columns() for trial in self])

    @property
    def ranked_by(self) -> str:
        """The metric as it heads a table: `loss (smoothed)`."""
        return ranked_by(self.metric, self.metric_mode)


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """What a study is ranked by from now on."""

    metric: str
    goal: str
    mode: str
    #: What its author should know.
    notes: tuple[str, ...]


def ranked_by(metric: str, mode: str) -> str:
    """A metric as it heads a table."""
    return f"{metric} (smoothed)" if mode == "smoothed" else metric


def share(part: float, rest: float) -> float:
    """`part` as a share of both; 0 when there is nothing yet."""
    return part / (part + rest) if part + rest > 0 else 0.0


# Why a trial runs or waits.


@dataclass(frozen=True, slots=True)
class Ranked:
    """A trial's place in the policy's present order, in the policy's words."""

    trial: str
    words: str
    state: TrialState


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A place that a trial does not get as long as it could run elsewhere."""

    place: str
    reason: str
    until_unix_seconds: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a trial runs or waits."""

    trial: str
    #: One sentence; of a study, a line for each of: how it is, who is on a device, who is next.
    summary: str
    #: The trials of its study in the present order of the policy.
    ranking: tuple[Ranked, ...]
    last_decision: str
    policy: str
    #: Places that it avoids as long as it can run elsewhere.
    left_out: tuple[LeftOut, ...] = ()
    #: What the study's author should know.
    notices: tuple[str, ...] = ()
    #: Which earlier studies the policy goes by and how, or why by none; empty for one that never
    #: goes by any, and once all trials have ended.
    earlier_studies: str = ""

    def __repr__(self) -> str:
        return f"<Explanation {self.trial}: {self.summary}>"


# Who may use a head from other machines, and how those who do share its devices.


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation to join a head."""

    #: Valid for one machine or person, or for as many as were asked for.
    token: str
    #: Where the head thinks that it can be reached.
    address: str


@dataclass(frozen=True, slots=True)
class Member:
    """A node or a person with a certificate."""

    role: Role
    name: str
    expires_unix_seconds: float


@dataclass(frozen=True, slots=True)
class AuthorityStatus:
    """By what a head is known, and whether that is being replaced."""

    #: The fingerprint of these certificates.
    roots: str
    #: When the new key begins to sign; 0: no rotation is under way.
    signs_unix_seconds: float
    #: When the old one is no longer trusted; 0: no rotation is under way.
    ends_unix_seconds: float
    #: Who has not connected since the last of these steps.
    behind: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A person's token, without its secret."""

    name: str
    user: str
    role: Role
    #: Who made it.
    by: str
    made_unix_seconds: float
    expires_unix_seconds: float


@dataclass(frozen=True, slots=True)
class User:
    """What a user has and has used of the devices, and may have."""

    name: str
    #: Their share beside others who have unfinished trials.
    weight: float
    #: A quota, as are the two other maxima; None: there is none.
    max_devices: int | None
    max_unfinished_trials: int | None
    #: How many they have now.
    devices: int
    unfinished_trials: int
    studies: int
    #: What they have used; it counts half as much after each half-life.
    decayed_device_seconds: float
    #: Their part of everybody's decayed device seconds, from 0 to 1.
    share: float
    #: The part that they would have by the weights of those with unfinished trials.
    fair_share: float
    half_life_seconds: float
    max_studies: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change, or calls that were refused alike."""

    number: int
    at_unix_seconds: float
    role: str
    name: str
    #: What let the caller in: `socket`, `token`, `invitation`, `certificate`.
    shown: str
    #: The address of the other end, as gRPC writes it.
    peer: str
    method: str
    #: What it was about: the name of a study, a trial, a node.
    subject: str
    #: `OK`, or the name of a gRPC status code.
    result: str
    reason: str
    #: How many calls were refused in the same way.
    times: int
