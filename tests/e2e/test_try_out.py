"""The first seconds of one trial say what would be wrong with all of them, and leave nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hermesctl.commands import try_out
from hermesctl.errors import ExitCode
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.study_file.submission import from_data
from hermesd.pb.hermes.v1 import control_pb2 as control
from tests.e2e.cluster import Cluster, running
from tests.forked import Forked

PROGRAM = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()
for epoch in range(given.epochs):
    print(f"train loss: {1 / (epoch + 1):.3f}, val_acc: {given.rate * epoch:.3f}", flush=True)
    time.sleep(0.02)
"""


def project(folder: Path, epochs: int, metric: str) -> Path:
    """A study file of two trials, beside its program."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    study = {
        "program": "train.py",
        "python": sys.executable,
        "metric": {"name": metric, "goal": "maximize"},
        "parameters": {"rate": {"values": [0.5, 0.25]}, "epochs": {"value": epochs}},
    }
    file = folder / "study.json"
    file.write_text(json.dumps(study))
    return file


def environment(cluster: Cluster) -> dict[str, str]:
    """Of a command that goes to the cluster's head."""
    return {**os.environ, "HERMES_HEAD": f"unix:{cluster.state}/head.sock", "COLUMNS": "120"}


async def started(cluster: Cluster, *words: str) -> asyncio.subprocess.Process:
    """The command, from now on."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hermesctl.cli",
        *words,
        env=environment(cluster),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def hermesctl(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    process = Forked("hermesctl", *words, environment=environment(cluster))
    return await asyncio.to_thread(process.communicate)


async def studies(cluster: Cluster) -> list[str]:
    answer = await cluster.stub.ListStudies(control.ListStudiesRequest())
    return [study.id for study in answer.studies]


@pytest.mark.timeout(120)
async def test_a_misspelled_metric_or_argument_is_found_before_all_trials_start(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with running(tmp_path_factory.mktemp("h")) as cluster:
        file = str(project(tmp_path / "wrong", 3, "val_ac"))
        code, out, _ = await hermesctl(cluster, "preview", file, "--try", "-o", "json")
        tried: dict[str, Any] = json.loads(out)["tried"]
        assert (code, tried["state"], tried["steps"]) == (0, "completed", 3)
        assert tried["metrics"] == {"train_loss": 0.333, "val_acc": 1.0}
        doubt = "metric val_ac was not reported by the whole first trial (did you mean val_acc?)"
        assert tried["doubt"] == doubt

        code, out, err = await hermesctl(cluster, "submit", file, "--try")
        assert (code, out) == (ExitCode.USAGE, "")
        assert doubt in err
        assert "add --yes" in err

        right = str(project(tmp_path / "right", 3, "val_acc"))
        wrong = ["--set", "parameters.rte.value=1"]
        code, _, err = await hermesctl(cluster, "submit", right, "--try", *wrong)
        assert code == ExitCode.TRIALS_FAILED
        assert "unrecognized arguments: --rte=1" in err
        assert "nothing was submitted" in err
        assert await studies(cluster) == []

        code, out, err = await hermesctl(cluster, "submit", right, "--try", "--wait", "-o", "json")
        assert code == 0
        assert "ranks the trials" in err
        assert await studies(cluster) == [json.loads(out)["study"]]
        assert len(json.loads(out)["best"]) == 2


@pytest.mark.timeout(120)
async def test_a_long_program_is_ended_after_some_seconds_and_forgotten(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_out, "TRIED_SECONDS", 1.0)
    async with (
        running(tmp_path_factory.mktemp("h")) as cluster,
        AsyncClient(f"unix:{cluster.state}/head.sock") as client,
    ):
        file = project(tmp_path / "long", 1_000_000, "val_acc")
        prepared = from_data(json.loads(file.read_text()), file.parent)
        tried = await try_out.try_out(client, prepared)
        assert {each.name for each in tried.metrics} == {"train_loss", "val_acc"}
        assert (tried.has_failed, tried.doubt) == (False, "")
        assert tried.trial.step > 0
        assert await studies(cluster) == []

        # Whoever breaks it off leaves no trial behind.
        monkeypatch.setattr(try_out, "TRIED_SECONDS", 1000.0)

        async def runs() -> bool:
            return any([await cluster.steps(study) for study in await studies(cluster)])

        async with asyncio.TaskGroup() as group:
            trying = group.create_task(try_out.try_out(client, prepared))
            await cluster.until(runs)
            trying.cancel()
        assert trying.cancelled()
        assert await studies(cluster) == []
        await cluster.until(lambda: not cluster.pids("trainer"))


@pytest.mark.timeout(120)
async def test_who_is_asked_to_end_while_trying_leaves_no_study_behind(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with running(tmp_path_factory.mktemp("h")) as cluster:
        file = str(project(tmp_path / "long", 1_000_000, "val_acc"))

        async def runs() -> bool:
            return any([await cluster.steps(study) for study in await studies(cluster)])

        for number in (signal.SIGTERM, signal.SIGHUP):
            process = await started(cluster, "submit", file, "--try")
            await cluster.until(runs)
            process.send_signal(number)
            process.send_signal(number)
            _, err = await process.communicate()
            assert process.returncode == ExitCode.INTERRUPTED
            assert "nothing was submitted" in err.decode()
            assert await studies(cluster) == []
