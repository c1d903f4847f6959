"""The studies, and their programs run unchanged inside a tool, which is told of each epoch.

Hermes runs the same programs with the same parameters by itself, so that a trial ends with the same
figures wherever it is trained.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from hermesd.pieces import whole
from hermesd.study.space import axes, draws, grid

HERE = Path(__file__).parent
# The folder of each kind of models, with its program.
MODELS = {
    "cnn": HERE.parents[1] / "examples" / "digits",
    "rnn": HERE / "rnn",
    "mlp": HERE / "mlp",
    "resnet": HERE / "resnet",
}
# What is searched on a GPU; it has parameters of its own.
ON_GPU = "resnet"


def study(model: str, order: int) -> dict[str, Any]:
    """The study of a kind of models, as in its file; each order has other trials."""
    where = MODELS[model] if model == ON_GPU else HERE
    spec: dict[str, Any] = yaml.safe_load((where / "study.yaml").read_text())
    return {"name": model, "program": "train.py", "seed": order, **spec}


def points(model: str, order: int) -> list[dict[str, Any]]:
    """A study's trials in the order in which Hermes takes them."""
    spec = study(model, order)
    space = axes(spec["parameters"])
    if spec["method"] == "grid":
        return [dict(point) for point in whole(grid(space, None, 100))]
    return [dict(point) for point in whole(draws(space, spec["run_cap"], order))]


class Diary:
    """A file in which several processes write down what they did when, by the machine's clock."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, trial: int, epoch: int, val_loss: float) -> None:
        """An epoch is over."""
        entry = {"trial": trial, "epoch": epoch, "val_loss": val_loss, "at": time.monotonic()}
        os.write(self._file, f"{json.dumps(entry)}\n".encode())


def run(model: str, point: Mapping[str, Any], epochs: int) -> None:
    """Run a kind's program with these parameters in this process."""
    given = [f"--{name}={value}" for name, value in point.items()]
    with patch.object(sys, "argv", ["train.py", *given, f"--epochs={epochs}"]):
        runpy.run_path(str(MODELS[model] / "train.py"), run_name="__main__")


def train(
    model: str, point: Mapping[str, Any], epochs: int, told: Callable[[int, float], None]
) -> None:
    """Train one trial; `told` hears of each epoch and its validation loss, and may raise."""
    import keras

    class Telling(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            told(epoch + 1, float(logs["val_loss"]))

    keras.utils.clear_session()
    with _called_back(keras.Model, Telling()), contextlib.redirect_stdout(io.StringIO()):
        run(model, point, epochs)


@contextlib.contextmanager
def _called_back(model: Any, callback: object) -> Iterator[None]:
    """As if the program had handed this callback to `fit`, the one line that the tools ask for."""
    fit = model.fit

    def with_it(self: Any, *data: Any, **settings: Any) -> Any:
        return fit(self, *data, callbacks=[callback], **settings)

    with patch.object(model, "fit", with_it):
        yield
