"""What a program has on a GPU is moved to the host's memory, by a driver that a test compiles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim.driving import Trial, ending, environment
from tests.trainer_shim.test_host import FOREVER, LOOP, expected
from tests.waiting import until
from trainer_shim.host import cuda

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")

# Uses the GPU from its first step on.
USES = """
import os, pathlib
pathlib.Path(os.environ["LD_LIBRARY_PATH"], str(os.getpid())).write_text("0")
"""
# It names nothing that Hermes can see into, so that nobody waits for a boundary.
BLIND = USES + "import time\nwhile True: time.sleep(0.01)\n"


class Gpu:
    """The folder of the driver: who uses it, what fails, and what was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def refuses(self, what: str, code: int = 2) -> None:
        """Have a function answer with an error from now on; never, below 0."""
        (self.folder / f"{what}.fails").write_text(str(code))

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return (
            [line.split()[0] for line in path.read_text().split("\n")[:-1]] if path.exists() else []
        )


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return driver_in(tmp_path, monkeypatch)


def driver_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A driver of the test's own, in place of the machine's."""
    (folder / "gpu").mkdir()
    source = Path(__file__).with_name("libcuda.c")
    words = ("cc", "-shared", "-fPIC", "-o", str(folder / "gpu" / cuda.LIBRARY), str(source))
    subprocess.run(words, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder / "gpu"))
    return Gpu(folder / "gpu")


@pytest.fixture
def trial(tmp_path: Path, gpu: Gpu) -> Iterator[Trial]:
    with ending(launched(tmp_path, gpu, USES + LOOP)) as one:
        yield one


def launched(folder: Path, gpu: Gpu, program: str, moves: bool = True) -> Trial:
    env = environment(CUDA_VISIBLE_DEVICES="GPU-1", LD_LIBRARY_PATH=str(gpu.folder))
    env["PYTHONPATH"] = os.getcwd()
    argv = [sys.executable, "train.py", FOREVER]
    trial = Trial(folder / "t", argv, env=env, moves_device_memory=moves)
    (trial.directory / "work" / "train.py").write_text(program)
    return trial.launch()


def uses(gpu: Gpu) -> bool:
    """Whether a program has begun to use it."""
    return any(each.name.isdecimal() for each in gpu.folder.iterdir())


def test_a_parked_program_has_nothing_on_its_gpu_and_goes_on(trial: Trial, gpu: Gpu) -> None:
    trial.start(limit=5)
    trial.until("parked")
    assert gpu.calls() == ["lock", "checkpoint"]
    trial.resume(limit=9)
    trial.until("parked")
    assert gpu.calls() == ["lock", "checkpoint", "restore", "unlock", "lock", "checkpoint"]
    assert trial.losses() == expected(9)


def test_a_program_that_uses_no_gpu_is_parked_as_any(tmp_path: Path, gpu: Gpu) -> None:
    with ending(launched(tmp_path, gpu, LOOP)) as trial:
        trial.start(limit=5)
        trial.until("parked")
        trial.resume(limit=9)
        trial.until("parked")
        assert gpu.calls() == []


def test_a_program_without_boundaries_is_parked_too(tmp_path: Path, gpu: Gpu) -> None:
    with ending(launched(tmp_path, gpu, BLIND)) as trial:
        trial.start()
        until(lambda: uses(gpu))
        trial.suspend("park")
        trial.until("parked")
        trial.resume()
        trial.until("resumed")
        assert gpu.calls() == ["lock", "checkpoint", "restore", "unlock"]


def test_what_keeps_its_gpu_is_written_down_each_time(trial: Trial, gpu: Gpu) -> None:
    gpu.refuses("lock")
    trial.start(limit=5)
    ended = trial.until("suspended", "parked")
    assert (ended["kind"], ended["tier"], ended["step"]) == ("suspended", "checkpoint", 5)
    assert gpu.calls() == []


def test_a_driver_that_fails_at_the_last_costs_what_was_not_saved(trial: Trial, gpu: Gpu) -> None:
    gpu.refuses("checkpoint")
    trial.start(limit=5)
    ended = trial.until("suspended", "parked")
    assert (ended["kind"], ended["tier"], ended["step"]) == ("suspended", "kill", 0)
    assert "cuCheckpointProcessCheckpoint: CUDA_ERROR_OF_A_TEST" in ended["cause"]


def test_a_gpu_that_is_too_full_costs_what_was_not_saved(trial: Trial, gpu: Gpu) -> None:
    trial.start(limit=5)
    trial.until("parked")
    gpu.refuses("restore")
    trial.resume()
    ended = trial.until("suspended")
    assert (ended["tier"], ended["step"]) == ("kill", 0)
    assert "its device's memory is lost: cuCheckpointProcessRestore" in ended["cause"]


def test_a_trial_asked_to_suspend_on_its_way_back_does_both(trial: Trial, gpu: Gpu) -> None:
    trial.start(limit=5)
    trial.until("parked")
    trial.resume()
    trial.suspend("park")
    trial.until("resumed")
    trial.until("parked")
    assert gpu.calls() == ["lock", "checkpoint", "restore", "unlock", "lock", "checkpoint"]


def test_a_trial_stopped_on_its_way_back_is_saved_first(trial: Trial, gpu: Gpu) -> None:
    trial.start(limit=5)
    trial.until("parked")
    trial.resume()
    trial.send("stop", deadline_seconds=60)
    ended = trial.until("suspended")
    assert ended["tier"] == "checkpoint"
    assert ended["step"] >= 5


def test_a_driver_that_hangs_is_ended_with_the_program(trial: Trial, gpu: Gpu) -> None:
    gpu.refuses("checkpoint", -1)
    trial.start(limit=5)
    trial.until("reported")
    trial.send("kill")
    assert trial.until("suspended")["tier"] == "kill"


def test_what_is_parked_is_written_down_with_its_gpu_once_more(trial: Trial, gpu: Gpu) -> None:
    trial.start(limit=5)
    trial.until("parked")
    trial.send("checkpoint", id="meanwhile")
    assert "lent to others" in trial.until("checkpoint_failed")["reason"]
    trial.send("demote", id="last", deadline_seconds=60)
    ended = trial.until("suspended")
    assert (ended["tier"], ended["step"]) == ("checkpoint", 5)
    assert gpu.calls() == ["lock", "checkpoint", "restore", "unlock"]


def test_what_can_only_be_parked_does_not_keep_a_gpu(tmp_path: Path, gpu: Gpu) -> None:
    """Where the driver moves nothing, nobody waits for a checkpoint that cannot be."""
    with ending(launched(tmp_path, gpu, BLIND, moves=False)) as trial:
        trial.start()
        until(lambda: uses(gpu))
        trial.suspend("checkpoint")
        trial.until("parked")
        trial.send("demote", id="last", deadline_seconds=60)
        ended = trial.until("suspended")
        assert ended["tier"] == "kill"
        assert "would keep its GPU" in ended["cause"]


def tried() -> str:
    words = (sys.executable, "-m", "trainer_shim.host.cuda")
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def test_a_driver_is_tried_out_before_it_is_relied_on(gpu: Gpu) -> None:
    assert set(json.loads(tried())) == {"away", "back"}
    assert gpu.calls() == ["lock", "checkpoint", "restore", "unlock"]
    gpu.refuses("memory")
    assert tried() == "what came back is not what there was"
    gpu.refuses("restore")
    assert tried() == "cuCheckpointProcessRestore: CUDA_ERROR_OF_A_TEST"
    gpu.refuses("init")
    assert tried() == "cuInit: CUDA_ERROR_OF_A_TEST"


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    if shutil.which("nvidia-smi") is not None:
        pytest.skip("no gpu here")
    assert tried().startswith(f"there is no {cuda.LIBRARY}")
