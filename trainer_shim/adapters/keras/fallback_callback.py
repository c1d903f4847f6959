"""Keras 3 on an unknown backend, or with unknown private names: losses and boundaries only.

Only public interfaces are used: a callback of each fit. Nothing can be saved here, but a trial that
can only be parked still reports its losses, and is held between two steps. The loss of a step is
the mean of its epoch so far, as Keras gives it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from trainer_shim.agent import Agent


def install(agent: Agent) -> None:
    """Have every fit report, in the Keras that has just been imported."""
    import keras

    owner = keras.Model
    plain = owner.fit
    signature = inspect.signature(plain)
    progress: list[Any] = []  # the callback of the fit under way

    @functools.wraps(plain)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        # Looked up now: others may have wrapped it since.
        inherited = super(owner, model).fit
        if progress:
            return inherited(*args, **kwargs)  # of a model within the model
        arguments = signature.bind(model, *args, **kwargs)
        callbacks = arguments.arguments.get("callbacks")
        progress.append(_progress(agent))
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(progress[0])
        else:
            given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
            listed = [one for one in given if one is not None]
            arguments.arguments["callbacks"] = [*listed, progress[0]]
        try:
            return inherited(*arguments.args[1:], **arguments.kwargs)
        finally:
            progress.clear()
            agent.loop(False)
            agent.report()

    owner.fit = fit


def _progress(agent: Agent) -> Any:
    """A callback that tells `agent` of one fit, whose steps come after those done by now."""
    import keras

    class Progress(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.before = self.steps = agent.page.step  # at the epoch's first batch; now

        def on_train_begin(self, logs: Any = None) -> None:
            epochs, length = (self.params.get(name) for name in ("epochs", "steps"))
            agent.loop(True)
            if epochs and length:
                agent.planned(self.steps + epochs * length)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.before = self.steps

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps = self.before + batch + 1
            agent.record(self.steps, dict(logs or {}))
            agent.boundary(self.steps)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            names = {"loss": "epoch_loss"}
            values = {names.get(name, name): value for name, value in (logs or {}).items()}
            agent.record(self.steps, values)

    return Progress()
