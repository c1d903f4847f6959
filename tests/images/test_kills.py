"""kill -9 of whoever has a hand in an image, at every stage of it: the trial goes on from an image
that is whole, or from its beginning, and comes to the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, processes, running
from tests.images.driving import (
    WorldTrial,
    begun,
    criu,
    files_in,
    lay_out,
    undisturbed,
)
from tests.images.programs import PROGRAMS
from tests.images.test_cluster import PROGRAM, truth
from trainer_shim import checkpoint_dir

pytestmark = [pytest.mark.image, pytest.mark.timeout(180)]

# Stops at a stage for as long as it is told to, and says so.
HELD = """#!/bin/sh
hold() {{ if [ "$(cat {folder}/hold)" = "$1" ]; then
  : > {folder}/held; while [ -e {folder}/held ]; do sleep 0.02; done; fi; }}
[ -z "$CRTOOLS_SCRIPT_ACTION" ] || {{ hold "amid $CRTOOLS_SCRIPT_ACTION"; exit; }}
hold "before $1"
[ "$1" = dump ] || exec {tool} "$@" --action-script "$0"
{tool} "$@"; status=$?
hold "after $1"
exit $status
"""
# The last: all processes are there again, and none has gone on.
STAGES = ("before dump", "after dump", "before restore", "amid post-restore")
VICTIMS = {
    "head": "hermesd.cli head",
    "node": "hermesd.cli node",
    "host": "trainer_shim.host",
    "criu": "/held-criu",
}


class Held:
    """A CRIU that is held at a stage."""

    def __init__(self, folder: Path, tool: str) -> None:
        self._stage, self._held = folder / "hold", folder / "held"
        self.path = folder / "held-criu"
        self.path.write_text(HELD.format(folder=folder, tool=tool))
        self.path.chmod(0o755)
        self.hold("nowhere")

    def hold(self, stage: str) -> None:
        self._stage.write_text(f"{stage}\n")

    @property
    def is_held(self) -> bool:
        return self._held.exists()

    def go_on(self) -> None:
        self.hold("nowhere")
        self._held.unlink()


@pytest.fixture
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    folder = tmp_path_factory.mktemp("c")
    return Held(folder, criu(folder))


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_trial_comes_to_the_same_whoever_is_killed_during_an_image(
    stage: str,
    victim: str,
    held: Held,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HERMES_NODE_CRIU", str(held.path))
    state = tmp_path_factory.mktemp("k")
    async with running(state, slots=1, kind=Cluster) as cluster:
        study = await cluster.submit(
            "blind",
            {"train.py": PROGRAM},
            {"rate": [0.01]},
            suspend=types_pb2.Suspend(durability_seconds=1.0),
        )
        images = state / "node" / "trials" / study / "1" / "checkpoints"
        await cluster.until(lambda: _whole(images))
        held.hold(stage)
        restores = stage.endswith("restore")
        if restores:
            cluster.kill(cluster.pids("host"))
        else:
            await cluster.stub.DrainNode(control.DrainNodeRequest(node="local", request_id="1"))
        await cluster.until(lambda: held.is_held)
        cluster.kill(_pids(cluster, victim))
        held.go_on()
        if not restores:
            await cluster.until(lambda: _is_undrained(cluster))
        answer = await cluster.finished(study)
        assert [each.state for each in answer.trials] == [types_pb2.TRIAL_STATE_COMPLETED]
        rows = (images.parent / "work" / "log.csv").read_text().split()
        assert rows == [f"{step},{loss!r}" for step, loss in enumerate(truth(0.01))]


def _whole(images: Path) -> list[Path]:
    """The images of a trial that are no longer being written."""
    return [each for each in images.glob(MARKS["whole"]) if each.parent.suffix != ".partial"]


async def _is_undrained(cluster: Cluster) -> bool:
    try:
        await cluster.stub.UndrainNode(control.UndrainNodeRequest(node="local", request_id="2"))
    except grpc.aio.AioRpcError:  # the head is not back yet
        return False
    return True


def _pids(cluster: Cluster, victim: str) -> list[int]:
    if victim == "host":
        return cluster.pids("host")
    found = [pid for pid, words in processes(cluster.state) if VICTIMS[victim] in " ".join(words)]
    assert found, f"no {victim} runs"
    return found


# The host, as soon as its image has come so far: by what is there of it.
MARKS = {
    "begun": "*.partial",
    "pages dumped": "*.partial/processes/pages-*.img",
    "all dumped": "*.partial/processes/inventory.img",
    "files kept": "*.partial/files",
    "pages compressed": "*.partial/processes/pages-*.zst",
    "described": "*.partial/manifest.json",
    "whole": "*/manifest.json",
}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorldTrial]:
    trial = WorldTrial(tmp_path / "t", [sys.executable, "main.py"], criu=criu(tmp_path))
    lay_out(PROGRAMS["grows a file"], trial.directory / "work")
    yield trial
    trial.end()


@pytest.mark.parametrize("mark", MARKS)
def test_a_host_that_is_killed_leaves_a_whole_image_or_none(
    mark: str, trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial.launch())
    trial.suspend("checkpoint")
    first = trial.until("suspended")["checkpoint"]["path"]
    trial.end()
    begun(trial.launch(), first)
    before = set(trial.checkpoints.glob("**/*"))
    trial.suspend("checkpoint")
    # On a busy machine it may come further before anybody looks.
    while not {path for m in (mark, "whole") for path in trial.checkpoints.glob(MARKS[m])} - before:
        pass
    trial.end()
    newest = checkpoint_dir.newest_undamaged(str(trial.checkpoints))
    assert newest is not None
    trial.launch()
    assert list(trial.checkpoints.glob("*.partial")) == []
    trial.start(restore=newest["path"])
    trial.until("completed")
    trial.quit()
    output, files = undisturbed(PROGRAMS["grows a file"], tmp_path / "plain")
    assert files_in(trial.directory / "work") == files
    assert trial.output == output
