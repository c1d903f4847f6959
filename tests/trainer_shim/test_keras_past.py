"""A Keras program that, restored, is not what it was at its checkpoint fails, and says why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Event, Trial, Zygote, ending
from tests.trainer_shim.suspending import Runs, fidelity, outcome, suspend
from trainer_shim import checkpoint_dir

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


def failure(trial: Trial) -> Event:
    """How the trial fails."""
    with pytest.raises(AssertionError, match="failed"):
        trial.until("completed")
    return trial.events[-1]


_SKIPPED = """
if os.path.exists("../best.keras"):
    raise SystemExit(0)
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=10, epochs=3, verbose=0, callbacks=[
    callbacks.ModelCheckpoint("../best.keras")])
final(model)
"""


def test_a_program_that_never_comes_to_its_fit_again_has_failed(
    zygote: Zygote, tmp_path: Path
) -> None:
    """It finds beside its working copy what it saved, and takes its work for done."""
    runs = Runs(zygote, tmp_path, programs.program(_SKIPPED, seeded=True))
    with runs.trial("skipped") as trial:
        trial.start(limit=15)
        assert trial.until("parked")["step"] == 15
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        failed = failure(trial)
        assert failed["error_kind"] == "restore"
        assert "before it came to where its checkpoint was taken" in failed["detail"]


def test_a_fit_before_the_last_is_not_extended_and_nothing_is_lost(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Both fits take their epochs from one flag: the reason is told, and the end is kept."""
    body = programs.SECOND_FIT_EXTENDED.replace("epochs=2", "epochs=int(sys.argv[1])")
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    folder = tmp_path / "extended"
    argv = [sys.executable, str(runs.script)]
    trial = Trial(folder, [*argv, "1"], env=runs.environment, seed=7)
    with ending(trial.launch(zygote)):
        trial.start()
        end = trial.until("completed")["checkpoint"]
        spec = json.loads(trial.spec.read_text())
        trial.quit()
    trial.spec.write_text(json.dumps({**spec, "argv": [*argv, "2"]}))
    with ending(trial.launch(zygote)):
        trial.start(restore=end["path"])
        failed = failure(trial)
    assert failed["error_kind"] == "restore"
    assert failed["detail"] == (
        "fit 1 is asked for 2 epochs, at the checkpoint it was for 1; it cannot be trained "
        "further, since a later fit began from where it had ended"
    )
    assert checkpoint_dir.newest_undamaged(str(trial.checkpoints)) == end


_MANY = """
model = keras.Sequential([layers.Dense(4), layers.Dropout(0.3), layers.Dense(1)])
model.compile("adam", "mse")
seen = []
for number in range(5):
    seen.append(model.fit(x, y, batch_size=20, epochs=1, verbose=0).history)
    seen.append(model.evaluate(x, y, verbose=0))
final(model, seen)
"""


def test_what_ended_fits_came_to_is_written_once(zygote: Zygote, tmp_path: Path) -> None:
    """Each checkpoint has it, and goes on exactly from it: by names of the same files."""
    runs = Runs(zygote, tmp_path, programs.program(_MANY, seeded=True))
    losses, final = runs.undisturbed()
    steps = len(losses) // 5
    with runs.trial("many") as trial:
        trial.start(limit=3 * steps + 2)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        end = Path(trial.until("completed")["checkpoint"]["path"])
        assert outcome(trial) == (losses, final)
        for kind in ("state", "arrays"):
            for number in (1, 2, 3, 4):
                name = f"keras.fit-{number}.{kind}"
                found = [path.stat().st_ino for path in trial.checkpoints.glob(f"*/{name}")]
                assert (end / name).exists()
                assert number == 4 or len(found) > 2, name
                assert len(set(found)) == 1, name
        assert checkpoint_dir.verify(str(end))["step"] == 5 * steps


def test_many_small_fits_are_saved_now_and_then_and_at_the_end(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A fit takes less than a checkpoint does: few of them have one, and the last always has."""
    body = _MANY.replace("range(5)", "range(20)")
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("many") as trial:
        trial.start()
        end = Path(trial.until("completed")["checkpoint"]["path"])
        undisturbed = outcome(trial)
        assert len(list(trial.checkpoints.iterdir())) < 20
        assert (end / "model.keras").exists()
        assert checkpoint_dir.verify(str(end))["step"] == max(undisturbed[0])
    with runs.trial("again") as trial:
        trial.start(restore=str(end))
        trial.until("completed")
        assert outcome(trial) == ({}, undisturbed[1])


_UNSAVEABLE = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.one = layers.Dense(1)
    def call(self, x):
        return self.one(x)
    def get_config(self):
        raise ValueError("a layer without a recipe")

model = Net()
model.compile("sgd", "mse")
model.fit(x, y, batch_size=20, epochs=1, verbose=0)
final(model)
"""

_OPEN_AT_THE_END = """
class Last(callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.file = open("last", "w") if batch == 4 else None
    def on_train_end(self, logs=None):
        self.file.close()
        self.file = None

model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=20, epochs=1, verbose=0, callbacks=[Last()])
final(model)
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_UNSAVEABLE, "there is no model.keras: ValueError: a layer without a recipe"),
        (_OPEN_AT_THE_END, "it cannot be trained further: Uncopyable: Last.file"),
    ],
    ids=["model", "end"],
)
def test_what_the_end_lacks_is_said(zygote: Zygote, tmp_path: Path, body: str, words: str) -> None:
    """The trial itself is well, as true as ever, and has its checkpoint."""
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("lacking") as trial:
        trial.start()
        assert trial.until("completed")["checkpoint"]["step"] == 5
        level, reason = fidelity(trial)
        assert level.startswith("exact")
        assert words in reason
