"""A cluster's recorded jobs through the production scheduler, in virtual time.

`python -m benchmarks.trace philly.csv [--policies fifo,tiresias] [--nodes 50]`, with the file of a
public trace: a line for each job, with columns `timestamp`, `duration` (seconds) and `num_gpus`, as
AdaptDL's repository has Microsoft's Philly trace (`simulator/traces/philly.csv`; M. Jeon et al.,
ATC 2019). Without a file, jobs with that trace's marginals are drawn. Policies get the first
`--jobs`, those of `--whole` also all of them.

All jobs are trials of one study, with one device each for as long as they had theirs. With
`--widths` a job has as many as it had, at most the 8 of a node, and the jobs of each width are a
study: the studies take turns, and the policy orders the trials of each. To start, to resume and to
suspend takes `--switch` seconds. All CPU time counts, that of the simulated nodes too.
"""

from __future__ import annotations

import argparse
import csv
import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.report import median, publish, quantile
from hermesd.core.commands import Command, Copy, Drop, Launch, Renew, Suspend
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Added,
    Copied,
    Dropped,
    Event,
    NodeJoined,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunStarted,
    RunSuspended,
    Submitted,
)
from hermesd.core.model import (
    Checkpoint,
    Device,
    Goal,
    MetricMode,
    Program,
    RunId,
    Stage,
    StopRule,
    Study,
    Tier,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.state import State
from hermesd.policy import make_policy
from hermesd.refusal import Refused
from hermesd.sim.agenda import Agenda
from hermesd.sim.contenders import ANYWHERE, Contender, contenders

DEVICES_OF_A_NODE = 8
HOUR, DAY = 3600.0, 86400.0
# The first threshold is that of the paper; turns of four hours.
POLICIES = "fifo,tiresias:thresholds=3250:86400,quantum_seconds=14400"
COLUMNS = [
    "policy", "jobs", "devices", "mean_h", "median_h", "p99_h", "mean_wait_h", "makespan_d",
    "use_%", "switches", "decisions", "cpu_s",
]  # fmt: skip


class Recorded(NamedTuple):
    """A job as it was: when it came, for how long it ran, on how many devices."""

    arrived: Time
    seconds: float
    width: int


def read(path: Path) -> list[Recorded]:
    """The jobs of a trace, in the order in which they came."""
    with path.open(encoding="utf-8", newline="") as file:
        jobs = [
            Recorded(
                datetime.fromisoformat(row["timestamp"]).timestamp(),
                max(1.0, float(row["duration"])),
                min(DEVICES_OF_A_NODE, int(row["num_gpus"])),
            )
            for row in csv.DictReader(file)
        ]
    first = min(jobs).arrived
    return sorted(job._replace(arrived=job.arrived - first) for job in jobs)


def drawn(count: int) -> list[Recorded]:
    """Jobs with the marginals of the Philly trace as AdaptDL's repository has it.

    Of 82,247 jobs in 109 days 93.2 % had one device, 2.2 % two, 2.3 % four and the others eight or
    more; the 1st, 10th, 25th ... percentiles of the durations are those below, between which they
    are evenly spread by their logarithms. Arrivals are drawn evenly.
    """
    chance = random.Random(0)
    shares = (0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)
    seconds = (1, 17, 61, 115, 1_144, 2_932, 11_265, 254_758, 4_628_226)

    def job() -> Recorded:
        share = chance.random()
        place = bisect_right(shares, share) - 1
        part = (share - shares[place]) / (shares[place + 1] - shares[place])
        lasting = seconds[place] * (seconds[place + 1] / seconds[place]) ** part
        (width,) = chance.choices((1, 2, 4, 8), (93.2, 2.2, 2.3, 2.3))
        return Recorded(chance.uniform(0, 109 * DAY * count / 82_247), lasting, width)

    return sorted(job() for _ in range(count))


class Replayed:
    """The jobs under a policy, from the first to the last."""

    def __init__(
        self, jobs: Sequence[Recorded], nodes: int, contender: Contender, switch_seconds: float
    ) -> None:
        self.jobs = jobs
        self.finished: dict[TrialId, Time] = {}
        self.waited: dict[TrialId, float] = {}
        self.switches = self.decisions = 0
        self._switch = switch_seconds
        self._seconds: dict[TrialId, float] = {}
        self._left: dict[TrialId, float] = {}
        self._began: dict[TrialId, Time] = {}
        self._plans: dict[TrialId, int] = {}
        self._agenda = Agenda()
        self._state = State()
        self._scheduler = Scheduler(self._state, make_policy, make_placement)
        for number in range(nodes):
            node = f"n{number}"
            devices = tuple(
                Device(f"{node}/{at}", node, "gpu", 1 << 34) for at in range(DEVICES_OF_A_NODE)
            )
            self._scheduler.observe(NodeJoined(node, "boot", devices, ()), 0.0)
        for width in sorted({job.width for job in jobs}):
            study = _study(width, contender)
            self._scheduler.observe(Submitted(study, (), study.id), 0.0)
        counts: Counter[int] = Counter()
        for job in jobs:
            number, counts[job.width] = counts[job.width], counts[job.width] + 1
            self._agenda.at(job.arrived, partial(self._arrived, job, number))

    def play(self) -> None:
        """Until all have come to their end."""
        while self._agenda.step():
            pass
        self._state.check()
        assert len(self.finished) == len(self.jobs), "jobs are left that get no device"

    def _tell(self, *events: Event) -> None:
        now = self._agenda.now
        for event in events:
            self._scheduler.observe(event, now)
        self.decisions += 1
        for command in self._scheduler.decide(now):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Launch(run, quantum=quantum):
                self._agenda.after(self._switch, partial(self._started, run, quantum.seconds))
            case Renew(run, grant, quantum):
                self._trained(run.trial)
                self._grant(run, grant, quantum.seconds)
            case Suspend(run):
                step = self._trained(run.trial)
                self._plans[run.trial] += 1
                self._agenda.after(self._switch, partial(self._suspended, run, step))
            case Copy(trial, checkpoint, _, target):
                told = Copied(target, trial, checkpoint)
                self._agenda.after(self._switch, partial(self._tell, told))
            case Drop(trial, node):
                self._agenda.after(self._switch, partial(self._tell, Dropped(node, trial)))
            case _:
                pass

    def _arrived(self, job: Recorded, number: int) -> None:
        study = f"w{job.width}"
        spec = TrialSpec(f"{study}/{number}", study, number, (Stage(None, ()),), (), number)
        self._left[spec.id] = self._seconds[spec.id] = job.seconds
        self.waited[spec.id] = -job.arrived - job.seconds
        self._tell(Added(study, (spec,), spec.id))

    def _started(self, run: RunId, seconds: float | None) -> None:
        self._began[run.trial] = self._agenda.now
        self._tell(RunStarted(run, self._trained(run.trial), self._switch))
        self._grant(run, 0, seconds)

    def _grant(self, run: RunId, grant: int, seconds: float | None) -> None:
        left = self._left[run.trial]
        plan = self._plans[run.trial] = self._plans.get(run.trial, 0) + 1
        if seconds is not None and seconds < left:
            self._agenda.after(seconds, partial(self._over, run, plan, grant))
        # The job runs on when its quantum is over, unless somebody else is to have its turn.
        self._agenda.after(left, partial(self._completed, run, plan))

    def _over(self, run: RunId, plan: int, grant: int) -> None:
        if self._plans[run.trial] == plan:
            step = self._trained(run.trial)
            busy = step - self._scheduler.state.trials[run.trial].step
            report = Reported(run, step, (), busy_seconds=busy)
            self._tell(report, QuantumEnded(run, grant, step))

    def _completed(self, run: RunId, plan: int) -> None:
        if self._plans[run.trial] == plan:
            self._plans[run.trial] += 1
            self.finished[run.trial] = self._agenda.now
            self.waited[run.trial] += self._agenda.now
            self._tell(RunCompleted(run, self._trained(run.trial)))

    def _suspended(self, run: RunId, step: int) -> None:
        self.switches += 1
        node = self._state.node_of(self._state.trials[run.trial]) or ""
        saved = Checkpoint(str(run), run.trial, run.attempt, step, "", 1, (node,))
        self._tell(RunSuspended(run, Tier.CHECKPOINT, step, saved, self._switch))

    def _trained(self, trial: TrialId) -> int:
        """The trial's whole seconds by now, which are its steps."""
        now = self._agenda.now
        self._left[trial] -= now - self._began[trial]
        self._began[trial] = now
        return int(self._seconds[trial] - self._left[trial])


def _study(width: int, contender: Contender) -> Study:
    return Study(
        id=f"w{width}", owner="trace", pool="default", metric="loss", goal=Goal.MINIMIZE,
        mode=MetricMode.LAST, signal="loss", signal_goal=Goal.MINIMIZE, policy=contender.policy,
        placement=ANYWHERE, program=Program((), "", "", ""), stop=StopRule(), submitted=0.0,
        fingerprint="", source=b"", devices=width,
    )  # fmt: skip


def row(replayed: Replayed, label: str, devices: int, cpu_seconds: float) -> list[str | float]:
    """What came of a policy."""
    jobs = replayed.jobs
    waits = list(replayed.waited.values())
    arrived = {}
    counts: Counter[int] = Counter()
    for job in jobs:
        arrived[f"w{job.width}/{counts[job.width]}"] = job.arrived
        counts[job.width] += 1
    took = [(replayed.finished[trial] - at) / HOUR for trial, at in arrived.items()]
    makespan = max(replayed.finished.values())
    used = sum(job.seconds * job.width for job in jobs)
    return [
        label, len(jobs), devices, fmean(took), median(took), quantile(took, 0.99),
        fmean(waits) / HOUR, makespan / DAY, 100 * used / (makespan * devices), replayed.switches,
        replayed.decisions, cpu_seconds,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="the trace; without: jobs are drawn")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--nodes", type=int, default=16, help="of 8 devices each (default 16)")
    parser.add_argument("--widths", action="store_true", help="as many devices as each job had")
    parser.add_argument("--jobs", type=int, default=10_000, help="the first so many (10,000)")
    parser.add_argument("--whole", default=POLICIES, help="policies that get all jobs, too (both)")
    parser.add_argument("--switch", type=float, default=10.0, help="seconds (default 10)")
    parser.add_argument("--out", type=Path, help="instead of benchmarks/results/trace.json")
    words = parser.parse_args()
    try:
        plays = [(each, words.jobs) for each in contenders(words.policies)]
        if words.whole:
            plays += [(each, None) for each in contenders(words.whole)]
        recorded = read(words.file) if words.file else drawn(80_000)
    except (Refused, OSError, KeyError, ValueError) as error:
        parser.error(str(error))
    if not words.widths:
        recorded = [job._replace(width=1) for job in recorded]
    rows: list[list[str | float]] = []
    for contender, count in plays:
        jobs = recorded[:count]
        began = time.process_time()
        replayed = Replayed(jobs, words.nodes, contender, words.switch)
        replayed.play()
        seconds = time.process_time() - began
        rows.append(row(replayed, contender.label, words.nodes * DEVICES_OF_A_NODE, seconds))
    publish("trace", COLUMNS, rows, words.out)


if __name__ == "__main__":
    main()
