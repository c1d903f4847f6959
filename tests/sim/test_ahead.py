"""Trials that were written down are rebuilt before their turn, in the whole of a pool."""

from dataclasses import replace
from random import Random

import pytest

from hermesd.core.events import RunStarted, Submitted
from hermesd.core.model import Device, Fidelity, Plugin, Stage, Tier, TrialSpec
from hermesd.core.node.machine import NodeTerms
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.faults import NONE
from tests.sim.cluster.host import PARKED_BYTES, RESUME_SECONDS, START_SECONDS
from tests.sim.cluster.node import Box, SimulatedWork
from tests.sim.cluster.world import World
from tests.sim.scenario import LEASE, _study

CURVE = Recording(tuple(1 / (i + 1) for i in range(100)), 0.2)


def pool(tier: Tier | None, budget: int | None, cores: tuple[int, ...]) -> World:
    """Four trials take turns of 5 s on one slot."""
    device = Device("n/0", "n", "cpu", 1 << 30)
    terms = NodeTerms({device.id: Tier.PARK}, budget, {device.id: cores})
    turns = Plugin("round_robin", (("quantum_seconds", 5.0),))
    study = replace(_study("s", Random(1)), policy=turns, placement=Plugin("free"), tier=tier)
    specs = tuple(TrialSpec(f"s/{i}", "s", i, (Stage(None, ()),), (), i) for i in range(4))
    work = {spec.id: SimulatedWork(CURVE, Fidelity.EXACT) for spec in specs}
    box = Box("n", (device,), terms, LEASE.grace_seconds)
    made = World(1, [Submitted(study, specs, "submit")], work, [box], LEASE, NONE)
    made.run(0.0, 300.0)
    return made


def later_starts(world: World) -> list[float]:
    """The seconds from launch to first iteration of every run but each trial's first."""
    return [
        entry.start_seconds
        for _, entry in world.history
        if isinstance(entry, RunStarted) and entry.run.attempt > 1
    ]


@pytest.mark.parametrize(
    ("tier", "budget"), [(Tier.CHECKPOINT, None), (None, 2 * PARKED_BYTES), (None, PARKED_BYTES)]
)
def test_rebuilding_is_off_the_critical_path(tier: Tier | None, budget: int | None) -> None:
    ahead = later_starts(pool(tier, budget, (1,)))
    assert len(ahead) >= 12
    assert sum(seconds < START_SECONDS for seconds in ahead) >= 0.9 * len(ahead), ahead
    assert min(ahead) >= RESUME_SECONDS


def test_without_cores_for_it_every_turn_waits_for_its_process() -> None:
    waited = later_starts(pool(Tier.CHECKPOINT, None, ()))
    assert len(waited) >= 12
    assert min(waited) >= START_SECONDS
