"""Keras 3 on TensorFlow: boundaries, losses and exact checkpoints of `fit`, script unchanged.

Rule: a program that seeds itself computes, bit for bit, what it computes without Hermes.
Restored, it runs from its first line: fits that had ended are answered from their records,
`evaluate` and `predict` between them run again, and the fit under way, or one that is asked for
more epochs than before, goes on after its last batch.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from trainer_shim import sown
from trainer_shim.adapters import keras_graph as graph
from trainer_shim.adapters import keras_plain, seeds
from trainer_shim.adapters import keras_private as private
from trainer_shim.adapters.keras_session import Session, is_seeded
from trainer_shim.agent import Agent


def install(agent: Agent) -> None:
    """Hook Keras, which has just been imported."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        if private.is_keras_3():
            agent.hello(private.name())
            keras_plain.install(agent)
        return
    agent.hello(private.framework())
    seeds.seed_keras()
    session = Session(agent)
    sown.leave_out(lambda: session.fit is not None)
    graph.hook_losses()
    _hook_functions(session)
    _hook_data(session)
    _hook_callbacks(session)
    _hook_fit(session)


def _around(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    """Have `hook(original, self, ...)` called in place of a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(original, self, *args, **kwargs)

    setattr(owner, name, method)


def _hook_fit(session: Session) -> None:
    trainer = private.find(private.TRAINER, "TensorFlowTrainer")
    signature = inspect.signature(trainer.fit)

    def fit(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if session.fit is not None:
            session.obstacle("a fit inside of a fit")
            return original(model, *args, **kwargs)
        arguments = signature.bind(model, *args, **kwargs)
        arguments.apply_defaults()
        under_way = session.open(model, arguments)
        try:
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

    _around(trainer, "fit", fit)
    _around(private.find(private.BASE_TRAINER, "Trainer"), "_get_metrics_result_or_logs",
            result_or_logs)  # fmt: skip


def _hook_functions(session: Session) -> None:
    def make_function(original: Any, model: Any, step: Any) -> Any:
        if step not in (model.train_step, model.test_step):
            return original(model, step)
        kind = "train" if step == model.train_step else "test"
        seen = functools.partial(session.seen, model)
        return graph.watch(original, model, step, kind, seen)

    _around(private.find(private.TRAINER, "TensorFlowTrainer"), "_make_function", make_function)


def _hook_data(session: Session) -> None:
    epochs = private.find(private.TRAINER, "TFEpochIterator")

    def is_fits(iterator: Any) -> bool:
        return session.fit is not None and session.fit.source.iterator is iterator

    def created(original: Any, iterator: Any, *args: Any, **kwargs: Any) -> None:
        fit = session.fit
        if fit is not None and fit.source.iterator is not None:
            fit.validation.may_be_made()
        original(iterator, *args, **kwargs)
        if fit is not None and fit.source.iterator is None:
            fit.source.adopt(iterator, fit.model.steps_per_execution, fit.epochs)
            session.batch_size = iterator.data_adapter.batch_size or 0

    def get_iterator(original: Any, iterator: Any) -> Any:
        dataset = original(iterator)
        if session.fit is not None and is_fits(iterator):
            return session.fit.source.next_dataset(dataset)
        if session.fit is not None and session.fit.validates_by(iterator):
            session.fit.validation.makes()
        return dataset

    def enumerate_iterator(original: Any, iterator: Any) -> Any:
        source = original(iterator)  # nothing of it is executed yet
        if session.fit is not None and is_fits(iterator):
            return session.fit.batches(source)
        if session.fit is not None and session.fit.validates_by(iterator):
            session.fit.validation.begins(iterator)
        return source

    def get_tf_dataset(original: Any, adapter: Any) -> Any:
        fit = session.fit
        if fit is None or fit.source.iterator is not None or not adapter._shuffle or is_seeded():
            return original(adapter)
        return (
            original(adapter)
            if session.agent.seed is None
            else fit.source.shuffled(adapter, original)
        )

    _around(epochs, "__init__", created)
    _around(epochs, "_get_iterator", get_iterator)
    _around(epochs, "_enumerate_iterator", enumerate_iterator)
    _around(private.find(private.ARRAYS, "ArrayDataAdapter"), "get_tf_dataset", get_tf_dataset)


def _hook_callbacks(session: Session) -> None:
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

    _around(callback_list, "on_train_begin", train_begin)
    _around(callback_list, "on_train_end", train_end)
    _around(callback_list, "on_epoch_begin", epoch_begin)
    _around(callback_list, "on_epoch_end", epoch_end)
