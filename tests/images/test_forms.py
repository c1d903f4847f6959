"""A program that can go on exactly from both forms is kept in the one that takes less time."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.images.driving import WorldTrial, criu, lay_out, missing, undisturbed
from tests.images.programs import Program
from trainer_shim.host import image

FIT = Program(
    {
        "main.py": """
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
dense = keras.layers.Dense
model = keras.Sequential([keras.layers.Input((4,)), dense(8, "relu"), dense(1)])
model.compile("adam", "mse")
history = model.fit(x, x.sum(axis=1), batch_size=8, epochs=30, verbose=0)
print(history.history["loss"][-1])
"""
    },
    modules=("tensorflow",),
)

pytestmark = [pytest.mark.image, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("costs", "is_image"),
    [
        ({"checkpoint": {"away": 0.1, "back": 60.0}}, True),
        ({"image": {"away": 60.0, "back": 60.0}}, False),
    ],
)
def test_the_form_that_was_measured_to_take_less_time(
    costs: Mapping[str, Mapping[str, float]], is_image: bool, tmp_path: Path
) -> None:
    if lacks := missing(FIT):
        pytest.skip(f"no {lacks} here")
    output, _ = undisturbed(FIT, tmp_path / "plain")
    trial = WorldTrial(tmp_path / "t", [sys.executable, "main.py"], criu=criu(tmp_path))
    lay_out(FIT, trial.directory / "work")
    (trial.directory / "forms.json").write_text(json.dumps(costs))
    try:
        trial.launch()
        trial.start(limit=40)
        trial.until("parked")
        assert {each["level"] for each in trial.events if each["kind"] == "fidelity"} == {"exact"}
        trial.send("demote", deadline_seconds=60.0)
        saved = trial.until("suspended")["checkpoint"]
        assert image.is_image(saved["path"]) is is_image
        assert "by a checkpoint" in saved["why"]
        trial.end()
        trial.launch()
        trial.start(restore=saved["path"])
        trial.until("completed")
        trial.quit()
    finally:
        trial.end()
    assert trial.output == output
