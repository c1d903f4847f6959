"""A search by a model over a Keras network, by real daemons of which the head is killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hermesctl.errors import Refused
from hermesctl.sdk.async_client import AsyncClient
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.e2e.cluster import Cluster, running
from tests.e2e.test_try_out import hermesctl

PROGRAM = """
import sys, time
given = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
scale = float(given["learning_rate"]) * int(given["batch_size"])
for step in range(1, 41):
    print(f"val_loss: {scale / step:.9f}", flush=True)
    time.sleep(0.01)
"""
STUDY = """
program: train.py
method: bayes
run_cap: 7
search: {startup: 3}
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  batch_size: {values: [32, 64]}
"""


async def test_a_killed_head_proposes_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "study.yaml").write_text(STUDY)
    async with running(tmp_path_factory.mktemp("h"), kind=Cluster) as cluster:

        async def events() -> list[dict[str, Any]]:
            _, out, _ = await hermesctl(cluster, "tail", "train", "-o", "json")
            return [json.loads(line) for line in out.splitlines()]

        _, _, err = await hermesctl(cluster, "submit", str(tmp_path / "study.yaml"))
        assert "3 trials are drawn at random, 4 more proposed by tpe" in err
        for trials in (4, 6):

            async def there(trials: int = trials) -> bool:
                return len((await cluster.study("train")).trials) >= trials

            await cluster.until(there)
            cluster.kill(cluster.pids("head"))
        study = await cluster.finished("train")
        assert [trial.id for trial in study.trials] == [f"train/{n}" for n in range(1, 8)]
        assert {trial.state for trial in study.trials} == {types.TRIAL_STATE_COMPLETED}
        rates = {trial.parameters[0].value.double_value for trial in study.trials}
        assert len(rates) == 7
        proposed = [each["reason"] for each in await events() if each["kind"] == "added"]
        # One entry tells of all the trials that the search proposed at once.
        spans = [
            re.fullmatch(r"train/(\d+)(?: to train/(\d+))? · proposed by tpe", each)
            for each in proposed
        ]
        assert all(spans), proposed
        ends = [(int(span[1]), int(span[2] or span[1])) for span in spans if span]
        assert [n for first, last in ends for n in range(first, last + 1)] == [4, 5, 6, 7]


async def test_a_loop_of_ones_own_asks_and_tells_by_command_and_by_sdk(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    study = {
        "name": "own",
        "method": "genetic",
        "search": {"asked": True, "startup": 2},
        "run_cap": 4,
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
    }
    (tmp_path / "own.json").write_text(json.dumps(study))
    async with running(tmp_path_factory.mktemp("h")) as cluster:
        code, _, err = await hermesctl(cluster, "submit", str(tmp_path / "own.json"))
        assert code == 0, err
        _, out, err = await hermesctl(cluster, "study", "ask", "own", "-o", "json")
        trial = json.loads(out)["trial"]
        assert trial["id"] == "own/1"
        code, _, err = await hermesctl(cluster, "trial", "tell", "own/1", "loss=0.5")
        assert (code, err) == (0, "own/1: completed, rank 1\n")
        code, _, err = await hermesctl(cluster, "trial", "tell", "own/1", "loss=high")
        assert (code, err) == (2, "error: loss=high: expected a metric such as loss=0.31\n")
        async with AsyncClient(f"unix:{cluster.state}/head.sock") as client:
            for _ in range(3):
                trial = await client.ask("own")
                await client.tell(trial, {"loss": float(trial.params["x"])})
            best = await client.best("own", 1)
            assert best[0].metric == min(best[0].params["x"], 0.5)
            with pytest.raises(Refused, match="all 4 trials of own have been asked for"):
                await client.ask("own")
        await cluster.finished("own")
