"""Suspended anywhere and resumed, a Keras program computes what it computes undisturbed.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermesctl.render.loading import loading_lines
from hermesd.node.storage import checkpoints
from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, suspend, with_keras

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]
STEPS = 40


def runs_of(zygote: Zygote, folder: Path, body: str, seeded: bool) -> Runs:
    """Runs of the program with this body."""
    return Runs(zygote, folder, programs.program(body, seeded))


@pytest.mark.in_depth
@pytest.mark.parametrize(
    ("seeded", "every"),
    [
        pytest.param(True, 8, id="seeded"),
        pytest.param(False, 8, id="unseeded"),
        pytest.param(True, 1, id="seeded-each", marks=pytest.mark.slow),
        pytest.param(False, 1, id="unseeded-each", marks=pytest.mark.slow),
    ],
)
def test_every_boundary_parked_and_restored(
    zygote: Zygote, tmp_path: Path, seeded: bool, every: int
) -> None:
    """One run is parked and checkpointed at each boundary; `every` so many are then resumed. A
    program that seeds itself computes the same as without Hermes."""
    runs = runs_of(zygote, tmp_path, programs.EVERYTHING, seeded)
    undisturbed = runs.undisturbed()
    losses, _ = undisturbed
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert len(set(losses.values())) == STEPS
    assert not seeded or undisturbed[1] == runs.plain()
    parked, checkpoints, work = runs.parked_everywhere("exact")
    assert parked == undisturbed
    chosen = dict(sorted(checkpoints.items())[::every])
    assert runs.resumed_wrongly(undisturbed, chosen, work) == []


@pytest.mark.in_depth
def test_a_run_ended_at_every_boundary(zygote: Zygote, tmp_path: Path) -> None:
    """No process lives longer than one step."""
    runs = runs_of(zygote, tmp_path, programs.OWN_STEP, seeded=False)
    undisturbed = runs.undisturbed()
    assert runs.suspended(*range(1, 16)) == undisturbed


@pytest.mark.in_depth
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("TWO_FITS", (5, 14, 16, 23)),
        ("TWO_OPTIMIZERS", (2, 6, 11)),
        ("LONG_PASSES", (2, 6, 10)),
        ("DATASET", (1, 6, 13)),
        ("PIPELINE", (6, 10, 12, 22, 24)),
        ("SHUFFLED_VALIDATION", (5, 9, 14, 15)),
        ("MIXED", (3, 8, 12)),
        ("STOPPED", (4, 9)),
        ("NESTED_LOGS", (3, 5, 11)),
    ],
)
def test_suspends_of_other_programs(
    zygote: Zygote, tmp_path: Path, name: str, steps: tuple[int, ...]
) -> None:
    """Several suspends in one run, each to a new process; and held at the same boundaries."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=False)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.parked(*steps) == undisturbed
    assert runs.suspended(*steps) == undisturbed


def test_what_a_fit_computed_is_told_though_the_program_goes_on(
    zygote: Zygote, tmp_path: Path
) -> None:
    """After its last fit a program may evaluate for an hour; the host is silent then."""
    body = """
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x[:32], y[:32], batch_size=8, epochs=1, verbose=0)
threading.Event().wait()
"""
    runs = runs_of(zygote, tmp_path, "import threading\n" + body, seeded=True)
    with runs.trial("waits") as trial:
        trial.start()
        while trial.until("reported")["last_step"] < 4:
            pass
    assert sorted(trial.losses()) == [1, 2, 3, 4]


def test_the_loss_is_the_steps_own_and_without_penalties(zygote: Zygote, tmp_path: Path) -> None:
    """Against a program that computes each batch's loss by hand."""
    body = """
x, y = x[:32], y[:32]
model = keras.Sequential([layers.Input((6,)), layers.Dense(1, kernel_regularizer="l2")])
model.compile(keras.optimizers.SGD(0.1), "mse")
by_hand = []
class Check(callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        rows = slice(8 * batch, 8 * batch + 8)
        by_hand.append(float(np.mean((y[rows] - model(x[rows]).numpy()) ** 2)))
model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[Check()])
final(model, by_hand)
"""
    runs = runs_of(zygote, tmp_path, body, seeded=True)
    losses, line = runs.undisturbed()
    by_hand = json.loads(line.removeprefix("FINAL "))[1]
    assert [losses[step] for step in sorted(losses)] == pytest.approx(by_hand, rel=1e-5)


def test_metrics_within_the_logs_are_told_by_their_own_names(
    zygote: Zygote, tmp_path: Path
) -> None:
    runs = runs_of(zygote, tmp_path, programs.NESTED_LOGS, seeded=True)
    with runs.trial("told") as trial:
        trial.start()
        trial.until("completed")
        reports = [event for event in trial.events if event["kind"] == "reported"]
    told = {name for report in reports for _, values in report["points"] for name in values}
    assert told == {"loss", "epoch_loss", "mae", "val_loss", "val_mae"}


def test_a_rebuilt_model_is_traced_once(zygote: Zygote, tmp_path: Path) -> None:
    """TensorFlow traces a step that makes variables twice: in a large model that is most of the
    time until its next step."""
    body = """
class Counted(layers.Layer):
    traces = 0
    def call(self, x, training=False):
        Counted.traces += training
        return x
model = keras.Sequential([layers.Input((6,)), Counted(), layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
model.fit(x, y, batch_size=9, epochs=1, verbose=0)
print("FINAL", digest(model), Counted.traces)
"""
    runs = runs_of(zygote, tmp_path, body, seeded=False)
    losses, weights_and_traces = runs.undisturbed()
    weights, twice = weights_and_traces.rsplit(maxsplit=1)
    assert int(twice) == 2, "what a plain first step takes"
    assert runs.suspended(3) == (losses, f"{weights} 1")


@pytest.mark.parametrize("name", ["OWN_LOSS", "OUTPUTS_IN_TRAINING", "NUMBERS_IN_THE_GRAPH"])
def test_what_only_a_traced_step_can_make_is_left_to_it(
    zygote: Zygote, tmp_path: Path, name: str
) -> None:
    """Where the model's variables, made ahead of the step, would be others, or impossible."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=True)
    assert runs.suspended(3) == runs.undisturbed()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("PARALLEL_AUGMENTATION", "stateful"),
        ("AUGMENTING_LAYER", "stateful"),
        ("WORKERS", "workers"),
        ("STATEFUL_STEP", "RandomStandardNormal"),
        ("EAGER", "run_eagerly"),
    ],
)
def test_what_cannot_be_brought_back_only_parks(
    zygote: Zygote, tmp_path: Path, name: str, word: str
) -> None:
    """It is never called exact once it has done a step, and a suspend keeps the process."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=True)
    with runs.trial("only") as trial:
        trial.start(limit=3)
        assert trial.until("parked")["step"] == 3
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        trial.resume()
        trial.until("completed")
        assert outcome(trial)


def test_other_data_than_at_the_checkpoint_are_refused(zygote: Zygote, tmp_path: Path) -> None:
    """A program that is not repeatable must not go on as if it were."""
    body = "x = x + int.from_bytes(os.urandom(2), 'big')\n" + programs.STOPPED
    runs = runs_of(zygote, tmp_path, body, seeded=True)
    with runs.trial("other") as trial:
        trial.start(limit=2)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="the training data differ"):
            trial.until("completed")


@pytest.mark.parametrize("is_eager", [False, True], ids=["goes-on", "parked-only"])
def test_a_trained_model_loads_without_hermes(
    zygote: Zygote, tmp_path: Path, is_eager: bool
) -> None:
    body = f"""
model = keras.Sequential([layers.Input((6,)), layers.Dense(4, activation="relu"), layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly={is_eager})
model.fit(x, y, batch_size=8, epochs=1, verbose=0)
print("BEFORE", [w.tobytes().hex() for w in model.get_weights()])
"""
    runs = runs_of(zygote, tmp_path, body, seeded=True)
    with runs.trial("trained") as trial:
        trial.start()
        path = trial.until("completed")["checkpoint"]["path"]
        printed = (trial.directory / "output.log").read_text()
    assert checkpoints.verified(Path(path)).is_result == is_eager
    lines = loading_lines(Path(path), ["keras.arrays", "model.keras"])
    shows = "print('BEFORE', [w.tobytes().hex() for w in model.get_weights()])"
    assert with_keras(tmp_path, *lines, shows) in printed


@pytest.mark.in_depth
@pytest.mark.parametrize(
    ("name", "seeded", "epochs", "suspend_at"),
    [
        ("ASKED_FOR_EPOCHS", True, ["2", "4"], None),
        ("ASKED_FOR_EPOCHS", False, ["1", "3", "4"], None),
        ("ASKED_FOR_EPOCHS", False, ["2", "4"], 20),  # nothing is left to train when restored
        ("ASKED_FOR_EPOCHS", False, ["2", "4"], 25),
        ("SECOND_FIT_EXTENDED", False, ["2", "4"], None),
    ],
)
def test_a_finished_trial_is_trained_further_as_if_asked_at_once(
    zygote: Zygote,
    tmp_path: Path,
    name: str,
    seeded: bool,
    epochs: list[str],
    suspend_at: int | None,
) -> None:
    """2 epochs and then 4 are the 4 of one run, whatever the end of a fit did to the weights."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded)
    assert runs.extended(epochs, suspend_at) == runs.undisturbed("4")


def test_a_fit_that_its_callbacks_stopped_stays_stopped(zygote: Zygote, tmp_path: Path) -> None:
    """As it would have been, had it been asked for more epochs at once."""
    runs = runs_of(zygote, tmp_path, programs.STOPPED_EARLY, seeded=True)
    undisturbed = runs.undisturbed("9")
    with runs.trial("stopped", "8") as trial:
        trial.start()
        checkpoint = trial.until("completed")["checkpoint"]
        assert outcome(trial) == undisturbed
    with runs.trial("asked again", "9") as trial:
        trial.start(restore=checkpoint["path"])
        assert trial.until("completed")["step"] == checkpoint["step"]
        assert outcome(trial) == ({}, undisturbed[1])


def test_other_epochs_of_a_fit_before_the_last_are_refused(zygote: Zygote, tmp_path: Path) -> None:
    """The fits after it started from where it ended: they cannot be kept."""
    body = programs.SECOND_FIT_EXTENDED.replace("epochs=2", "epochs=int(sys.argv[1])")
    runs = runs_of(zygote, tmp_path, body, seeded=True)
    with runs.trial("short", "1") as trial:
        trial.start()
        checkpoint = trial.until("completed")["checkpoint"]
    with runs.trial("longer", "2") as trial:
        trial.start(restore=checkpoint["path"])
        with pytest.raises(AssertionError, match="fit 1 is asked for 2 epochs"):
            trial.until("completed")
