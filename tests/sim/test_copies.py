"""The loss of a node, or its disk, costs trials what they trained since the last checkpoint."""

from __future__ import annotations

import pytest

from hermesd.core.events import RunStarted
from hermesd.core.model import Fidelity, TrialId
from hermesd.sim.faults import NONE
from hermesd.sim.host import Host
from hermesd.sim.pace import COPY_SECONDS, SAVE_SECONDS
from hermesd.sim.world import World
from tests.sim.scenario import world

DEATH_SECONDS = 40.0
CALM_SECONDS = 3000.0
DURABILITY_SECONDS = 20.0


def doomed(seed: int) -> World | None:
    """A pool of several nodes at the time of a death, whose trials all want copies."""
    pool = world(seed, NONE)
    while pool.agenda.now < DEATH_SECONDS:
        pool.agenda.step()
    assert pool.state is not None
    wanted = all(study.replicas for study in pool.state.studies.values())
    return pool if wanted and len(pool.boxes) > 1 else None


def lost_seconds(pool: World, trial: TrialId, step: int, slowest: float) -> float | None:
    """What had to be trained again; None if that was nothing, since the trial had not begun."""
    again = (
        what.step
        for at, what in pool.history
        if at > DEATH_SECONDS and isinstance(what, RunStarted) and what.run.trial == trial
    )
    first = next(again, None)
    seconds = pool.work[trial].recording.step_seconds * slowest
    return None if first is None else (step - first) * seconds


@pytest.mark.parametrize("returns", [False, True], ids=["dead", "with an empty disk"])
def test_a_lost_disk_costs_what_was_trained_since_the_last_checkpoint(returns: bool) -> None:
    costs: list[float] = []
    for seed in range(50):
        pool = doomed(seed)
        if pool is None:
            continue
        victim = max(pool.boxes, key=lambda node: len(pool.boxes[node].hosts))
        hosts: dict[TrialId, Host] = dict(pool.boxes[victim].hosts)
        reached = {trial: host.step for trial, host in hosts.items()}
        if returns:
            pool.daemons[victim].die()
            pool.boxes[victim].wipe()
        else:
            pool.lose(victim)
        pool.run(DEATH_SECONDS, CALM_SECONDS)
        slowest = max(pool.ground.slowness.values(), default=1.0)
        copies = len(pool.work) * 2 * COPY_SECONDS  # from a node one after the other
        for trial, step in reached.items():
            if pool.work[trial].fidelity is Fidelity.PARK_ONLY:
                continue
            cost = lost_seconds(pool, trial, step, slowest)
            each = pool.work[trial].recording.step_seconds * slowest
            if cost is not None:
                costs.append(cost)
                assert cost <= DURABILITY_SECONDS + SAVE_SECONDS + copies + 2 * each, (seed, trial)
    assert len(costs) > 10
    assert any(0 < cost < DURABILITY_SECONDS for cost in costs)
