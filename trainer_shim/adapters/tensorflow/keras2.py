"""Keras 2 (tf_keras, TF_USE_LEGACY_KERAS): its `fit` is a loop around a tf.function like any other.

What makes it go on is not here. Only what a fit says of an epoch is reported, under the
step that it ended with, and models are not saved again when a fit is told again.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.saves import save_once
from trainer_shim.agent import Agent


def install(agent: Agent, loop: Loop | None) -> None:
    """Hook Keras 2, which has just been imported."""
    if loop is None:
        return
    tf_keras: Any = importlib.import_module("tf_keras")
    for name in ("save", "save_weights"):
        save_once(loop, tf_keras.Model, name)
    callbacks = tf_keras.callbacks.CallbackList
    begin, epoch_end = callbacks.on_train_begin, callbacks.on_epoch_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        epochs, steps = (self.params.get(name) for name in ("epochs", "steps"))
        if epochs and steps:
            agent.planned(loop.steps + epochs * steps)
        begin(self, logs)

    @functools.wraps(epoch_end)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        epoch_end(self, epoch, logs)
        if loop.is_on() and not loop.journal.is_telling:
            names = {"loss": "epoch_loss"}
            values = {names.get(name, name): value for name, value in (logs or {}).items()}
            agent.record(loop.steps, values)

    callbacks.on_train_begin, callbacks.on_epoch_end = on_train_begin, on_epoch_end
