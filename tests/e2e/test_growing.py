"""A study that grows while it runs and after it has ended, by the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hermesctl.errors import ExitCode
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from tests.e2e.test_try_out import hermesctl, project


@pytest.mark.timeout(120)
async def test_trials_are_added_to_a_running_and_to_a_finished_study(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with running(tmp_path_factory.mktemp("h"), kind=Cluster) as cluster:

        async def rates(*words: str) -> dict[str, tuple[float, str]]:
            _, out, _ = await hermesctl(cluster, "trial", "ls", *words, "-o", "json")
            trials: list[dict[str, Any]] = json.loads(out)["trials"]
            return {each["id"]: (each["params"]["rate"], each["state"]) for each in trials}

        file = str(project(tmp_path / "study", 20, "val_acc"))
        await hermesctl(cluster, "submit", file)
        code, _, err = await hermesctl(cluster, "study", "add", "train", "--set", "rate=0.125")
        assert (code, err) == (0, "1 trial added: train/3\n")
        cluster.kill(cluster.pids("head"))
        await cluster.finished("train")
        done = {"train/1": (0.5, "completed"), "train/2": (0.25, "completed")}
        done["train/3"] = (0.125, "completed")
        assert await rates("train") == done

        code, _, err = await hermesctl(cluster, "study", "add", "train", "--set", "rte=1")
        assert code == ExitCode.USAGE
        assert "did you mean rate?" in err
        code, _, err = await hermesctl(cluster, "study", "add", "train", "--set", "rate=0.25")
        assert code == ExitCode.USAGE
        assert "a point that no trial of the study has; train/2 is there already" in err
        assert await rates("train") == done

        await hermesctl(cluster, "study", "add", "train", "--grid", "rate=0.75,1.0")
        await cluster.finished("train")
        done |= {"train/4": (0.75, "completed"), "train/5": (1.0, "completed")}
        assert await rates("train") == done
        best = json.loads((await hermesctl(cluster, "best", "train", "-o", "json"))[1])
        assert best["trials"][0]["id"] == "train/5"

        await hermesctl(cluster, "study", "clone", "train", "--name", "again")
        await cluster.finished("again")
        code, out, err = await hermesctl(
            cluster, "study", "compare", "train", "again", "-o", "json"
        )
        assert code == 0, err
        found = json.loads(out)
        one, other = found["studies"]
        assert (one["best_trial"], other["best_trial"]) == ("train/5", "again/1")
        assert (one["by_step"][-1], other["by_step"][-1]) == (one["best"], other["best"])
        assert (one["by_time"][-1] or 0.0) <= one["best"]
        assert found["differences"] == {}


@pytest.mark.timeout(120)
async def test_a_running_study_is_given_a_limit_more_trials_and_other_bounds(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with running(tmp_path_factory.mktemp("h"), slots=1, kind=Cluster) as cluster:
        file = str(project(tmp_path / "study", 1_000_000, "val_acc"))
        draws = ["--set", "method=random", "--set", "run_cap=2", "--set", "schedule.policy=fifo"]
        axis = ["--set", "parameters.rate={min: 0.5, max: 1.0}"]
        code, _, err = await hermesctl(cluster, "submit", file, *draws, *axis)
        assert code == 0, err

        async def one_trains() -> bool:
            return await cluster.steps("train") > 10

        await cluster.until(one_trains)
        change = ["run_cap=3", "parameters.rate.min=0.9", "stop.max_steps=10"]
        words = [word for each in change for word in ("--set", each)]
        code, _, err = await hermesctl(cluster, "study", "extend", "train", *words)
        assert (code, "1 trial added" in err, "max_steps = 10 is reached" in err) == (0, True, True)
        cluster.kill(cluster.pids("head"))
        done = await cluster.finished("train")
        assert len(done.trials) == 3
        assert all(trial.state == types_pb2.TRIAL_STATE_STOPPED for trial in done.trials)
        rates = [trial.parameters[0].value.double_value for trial in done.trials]
        assert all(rate >= 0.9 for rate in rates[1:]), rates
        _, out, _ = await hermesctl(cluster, "study", "show", "train", "--file")
        assert "run_cap: 3" in out
        assert "max_steps: 10" in out

        slip = ["study", "extend", "train", "--set", "parameters.rte.max=2"]
        code, _, err = await hermesctl(cluster, *slip)
        assert code == ExitCode.USAGE
        assert "did you mean rate?" in err


SHOWS = """
import json, os, sys
print(json.dumps([sys.argv[1:], json.loads(os.environ["HERMES_PARAMETERS"])]), flush=True)
print("loss: 1.0", flush=True)
"""


@pytest.mark.timeout(120)
async def test_lists_and_nested_parameters_reach_the_program(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text(SHOWS)
    study = {
        "program": "show.py",
        "python": sys.executable,
        "parameters": {
            "layers": {"values": [[64, 64]]},
            "optimizer": {"parameters": {"lr": {"value": 0.5}, "name": {"value": "adam"}}},
        },
    }
    file = tmp_path / "study.json"
    file.write_text(json.dumps(study))
    async with running(tmp_path_factory.mktemp("h"), kind=Cluster) as cluster:

        async def said(trial: str) -> list[Any]:
            _, out, _ = await hermesctl(cluster, "logs", trial)
            return list(json.loads(out.splitlines()[0]))

        await hermesctl(cluster, "submit", str(file))
        await cluster.finished("show")
        values = {"layers": [64, 64], "optimizer.lr": 0.5, "optimizer.name": "adam"}
        flags = ["--layers=[64, 64]", "--optimizer.lr=0.5", "--optimizer.name=adam"]
        assert await said("show/1") == [flags, values]
        more = ["--set", "layers=[32]", "--grid", "optimizer.lr=0.25,0.125"]
        code, out, err = await hermesctl(cluster, "study", "add", "show", *more, "-o", "json")
        assert code == 0, err
        assert [each["params"] for each in json.loads(out)["trials"]] == [
            {**values, "layers": [32], "optimizer.lr": rate} for rate in (0.25, 0.125)
        ]
        cluster.kill(cluster.pids("head"))
        await cluster.finished("show")
        flags = ["--layers=[32]", "--optimizer.lr=0.125", "--optimizer.name=adam"]
        assert await said("show/3") == [flags, {**values, "layers": [32], "optimizer.lr": 0.125}]


@pytest.mark.timeout(120)
async def test_a_running_study_goes_by_another_signal_and_is_ranked_by_another_metric(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Both outlive the head, and the trials' curves so far are read anew."""
    async with running(tmp_path_factory.mktemp("h"), kind=Cluster) as cluster:
        file = str(project(tmp_path / "study", 1_000_000, "train_loss"))
        code, _, err = await hermesctl(cluster, "submit", file)
        assert code == 0, err

        async def shown() -> dict[str, Any]:
            found = json.loads(
                (await hermesctl(cluster, "study", "show", "train", "-o", "json"))[1]
            )
            study: dict[str, Any] = found
            return study

        async def both_have_told() -> bool:
            trials = json.loads((await hermesctl(cluster, "trial", "ls", "train", "-o", "json"))[1])
            return all(each["metric"] is not None for each in trials["trials"])

        await cluster.until(both_have_told)
        code, _, err = await hermesctl(cluster, "study", "signal", "train", "val_ac")
        assert code == ExitCode.USAGE
        assert "did you mean val_acc?" in err
        words = ("study", "signal", "train", "val_acc", "--goal", "maximize")
        code, _, err = await hermesctl(cluster, *words)
        assert code == 0, err
        words = ("study", "metric", "train", "val_acc", "--goal", "maximize")
        code, _, err = await hermesctl(cluster, *words)
        assert code == 0, err
        cluster.kill(cluster.pids("head"))

        async def goes_by_it() -> bool:
            why = json.loads(
                (await hermesctl(cluster, "trial", "show", "train/1", "-o", "json"))[1]
            )
            signal: float | None = why["trial"]["signal"]
            return signal is not None and signal > 1 and (await shown())["metric"] == "val_acc"

        # The loss never was above 1, and what the program calls its accuracy has no bound.
        await cluster.until(goes_by_it)
        best = json.loads((await hermesctl(cluster, "best", "train", "-o", "json"))[1])
        assert (best["metric"], best["goal"]) == ("val_acc", "maximize")
        assert best["trials"][0]["id"] == "train/1"
        await hermesctl(cluster, "study", "stop", "train", "--yes")
        await cluster.finished("train")
