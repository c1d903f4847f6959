"""A program's own loop around a tf.function, suspended anywhere, computes what it would.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.trainer_shim import tf_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import (
    Runs,
    complete,
    fidelity,
    outcome,
    suspend,
    tensorflow_zygote,
)

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


def runs_of(zygote: Zygote, folder: Path, name: str, seeded: bool = False) -> Runs:
    """Runs of the program called `name`."""
    return Runs(zygote, folder, programs.program(getattr(programs, name), seeded))


def test_metrics_read_between_steps_and_weights_kept_aside(zygote: Zygote, tmp_path: Path) -> None:
    """Suspended in two epochs; compared with the plain program below."""
    runs = runs_of(zygote, tmp_path, "NOT_RETURNED", seeded=True)
    undisturbed = runs.undisturbed()
    assert sorted(undisturbed[0]) == list(range(1, 17))
    assert len(set(undisturbed[0].values())) == 16
    assert runs.suspended(4, 14) == undisturbed


def test_a_loop_that_only_imports_keras_takes_no_value_from_a_sequence(
    zygote: Zygote, tmp_path: Path
) -> None:
    """What Keras sets, it sets in a fit: the trial fails by the parameter's name."""
    runs = runs_of(zygote, tmp_path, "ITERATOR")
    stages = [(3, {"momentum": 0.1}), (None, {"momentum": 0.2})]
    with runs.trial("changing", stages=stages) as trial:
        trial.start()
        end = trial.until("failed", "completed")
    assert end["kind"] == "failed"
    assert "a sequence cannot set momentum to 0.1 at step 1" in end["detail"]


def test_ended_at_every_boundary(zygote: Zygote, tmp_path: Path) -> None:
    """No process lives longer than one step; the steps take their data themselves. And parked."""
    runs = runs_of(zygote, tmp_path, "ITERATOR")
    undisturbed = runs.undisturbed()
    assert len(undisturbed[0]) == 8
    assert runs.parked(*range(1, 9)) == undisturbed
    assert runs.suspended(*range(1, 9)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(
    ("name", "steps"),
    [("RETURNED", 16), ("NOT_RETURNED", 16), ("TRAIN_ON_BATCH", 9), ("SAVING", 8)],
)
def test_other_programs_ended_at_every_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int, seeded: bool
) -> None:
    runs = runs_of(zygote, tmp_path, name, seeded)
    undisturbed = runs.undisturbed()
    assert len(undisturbed[0]) == steps
    assert not seeded or undisturbed[1] == runs.plain()
    assert runs.suspended(*range(1, steps + 1)) == undisturbed


def test_checkpoints_of_its_own(zygote: Zygote, tmp_path: Path) -> None:
    """It does not start from what it saved itself, and what it saved stays as it was."""
    runs = runs_of(zygote, tmp_path, "SAVING")
    undisturbed = runs.undisturbed()
    assert runs.suspended(3, 6) == undisturbed


def test_random_operations_in_the_step(zygote: Zygote, tmp_path: Path) -> None:
    """They draw what they draw without Hermes, and go on with it; also in branches and loops."""
    runs = runs_of(zygote, tmp_path, "RANDOM_STEP", seeded=True)
    undisturbed = runs.undisturbed()
    assert len(set(undisturbed[0].values())) == 8
    assert undisturbed[1] == runs.plain()
    assert runs.suspended(1, 4, 5) == undisturbed


def test_what_it_looks_at_may_depend_on_the_clock(zygote: Zygote, tmp_path: Path) -> None:
    """A look more or less, at a metric or by a function, changes no step; and that is said."""
    runs = runs_of(zygote, tmp_path, "BY_THE_CLOCK")
    undisturbed = runs.undisturbed()
    steps = (3, 6, 12)
    with runs.trial("clock") as trial:
        complete(trial, *steps)
        assert outcome(trial) == undisturbed
        level, reason = fidelity(trial)
        assert level == "exact-if-deterministic"
        assert "looks at its variables" in reason


@pytest.mark.tf_keras
def test_what_keras_2_saves_after_it_has_looked_at_its_weights(tmp_path: Path) -> None:
    """The save is told again in its turn, though the looks before it were told all at once."""
    legacy = {"TF_USE_LEGACY_KERAS": "1"}
    with tensorflow_zygote(tmp_path, **legacy) as zygote:
        runs = Runs(zygote, tmp_path, programs.program(programs.LEGACY, seeded=True), **legacy)
        undisturbed = runs.undisturbed()
        assert runs.suspended(4) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.tf_keras
def test_keras_2_ended_at_every_boundary(tmp_path: Path) -> None:
    """Its fit is a loop like any other; what it says of an epoch is reported too."""
    legacy = {"TF_USE_LEGACY_KERAS": "1"}
    with tensorflow_zygote(tmp_path, **legacy) as zygote:
        runs = Runs(zygote, tmp_path, programs.program(programs.LEGACY, seeded=True), **legacy)
        with runs.trial("undisturbed") as trial:
            trial.start()
            completed = trial.until("completed")
            undisturbed = outcome(trial)
        assert {"loss", "epoch_loss", "val_loss", "val_mae"} <= completed["metrics"].keys()
        assert len(undisturbed[0]) == 9
        assert undisturbed[1] == runs.plain()
        assert runs.parked(*range(1, 10)) == undisturbed
        assert runs.suspended(*range(1, 10)) == undisturbed


def test_data_with_random_operations_and_of_a_generator(zygote: Zygote, tmp_path: Path) -> None:
    """They are drawn again, in order; the author has to see to it that they can be."""
    runs = runs_of(zygote, tmp_path, "NOISY_DATA")
    undisturbed = runs.undisturbed()
    assert runs.suspended(1, 5) == undisturbed


@pytest.mark.parametrize(
    ("name", "level", "word"),
    [
        ("EAGER", "park-only", "outside of a tf.function"),
        ("PYTHON_IN_STEP", "park-only", "PyFunc"),
        ("DATASET_IN_STEP", "park-only", "train reads a dataset"),
        ("PARALLEL_AUGMENTATION", "parameters-exact", "in parallel"),
        ("FREE_ORDER", "parameters-exact", "is free"),
        ("LOOP_THEN_FIT", "park-only", "fit and by a loop"),
        ("FIT_THEN_LOOP", "park-only", "fit and by a loop"),
    ],
)
def test_what_is_not_exact_is_said(
    zygote: Zygote, tmp_path: Path, name: str, level: str, word: str
) -> None:
    """By the end of the last step; the program itself runs as ever."""
    runs = runs_of(zygote, tmp_path, name, seeded=True)
    with runs.trial("only") as trial:
        trial.start()
        trial.until("completed")
        assert fidelity(trial)[0] == level
        assert word in fidelity(trial)[1]
        assert outcome(trial)


def test_augmented_in_parallel_it_goes_on_from_its_own_weights(
    zygote: Zygote, tmp_path: Path
) -> None:
    """The data after a resume are others; no step is lost, and none is done twice."""
    runs = runs_of(zygote, tmp_path, "PARALLEL_AUGMENTATION")
    losses, _ = runs.suspended(4)
    assert sorted(losses) == list(range(1, 13))


def test_other_data_than_at_the_checkpoint_are_refused(zygote: Zygote, tmp_path: Path) -> None:
    """A program that is not repeatable must not go on as if it were."""
    body = "x = x + np.float32(int.from_bytes(os.urandom(2), 'big'))\n" + programs.ITERATOR
    body = body.replace("def train(iterator):\n    x, y = next(iterator)", "def train(x, y):")
    body = body.replace("train(iterator)", "train(*next(iterator))").replace(
        "tf.errors.OutOfRangeError", "StopIteration"
    )
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("other") as trial:
        trial.start(limit=2)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="the data of the last step differ"):
            trial.until("completed")


def test_a_loop_that_ends_before_its_checkpoint_was_not_restored(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Also where Keras is imported, which has nothing to go on from."""
    mark = tmp_path / "mark"
    once = f"import pathlib\nfor epoch in range(0 if pathlib.Path({str(mark)!r}).exists() else 2):"
    body = programs.ITERATOR
    assert "for epoch in range(2):" in body
    runs = Runs(
        zygote,
        tmp_path,
        programs.program(body.replace("for epoch in range(2):", once), seeded=True),
    )
    with runs.trial("ends") as trial:
        trial.start(limit=2)
        trial.until("parked")
        restore = suspend(trial)["checkpoint"]["path"]
        mark.touch()
        trial.start(restore=restore)
        with pytest.raises(AssertionError, match="before it came to where its checkpoint"):
            trial.until("completed")


def asked_for_epochs(body: str, loop: str) -> str:
    """The program, with the number of its epochs on the command line, all of it in a function
    whose variables are gone when it ends."""
    assert loop in body
    asked = loop.replace("4)" if "4)" in loop else "2)", "int(sys.argv[1]))")
    body = textwrap.indent(body.replace(loop, asked), "    ")
    return programs.program(f"import sys\ndef main():\n{body}\nmain()\n", seeded=False)


BEST_AT_THE_END = programs.NOT_RETURNED.replace("final(", "model.set_weights(best[2])\nfinal(")


@pytest.mark.parametrize(
    ("body", "loop", "epochs", "suspend_at"),
    [
        (BEST_AT_THE_END, "range(4)", ["2", "4"], None),
        (BEST_AT_THE_END, "range(4)", ["1", "2", "4"], 7),
        (programs.ITERATOR, "range(2)", ["1", "3"], None),
        (programs.SAVING, "range(int(saved.epoch.numpy()), 4)", ["2", "3"], None),
    ],
    ids=["metrics", "again", "iterator", "saving"],
)
def test_a_finished_trial_is_trained_further_as_if_asked_at_once(
    zygote: Zygote,
    tmp_path: Path,
    body: str,
    loop: str,
    epochs: list[str],
    suspend_at: int | None,
) -> None:
    """From its last step on, whatever was done to its variables after that."""
    runs = Runs(zygote, tmp_path, asked_for_epochs(body, loop))
    assert runs.extended(epochs, suspend_at) == runs.undisturbed(epochs[-1])


def test_why_a_trial_cannot_be_trained_further_is_said(zygote: Zygote, tmp_path: Path) -> None:
    """It is only parked, and has no checkpoint at its end."""
    runs = runs_of(zygote, tmp_path, "EAGER", seeded=True)
    with runs.trial("said") as trial:
        trial.start()
        assert trial.until("completed")["checkpoint"] is None
        assert "outside of a tf.function" in fidelity(trial)[1]


_SESSION = """
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
weight = tf.get_variable("weight", shape=(), initializer=tf.ones_initializer())
step = tf.assign(weight, weight * 0.99)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    while True:
        print(f"loss={session.run(step)}", flush=True)
"""


def test_a_session_of_tensorflow_1_counts_as_started_at_once(
    zygote: Zygote, tmp_path: Path
) -> None:
    """It will show no boundary: what it prints is its reports, and it is frozen wherever it is."""
    with Runs(zygote, tmp_path, _SESSION).trial("session") as trial:
        trial.start()
        trial.until("started")
        assert fidelity(trial)[1] == "a session of TensorFlow 1 shows no iteration boundaries"
        while not trial.losses():
            trial.until("reported")
        trial.suspend("park")
        assert not trial.until("parked")["at_boundary"]
