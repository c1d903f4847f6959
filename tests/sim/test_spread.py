"""A node that comes back has its share of the trials at once, and all of them have theirs."""

from __future__ import annotations

import pytest

from hermesd.core.commands import Launch
from hermesd.core.model import Plugin
from tests.sim.cluster.world import World
from tests.sim.scenario import LEASE, two_nodes

CALM_SECONDS = 6000.0


def until(pool: World, time: float) -> None:
    while pool.agenda.now < time:
        pool.agenda.step()


def busy(pool: World) -> dict[str, float]:
    """Seconds that each trial was trained."""
    assert pool.state is not None
    return {trial.id: trial.use.busy_seconds for trial in pool.state.trials.values()}


@pytest.mark.parametrize("name", ["round_robin", "best_first"])
def test_a_node_that_is_back_has_trials_again_and_all_get_on_alike(name: str) -> None:
    policy = Plugin(name, (("quantum_seconds", 5.0),)) if name == "round_robin" else Plugin(name)
    pool = two_nodes(policy, trials=6)
    until(pool, 60.0)
    pool.daemons["m"].die()
    pool.boxes["m"].reboot()
    until(pool, 60.0 + 2 * LEASE.silence_seconds)
    assert pool.state is not None
    where = {pool.state.node_of(each) or "n" for each in pool.state.trials.values()}
    assert where == {"n"}, "all of them went on there"
    back = pool.agenda.now
    pool.start_daemon("m")
    until(pool, back + 10.0)
    launched = [what for at, what in pool.history if at > back and isinstance(what, Launch)]
    assert "m/0" in {each.devices[0] for each in launched}
    before = busy(pool)
    until(pool, back + 310.0)
    gained = {trial: seconds - before[trial] for trial, seconds in busy(pool).items()}
    assert sum(gained.values()) > 0.9 * 2 * 300.0, "neither device was idle"
    if name == "round_robin":
        assert min(gained.values()) > 0.6 * sum(gained.values()) / 6, gained
    for trial in pool.state.trials.values():
        assert trial.use.overhead_seconds < 0.1 * trial.use.busy_seconds
    pool.run(0.0, CALM_SECONDS)
