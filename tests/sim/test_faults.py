"""Seeds: a pool under faults keeps every promise, and without them everything finishes.

Each seed draws a pool, studies, policies and curves, then crashes heads, daemons, hosts and
programs, cuts and parts streams, doubles messages, rots checkpoints, and lets people interfere and
operators drain nodes.
A failure names its seed: `world(seed, STORM).run(...)` does exactly the same again.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hermesd.core.events import Reported
from hermesd.core.model import Phase, Plugin
from tests.sim.cluster.faults import NONE, Faults
from tests.sim.scenario import alike, world

STORM = Faults()
FAULTY_SECONDS = 150.0
CALM_SECONDS = 3000.0
BATCH = 20
KINDS_SEEDS = 30  # among them is every kind of fault, and every policy


def weather(seed: int, faults: Faults) -> None:
    pool = world(seed, faults)
    try:
        pool.run(FAULTY_SECONDS, CALM_SECONDS)
    except Exception as error:
        error.add_note(f"seed {seed}, at {pool.agenda.now:.3f} s; what happened last:")
        for time, what in pool.history[-20:]:
            error.add_note(f"{time:10.3f} {what}")
        raise


@pytest.mark.parametrize("first", range(KINDS_SEEDS, KINDS_SEEDS + 120, BATCH))
def test_under_faults_every_promise_is_kept_and_everything_finishes(first: int) -> None:
    for seed in range(first, first + BATCH):
        weather(seed, STORM)


@pytest.mark.parametrize("kind", [k for k in Faults.__slots__ if getattr(STORM, k) > 1.0])
def test_each_kind_of_fault_alone_and_often(kind: str) -> None:
    for seed in range(3):
        weather(seed, replace(NONE, **{kind: 5.0}))


def test_undisturbed_nothing_fails_and_the_whole_curve_is_known() -> None:
    for seed in range(20):
        pool = world(seed, NONE)
        pool.run(0.0, CALM_SECONDS)
        assert pool.state is not None
        for trial in pool.state.trials.values():
            recording = pool.work[trial.id].recording
            assert trial.phase is Phase.COMPLETED
            assert trial.failures == ()
            assert sum(chunk.size for chunk in trial.curve) == recording.steps
            total = sum(chunk.total for chunk in trial.curve)
            assert math.isclose(total, sum(recording.losses), rel_tol=1e-9)
            assert trial.metrics["loss"].last == recording.losses[-1]
            trained = (recording.steps - trial.carried_steps) * recording.step_seconds
            assert pool.ground.slowness or math.isclose(trial.use.busy_seconds, trained)


def test_a_seed_decides_everything() -> None:
    one, other = world(7, STORM), world(7, STORM)
    for pool in (one, other):
        pool.run(FAULTY_SECONDS, CALM_SECONDS)
    assert one.history == other.history
    assert len(one.history) > 50


def test_the_seeds_meet_every_kind_of_fault_and_every_policy() -> None:
    struck: set[str] = set()
    policies: set[Plugin] = set()
    rebuilt = 0
    for seed in range(KINDS_SEEDS):
        pool = world(seed, STORM)
        pool.run(FAULTY_SECONDS, CALM_SECONDS)
        assert pool.state is not None
        rebuilt += pool.ground.rebuilt
        policies |= {study.policy for study in pool.state.studies.values()}
        faults = (what for _, what in pool.history if isinstance(what, str))
        struck |= {what.split(":")[0] for what in faults if not what.endswith("is none")}
    assert struck >= {kind for kind in Faults.__slots__ if getattr(STORM, kind) > 1.0}
    assert len({policy.name for policy in policies}) == 6
    assert rebuilt > 0, "trials that went on from where they had been put before their turn"


def test_nodes_are_drained_of_what_is_parked_and_runs_there() -> None:
    said: list[str] = []
    for seed in range(20):
        pool = world(seed, replace(NONE, operator=4.0, person=10.0, doubled=0.05))
        pool.run(FAULTY_SECONDS, CALM_SECONDS)
        said += [str(what) for _, what in pool.history]
        assert pool.state is not None
        assert all(trial.failures == () for trial in pool.state.trials.values())
    assert sum("WriteDown" in each for each in said) > 10
    assert sum("is draining" in each for each in said) > 10


def test_studies_of_two_pools_keep_to_their_nodes_whatever_happens() -> None:
    """A launch on a node of another pool is refused by the state, which ends the simulation."""
    seen, moved = 0, 0
    for seed in range(100):
        pool = world(seed, replace(STORM, operator=4.0))
        if not pool.pools:
            continue
        pool.run(FAULTY_SECONDS, CALM_SECONDS)
        seen += 1
        moved += any("is of pool" in str(what) for _, what in pool.history)
    assert seen > 10
    assert moved > 3, "trials that left a node which changed its pool"


def test_milestones_are_reported_and_lengthen_quanta_in_the_middle() -> None:
    words = [
        str(what)
        for seed in range(15)
        for _, what in _history(seed)
        if not isinstance(what, Reported)
    ]
    assert any("MilestonePassed" in each for each in words)
    assert any("extends=True" in each for each in words)


def _history(seed: int) -> list[tuple[float, object]]:
    pool = world(seed, NONE)
    pool.run(0.0, CALM_SECONDS)
    return pool.history


def test_of_trials_that_are_alike_nothing_is_trained_twice() -> None:
    made = alike(Plugin("round_robin", (("quantum_seconds", 2.0),)))
    made.run(0.0, 10_000.0)
    assert sum(made.ground.trained.values()) == pytest.approx(0.5 * (4 + 36 + 4 + 32 + 32))
    assert made.state is not None
    assert {trial.phase for trial in made.state.trials.values()} == {Phase.COMPLETED}
