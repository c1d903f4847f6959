"""`trial fork` with real processes: a trial goes on where another one is, with another rate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hermesctl.errors import ExitCode
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, multiplying, running
from tests.e2e.test_gangs import TURNS
from tests.e2e.test_try_out import hermesctl

RATE, OTHER = 0.001, 0.002


def curve(steps: int, rates: dict[int, float]) -> float:
    """The state after so many steps with the rate that is in force from a step on."""
    state, rate = 1.0, 0.0
    for step in range(steps):
        rate = rates.get(step, rate)
        state *= 1 - rate
    return state


async def shown(cluster: Cluster, trial: str) -> dict[str, Any]:
    code, out, err = await hermesctl(cluster, "trial", "show", trial, "-o", "json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)["trial"]
    return found


@pytest.mark.timeout(180)
async def test_a_running_trial_and_one_that_is_over_are_forked(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    ends = tmp_path / "ends"
    program = multiplying(f"not pathlib.Path({str(ends)!r}).exists()")
    async with running(tmp_path_factory.mktemp("h"), slots=2, kind=Cluster) as cluster:
        often = types_pb2.Suspend(durability_seconds=1.0)
        await cluster.submit("s", {"train.py": program}, {"rate": [RATE]}, suspend=often)
        await cluster.until(lambda: written(cluster))
        code, out, err = await hermesctl(
            cluster, "trial", "fork", "s/1", "--set", f"rate={OTHER}", "-o", "json"
        )
        assert code == 0, err
        fork = json.loads(out)["trial"]
        begin = fork["forked_at_step"]
        assert (fork["id"], fork["forked_from"], fork["params"]) == ("s/2", "s/1", {"rate": OTHER})

        async def trains() -> bool:
            return int((await shown(cluster, "s/2"))["step"]) > begin + 5

        await cluster.until(trains)
        cluster.kill(cluster.pids("head"))
        cluster.kill(cluster.pids("node"))
        ends.touch()
        await cluster.finished("s")
        trials = {trial.id: trial for trial in (await cluster.study("s")).trials}
        for name, rates in (("s/1", {0: RATE}), ("s/2", {0: RATE, begin: OTHER})):
            reached = trials[name].step
            assert reached > begin
            assert math.isclose(trials[name].metric, curve(reached, rates), rel_tol=1e-9)
        _, out, _ = await hermesctl(cluster, "trial", "curve", "s/2", "-o", "json")
        found = json.loads(out)
        assert found["steps"][0] == 1, "what its parent did until then is the fork's past as well"
        by_step = dict(zip(found["steps"], found["values"], strict=True))
        assert math.isclose(by_step[begin], curve(begin, {0: RATE}), rel_tol=1e-9)

        # One that is over, and what cannot be.
        code, _, err = await hermesctl(cluster, "trial", "fork", "s/1", "--set", f"rate={OTHER}")
        assert code == 0, err
        await cluster.finished("s")
        assert (await shown(cluster, "s/3"))["forked_from"] == "s/1"
        for words, said in (
            (("--set", "rte=1"), "did you mean rate?"),
            (("--set", "rate=1", "--step", "123456"), "a step at which it has a checkpoint"),
        ):
            code, _, err = await hermesctl(cluster, "trial", "fork", "s/1", *words)
            assert code == ExitCode.USAGE, err
            assert said in err
        code, out, _ = await hermesctl(cluster, "trial", "show", "s/2")
        assert f"s/1 at step {begin}" in out


@pytest.mark.timeout(180)
async def test_where_a_trial_is_now_is_written_first(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """One that runs, and then one that is parked: neither has a checkpoint, and none is due."""
    ends = tmp_path / "ends"
    program = multiplying(f"not pathlib.Path({str(ends)!r}).exists()")
    async with running(tmp_path_factory.mktemp("h"), slots=1, kind=Cluster) as cluster:
        turns = types_pb2.Schedule(policy=TURNS)
        await cluster.submit("s", {"train.py": program}, {"rate": [RATE]}, schedule=turns)

        async def trains() -> bool:
            return bool((await cluster.study("s")).trials[0].step)

        await cluster.until(trains)
        fork = await forked(cluster)
        begin = fork["forked_at_step"]
        assert begin > 0
        code, _, err = await hermesctl(cluster, "trial", "pause", "s/1", "s/2")
        assert code == 0, err

        async def rests() -> bool:
            return (await shown(cluster, "s/1"))["kept_tier"] == "park"

        await cluster.until(rests)
        parked = await shown(cluster, "s/1")
        assert parked["step"] > begin
        later = await forked(cluster)
        assert later["forked_at_step"] == parked["step"]
        assert (await shown(cluster, "s/1"))["kept_tier"] == "park", "it is as it was"
        code, _, err = await hermesctl(cluster, "trial", "resume", "s/1", "s/2")
        assert code == 0, err

        async def further() -> bool:
            steps = [each.step for each in (await cluster.study("s")).trials]
            return len(steps) == 3 and min(steps) > parked["step"]

        await cluster.until(further)
        ends.touch()
        await cluster.finished("s")
        one, *forks = (await cluster.study("s")).trials
        assert "restored" not in await printed(cluster, "s/1"), "its process went on"
        assert math.isclose(one.metric, curve(one.step, {0: RATE}), rel_tol=1e-9)
        for trial, at in zip(forks, (begin, parked["step"]), strict=True):
            expected = curve(trial.step, {0: RATE, at: OTHER})
            assert math.isclose(trial.metric, expected, rel_tol=1e-9)


@pytest.mark.timeout(180)
async def test_a_fork_of_what_is_damaged_fails_and_does_not_begin_anew(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with running(tmp_path_factory.mktemp("h"), slots=1) as cluster:
        often = types_pb2.Suspend(durability_seconds=1.0)
        first = types_pb2.Schedule(policy=types_pb2.Plugin(name="fifo"))
        program = {"train.py": multiplying("True")}
        await cluster.submit("s", program, {"rate": [RATE]}, suspend=often, schedule=first)
        await cluster.until(lambda: written(cluster))
        begin = (await forked(cluster))["forked_at_step"]
        trials = cluster.state / "node" / "trials" / "s"
        await cluster.until(lambda: [*trials.glob("2/checkpoints/*/manifest.json")])
        for file in trials.rglob("state.json"):
            with file.open("r+") as same:  # as a disk damages what is linked to it twice
                same.write("rot")
        code, _, err = await hermesctl(cluster, "trial", "pause", "s/1")
        assert code == 0, err

        async def has_begun_or_failed() -> bool:
            return (await shown(cluster, "s/2"))["state"] in ("running", "failed")

        await cluster.until(has_begun_or_failed)
        trial = await shown(cluster, "s/2")
        assert trial["state"] == "failed", trial["reason"]
        assert trial["reason"].startswith(f"it cannot begin from s/1 at step {begin}: ")
        assert "state.json" in trial["reason"]


async def forked(cluster: Cluster) -> dict[str, Any]:
    code, out, err = await hermesctl(
        cluster, "trial", "fork", "s/1", "--set", f"rate={OTHER}", "-o", "json"
    )
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)["trial"]
    return found


async def printed(cluster: Cluster, trial: str) -> str:
    _, out, _ = await hermesctl(cluster, "logs", trial)
    return out


async def written(cluster: Cluster) -> bool:
    """Whether the first trial has a checkpoint."""
    return bool((await cluster.study("s")).trials[0].checkpoint.id)
