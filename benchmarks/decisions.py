"""Decisions per second: the production scheduler over many trials, one report and quantum end each.

A step is what the head does when a quantum ends: fold the report and the end, decide, fold the
release, decide again. `python -m benchmarks.decisions [trials ...]`.
"""

from __future__ import annotations

import sys
import time

from benchmarks.report import median, publish, quantile
from hermesd.core.commands import Launch, Suspend
from hermesd.core.events import (
    NodeJoined,
    QuantumEnded,
    Reported,
    RunStarted,
    RunSuspended,
    Submitted,
)
from hermesd.core.losses import chunked
from hermesd.core.model import (
    Device,
    Goal,
    MetricMode,
    Plugin,
    Program,
    Stage,
    StopRule,
    Study,
    Tier,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.scheduler import Scheduler
from hermesd.core.state import State
from hermesd.policy import POLICIES, make_policy

DEVICES = 16
STEPS = 2_000


def study(policy: str, trials: int) -> Submitted:
    """A study of `trials` trials under a policy."""
    program = Program(("python", "train.py"), "python", "", "")
    spec = Study(
        "bench", "me", "default", "loss", Goal.MINIMIZE, MetricMode.LAST, "loss", Goal.MINIMIZE,
        Plugin(policy), Plugin("free"), program, StopRule(), 0.0, "", b"",
    )  # fmt: skip
    members = tuple(
        TrialSpec(f"bench/{n}", "bench", n, (Stage(None, ()),), ("python",), n)
        for n in range(trials)
    )
    return Submitted(spec, members, "request")


def measure(policy: str, trials: int) -> tuple[list[float], float]:
    """Seconds of each step, and of the first decision over all trials."""
    scheduler = Scheduler(State(), make_policy, make_placement)
    now = 0.0
    scheduler.observe(study(policy, trials), now)
    devices = tuple(Device(f"n/cpu:{i}", "n", "cpu", 1 << 34, (i,)) for i in range(DEVICES))
    scheduler.observe(NodeJoined("n", "boot", devices, ()), now)
    begun = time.perf_counter()
    running = [command.run for command in scheduler.decide(now) if isinstance(command, Launch)]
    first = time.perf_counter() - begun
    for run in running:
        scheduler.observe(RunStarted(run, scheduler.state.trials[run.trial].step, 0.1), now)
    scheduler.decide(now)
    seconds = []
    for _ in range(STEPS):
        run = running.pop(0)
        trial = scheduler.state.trials[run.trial]
        losses = [5.0 / (1 + trial.step + i) + trial.spec.number * 1e-6 for i in range(50)]
        now += 0.1
        begun = time.perf_counter()
        assert trial.run is not None
        scheduler.observe(
            Reported(run, trial.step + 50, chunked(trial.step + 1, losses), busy_seconds=1.0), now
        )
        scheduler.observe(QuantumEnded(run, trial.run.grant, trial.step + 50), now)
        commands = scheduler.decide(now)
        if any(isinstance(command, Suspend) for command in commands):
            step = scheduler.state.trials[run.trial].step
            scheduler.observe(RunSuspended(run, Tier.PARK, step, None, 0.01), now)
            commands = scheduler.decide(now)
        seconds.append(time.perf_counter() - begun)
        launched = [command.run for command in commands if isinstance(command, Launch)]
        for fresh in launched:
            step = scheduler.state.trials[fresh.trial].step
            scheduler.observe(RunStarted(fresh, step, 0.1), now)
        running += launched or [run]
    return seconds, first


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1_000, 10_000]
    rows: list[list[str | float]] = []
    for trials in sizes:
        for policy in sorted(POLICIES):
            seconds, first = measure(policy, trials)
            rows.append(
                [
                    policy, trials, DEVICES, first * 1e3, median(seconds) * 1e6,
                    quantile(seconds, 0.99) * 1e6, 1 / median(seconds),
                ]
            )  # fmt: skip
    columns = [
        "policy",
        "trials",
        "devices",
        "first_ms",
        "step_p50_us",
        "step_p99_us",
        "steps_per_s",
    ]
    publish("decisions", columns, rows)


if __name__ == "__main__":
    main()
