"""Keras' `fit` in a program that may also train by a loop of its own: which adapter is in charge.

A fit belongs to Keras' adapter, and nothing here sees what it does, unless the program has already
trained by a loop of its own. A program that does both can only be parked.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.saves import save_once
from trainer_shim.agent import Agent

_BOTH = "the program trains by Keras' fit and by a loop of its own"


def plain_fit() -> Any:
    """Keras' own `fit`, to be called before anything is hooked; None for another backend."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return None
    return private.trainer().fit


def share(loop: Loop | None, plain: Callable[..., Any] | None) -> None:
    """Keep `loop` out of the fits that the adapter of Keras, hooked by now, looks after.

    And have models that such a loop saves not saved again.
    """
    if loop is None or plain is None:
        return
    import keras

    trainer = private.trainer()
    hooked = trainer.fit

    @functools.wraps(plain)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        if loop.standing.has_begun:
            loop.standing.obstacle(_BOTH)
            return plain(model, *args, **kwargs)
        loop.is_off = True
        try:
            return hooked(model, *args, **kwargs)
        finally:
            loop.is_off = False
            loop.standing.obstacle(_BOTH)

    trainer.fit = fit
    for name in ("save", "save_weights"):
        save_once(loop, keras.Model, name)


def hook_keras_2(agent: Agent, loop: Loop | None) -> None:
    """Hook Keras 2 (tf_keras), which has just been imported.

    Its `fit` is a loop around a tf.function like any other, and what makes it go on is not here.
    Only what a fit says of an epoch is reported, under the step that it ended with, and models are
    not saved again when a fit is told again.
    """
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
