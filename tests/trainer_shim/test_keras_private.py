"""The list of private names is complete here, and says which one is gone elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer_shim.driving import ROOT, environment
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote, with_keras

pytestmark = pytest.mark.tensorflow

# Where there is Hermes, it lacks a name before Keras is imported.
PLAIN = """
try:
    from trainer_shim.adapters.keras import private as keras_private
    keras_private.NAMES += (("keras", "no_such_name"),)
except ImportError:
    pass
import keras
import numpy as np
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(x, x.sum(axis=1), batch_size=10, epochs=3, verbose=0, validation_split=0.25)
model.fit(x, x.sum(axis=1), batch_size=20, verbose=0)
print("FINAL", keras.backend.backend(), history.history, model.get_weights()[0].sum())
"""

# In a process of its own: an import of TensorFlow warns, and would stay.
CHECK = """
from trainer_shim.adapters import private_names
from trainer_shim.adapters.keras import private
print(private.missing(), "/", private.untested())
print(private.first_unused(private.OPTIONAL_USES, "keras"))
private.USES += (("keras.src.trainers.trainer", "Trainer.__init__", "_no_such_attribute"),)
print(private.missing())
private.NAMES += (("keras.src.trainers.trainer", "Trainer.no_such_method"),)
print(private.missing())
private_names.TESTED["keras"] = ("2.0", "2.0")
print(private.untested())
print(private.missing())
import keras
from trainer_shim.adapters.keras import state
made = keras.random.normal((1,)), state._global_seed_generator()
print(isinstance(made[1], keras.random.SeedGenerator))
"""


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_another_keras_only_parks_and_tells_its_losses(tmp_path: Path) -> None:
    """By nothing but a callback; it is held at its boundaries, and computes what it would."""
    backend = {"KERAS_BACKEND": "torch"}
    with warm_zygote(tmp_path, "torch", **backend) as zygote:
        runs = Runs(zygote, tmp_path, PLAIN, **backend)
        with runs.trial("parked") as trial:
            trial.start(limit=5)
            assert trial.until("parked")["step"] == 5
            level, reason = fidelity(trial)
            assert level == "park-only"
            assert "has no keras.no_such_name" in reason
            trial.resume()
            completed = trial.until("completed")
            losses, line = outcome(trial)
        assert sorted(losses) == list(range(1, 12))
        assert {"loss", "epoch_loss", "val_loss"} <= completed["metrics"].keys()
        assert line == runs.plain()
        assert line.startswith("FINAL torch")


BACKENDS = [
    pytest.param(each, marks=getattr(pytest.mark, each)) for each in ("tensorflow", "torch", "jax")
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_name_that_is_gone_and_a_version_untested_are_named(backend: str, tmp_path: Path) -> None:
    if backend == "tensorflow":
        printed = with_keras(tmp_path, CHECK)
    else:
        env = environment(PYTHONPATH=str(ROOT), KERAS_BACKEND=backend)
        command = [sys.executable, "-c", CHECK]
        printed = subprocess.check_output(command, env=env, text=True)
    here, optional, unused, gone, untested, both, is_known = printed.splitlines()
    assert optional == "None"
    assert here == "None / None"
    assert "no _no_such_attribute in keras.src.trainers.trainer.Trainer.__init__" in unused
    assert "keras.src.trainers.trainer.Trainer.no_such_method" in gone
    assert untested.startswith("resuming is tested with keras 2.0, this is ")
    assert untested.endswith(": the nearest tested version is 2.0")
    assert both == f"{gone}; {untested}"
    assert is_known == "True", "the generator that unseeded random operations draw from"
