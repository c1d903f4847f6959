"""Keras 3 on any backend: boundaries, losses and exact checkpoints of `fit`, with the script
unchanged.

A program that seeds itself computes, bit for bit, what it computes without Hermes. When it is
restored, it runs from its first line: fits that had ended are answered from their records,
`evaluate` and `predict` between them run again, and the fit under way, or one that now has more
epochs than before, goes on after its last batch.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from trainer_shim.adapters.keras import fallback_callback, private
from trainer_shim.adapters.keras.around import around
from trainer_shim.adapters.keras.backend import here
from trainer_shim.adapters.keras.fit import KerasSession
from trainer_shim.adapters.keras.losses import hook_losses
from trainer_shim.agent import Agent


def install(agent: Agent) -> None:
    """Hook Keras, which has just been imported."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        if private.is_keras_3():
            agent.hello(private.name())
            fallback_callback.install(agent)
        return
    agent.hello(private.framework(), trains=False)
    session = KerasSession(agent)
    hook_losses()
    here().hook(session)
    _hook_data(session)
    _hook_callbacks(session)
    _hook_fit(session)


def _hook_fit(session: KerasSession) -> None:
    trainer = private.trainer()
    signature = inspect.signature(trainer.fit)

    def fit(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if session.fit is not None:
            session.obstacle("a fit inside of a fit")
            return original(model, *args, **kwargs)
        arguments = signature.bind(model, *args, **kwargs)
        arguments.apply_defaults()
        session.agent.trains = True
        under_way = session.open(model, arguments)
        try:
            with _beside_torch(session.obstacle):
                history = original(model, *args, **kwargs)
        except BaseException as error:
            session.abandon(error)
            raise
        session.close(under_way)
        return history

    def result_or_logs(original: Any, model: Any, logs: Any) -> Any:
        if session.fit is not None and session.fit.model is model:
            logs = session.fit.loop_left(logs)
        return original(model, logs)

    around(trainer, "fit", fit)
    around(private.find(private.BASE_TRAINER, "Trainer"), "_get_metrics_result_or_logs",
            result_or_logs)  # fmt: skip


def _hook_data(session: KerasSession) -> None:
    epochs = private.epoch_iterator()

    def is_fits(iterator: Any) -> bool:
        return session.fit is not None and session.fit.source.iterator is iterator

    def created(original: Any, iterator: Any, *args: Any, **kwargs: Any) -> None:
        fit = session.fit
        if fit is not None and fit.source.iterator is not None:
            fit.validation.may_be_made()
        original(iterator, *args, **kwargs)
        if fit is not None and fit.source.iterator is None:
            fit.reads(iterator)

    def get_iterator(original: Any, iterator: Any) -> Any:
        data = original(iterator)
        if session.fit is not None and is_fits(iterator):
            data = session.begun_next = session.fit.source.feeds(data)
        elif session.fit is not None and session.fit.validates_by(iterator):
            session.fit.validation.makes()
            session.begun_next = data
        return data

    def enumerate_iterator(original: Any, iterator: Any) -> Any:
        source = original(iterator)  # nothing of it is executed yet
        if session.is_building:
            return source
        if session.fit is not None and is_fits(iterator):
            return session.fit.batches(source)
        if session.fit is not None and session.fit.validates_by(iterator):
            session.fit.validation.begins(iterator)
        return source

    def symbolic_build(original: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        session.is_building = True
        try:
            original(model, *args, **kwargs)
        finally:
            session.is_building = False

    around(epochs, "__init__", created)
    around(epochs, "_get_iterator", get_iterator)
    around(epochs, "_enumerate_iterator", enumerate_iterator)
    base = private.find(private.BASE_TRAINER, "Trainer")
    around(base, "_symbolic_build", symbolic_build)


def _hook_callbacks(session: KerasSession) -> None:
    callback_list = private.find(private.CALLBACKS, "CallbackList")

    def train_begin(original: Any, callbacks: Any, logs: Any = None) -> None:
        fit = session.fit
        if fit is None or fit.callbacks is not None or callbacks.model is not fit.model:
            original(callbacks, logs)
            return
        if fit.begin(callbacks):
            original(callbacks, logs)
        fit.begun()

    def train_end(original: Any, callbacks: Any, logs: Any = None) -> None:
        fit = session.fit
        if fit is None or fit.callbacks is not callbacks or fit.ended is None:
            original(callbacks, logs)

    def epoch_begin(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
        fit = session.fit
        if fit is None or fit.callbacks is not callbacks or fit.epoch_begins(epoch):
            original(callbacks, epoch, logs)

    def epoch_end(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
        original(callbacks, epoch, logs)
        if session.fit is not None and session.fit.callbacks is callbacks:
            session.fit.epoch_ended(logs)

    around(callback_list, "on_train_begin", train_begin)
    around(callback_list, "on_train_end", train_end)
    around(callback_list, "on_epoch_begin", epoch_begin)
    around(callback_list, "on_epoch_end", epoch_end)


# A program may also train by a PyTorch loop of its own. While Keras trains, nothing there sees what
# it does, though it may read a `DataLoader`; one that does both is only parked.


_BOTH = "the program trains by Keras' fit and by a loop of its own"


@contextmanager
def _beside_torch(obstacle: Callable[[str], None]) -> Iterator[None]:
    """While Keras trains; `obstacle` is told why it can then only be parked."""
    if "torch" not in sys.modules:
        yield
        return
    from trainer_shim.adapters.torch import loop

    own = loop.session()
    if own is None:
        yield
        return
    if own.steps:
        obstacle(_BOTH)
    before, own.in_fit = own.in_fit, obstacle
    try:
        yield
    finally:
        own.in_fit = before
        own.standing.other_trained(_BOTH)
