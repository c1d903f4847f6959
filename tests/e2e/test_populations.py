"""A population of real processes, whose head is killed as a loser is replaced."""

from __future__ import annotations

import json
import random

import pytest

from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Trial
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.e2e.cluster import Cluster, multiplying, running
from tests.e2e.test_try_out import hermesctl
from tests.study_specs import plugin
from tests.trainer_shim.rank_programs import ALL_REDUCE

ROUND, END = 40, 155
RATES = [0.001, 0.002, 0.004, 0.008]


async def shown(cluster: Cluster) -> dict[str, Trial]:
    """All trials of the study by id."""
    async with AsyncClient(f"unix:{cluster.state}/head.sock") as client:
        return {each.id: each for each in (await client.study("s")).trials}


def trained(trials: dict[str, Trial], trial: str, steps: int) -> float:
    """What a trial has come to after so many steps, by those that it goes back to."""
    each = trials[trial]
    begin, rate = each.forked_at_step, each.params["rate"]
    before = trained(trials, each.forked_from, begin) if each.forked_from else 1.0
    assert isinstance(rate, float)
    return before * (1 - rate) ** (steps - begin)


@pytest.mark.timeout(180)
async def test_the_losers_are_replaced_each_round_also_by_a_head_that_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = multiplying(f"step < {END}")
    chosen = plugin("pbt", ready=ROUND, share=0.25, resample=0.0)
    async with running(tmp_path_factory.mktemp("h"), slots=2, kind=Cluster) as cluster:
        axes = {"rate": RATES}
        await cluster.submit(
            "s", {"train.py": program}, axes, schedule=types.Schedule(policy=chosen)
        )

        async def bred() -> bool:
            return len((await cluster.study("s")).trials) > len(RATES)

        await cluster.until(bred)
        cluster.kill(cluster.pids("head"))
        await cluster.finished("s")
        trials = await shown(cluster)
        forks = {name: each for name, each in trials.items() if each.forked_from}
        begins = sorted(each.forked_at_step for each in forks.values())
        assert [begin // ROUND for begin in begins] == [1, 2, 3], "one a round, none twice"
        losers = {name: each.replaced_by for name, each in trials.items() if each.replaced_by}
        assert sorted(losers.values()) == sorted(forks)
        for name, each in trials.items():
            assert each.metric == pytest.approx(trained(trials, name, each.step), rel=1e-9), name
            assert each.state == ("stopped" if name in losers else "completed"), name
        first = forks["s/5"]
        assert (first.forked_from, losers["s/1"]) == ("s/4", "s/5")
        assert first.params["rate"] in (RATES[2], RATES[3]), "one of the axis, and near"
        _, out, _ = await hermesctl(cluster, "tail", "s", "-o", "json")
        told = [json.loads(line) for line in out.splitlines()]
        (added, *_) = [each["reason"] for each in told if each["kind"] == "added"]
        assert added == f"s/5 · pbt: s/5 from s/4 at step {ROUND} in the place of s/1"
        code, out, _ = await hermesctl(cluster, "trial", "show", "s/5")
        assert code == 0
        assert f"lineage s/4 to step {ROUND}: rate=0.008; s/5 since: rate=" in " ".join(out.split())
        code, out, _ = await hermesctl(cluster, "why", "s/1")
        assert "s/5 went on in its place" in out

        # Reversible: the loser goes on from where it was.
        code, _, err = await hermesctl(cluster, "trial", "retry", "s/1")
        assert code == 0, err
        await cluster.finished("s")
        again = (await shown(cluster))["s/1"]
        assert (again.state, again.replaced_by) == ("completed", "")
        assert again.metric == pytest.approx(trained({"s/1": again}, "s/1", END), rel=1e-9)


def summed(trials: dict[str, Trial], trial: str) -> float:
    """What a trial of two processes has come to, each with its own random numbers: by the rates of
    those that it goes back to."""
    rates: list[float] = []
    name, until = trial, trials[trial].step
    while name:
        each = trials[name]
        rate, begin = each.params["rate"], each.forked_at_step
        assert isinstance(rate, float)
        rates = [rate] * (until - begin) + rates
        name, until = each.forked_from, begin
    weight, drawn = 1.0, [random.Random(0), random.Random(1)]
    for rate in rates:
        mine, other = (each.random() - weight for each in drawn)
        weight += rate * (mine + other)
    return weight


@pytest.mark.timeout(180)
async def test_trials_of_several_processes_are_replaced_with_the_state_of_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = ALL_REDUCE.replace("int(sys.argv[1])", str(END))
    program = program.replace("1e-3 * all", "trial.params['rate'] * all")
    chosen = plugin("pbt", ready=ROUND, share=0.25, resample=0.0)
    async with running(tmp_path_factory.mktemp("h"), slots=2, kind=Cluster) as cluster:
        axes, two = {"rate": RATES}, types.Resources(devices=2)
        schedule = types.Schedule(policy=chosen)
        await cluster.submit("s", {"train.py": program}, axes, schedule=schedule, resources=two)
        await cluster.finished("s")
        trials = await shown(cluster)
        begins = sorted(each.forked_at_step for each in trials.values() if each.forked_from)
        assert begins == [ROUND, 2 * ROUND, 3 * ROUND]
        for name, each in trials.items():
            assert each.state == ("stopped" if each.replaced_by else "completed"), name
            assert each.metric == summed(trials, name), name
