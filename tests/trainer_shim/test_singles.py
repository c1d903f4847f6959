"""One suspend a run, at every boundary there is; and at moments that are none.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs, tf1_programs, tf_programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, outcome, suspend

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]


def resumed_at_each(runs: Runs, steps: int) -> None:
    """From the checkpoint of each boundary a new process computes the rest."""
    undisturbed = runs.undisturbed()
    parked, checkpoints, work = runs.parked_everywhere("exact")
    assert parked == undisturbed
    assert list(checkpoints) == list(range(1, steps + 1))
    assert runs.resumed_wrongly(undisturbed, checkpoints, work) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("RETURNED", 16), ("ITERATOR", 8)])
def test_a_tf_function_resumed_at_each_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int
) -> None:
    program = tf_programs.program(getattr(tf_programs, name), seeded=False)
    resumed_at_each(Runs(zygote, tmp_path, program), steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("FEED_FETCHED", 12), ("MONITORED", 12), ("SUPERVISOR", 9)]
)
def test_a_session_resumed_at_each_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int
) -> None:
    program = tf1_programs.program(getattr(tf1_programs, name), seeded=False)
    resumed_at_each(Runs(zygote, tmp_path, program), steps)


# Says when it validates, and waits there until it was asked to suspend.
VALIDATING = """
class Slow(callbacks.Callback):
    def on_test_begin(self, logs=None):
        self.runs = getattr(self, "runs", 0) + 1
        if self.runs == 2 and not os.path.exists("validating"):
            open("validating", "w").close()
            while not os.path.exists("asked"):
                pass

model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=20, epochs=4, validation_split=0.2, verbose=0,
                    callbacks=[Slow()])
final(model, history.history)
"""


def test_asked_while_it_validates(zygote: Zygote, tmp_path: Path) -> None:
    """It gives the device back after the first step of the next epoch."""
    runs = Runs(zygote, tmp_path, keras_programs.program(VALIDATING, seeded=False))
    with runs.trial("undisturbed") as trial:
        (trial.directory / "work" / "asked").touch()
        trial.start()
        trial.until("completed")
        undisturbed = outcome(trial)
    with runs.trial("asked") as trial:
        trial.start()
        while not (trial.directory / "work" / "validating").exists():
            pass
        trial.suspend("checkpoint")
        trial.send("checkpoint", id="none")  # what is read in order: the host has the suspend now
        (trial.directory / "work" / "asked").touch()
        suspended = trial.until("suspended")
        assert suspended["step"] == 9
        trial.start(restore=suspended["checkpoint"]["path"])
        trial.until("completed")
        assert outcome(trial) == undisturbed


def test_asked_before_the_first_step(zygote: Zygote, tmp_path: Path) -> None:
    """There is nothing to save yet: it is held wherever it is, and goes on from there."""
    runs = Runs(zygote, tmp_path, keras_programs.program(keras_programs.OWN_STEP, seeded=False))
    undisturbed = runs.undisturbed()
    with runs.trial("asked") as trial:
        trial.start()
        trial.suspend("checkpoint")
        held = trial.until("parked")
        assert (held["step"], held["at_boundary"]) == (0, False)
        trial.resume(limit=1)
        assert trial.until("parked")["step"] == 1
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        trial.until("completed")
        assert outcome(trial) == undisturbed
