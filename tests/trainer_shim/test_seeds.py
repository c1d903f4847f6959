"""Random numbers that nobody seeded, or the clock did before the first step, are the same again."""

from __future__ import annotations

import random

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, environment
from tests.trainer_shim.suspending import IMPORTING_KERAS, complete

DRAWING = """
import importlib.util, random, time
assert importlib.util.find_spec("numpy"), "to ask for it is not to import it"
import numpy as np
import trainer_shim
unseeded, clock = {}, {}
def now():
    return time.time_ns() % 2**32
unseeded["state"] = np.random.RandomState().rand()
unseeded["generator"] = np.random.Generator(np.random.PCG64()).random()
unseeded["modern"] = np.random.default_rng().random()
unseeded["python"] = random.Random().random()
np.random.seed()
unseeded["legacy"] = np.random.rand()
random.seed()
unseeded["global python"] = random.random()
for turn in range(2):
    random.seed(now())
    clock[f"python {turn}"] = random.random()
np.random.seed(now())
clock["global"] = np.random.rand()
clock["default"] = np.random.default_rng(now()).random()
clock["own"] = random.Random(now()).random()
clock["old"] = np.random.RandomState(now()).rand()
clock["array"] = np.random.RandomState(np.array([now(), 1])).rand()
clock["bits"] = np.random.Generator(np.random.Philox(now())).random()
clock["sequence"] = np.random.default_rng([now(), 1]).random()
again = np.random.RandomState(1)
again.seed(now())
clock["again"] = again.rand()
{more}
trial = trainer_shim.attach()
step = trial.resume.step if trial.resume else 0
while step < 3:
    step += 1
    if step == 1:
        random.seed(now())  # it is passed by when this is run again
    body = random.Random(step).random()
    trial.report(step, body=body, **unseeded, **clock, save=lambda path: None)
random.seed(5)
trial.report(4, last=random.random(), save=lambda path: None)
"""
TORCH = """
import torch
torch.seed()
unseeded["torch seed"] = torch.rand(1).item()
torch.manual_seed(now())
clock["torch"] = torch.rand(1).item()
own = torch.Generator()
own.seed()
unseeded["torch own"] = torch.rand(1, generator=own).item()
own.manual_seed(now())
clock["torch generator"] = torch.rand(1, generator=own).item()
"""
TENSORFLOW = """
import tensorflow as tf
tf.random.set_seed(now())
clock["tensorflow"] = tf.random.normal([]).numpy().item()
clock["operation"] = tf.random.normal([], seed=now() % 2**31).numpy().item()
clock["data"] = next(iter(tf.data.Dataset.range(1 << 20).shuffle(1 << 20, now() % 2**31))).numpy()
clock["generator of tf"] = tf.random.Generator.from_seed(now()).normal([]).numpy().item()
unseeded["generator of tensorflow"] = (
    tf.random.Generator.from_non_deterministic_state().normal([]).numpy().item())
import keras
clock["keras"] = keras.random.normal([], seed=keras.random.SeedGenerator(now())).numpy().item()
"""


def drawn(trial: Trial, *, anew_after: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """What a trial that was begun again after these steps has reported."""
    trial.launch()
    complete(trial, *anew_after)
    reported = [event for event in trial.events if event["kind"] == "reported"]
    return {step: values for event in reported for step, values in event["points"]}


@pytest.mark.parametrize(
    "more",
    [
        "",
        pytest.param(TORCH, id="torch", marks=pytest.mark.torch),
        pytest.param(TENSORFLOW, id="tensorflow", marks=pytest.mark.tensorflow),
    ],
)
@pytest.mark.timeout(300)
def test_each_process_of_a_trial_draws_the_same(make_trial: MakeTrial, more: str) -> None:
    program = DRAWING.replace("{more}", more)
    # Once, where each process imports a framework for seconds.
    trial = make_trial(program, env=environment(**IMPORTING_KERAS), seed=7)
    one = drawn(trial, anew_after=(1,) if more else (1, 2, 3))
    bodies = [one[step].pop("body") for step in (1, 2, 3)]
    assert bodies == [random.Random(step).random() for step in (1, 2, 3)]
    assert one[1] == one[2] == one[3]
    assert one[4]["last"] == 0.6229016948897019  # a seed of the program's own is what it says
    if not more:
        other = drawn(make_trial(program, seed=7), anew_after=(1,))
        same = {name for name in one[1] if one[1][name] == other[1][name]}
        assert same == {"state", "generator", "modern", "python", "legacy", "global python"}


# As wandb leaves NumPy for programs that import it after that.
LATE = """
import importlib.util, sys, types
class Late(types.ModuleType):
    def __getattribute__(self, name):
        own = object.__getattribute__(self, "__dict__")
        if not own.setdefault("begun", False):
            own["begun"] = True
            own["__spec__"].loader.exec_module(self)
            object.__setattr__(self, "__class__", types.ModuleType)
        return object.__getattribute__(self, name)
spec = importlib.util.find_spec("numpy")
sys.modules["numpy"] = module = importlib.util.module_from_spec(spec)
module.__class__ = Late
import numpy
print("DRAWN", numpy.zeros(1), numpy.random.rand())
"""


def test_numpy_may_be_loaded_when_it_is_first_used(make_trial: MakeTrial) -> None:
    printed = set()
    for _ in range(2):
        trial = make_trial(LATE, seed=7)
        trial.launch()
        trial.start()
        trial.until("completed")
        printed.add((trial.directory / "output.log").read_text())
    assert len(printed) == 1
    assert "DRAWN [0.]" in printed.pop()
