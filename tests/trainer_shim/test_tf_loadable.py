"""What a trial of TensorFlow's own loops has come to is loaded by TensorFlow alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesctl.render.loading import loading_lines
from hermesd.node.storage import checkpoints
from tests.trainer_shim import tf_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, suspend, with_keras

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]

# A model and an optimizer of a function, and a bare variable of an object.
MADE = """
class Trainer:
    def __init__(self):
        self.scale = tf.Variable(1.0)

def made():
    import keras
    model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
    model.build((None, 6))
    return model, keras.optimizers.Adam(0.05)
"""
TRAINED = """
def main():
    model, adam = made()
    trainer = Trainer()

    @tf.function
    def step(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(a) * trainer.scale - b) ** 2)
        over = [*model.trainable_variables, trainer.scale]
        adam.apply_gradients(zip(tape.gradient(loss, over), over))
        return loss

    for _ in range(3):
        for at in range(0, 60, 20):
            step(x[at:at + 20], y[at:at + 20])
    np.savez("own.npz", *model.get_weights(), *[np.array(v) for v in adam.variables],
             trainer.scale.numpy())
    final(model.get_weights())

main()
"""
COMPARED = """
import numpy as np
own = list(np.load("own.npz").values())
found = [*model.get_weights(), *[np.array(v) for v in adam.variables], scale.numpy()]
assert len(own) == len(found) > 8
assert all(np.array_equal(one, other) for one, other in zip(own, found))
print("ALIKE")
"""


# A step of which no checkpoint can be taken.
IN_PYTHON = "tf.numpy_function(lambda: np.float32(0), [], tf.float32)\n            loss = tf.red"


@pytest.mark.parametrize("kind", ["whole", "suspended", "parked-only"])
def test_what_was_trained_is_a_checkpoint_of_tensorflows(
    zygote: Zygote, tmp_path: Path, kind: str
) -> None:
    is_suspended = kind == "suspended"
    body = TRAINED.replace("loss = tf.red", IN_PYTHON) if kind == "parked-only" else TRAINED
    runs = Runs(zygote, tmp_path, programs.program(MADE + body, seeded=True))
    with runs.trial("trained") as trial:
        trial.start(limit=4 if is_suspended else None)
        if is_suspended:
            trial.until("parked")
            checkpoint = suspend(trial)["checkpoint"]["path"]
            assert not list(Path(checkpoint).glob("tf-checkpoint*"))
            trial.start(restore=checkpoint)
        saved = Path(trial.until("completed")["checkpoint"]["path"])
        work = trial.directory / "work"
    assert checkpoints.verified(saved).is_result == (kind == "parked-only")
    lines = loading_lines(saved, [path.name for path in saved.iterdir()])
    assert lines[1].startswith("tf.train.Checkpoint(adam=adam, model=model, scale=scale).read(")
    lines[1] = lines[1].replace(")  #", ").assert_consumed()  #")
    script = [*lines[:1], MADE, "model, adam = made()", "scale = Trainer().scale"]
    script += ["adam.build([*model.trainable_variables, scale])", *lines[1:], COMPARED]
    assert with_keras(work, *script) == "ALIKE\n"


def test_what_cannot_be_saved_is_said_and_costs_nothing_else(
    zygote: Zygote, tmp_path: Path
) -> None:
    broken = TRAINED.replace("    final(", "    model._trackable_children = None\n    final(")
    runs = Runs(zygote, tmp_path, programs.program(MADE + broken, seeded=True))
    with runs.trial("trained") as trial:
        trial.start()
        completed = trial.until("completed")
        saved = Path(completed["checkpoint"]["path"])
        _, reason = fidelity(trial)
    assert not list(saved.glob("tf-checkpoint*"))
    assert "there is no tf-checkpoint: TypeError" in reason
