"""Programs that are started, compiled or ended in other ways than those of the other tests.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import tf_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote
from tests.trainer_shim.test_bad_moments import is_there, saved_at
from tests.trainer_shim.test_kept import run
from trainer_shim import snapshot

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as started:
        yield started


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("steps", [(1,), (3, 6), (4, 8)], ids=str)
def test_a_compiled_model(warm: Zygote, tmp_path: Path, steps: tuple[int, ...]) -> None:
    """For another shape it is compiled again; the last batch of each epoch has one."""
    runs = Runs(warm, tmp_path, torch_programs.program(torch_programs.COMPILED))
    undisturbed = runs.undisturbed()
    assert len(undisturbed[0]) == 12
    assert runs.suspended(*steps) == undisturbed


@pytest.mark.torch
def test_a_shell_script_that_ends_in_a_training(make_trial: MakeTrial) -> None:
    """Begun again from checkpoints within an epoch, at its end and after it; with its own log."""
    program = torch_programs.program(torch_programs.USUAL)
    line = f"export GREETING=hello; echo $GREETING > said.txt; {sys.executable} -u train.py"
    argv = ["/bin/sh", "-c", f"{line} > train.log 2>&1; echo over"]
    undisturbed = make_trial(program, argv=argv, seed=7)
    files = run(undisturbed)
    assert b"FINAL" in files["train.log"]
    assert fidelity(undisturbed)[0] == "parameters-exact"
    assert len(undisturbed.losses()) == 21
    suspended = make_trial(program, argv=argv, seed=7)
    assert run(suspended, 3, 7, 8) == files
    assert suspended.losses() == undisturbed.losses()


@pytest.mark.tensorflow
def test_an_eager_loop_is_stopped_and_let_go_wherever_it_is(zygote: Zygote, tmp_path: Path) -> None:
    body = tf_programs.EAGER.replace("range(6)", "range(300)")
    runs = Runs(zygote, tmp_path, tf_programs.program(body, seeded=True))
    undisturbed = runs.undisturbed()
    with runs.trial("parked") as trial:
        trial.start()
        trial.until("started")
        for _ in range(5):
            trial.suspend("park")
            assert trial.until("parked")["kind"] == "parked"
            trial.resume()
        trial.until("completed")
        assert fidelity(trial)[0] == "park-only"
        losses, last = outcome(trial)
        # Of fast steps not each one's loss is told, nor the same ones' each time.
        assert last == undisturbed[1]
        assert 300 in losses
        assert {step: undisturbed[0].get(step, loss) for step, loss in losses.items()} == losses


BEGINNING = "with open('../begun', 'a') as begun: begun.write('x')\n"


@pytest.mark.torch
@pytest.mark.parametrize("when", ["save", "restore"])
def test_kill_9_of_a_pytorch_program(warm: Zygote, tmp_path: Path, when: str) -> None:
    """It goes on from the newest checkpoint that is whole, with nothing lost before it."""
    body = BEGINNING + torch_programs.USUAL
    runs = Runs(warm, tmp_path, torch_programs.program(body, seeded=False))
    undisturbed = runs.undisturbed()
    with runs.trial("killed") as trial:
        path = saved_at(trial, 5)
        if when == "save":
            trial.resume(limit=12)
            trial.until("parked")
            trial.send("checkpoint", id="second")
            while not list(trial.checkpoints.glob("second*")):
                pass
            _kill(trial)
            newest = snapshot.newest_verified(str(trial.checkpoints))
            assert newest is not None
            assert newest["step"] in (5, 12)
            path = newest["path"]
        else:
            trial.send("kill")
            trial.until("suspended")
            trial.start(restore=path)
            begun = trial.directory / "begun"
            is_there(begun)
            while begun.read_text() != "xx":
                pass
            _kill(trial)
        trial.start(restore=path)
        trial.until("completed")
        assert outcome(trial) == undisturbed


def _kill(trial: Trial) -> None:
    trial.attach(after=trial.events[-1]["seq"])
    os.kill(trial.attached["worker_pid"], signal.SIGKILL)
    assert trial.until("failed")["error_kind"] == "killed"
