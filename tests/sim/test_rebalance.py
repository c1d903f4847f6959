"""Hermes-v2's own example: a fast node has done all its trials while a slow one still has some.

Two nodes of two CPU slots each: slots of 60 % of a core, and slots of 25 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from hermesd.core.commands import WriteDown
from hermesd.core.events import Submitted
from hermesd.core.model import Device, Fidelity, Phase, Plugin, Stage, Tier, TrialSpec
from hermesd.core.node.machine import NodeTerms
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.faults import NONE
from tests.sim.cluster.host import SAVE_SECONDS
from tests.sim.cluster.node import Box, SimulatedWork
from tests.sim.cluster.world import World
from tests.sim.scenario import LEASE, _study

SHARES = {"fast": 0.6, "slow": 0.25}
# Between a device that has run dry and a launch there of a trial that was parked elsewhere: that
# is written down, and messages take their time.
MOVE_SECONDS = SAVE_SECONDS + 0.2
FIFO = Plugin("fifo")
IN_TURN = Plugin("round_robin", (("quantum_seconds", 3.0),))


def two_speeds(policy: Plugin, placement: Plugin, fidelity: Fidelity = Fidelity.EXACT) -> World:
    """Twelve trials, each of 5 s on a whole core."""
    specs = tuple(TrialSpec(f"s/{n}", "s", n, (Stage(None, ()),), (), n) for n in range(12))
    study = replace(
        _study("s", Random("two speeds")), policy=policy, placement=placement, tier=None
    )
    boxes = []
    for node, share in SHARES.items():
        made = tuple(Device(f"{node}/{i}", node, f"cpu-{share:.0%}", 1 << 30) for i in range(2))
        terms = NodeTerms(dict.fromkeys((each.id for each in made), Tier.PARK))
        boxes.append(Box(node, made, terms, LEASE.grace_seconds))
    falling = Recording(tuple(1.0 / (1 + step) for step in range(100)), 0.05)
    work = {each.id: SimulatedWork(falling, fidelity) for each in specs}
    pool = World(1, [Submitted(study, specs, "submit")], work, boxes, LEASE, NONE)
    for box in boxes:
        pool.ground.slowness.update({each.id: 1 / SHARES[box.id] for each in box.devices})
    return pool


@dataclass
class Seen:
    """Seconds until all was done, and those of the fast devices in which they stood idle while a
    trial waited on the slow node, bound to stay there, or on its way from there."""

    makespan: float = 0.0
    idle: float = 0.0
    arriving: float = 0.0
    brought: int = 0


def watched(pool: World) -> Seen:
    """The whole of a simulation."""
    seen = Seen()
    while not pool.finished:
        state, before = pool.state, pool.agenda.now
        assert state is not None
        trials = [each for each in state.trials.values() if not each.phase.final]
        waits = [each for each in trials if each.phase is Phase.WAITING]
        dry = [f"fast/{i}" for i in range(2) if f"fast/{i}" in state.free]
        coming = {each.home for each in waits} & set(dry)
        left = sum((each.home or "").startswith("slow/") for each in waits)
        pool.agenda.step()
        seen.makespan = pool.agenda.now
        seen.arriving += len(coming) * (pool.agenda.now - before)
        seen.idle += min(len(dry) - len(coming), left) * (pool.agenda.now - before)
    seen.brought = sum(isinstance(each, WriteDown) for _, each in pool.history)
    return seen


def placed(name: str, rebalance: str) -> Plugin:
    return Plugin(name, (("G_thres", 3), ("rebalance", rebalance)))


@pytest.mark.parametrize("name", ["homes", "swap"])
@pytest.mark.parametrize("policy", [FIFO, IN_TURN], ids=["fifo", "round_robin"])
def test_no_fast_device_stands_idle_while_a_slow_one_has_jobs(policy: Plugin, name: str) -> None:
    bound = watched(two_speeds(policy, placed(name, "none")))
    moved = watched(two_speeds(policy, placed(name, "cluster")))
    assert bound.idle > 0.2 * bound.makespan, "as it was: the fast node runs dry"
    assert moved.idle == 0.0
    assert moved.arriving <= moved.brought * MOVE_SECONDS
    assert bool(moved.brought) == (policy is IN_TURN), "what never ran has nothing to write down"
    assert moved.makespan < 0.8 * bound.makespan


def test_what_can_only_be_parked_stays_and_is_done_all_the_same() -> None:
    seen = watched(two_speeds(IN_TURN, placed("swap", "cluster"), Fidelity.PARK_ONLY))
    assert seen.brought == 0
    assert seen.idle > 0.0
