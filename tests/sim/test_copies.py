"""The loss of a node, or its disk, costs trials what they trained since the last checkpoint."""

from __future__ import annotations

import pytest

from hermesd.core.commands import Copy, Launch
from hermesd.core.events import RunStarted
from hermesd.core.model import DeviceId, Fidelity, Phase, Plugin, RunId, TrialId
from tests.sim.cluster.faults import NONE
from tests.sim.cluster.host import COPY_SECONDS, SAVE_SECONDS, SimulatedHost
from tests.sim.cluster.world import World
from tests.sim.scenario import LEASE, two_nodes, world

DEATH_SECONDS = 40.0
CALM_SECONDS = 3000.0
DURABILITY_SECONDS = 20.0


def doomed(seed: int) -> World | None:
    """A pool of several nodes at the time of a death, whose trials all want copies."""
    pool = world(seed, NONE)
    if len(pool.boxes) < 2:
        return None
    while pool.agenda.now < DEATH_SECONDS:
        pool.agenda.step()
        studies = pool.state.studies.values() if pool.state is not None else ()
        if not all(study.replicas for study in studies):
            return None
    return pool


def lost_seconds(pool: World, trial: TrialId, step: int) -> float | None:
    """What had to be trained again, in seconds of the devices on which it was trained; None if that
    was nothing, since the trial had not begun."""
    device: dict[RunId, DeviceId] = {}
    begun: list[tuple[int, DeviceId]] = []
    for at, what in pool.history:
        if isinstance(what, Launch):
            device[what.run] = what.devices[0]
        if isinstance(what, RunStarted) and what.run.trial == trial:
            if at > DEATH_SECONDS:
                each = pool.work[trial].recording.step_seconds
                return sum(each * _slowness(pool, begun, one) for one in range(what.step, step))
            begun.append((what.step, device[what.run]))
    return None


def _slowness(pool: World, begun: list[tuple[int, DeviceId]], step: int) -> float:
    """Of the device where the iteration after `step` was run last."""
    device = next(device for first, device in reversed(begun) if first <= step)
    return pool.ground.slowness.get(device, 1.0)


@pytest.mark.parametrize("returns", [False, True], ids=["dead", "with an empty disk"])
def test_a_lost_disk_costs_what_was_trained_since_the_last_checkpoint(returns: bool) -> None:
    costs: list[float] = []
    for seed in range(100):
        pool = doomed(seed)
        if pool is None:
            continue
        there = list(pool.boxes) if returns else pool.spare
        victim = max(there, key=lambda node: len(pool.boxes[node].hosts), default=None)
        if victim is None:
            continue
        hosts: dict[TrialId, SimulatedHost] = dict(pool.boxes[victim].hosts)
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
            cost = lost_seconds(pool, trial, step)
            each = pool.work[trial].recording.step_seconds * slowest
            if cost is not None:
                costs.append(cost)
                assert cost <= DURABILITY_SECONDS + SAVE_SECONDS + copies + 2 * each, (seed, trial)
    assert len(costs) > 10
    assert any(0 < cost < DURABILITY_SECONDS for cost in costs)


@pytest.mark.parametrize("returns", [False, True], ids=["dead", "back with its disk"])
def test_without_replicas_nothing_is_copied_and_a_lost_node_costs_all_of_the_training(
    returns: bool,
) -> None:
    pool = two_nodes(Plugin("fifo"), trials=2, replicas=0)
    while pool.agenda.now < DEATH_SECONDS:
        pool.agenda.step()
    (lost,) = pool.boxes["m"].hosts
    (other,) = pool.boxes["n"].hosts
    step = pool.boxes["m"].hosts[lost].step
    assert step * pool.work[lost].recording.step_seconds > DURABILITY_SECONDS
    if returns:
        pool.daemons["m"].die()
        pool.boxes["m"].reboot()
        pool.agenda.after(LEASE.lease_seconds, lambda: pool.start_daemon("m"))
    else:
        pool.lose("m")
    pool.run(DEATH_SECONDS + LEASE.silence_seconds, CALM_SECONDS)
    assert pool.state is not None
    assert not [what for _, what in pool.history if isinstance(what, Copy)]
    cost = lost_seconds(pool, lost, step)
    assert cost is not None
    if returns:
        assert cost <= DURABILITY_SECONDS + SAVE_SECONDS + 1.0
    else:
        assert cost == pytest.approx(step * pool.work[lost].recording.step_seconds)
    assert pool.state.trials[other].attempt == 1
    assert {trial.phase for trial in pool.state.trials.values()} == {Phase.COMPLETED}
