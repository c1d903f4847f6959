"""What one simulated search costs in each of the two simulators, and when each says it is over.

`python -m benchmarks.research.simulators [trials]`: trials of 1,000 s each on four devices, under
`best_first`, nothing going wrong. `drive` wakes where something is decided; `cluster` plays every
report, heartbeat, host and disk (docs/decisions/0041-two-simulators.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import exp
from random import Random

from benchmarks.report import publish
from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.core.model import Fidelity, Plugin, Tier
from hermesd.core.node.machine import NodeTerms
from hermesd.sim.curves import Job, Switch
from hermesd.sim.drive import Drive, joined, submitted
from hermesd.sim.orders import LossGoal, SubmissionOrder
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.faults import NONE
from tests.sim.cluster.host import PARK_SECONDS, RESUME_SECONDS, START_SECONDS
from tests.sim.cluster.node import Box, SimulatedWork
from tests.sim.cluster.world import World

STEPS, STEP_SECONDS, DEVICES = 2_000, 0.5, 4
POLICY, PLACEMENT = Plugin("best_first"), Plugin("free")


def falling(trials: int) -> tuple[tuple[float, ...], ...]:
    """Losses that fall, noisily, each at its own rate."""
    random = Random(1)
    rates = [random.uniform(0.001, 0.01) for _ in range(trials)]
    return tuple(
        tuple(exp(-rate * step) + 0.1 * random.random() for step in range(STEPS)) for rate in rates
    )


def drive(jobs: tuple[Job, ...]) -> float:
    """Simulate the search; when the last trial is finished."""
    switch = Switch(PARK_SECONDS, RESUME_SECONDS, START_SECONDS)
    order = SubmissionOrder(jobs, (), LossGoal(0.0, 1.0, 0.0), switch)
    return max(Drive(order, DEVICES, POLICY, PLACEMENT).run().finished)


def cluster(jobs: tuple[Job, ...]) -> float:
    """The same."""
    devices = joined(DEVICES).devices
    study = submitted(jobs, POLICY, PLACEMENT)
    work = {
        trial.id: SimulatedWork(Recording(job.losses, STEP_SECONDS), Fidelity.EXACT)
        for trial, job in zip(study.trials, jobs, strict=True)
    }
    lease = LeaseTerms(lease_seconds=30.0, grace_seconds=10.0, margin_seconds=5.0)
    terms = NodeTerms(dict.fromkeys((each.id for each in devices), Tier.PARK))
    box = Box(devices[0].node, devices, terms, lease.grace_seconds)
    world = World(1, [study], work, [box], lease, NONE)
    while not world.finished:
        world.agenda.step()
    return world.agenda.now


def main() -> None:
    trials = int(sys.argv[1]) if sys.argv[1:] else 40
    jobs = tuple(Job(losses, STEP_SECONDS, STEPS, STEPS // 20) for losses in falling(trials))
    rows: list[list[str | float]] = []
    simulators: tuple[tuple[str, Callable[[tuple[Job, ...]], float]], ...] = (
        ("drive", drive),
        ("cluster", cluster),
    )
    for name, simulate in simulators:
        began = time.process_time()
        over = simulate(jobs)
        rows.append([name, trials, time.process_time() - began, over])
    columns = ["simulator", "trials", "cpu_seconds", "over_at_seconds"]
    publish("simulators", columns, rows)


if __name__ == "__main__":
    main()
