"""The fits of one process: those that have ended, the one under way, and how exact their resume is.

A program with something that cannot be restored can only be parked, and the reason says what.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters import changes as changed
from trainer_shim.adapters import seeds_private
from trainer_shim.adapters.keras import files, private, state
from trainer_shim.adapters.keras.backend import StepFunction, here
from trainer_shim.adapters.keras.callback_functions import doubt_of
from trainer_shim.adapters.keras.callbacks import KeptAttributes, Uncopyable
from trainer_shim.adapters.keras.data import is_pipeline
from trainer_shim.adapters.keras.python_data import PythonData, is_python
from trainer_shim.adapters.keras.random import copy_random, set_random
from trainer_shim.adapters.keras.settings import RATE, Settings, made
from trainer_shim.adapters.keras.state import State
from trainer_shim.adapters.keras.tensorflow_pipeline import are_ours, draw_again, order_of
from trainer_shim.agent import (
    NOT_FURTHER,
    Agent,
    CannotCapture,
    CannotCaptureNow,
    CannotPut,
    refused,
)
from trainer_shim.saver import OtherProgram

if TYPE_CHECKING:
    from trainer_shim.agent import Change


# The fits of before a checkpoint: which had ended, which one goes on, and from where.
#
# A fit that had ended is not run again, and what was asked of it must be what is asked now.
# The last one may be asked for more epochs than then: it goes on from its last batch, as if it
# had been asked for them at once. A fit that its callbacks had stopped would stop there again.

_ONLY_THE_LAST = "; it cannot be trained further, since a later fit began from where it had ended"
NOTHING: State = {"records": [], "fit": None, "end": None}


class FinishedFits:
    """What a checkpoint holds: the `records` of the fits that had ended, the position of the one
    that had not, and where the last batch of the last one was."""

    def __init__(self, state: State) -> None:
        self._records: list[State] = state["records"]
        self._fit: State | None = state["fit"]
        self._end: State | None = state["end"]

    def of(self, number: int, epochs: int) -> tuple[State | None, State | None]:
        """(record, None) of a fit that had ended, (None, position) of one that goes on, and
        (None, None) of a new one. Raises OtherProgram when it is asked for other epochs."""
        if number > len(self._records):
            return None, None
        if number == len(self._records):
            return None, self._going_on(self._fit, number, epochs)
        record = self._records[number]
        was_stopped = record["stop_training"] and record["epoch"] < epochs
        if record["epochs"] == epochs or was_stopped:
            return record, None
        is_last = number == len(self._records) - 1 and self._fit is None
        if is_last and record["epochs"] < epochs and self._end is not None:
            return None, self._end
        if not is_last and record["epochs"] < epochs:
            raise _other_epochs(number, record, epochs, _ONLY_THE_LAST)
        raise _other_epochs(number, record, epochs)

    def _going_on(self, position: State | None, number: int, epochs: int) -> State | None:
        if position is not None and epochs <= position["epoch"]:
            raise _other_epochs(number, position, epochs)
        return position

    def is_over_after(self, records: list[Any]) -> bool:
        """Whether every fit had ended, and all of them are behind the program again."""
        return self._fit is None and len(records) == len(self._records)


def _other_epochs(number: int, past: State, epochs: int, why: str = "") -> OtherProgram:
    asked = f"fit {number + 1} is asked for {epochs} epochs"
    return OtherProgram(f"{asked}, at the checkpoint it was for {past['epochs']}{why}")


# The data that a fit is validated with, where Keras reads them from Python or by tf.data.
#
# Each validation begins them anew; those before a checkpoint are read again, so that what a
# generator gives next, or a PyDataset has become, is what it was. Of a tf.data pipeline that
# shuffles the order depends on how often it was begun: it is begun as often again.


class Validation:
    """The validations of one fit.

    `data` are what the fit was given.
    """

    def __init__(self, data: Any = None) -> None:
        #: How many there were by now.
        self.done = 0
        self.data = data
        self._made = 0  # iterators over the data; Keras makes some in vain
        self._before = 0
        self._reading: PythonData | None = None
        self._iterator: Any = None
        self._random: State | None = None

    @property
    def is_loader(self) -> bool:
        """Whether they are a DataLoader of PyTorch."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(self.data, torch.utils.data.DataLoader)

    @property
    def is_python(self) -> bool:
        """Whether they are a generator or PyDataset."""
        import keras

        return isinstance(self.data, (keras.utils.PyDataset, types.GeneratorType))

    @property
    def is_changed(self) -> bool:
        """Whether it has changed what its data give the next time."""
        return self._reading is not None and self._reading.is_changed

    def copy(self) -> State:
        """How often the data were begun."""
        return {"done": self.done, "made": self._made}

    def go_on(self, past: State) -> None:
        """So often they were before the checkpoint."""
        self.done = self._before = past["done"]
        self._made = past["made"]
        if is_pipeline(self.data):
            draw_again(self.data, self._made, self.done)

    def makes(self) -> None:
        """Keras makes an iterator of them."""
        self._made += 1

    def may_be_made(self) -> None:
        """Keras makes an iterator, perhaps the one over these data, which draws from them."""
        if self._before:
            self._random = copy_random()

    def begins(self, iterator: Any) -> None:
        """One begins, over this iterator."""
        if iterator is not self._iterator:
            self._iterator = iterator
            self._adopt(iterator.data_adapter, iterator.steps_per_epoch)
        self.done += 1

    def _adopt(self, adapter: Any, steps: int | None) -> None:
        if not is_python(adapter) or getattr(adapter, "enqueuer", None) is not None:
            return
        self._reading = reading = PythonData(adapter, steps, begins_anew=True)
        if steps is not None:
            reading.bound(steps)
        if reading.is_changed and self._before:
            for _ in range(self._before):
                reading.epoch_again()
                adapter.on_epoch_end()  # Keras begins each by a reset
            if self._random is not None:
                set_random(self._random)
        self._before = 0


# One call of `fit`: where it is, what a checkpoint of it holds, and how it goes on from one.
#
# The boundary of a step is the moment the loop asks for the next batch (or leaves), after
# the callbacks of the step. A fit that had ended before the checkpoint is not run again: its
# loop is empty and its outcome is put in place.

_OWN_FUNCTION = "the model makes its train function itself"
_DRAWS = "its step draws random numbers while it is compiled, and would have to be compiled again"
_NOT_BATCHED = "the fit is over something else than arrays, or with steps_per_epoch"
_NO_LOSS = {"loss": float("nan")}


class Fit:
    """The `number`-th fit of the program.

    `ended` is the record of a fit that had ended before the checkpoint, `position` where one
    was that had not; both None for a fit that starts fresh.
    """

    def __init__(
        self,
        session: KerasSession,
        model: Any,
        number: int,
        epochs: int,
        ended: state.State | None,
        position: state.State | None,
        validation_data: Any,
    ) -> None:
        self.model = model
        self.number = number
        self.ended = ended
        self.position = position
        self.source = here().source(session, number)
        self.validation = Validation(validation_data)
        self.callbacks: Any = None
        self._kept = KeptAttributes([], model, session.doubt)
        self.traces: list[tuple[str, Any]] = []
        self._made = made(model)
        self.end: state.State | None = None  # its last batch, from where more epochs would go on
        self.not_kept: str | None = None  # why there is none
        self._session = session
        self._agent = session.agent
        self.epochs = epochs
        self._epoch = 0
        self._batch = 0  # executions of the train function in this epoch
        self._broke = False  # the loop was left before its data ended
        self._is_planned = False  # how many steps there will be has been told
        self._first_size = 0  # of the batches that the program asked for
        self._next_size: int | None = None  # of those of the next epoch, if that was set
        self._watched = StepFunction("train")
        self._logs: dict[str, Any] | None = None  # those of before the checkpoint

    def reads(self, iterator: Any) -> None:
        """This is Keras' iterator over the training data."""
        self.source.adopt(iterator, self.model.steps_per_execution, self.epochs)
        size = iterator.data_adapter.batch_size or 0
        self._first_size = self._first_size or size
        self._session.batch_size = size

    def validates_by(self, iterator: Any) -> bool:
        """Whether this is the iterator over the validation data."""
        return getattr(self.model, "_eval_epoch_iterator", None) is iterator

    # The loop.

    def batches(self, source: Iterator[Any]) -> Iterator[Any]:
        """One epoch's batches from Keras' own `source`, with a boundary after each."""
        self._watched = getattr(self.model.train_function, "watched", None) or StepFunction("train")
        self._batch, self._broke = 0, False
        position, self.position = self.position, None
        if position is None:
            self.source.epoch_begins()
        else:
            last = self._go_on(source, position)
            if here().needs_a_step:
                yield from self._done_before(last)
            if self._broke:
                return
        total = self.source.iterator.num_batches
        self._begin_loop(total)
        for begin, end, data in source:
            self.source.reads(data)
            position = None
            yield begin, end, data
            self._boundary((end + 1 if total is None else min(end + 1, total)) - begin)
            if total is not None and end + 1 >= total and self._is_last_epoch:
                self._keep_end()
        self._broke = False
        if position is not None and self._is_last_epoch:
            self.end = position  # no batch was left: it is the last one's

    def _done_before(self, last: Any) -> Iterator[Any]:
        """The step before the checkpoint, of which nothing is done again but to give its logs."""
        unseen = ("on_train_batch_begin", "on_train_batch_end")
        self._watched.past_logs = self._logs
        vars(self.callbacks).update((name, lambda *_, **__: None) for name in unseen)
        try:
            yield last
        finally:
            for name in unseen:
                del vars(self.callbacks)[name]

    def _begin_loop(self, total: int | None) -> None:
        if self._watched.compiled is None:
            self._session.obstacle(_OWN_FUNCTION)
        self._session.judge()
        if not self._agent.page.looping:
            self._agent.page.step = self._session.steps
            self._agent.loop(True)
            self._is_planned = False
        else:
            self._agent.begins_pass()
        is_planned, self._is_planned = self._is_planned, True
        if total is not None and not is_planned:
            begun = self._batch * self.model.steps_per_execution
            left = (self.epochs - self._epoch) * total - min(begun, total)
            self._agent.planned(self._session.steps + left)

    @property
    def _is_last_epoch(self) -> bool:
        return self._epoch + 1 == self.epochs

    def _keep_end(self) -> None:
        if self._session.is_obstructed:
            return
        try:
            self.end = self.copy()
        except Exception as error:  # whatever the framework raises: this run is well
            self.not_kept = files.in_a_line(error)

    def _boundary(self, done: int) -> None:
        session, watched = self._session, self._watched
        session.steps += done
        self._batch += 1
        losses, watched.losses = watched.losses, None
        if self._batch == 1:
            self._check_callbacks()
        self._agent.record(session.steps, losses or _NO_LOSS, done * session.batch_size)
        self._agent.boundary(session.steps)

    def _check_callbacks(self) -> None:
        """Once an epoch: better known before a copy is needed."""
        if not self._session.is_obstructed:
            try:
                self._kept.check()
                self._session.judge()
            except Uncopyable as error:
                self._session.obstacle(str(error))

    def loop_left(self, logs: Any) -> Any:
        """The logs of the epoch's last batch, from before the checkpoint if need be.

        A callback that stops the training leaves a step without its boundary: it is here.
        """
        if self._watched.losses is not None and logs is self._watched.logs:
            self._broke = True
            self._boundary(1)
        if self._logs is not None and isinstance(logs, dict) and not logs:
            return self._logs
        return logs

    @property
    def lost(self) -> str | None:
        """Why what this fit has read could not be read again after its end; None if it could."""
        if self.validation.is_changed:
            return "what its validation data give after the fit depends on how often it validated"
        return self.source.lost(self.model.stop_training)

    # Callbacks.

    def begin(self, callbacks: Any) -> bool:
        """The callbacks' on_train_begin comes next; False if it is to be left out."""
        self.callbacks = callbacks
        for callback in callbacks.callbacks:
            doubt = doubt_of(callback)
            if doubt is not None:
                self._session.doubt(doubt)
        self._kept = KeptAttributes(callbacks.callbacks, self.model, self._session.doubt)
        past = self.ended or self.position
        if past is None:
            return True
        with self._session.restoring():
            self._kept.before_train_begin(past["callbacks"])
        return self.ended is None

    def begun(self) -> None:
        """on_train_begin is over, or was left out."""
        if self.ended is not None:
            self.source.all_again(self.ended)
            self.validation.go_on(self.ended["validations"])
            self._retrace(self.ended)
            self.model._initial_epoch = self.epochs  # nothing is left for the loop
            return
        self._kept.begun()
        if self.position is not None:
            self.model._initial_epoch = self.position["epoch"]
        elif self.number:  # what was put into a fit before it holds for this one, too
            self._agent.put_again(self._session.steps)

    def epoch_begins(self, epoch: int) -> bool:
        """False if the callbacks' on_epoch_begin was before the checkpoint."""
        self._epoch = epoch
        position = self.position
        size = self._next_size if position is None else position.get("batch_size")
        if size not in (None, self._session.batch_size):
            self._read_batches_of(size)
        if position is None:
            return True
        self.model._initial_epoch = position["initial_epoch"]
        return False

    def next_batches_of(self, size: int, first: Any) -> None:
        """From the next epoch on the data come in batches of this size, as they do of the `first`
        one in those before. Raises CannotPut."""
        if not self.source.is_batched:
            raise CannotPut(_NOT_BATCHED)
        if self._first_size != first:
            raise CannotPut(f"the fit began with batches of {self._first_size}, not of {first}")
        self._next_size = size

    def _read_batches_of(self, size: int) -> None:
        import keras

        self.source.batch_again(size, self.model)
        self._session.batch_size, self._is_planned = size, False
        for callback in self.callbacks.callbacks:
            if callback.params:
                callback.params["steps"] = self.source.iterator.num_batches
            if isinstance(callback, keras.callbacks.ProgbarLogger):
                callback.target = self.source.iterator.num_batches

    def epoch_ended(self, logs: dict[str, Any] | None) -> None:
        """Report what Keras computes over an epoch; its mean loss under a name of its own."""
        self._logs = None
        values = {"epoch_loss" if name == "loss" else name: v for name, v in _flat(logs or {})}
        self._agent.record(self._session.steps, values)

    # Checkpoints.

    def record(self, ended: bool = True) -> state.State:
        """What is left of this fit once it has ended. Raises Uncopyable."""
        model, variables = self.model, self._variables()
        return {
            "variables": state.copy_variables(variables),
            "callbacks": self._kept.copy(variables, ended),
            "random": copy_random(),
            "traces": list(self.traces),
            "draws": self._watched.draws,
            "steps": self._session.steps,
            "epochs": self.epochs,
            "epoch": self._epoch,
            "stop_training": model.stop_training,
            "initial_epoch": model._initial_epoch,
            "made": self._made,
            "validations": self.validation.copy(),
            **self.source.copy_read(),
        }

    def copy(self) -> state.State:
        """This fit at a boundary. Raises Uncopyable."""
        import keras

        for future in self.callbacks._futures:
            future.result()
        backend = here()
        logs = self._watched.logs if isinstance(self._watched.logs, dict) else {}
        backend.settle(self.model)
        return {
            **self.record(ended=False),
            "batch": self._batch,
            "broke": self._broke,
            **self.source.copy(),
            "logs": keras.tree.map_structure(backend.values, logs),
        }

    def put_in_place(self, past: state.State) -> None:
        """Make the model and the process what they were in `past`."""
        variables = self._variables()
        with self._session.restoring():
            try:
                state.set_variables(variables, past["variables"])
            except OtherProgram as error:
                raise _told(error, self._session.agent.changes) from None
            self._kept.put_back(past["callbacks"], variables)
        self.model.stop_training = past["stop_training"]
        self._session.steps = past["steps"]
        set_random(past["random"], self.source.is_read_on)

    def _go_on(self, source: Iterator[Any], position: state.State) -> Any:
        with self._session.restoring():
            self.source.check(position)
        self._batch, self._broke = position["batch"], position["broke"]
        # First: where both draw from one shuffle, the position of the training data is of the two.
        self.validation.go_on(position["validations"])
        with self._session.restoring():
            last = self.source.go_on(source, position, self._batch)
        self._retrace(position)
        self.put_in_place(position)
        self._put_into_effect(position.get("made"))  # older checkpoints have none
        self._logs = position["logs"]
        self._session.restored()
        # A finished fit goes on from its last batch: its files are those of its end by now.
        self._kept.forget_rows(position["callbacks"])
        return last

    def _put_into_effect(self, then: dict[str, Any] | None) -> None:
        """Have the optimizer train with what the program was given anew since the checkpoint.

        All but the learning rate is Python's, and part of the graph that was just traced; that is a
        variable, and was set to what it was.
        """
        changes, optimizer = self._session.agent.changes, self.model.optimizer
        names = {
            change: changed.found(change, self._made, then) for change in list(changes.values())
        }
        if any(RATE in found for found in names.values()):
            optimizer.learning_rate = self._made[RATE]
        now = made(self.model)
        for change, found in names.items():
            if found and all(changed.equal(now[name], change.now) for name in found):
                del changes[change.name]

    def _retrace(self, past: state.State) -> None:
        """Trace in the order of then: shapes seen earlier decide what a graph looks like."""
        drew = past.get("draws", True)  # earlier checkpoints do not say
        for kind, spec in past["traces"]:
            if kind == "test":
                self.model.make_test_function()
            getattr(self.model, f"{kind}_function").watched.retrace(spec, drew)
            self.traces.append((kind, spec))

    def compile_again(self) -> None:
        """Have the next step computed with what layers and the optimizer are by now.

        Raises CannotPut.
        """
        old = getattr(self.model.train_function, "watched", None)
        if old is None or old.compiled is None:
            raise CannotPut(_OWN_FUNCTION)
        if old.draws:
            raise CannotPut(_DRAWS)
        self.model.make_train_function(force=True)
        self._watched = self.model.train_function.watched
        try:
            self._watched.replaces(old)
        except Exception as error:  # whatever the framework and the program raise
            why = files.in_a_line(error)
            raise CannotPut(f"the step cannot be computed with it: {why}") from error

    def _variables(self) -> list[Any]:
        functions = (self.model.train_function, self.model.test_function)
        watched = [getattr(function, "watched", None) for function in functions]
        extra = [variable for one in watched if one is not None for variable in one.variables]
        return state.variables_of(self.model, extra)


def _told(error: OtherProgram, changes: dict[str, Change]) -> OtherProgram:
    """`error`, with the hyper-parameters of which it may come."""
    if not changes:
        return error
    told = ", ".join(map(str, changes.values()))
    return OtherProgram(f"an extension cannot set {told}: it makes another program ({error})")


def _flat(logs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each value of `logs`, those of a dictionary within by their own names.

    `{m.name: m.result() for m in model.metrics}` has one for all of the compiled metrics. Its name
    says whether they are of a validation.
    """
    for name, value in logs.items():
        if isinstance(value, dict):
            prefix = "val_" if name.startswith("val_") else ""
            yield from ((f"{prefix}{inner}", one) for inner, one in _flat(value))
        else:
            yield name, value


_RECORDS_BYTES = 2 << 30
_UNKNOWN = "how many batches its only epoch has was not known before its end"


class KerasSession:
    """The fits of this process: those that have ended, and the one under way."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.fit: Fit | None = None
        self.begun_next: Any = None  # the data that Keras makes an iterator of next
        self.is_building = False  # Keras looks at a batch to know what a model is
        self._trained: Any = None
        self.steps = 0
        self.batch_size = 0
        self._fits = files.Fits()
        self._obstacles: list[str] = []
        self._doubts: list[str] = []
        self._lost: str | None = None  # why data that a fit has read could not be read again
        self._end: state.State | None = None  # the last batch of the fit that ended last
        self._past = FinishedFits(NOTHING)
        untested = private.untested()
        if untested is not None:
            self.obstacle(untested)
        self._put_otherwise = agent.put  # of what Keras computes with
        agent.put, self._settings = self._put, Settings(agent.first_values())
        if agent.restore is not None:
            with self.restoring():
                past = files.load(agent.restore)
            self._past = FinishedFits(past or NOTHING)
            if past is not None:
                agent.is_returning = True

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
        if reason not in self._doubts:
            self._doubts.append(reason)

    def judge(self) -> None:
        """Tell the host what a resume promises by what is known now."""
        agent = self.agent
        if self._obstacles:
            agent.capture = agent.end = None
            agent.fidelity("park-only", self._obstacles[0])
            return
        agent.capture = self._capture
        if self._doubts:
            agent.fidelity("exact-if-deterministic", self._doubts[0])
        else:
            agent.fidelity("exact", "arrays, on the CPU or with deterministic operations")

    def _capture(self) -> files.FitSnapshot:
        try:
            fit = None if self.fit is None else self.fit.copy()
            model = self._trained if self.fit is None else None
            records = self._fits.records
            count = len(records) if self._end is None else len(records) - 1
            whole = {"records": records[count:], "fit": fit, "end": self._end}
            return files.FitSnapshot(whole, self._fits.parts(count), model, self._says_unsaved)
        except Uncopyable as error:
            self.obstacle(str(error))
            raise CannotCapture(str(error)) from error
        except Exception as error:  # whatever the framework raises: this run trains on
            found = refused(error)
            if not isinstance(found, CannotCaptureNow):
                self.obstacle(str(found))
            raise found from error

    def _result(self) -> files.ModelAlone | None:
        if not self.is_obstructed or self._trained is None:
            return None
        return files.ModelAlone(self._trained, self._says_unsaved)

    def _says_unsaved(self, why: str | None) -> None:
        self.agent.lacks("there is no model.keras", why)

    # -- fits

    def open(self, model: Any, arguments: inspect.BoundArguments) -> Fit:
        """A fit begins."""
        number, epochs = len(self._fits.records), arguments.arguments["epochs"]
        with self.restoring():
            ended, position = self._past.of(number, epochs)
        if self.agent.is_returning:
            self.agent.passes_training()  # callbacks look for what they have written
        self._end = self.agent.end = None
        if self._lost is not None:
            self.obstacle(self._lost)  # this fit may read them as well
        validation_data = arguments.arguments.get("validation_data")
        self.fit = Fit(self, model, number, epochs, ended, position, validation_data)
        self._look_at(model, validation_data)
        return self.fit

    def _look_at(self, model: Any, validation_data: Any) -> None:
        backend = here()
        missing = seeds_private.missing()
        if missing is not None:
            self.obstacle(missing)
        if model.run_eagerly:
            self.obstacle("run_eagerly: what a step keeps in Python is not seen")
        if self.agent.seed is None and not backend.is_seeded():
            self.obstacle("neither the program nor the trial has a seed")
        if validation_data is not None and not isinstance(validation_data, (tuple, list)):
            self.doubt("the validation data must be the same when they are read again")
            if is_pipeline(validation_data) and not order_of(validation_data).draws_once:
                self.obstacle("how often the validation data were shuffled cannot be known")
        backend.look_at(self, model)

    def close(self, fit: Fit) -> None:
        """A fit has ended well: keep its outcome, and a checkpoint of it."""
        if fit.ended is not None:
            fit.put_in_place(fit.ended)
            fit.model._initial_epoch = fit.ended["initial_epoch"]
            self._fits.append(fit.ended, self.agent.restore)
            self.fit = None
            if self._past.is_over_after(self._fits.records):
                self.restored()
            return
        self.fit, self._trained, self.agent.result = None, fit.model, self._result
        self._lost = self._lost or fit.lost
        if not self.is_obstructed:
            self._keep(fit)
        if not self.is_obstructed and self.agent.page.looping:
            self._save(f"fit-{fit.number}-step-{self.steps}")
        self.agent.loop(False)
        self.agent.report()  # what follows may take long, and has no boundaries

    def _save(self, id: str) -> None:
        """Save what the fit came to and its model: now, or at the program's end if no fit follows.

        A program may call fit a thousand times, for a few steps each.
        """
        if not self.agent.save_if_cheap(id):
            self.agent.end, self.agent.ends_otherwise = self._at_end, True

    def _at_end(self) -> tuple[int, files.FitSnapshot]:
        return self.steps, self._capture()

    def _keep(self, fit: Fit) -> None:
        try:
            record = fit.record()
        except Uncopyable as error:
            self.obstacle(str(error))
            return
        is_final = fit.end is not None or record["stop_training"] or not record["epochs"]
        self.agent.lacks(NOT_FURTHER, fit.not_kept or (None if is_final else _UNKNOWN))
        if fit.end is not None:
            self._end = fit.end
            state.share_arrays(record["variables"], fit.end["variables"])
        self._fits.append(record)
        self._bound_records()

    def abandon(self, error: BaseException) -> None:
        """A fit has ended with an exception, and left the model anywhere."""
        self.fit = None
        self.obstacle(f"a fit ended with {type(error).__name__}")
        self.agent.loop(False)

    def _bound_records(self) -> None:
        records = self._fits.records
        arrays = (array for record in records for _, array in record["variables"])
        size = sum(array.nbytes for array in arrays)
        if size > _RECORDS_BYTES:
            count = len(records)
            self.obstacle(f"the outcomes of {count} fits take {size >> 20} MiB in each checkpoint")

    def seen(self, model: Any, watched: StepFunction, spec: Any) -> None:
        """A function of `model` was traced for data of `spec`."""
        if watched.obstacle is not None:
            self.obstacle(watched.obstacle)
        if self.fit is not None and self.fit.model is model:
            self.fit.traces.append((watched.kind, spec))

    def begins_pipeline(self, dataset: Any) -> None:
        """An iterator over a tf.data pipeline is made: how often, decides how it is shuffled."""
        is_keras, self.begun_next = dataset is self.begun_next, None
        if self.fit is None or is_keras or are_ours() or self.is_obstructed:
            return
        if order_of(dataset).drawn_from:
            self.obstacle("during a fit the program reads a shuffled tf.data pipeline itself")

    # -- restoring

    def _put(self, name: str, value: Any) -> bool:
        """Have the fit under way train with this value, or else, between two, the one that begins
        next: that puts it again; and whatever else of the program takes it, for one that has only
        imported Keras trains by other means. Raises CannotPut."""
        put = self._put_otherwise
        is_set = put is not None and put(name, value)
        if self.fit is None:
            return bool(self._fits.records) or is_set
        return self._settings.put(self.fit, name, value) or is_set

    def restored(self) -> None:
        """The process is where the checkpoint was taken."""
        self.agent.page.step = self.steps
        self.agent.restored()

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """End the process if the checkpoint turns out not to be this program's."""
        try:
            yield
        except OtherProgram as error:
            self.agent.failed("restore", str(error), f"OtherProgram: {error}")
            os._exit(1)
