"""Images of programs that have something on a GPU, whose driver is a test's: it is moved from there
before the image is made, and put back once the program is there again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hermesd.node.machine import images
from hermesd.node.machine.accounts import own
from hermesd.node.machine.detached import WORLD
from tests.images.driving import (
    Failing,
    WorldTrial,
    begun,
    criu,
    files_in,
    lay_out,
    missing,
    saved,
    undisturbed,
    wait_for_more,
)
from tests.images.programs import PROGRAMS
from tests.images.test_forms import FIT
from tests.trainer_shim.driving import ROOT, environment
from tests.trainer_shim.test_device_memory import USES, Gpu, driver_in
from trainer_shim.host import image

GROWS = PROGRAMS["grows a file"]
PROGRAM = replace(GROWS, files={"main.py": USES + GROWS.files["main.py"]})
AWAY, BACK = ["lock", "checkpoint"], ["restore", "unlock"]

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here"),
]


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return driver_in(tmp_path, monkeypatch)


@pytest.fixture
def failing(tmp_path: Path) -> Failing:
    return Failing(tmp_path, criu(tmp_path))


@pytest.fixture
def trial(tmp_path: Path, gpu: Gpu, failing: Failing) -> Iterator[WorldTrial]:
    env = environment(CUDA_VISIBLE_DEVICES="GPU-1", LD_LIBRARY_PATH=str(gpu.folder))
    trial = WorldTrial(
        tmp_path / "t", [sys.executable, "main.py"], env, criu=str(failing.path),
        moves_device_memory=True, images_hold_device_memory=True,
    )  # fmt: skip
    lay_out(PROGRAM, trial.directory / "work")
    trial.launch()
    yield trial
    trial.end()


def _ends_as_undisturbed(trial: WorldTrial, tmp_path: Path) -> None:
    trial.until("completed")
    trial.quit()
    output, files = undisturbed(GROWS, tmp_path / "plain")
    assert trial.output == output
    assert files_in(trial.directory / "work").keys() == files.keys()


def test_a_program_goes_on_from_an_image_with_what_it_had_on_its_gpu(
    trial: WorldTrial, gpu: Gpu, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    assert gpu.calls() == AWAY
    begun(trial, path)
    assert gpu.calls() == [*AWAY, *BACK]
    path = saved(trial)
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_its_gpu_is_another_ones_while_the_image_is_written(
    trial: WorldTrial, gpu: Gpu, failing: Failing
) -> None:
    begun(trial)
    failing.waits()
    trial.suspend("checkpoint")
    parked = trial.until("parked", "suspended")
    assert parked["is_being_written"]
    assert gpu.calls() == AWAY
    failing.goes_on()
    trial.until("suspended")


def test_what_is_parked_is_written_down_without_its_gpu(
    trial: WorldTrial, gpu: Gpu, tmp_path: Path
) -> None:
    begun(trial)
    trial.suspend("park")
    trial.until("parked")
    trial.send("checkpoint", id="meanwhile")
    trial.until("checkpointed")
    trial.send("demote", id="last", deadline_seconds=60)
    path = trial.until("suspended")["checkpoint"]["path"]
    assert gpu.calls() == AWAY
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_one_that_runs_has_its_gpu_back_before_its_image_is_written(
    trial: WorldTrial, gpu: Gpu, tmp_path: Path
) -> None:
    begun(trial)
    trial.send("checkpoint", id="passing")
    trial.until("checkpointed")
    assert gpu.calls() == [*AWAY, *BACK]
    wait_for_more(trial, 5)
    trial.end()
    (state,) = (path for path in gpu.folder.iterdir() if path.name.isdigit())
    state.write_text("2")  # which a real driver keeps in the process
    trial.launch()
    trial.start(restore=str(trial.checkpoints / "passing"))
    _ends_as_undisturbed(trial, tmp_path)


def test_one_that_criu_cannot_hold_stays_parked(
    trial: WorldTrial, gpu: Gpu, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    failing.does("exit 1")
    trial.suspend("checkpoint")
    trial.until("checkpoint_failed")
    trial.until("parked")
    assert gpu.calls() == AWAY
    trial.resume()
    _ends_as_undisturbed(trial, tmp_path)


@pytest.fixture
def fit(trial: WorldTrial) -> WorldTrial:
    """One whose framework makes a checkpoint as good as an image."""
    if lacks := missing(FIT):
        pytest.skip(f"no {lacks} here")
    trial.end()
    lay_out(replace(FIT, files={"main.py": USES + FIT.files["main.py"]}), trial.directory / "work")
    return trial


def _takes(trial: WorldTrial, form: str) -> None:
    """Have it parked, with this form of its progress being the one that takes long."""
    costs = {form: {"away": 60.0, "back": 60.0}}
    (trial.directory / "forms.json").write_text(json.dumps(costs))
    trial.launch()
    trial.start(limit=40)
    trial.until("parked")


def test_one_whose_image_fails_does_not_take_its_gpu_back_for_a_checkpoint(
    fit: WorldTrial, gpu: Gpu, failing: Failing, tmp_path: Path
) -> None:
    """By then another trial has it."""
    _takes(fit, "checkpoint")
    failing.does("exit 1")
    fit.send("demote", id="last", deadline_seconds=60)
    fit.until("checkpoint_failed")
    fit.until("parked")
    assert gpu.calls() == AWAY
    fit.resume()
    fit.until("resumed")
    assert gpu.calls() == [*AWAY, *BACK]
    fit.until("completed")
    fit.quit()
    assert fit.output == undisturbed(FIT, tmp_path / "plain")[0]


def test_one_that_was_parked_has_its_gpu_once_more_for_a_checkpoint(
    fit: WorldTrial, gpu: Gpu, tmp_path: Path
) -> None:
    _takes(fit, "image")
    assert gpu.calls() == AWAY
    fit.send("demote", id="last", deadline_seconds=60)
    path = fit.until("suspended")["checkpoint"]["path"]
    assert gpu.calls() == [*AWAY, *BACK]
    assert not image.is_image(path)


def test_one_whose_memory_stays_is_not_imaged(trial: WorldTrial, gpu: Gpu) -> None:
    gpu.refuses("lock")
    begun(trial)
    trial.send("checkpoint", id="passing")
    assert "cuCheckpointProcessLock" in trial.until("checkpoint_failed")["reason"]
    wait_for_more(trial, 5)
    told = [event for event in trial.events if event["kind"] == "fidelity"][-1]
    assert told["level"] == "park-only"


@pytest.mark.parametrize(("gpu_now", "kind"), [("GPU-2", "unfit"), ("", "unfit")])
def test_another_gpu_is_not_tried(trial: WorldTrial, gpu: Gpu, gpu_now: str, kind: str) -> None:
    begun(trial)
    trial.suspend("checkpoint")
    path = trial.until("suspended")["checkpoint"]["path"]
    trial.end()
    spec = json.loads(trial.spec.read_text())
    spec["env"]["CUDA_VISIBLE_DEVICES"] = gpu_now
    trial.spec.write_text(json.dumps(spec))
    trial.launch()
    failed = _fails(trial, path)
    assert (failed["error_kind"], "GPU-1 goes back to no other" in failed["detail"]) == (kind, True)


@pytest.mark.parametrize(
    ("name", "kind"), [("OF_A_TEST", "restore"), ("OUT_OF_MEMORY", "not_started")]
)
def test_a_gpu_that_does_not_take_it_back_fails_the_run(
    trial: WorldTrial, gpu: Gpu, name: str, kind: str
) -> None:
    """A full one may have room later."""
    begun(trial)
    path = saved(trial)
    (gpu.folder / "name").write_text(f"CUDA_ERROR_{name}")
    gpu.refuses("restore")
    failed = _fails(trial, path)
    assert failed["error_kind"] == kind
    assert f"cuCheckpointProcessRestore: CUDA_ERROR_{name}" in failed["detail"]


def _fails(trial: WorldTrial, path: str) -> dict[str, object]:
    trial.attempt += 1
    trial.send("start", restore=path, limit_step=None)
    with pytest.raises(AssertionError, match="cannot be brought back"):
        trial.until("started")
    return trial.events[-1]


def _names(cmdline: Path, path: Path) -> bool:
    """Whether it is of a process that is there and was told of this path."""
    try:
        return os.fsencode(path) in cmdline.read_bytes()
    except OSError:
        return False


def test_a_node_tries_out_whether_images_hold_what_is_on_its_gpu(
    tmp_path: Path, gpu: Gpu, failing: Failing
) -> None:
    def tried(world: Sequence[str] = WORLD) -> str:
        words = ["trainer_shim.host.try_image", str(failing.path), ".", "gpu"]
        folder = tmp_path / f"tried{len(os.listdir(tmp_path))}"
        folder.mkdir()
        more = {"LD_LIBRARY_PATH": str(gpu.folder)}
        said = asyncio.run(images.run_in(words, more, folder, ROOT, own(), world))
        if os.path.ismount(folder / "run"):  # in the machine's namespaces, by a root
            subprocess.run(["umount", folder / "run"], check=True)
        return said

    assert json.loads(tried())["version"]
    assert gpu.calls() == [*AWAY, *BACK]
    failing.does("exit 1")
    assert tried(()) == "CRIU cannot be used: CRIU ended with 1"
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, failing.path)]
    assert left == [], "nothing stays on the GPU, also where no world ends with it"
    failing.does("")
    gpu.refuses("memory")
    assert tried() == "what came back is not what there was"
    gpu.refuses("restore")
    assert tried() == "cuCheckpointProcessRestore: CUDA_ERROR_OF_A_TEST"
