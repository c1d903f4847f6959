"""Keras 3 on TensorFlow: boundaries, losses and exact checkpoints of `fit`, script unchanged.

Rule: a program that seeds itself computes, bit for bit, what it computes without Hermes.
Restored, it runs from its first line: fits that had ended are answered from their records,
`evaluate` and `predict` between them run again, and the fit under way goes on after its last
batch. What cannot be brought back is found out and said, and such a program only parks.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from trainer_shim.adapters import keras_graph as graph
from trainer_shim.adapters import keras_private as private
from trainer_shim.adapters import keras_state as state
from trainer_shim.adapters.keras_fit import Fit
from trainer_shim.agent import Agent, CannotCapture

_RECORDS_BYTES = 2 << 30


def install(agent: Agent) -> None:
    """Hook Keras, which has just been imported."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        return
    agent.hello(private.framework())
    session = Session(agent)
    graph.hook_losses()
    _hook_functions(session)
    _hook_data(session)
    _hook_callbacks(session)
    _hook_fit(session)


class Session:
    """The fits of this process: those that have ended, and the one under way."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.fit: Fit | None = None
        self._trained: Any = None
        self.steps = 0
        self.batch_size = 0
        self._records: list[state.State] = []
        self._obstacles: list[str] = []
        self._doubts: list[str] = []
        self._past: state.State = {"records": [], "fit": None}
        untested = private.untested()
        if untested is not None:
            self.obstacle(untested)
        if agent.restore is not None:
            with self.restoring():
                self._past = state.load(agent.restore) or self._past

    # -- what a resume promises

    @property
    def is_obstructed(self) -> bool:
        """Whether checkpoints are out of the question."""
        return bool(self._obstacles)

    def obstacle(self, reason: str) -> None:
        """From here on this program can only be parked."""
        self._obstacles.append(reason)
        self.judge()

    def doubt(self, reason: str) -> None:
        """A resume is exact under a condition that cannot be checked."""
        self._doubts.append(reason)

    def judge(self) -> None:
        """Tell the host what a resume promises by what is known now."""
        agent = self.agent
        if self._obstacles:
            agent.capture = None
            agent.fidelity("park-only", self._obstacles[0])
            return
        agent.capture = self._capture
        if self._doubts:
            agent.fidelity("exact-if-deterministic", self._doubts[0])
        else:
            agent.fidelity("exact", "arrays, on the CPU or with deterministic operations")

    def _capture(self) -> state.Snapshot:
        try:
            fit = None if self.fit is None else self.fit.copy()
            model = self._trained if self.fit is None else None
            return state.Snapshot({"records": self._records, "fit": fit}, model)
        except Exception as error:  # whatever the framework raises: this run trains on
            raise CannotCapture(f"{type(error).__name__}: {error}") from error

    # -- fits

    def open(self, model: Any, arguments: inspect.BoundArguments) -> Fit:
        """A fit begins."""
        number, past = len(self._records), self._past
        ended = past["records"][number] if number < len(past["records"]) else None
        position = past["fit"] if number == len(past["records"]) else None
        epochs = arguments.arguments["epochs"]
        self.fit = Fit(self, model, number, epochs, ended, position)
        self._look_at(model, arguments.arguments.get("validation_data"))
        return self.fit

    def _look_at(self, model: Any, validation_data: Any) -> None:
        import tensorflow as tf

        if model.run_eagerly:
            self.obstacle("run_eagerly: what a step keeps in Python is not seen")
        if model._distribute_strategy is not None:
            self.obstacle("training under a tf.distribute strategy")
        if self.agent.seed is None and not _is_seeded():
            self.obstacle("neither the program nor the trial has a seed")
        if validation_data is not None and not isinstance(validation_data, (tuple, list)):
            self.doubt("the validation data must be the same when they are read again")
        devices = {device.device_type for device in tf.config.list_logical_devices()}
        determinism = private.find(private.DETERMINISM, "is_op_determinism_enabled")()
        if devices != {"CPU"} and not determinism:
            self.doubt("operations on a GPU may not be deterministic")

    def close(self, fit: Fit) -> None:
        """A fit has ended well: keep its outcome, and a checkpoint of it."""
        if fit.ended is not None:
            fit.put_in_place(fit.ended)
            fit.model._initial_epoch = fit.ended["initial_epoch"]
            self._records.append(fit.ended)
            self.fit = None
            if len(self._records) == len(self._past["records"]) and self._past["fit"] is None:
                self.restored()
            return
        self.fit, self._trained = None, fit.model
        if not self.is_obstructed:
            self._records.append(fit.record())
            self._bound_records()
        if not self.is_obstructed and self.agent.page.looping:
            self.agent.save_now(f"fit-{fit.number}-step-{self.steps}")
        self.agent.loop(False)

    def abandon(self, error: BaseException) -> None:
        """A fit has ended with an exception, and left the model anywhere."""
        self.fit = None
        self.obstacle(f"a fit ended with {type(error).__name__}")
        self.agent.loop(False)

    def _bound_records(self) -> None:
        arrays = (array for record in self._records for _, array in record["variables"])
        size = sum(array.nbytes for array in arrays)
        if size > _RECORDS_BYTES:
            count = len(self._records)
            self.obstacle(f"the outcomes of {count} fits take {size >> 20} MiB in each checkpoint")

    def seen(self, model: Any, watched: graph.Watched, spec: Any) -> None:
        """A function of `model` was traced for data of `spec`."""
        if watched.obstacle is not None:
            self.obstacle(watched.obstacle)
        if self.fit is not None and self.fit.model is model:
            self.fit.traces.append((watched.kind, spec))

    # -- restoring

    def restored(self) -> None:
        """The process is where the checkpoint was taken."""
        self.agent.page.step = self.steps
        self.agent.restored()

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """End the process if the checkpoint turns out not to be this program's."""
        try:
            yield
        except state.OtherProgram as error:
            self.agent.failed("restore", str(error), f"OtherProgram: {error}")
            os._exit(1)


def _is_seeded() -> bool:
    """Whether the program has given TensorFlow a seed."""
    return private.find(private.CONTEXT, "global_seed")() is not None


# -- the hooks


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
        return session.fit is not None and session.fit.iterator is iterator

    def created(original: Any, iterator: Any, *args: Any, **kwargs: Any) -> None:
        original(iterator, *args, **kwargs)
        if session.fit is not None and session.fit.iterator is None:
            session.fit.adopt(iterator)
            session.batch_size = iterator.data_adapter.batch_size or 0

    def get_iterator(original: Any, iterator: Any) -> Any:
        dataset = original(iterator)
        if session.fit is not None and is_fits(iterator):
            return session.fit.next_dataset(dataset)
        return dataset

    def enumerate_iterator(original: Any, iterator: Any) -> Any:
        source = original(iterator)
        if session.fit is not None and is_fits(iterator):
            return session.fit.batches(source)
        return source

    def get_tf_dataset(original: Any, adapter: Any) -> Any:
        fit = session.fit
        if fit is None or fit.iterator is not None or not adapter._shuffle or _is_seeded():
            return original(adapter)
        return original(adapter) if session.agent.seed is None else fit.shuffled(adapter, original)

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
