"""Programs that are started, compiled or ended in other ways than those of the other tests.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forked import WITHOUT
from tests.trainer_shim import keras_programs, tf_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, Zygote
from tests.trainer_shim.suspending import (
    Runs,
    fidelity,
    last_word,
    outcome,
    warm_zygote,
    with_keras,
)
from tests.trainer_shim.test_bad_moments import is_there, saved_at
from tests.trainer_shim.test_moments import PAUSE
from tests.trainer_shim.test_workdir_rollback import run
from tests.waiting import until
from trainer_shim import checkpoint_dir

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


# Loops of frameworks whose steps nobody sees.
UNSEEN = """
import hashlib, sys
import numpy as np
random = np.random.default_rng(4)
x = random.normal(size=(60, 6))
y = x.sum(axis=1) + random.normal(size=60)
"""
JAX = """
import jax

@jax.jit
def train(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(weights)
    return weights - 0.05 * gradient, loss

weights, losses, key = np.zeros(6), [], jax.random.key(3)
for step in range(30):
    pause("amid", step == 20)
    key, drawn = jax.random.split(key)
    rows = np.asarray(jax.random.permutation(drawn, 60)[:20])
    weights, loss = train(weights, x[rows], y[rows])
    losses.append(float(loss).hex())
print("FINAL", np.asarray(weights).tobytes().hex(), losses)
"""
SCIKIT_LEARN = """
from sklearn.linear_model import SGDRegressor
model, scores = SGDRegressor(random_state=3), []
for epoch in range(30):
    pause("amid", epoch == 20)
    model.partial_fit(x, y)
    scores.append(float(model.score(x, y)).hex())
print("FINAL", model.coef_.tobytes().hex(), scores)
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(JAX, id="jax", marks=pytest.mark.jax),
        pytest.param(SCIKIT_LEARN, id="scikit-learn"),
    ],
)
def test_a_loop_that_no_adapter_sees_is_only_parked_and_says_so(tmp_path: Path, body: str) -> None:
    """Whatever is asked for, it is held where it is; what it computes is what it does by hand."""
    runs = Runs(None, tmp_path, PAUSE + UNSEEN + body)
    with runs.trial("parked") as trial:
        (trial.directory / "amid").touch()
        trial.start()
        is_there(trial.directory / "reached")
        for tier in ("park", "checkpoint"):
            trial.suspend(tier)
            held = trial.until("parked")
            assert (held["step"], held["at_boundary"]) == (0, False)
            trial.resume()
            trial.until("resumed")
        (trial.directory / "asked").touch()
        assert trial.until("completed")["checkpoint"] is None
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert reason == "the program uses no framework that Hermes can see into"
        assert last_word(trial.output) == runs.plain()


def of_another_version(folder: Path, package: str, file: str, version: str) -> str:
    """A folder in which this package is the installed one but for the version in one of its
    files."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    there, here = Path(spec.origin).parent, folder / package
    for part in ("", *Path(file).parts):
        there, here = there / part, here / part
        if there.is_dir():
            here.mkdir(parents=True, exist_ok=True)
            for entry in there.iterdir():
                if entry.name not in ("__pycache__", *Path(file).parts):
                    (here / entry.name).symlink_to(entry)
    text, count = re.subn(
        "^__version__ = .*", f"__version__ = {version!r}", there.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    here.write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("package", "file", "program"),
    [
        pytest.param(
            "keras",
            "src/version.py",
            keras_programs.program(keras_programs.OWN_STEP, seeded=True),
            marks=pytest.mark.tensorflow,
        ),
        pytest.param(
            "tensorflow",
            "python/framework/versions.py",
            tf_programs.program(tf_programs.ITERATOR, seeded=True),
            marks=[pytest.mark.tensorflow, pytest.mark.slow],
        ),
        pytest.param(
            "torch",
            "version.py",
            torch_programs.program(torch_programs.USUAL),
            marks=[pytest.mark.torch, pytest.mark.slow],
        ),
    ],
)
def test_a_version_that_was_not_tested_is_only_parked_and_says_so(
    tmp_path: Path, package: str, file: str, program: str
) -> None:
    path = of_another_version(tmp_path / "packages", package, file, "3.99.0")
    runs = Runs(None, tmp_path, program, PYTHONPATH=f"{path}:{WITHOUT}")
    with runs.trial("untested") as trial:
        trial.start(limit=3)
        assert trial.until("parked")["step"] == 3
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert reason.startswith(f"resuming is tested with {package} ")
        assert reason.count("this is 3.99.0: the nearest tested version is ") == 1
        trial.suspend("checkpoint")
        assert "can only be parked" in trial.until("checkpoint_failed")["reason"]
        trial.resume()
        trial.until("completed")
        plain = last_word(with_keras(tmp_path, program)) if package == "keras" else runs.plain()
        assert last_word(trial.output) == plain


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
            newest = checkpoint_dir.newest_undamaged(str(trial.checkpoints))
            assert newest is not None
            assert newest["step"] in (5, 12)
            path = newest["path"]
        else:
            trial.send("kill")
            trial.until("suspended")
            trial.start(restore=path)
            begun = trial.directory / "begun"
            is_there(begun)
            until(lambda: begun.read_text() == "xx")
            _kill(trial)
        trial.start(restore=path)
        trial.until("completed")
        assert outcome(trial) == undisturbed


def _kill(trial: Trial) -> None:
    trial.attach(after=trial.events[-1]["seq"])
    os.kill(trial.attached["worker_pid"], signal.SIGKILL)
    assert trial.until("failed")["error_kind"] == "killed"
