"""Random numbers that nobody seeded, or the clock did, are the same in each process of a trial."""

from __future__ import annotations

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial

DRAWING = """
import random, time
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
{more}
trial = trainer_shim.attach()
step = trial.resume.step if trial.resume else 0
while step < 3:
    step += 1
    if step == 1:
        random.seed(now())  # it is passed by when this is run again
    trial.report(step, **unseeded, **clock, save=lambda path: None)
random.seed(5)
trial.report(4, last=random.random(), save=lambda path: None)
"""
TORCH = """
import torch
torch.seed()
unseeded["torch seed"] = torch.rand(1).item()
torch.manual_seed(now())
clock["torch"] = torch.rand(1).item()
"""
TENSORFLOW = """
import tensorflow as tf
tf.random.set_seed(now())
clock["tensorflow"] = tf.random.normal([]).numpy().item()
"""


def drawn(trial: Trial) -> dict[int, dict[str, float]]:
    """What a trial that was begun again after each step has reported."""
    trial.launch()
    restore = None
    for step in (1, 2, 3):
        trial.start(restore=restore, limit=step)
        trial.until("parked")
        trial.suspend("checkpoint")
        restore = trial.until("suspended")["checkpoint"]["path"]
    trial.start(restore=restore)
    trial.until("completed")
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
    one = drawn(make_trial(program, seed=7))
    assert one[1] == one[2] == one[3]
    assert one[4]["last"] == 0.6229016948897019  # a seed of the program's own is what it says
    if not more:
        other = drawn(make_trial(program, seed=7))
        same = {name for name in one[1] if one[1][name] == other[1][name]}
        assert same == {"state", "generator", "modern", "python", "legacy", "global python"}
