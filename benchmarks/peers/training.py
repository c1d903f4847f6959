"""The training of examples/digits as a function that tells of each epoch, and the study's trials.

It builds, compiles and fits as the example does, so that a trial ends with the same figures
wherever it is trained; Hermes runs the example itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
# What is searched on a GPU, with the same script by all.
RESNET = Path(__file__).parent / "resnet"


def points(example: Path = EXAMPLE) -> list[dict[str, Any]]:
    """The study's trials in the order in which Hermes takes them."""
    axes = yaml.safe_load((example / "study.yaml").read_text())["parameters"]
    values = product(*(axis["values"] for axis in axes.values()))
    return [dict(zip(axes, each, strict=True)) for each in values]


class Diary:
    """A file in which several processes write down what they did when, by the machine's clock."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, trial: int, epoch: int, val_loss: float) -> None:
        """An epoch is over."""
        entry = {"trial": trial, "epoch": epoch, "val_loss": val_loss, "at": time.monotonic()}
        os.write(self._file, f"{json.dumps(entry)}\n".encode())


def train(point: dict[str, Any], epochs: int, told: Callable[[int, float], None]) -> None:
    """Train one trial; `told` hears of each epoch and its validation loss, and may raise."""
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits

    class Telling(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            told(epoch + 1, float(logs["val_loss"]))

    example = _example()
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    if tf.config.threading.get_intra_op_parallelism_threads() != 1:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    digits = load_digits()
    model = example.build_model()
    optimizer = example.OPTIMIZERS[point["optimizer"]]
    model.compile(
        optimizer=optimizer(
            learning_rate=point["learning_rate"], weight_decay=point["weight_decay"]
        ),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        digits.images[..., None].astype("float32") / 16,
        digits.target,
        batch_size=point["batch_size"],
        epochs=epochs,
        validation_split=0.2,
        verbose=0,
        callbacks=[Telling()],
    )


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
