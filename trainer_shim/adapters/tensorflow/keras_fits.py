"""Keras' `fit` in a program that may also train by a loop of its own: who looks after it.

A fit belongs to the adapter of Keras, and nothing here sees what it does, unless the
program has already trained by a loop of its own. A program that does both is only parked.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.saves import save_once

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
