"""One call of `fit`: where it is, what a checkpoint of it holds, and how it goes on from one.

Rule: the boundary of a step is the moment the loop asks for the next batch (or leaves), after
the callbacks of the step. A fit that had ended before the checkpoint is not run again: its
loop is empty and its outcome is put in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters import changes as changed
from trainer_shim.adapters import keras_files as files
from trainer_shim.adapters import keras_state as state
from trainer_shim.adapters.keras_backend import Watched, here
from trainer_shim.adapters.keras_callbacks import Kept, Uncopyable
from trainer_shim.adapters.keras_functions import doubt_of
from trainer_shim.adapters.keras_random import copy_random, set_random
from trainer_shim.adapters.keras_validation import Validation

if TYPE_CHECKING:
    from trainer_shim.adapters.keras_session import Session
    from trainer_shim.agent import Change

_RATE = "learning_rate"
_NO_LOSS = {"loss": float("nan")}


class Fit:
    """The `number`-th fit of the program.

    `ended` is the record of a fit that had ended before the checkpoint, `position` where one
    was that had not; both None for a fit that starts fresh.
    """

    def __init__(
        self,
        session: Session,
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
        self._kept = Kept([], model, session.doubt)
        self.traces: list[tuple[str, Any]] = []
        self._made = _made(model)
        self.end: state.State | None = None  # its last batch, from where more epochs would go on
        self.not_kept: str | None = None  # why there is none
        self._session = session
        self._agent = session.agent
        self.epochs = epochs
        self._epoch = 0
        self._batch = 0  # executions of the train function in this epoch
        self._broke = False  # the loop was left before its data ended
        self._watched = Watched("train")
        self._logs: dict[str, Any] | None = None  # those of before the checkpoint

    def validates_by(self, iterator: Any) -> bool:
        """Whether this is the iterator over the validation data."""
        return getattr(self.model, "_eval_epoch_iterator", None) is iterator

    # -- the loop ----------------------------------------------------------------------------------

    def batches(self, source: Iterator[Any]) -> Iterator[Any]:
        """One epoch's batches from Keras' own `source`, with a boundary after each."""
        self._watched = getattr(self.model.train_function, "watched", None) or Watched("train")
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
            self._session.obstacle("the model makes its train function itself")
        self._session.judge()
        if not self._agent.page.looping:
            self._agent.page.step = self._session.steps
            self._agent.loop(True)
            if total is not None:
                begun = self._batch * self.model.steps_per_execution
                left = (self.epochs - self._epoch) * total - min(begun, total)
                self._agent.planned(self._session.steps + left)
        else:
            self._agent.begins_pass()

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

    # -- callbacks -------------------------------------------------------------------------------

    def begin(self, callbacks: Any) -> bool:
        """The callbacks' on_train_begin comes next; False if it is to be left out."""
        self.callbacks = callbacks
        for callback in callbacks.callbacks:
            doubt = doubt_of(callback)
            if doubt is not None:
                self._session.doubt(doubt)
        self._kept = Kept(callbacks.callbacks, self.model, self._session.doubt)
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

    def epoch_begins(self, epoch: int) -> bool:
        """False if the callbacks' on_epoch_begin was before the checkpoint."""
        self._epoch = epoch
        if self.position is None:
            return True
        self.model._initial_epoch = self.position["initial_epoch"]
        return False

    def epoch_ended(self, logs: dict[str, Any] | None) -> None:
        """Report what Keras computes over an epoch; its mean loss under a name of its own."""
        self._logs = None
        values = {"epoch_loss" if name == "loss" else name: v for name, v in _flat(logs or {})}
        self._agent.record(self._session.steps, values)

    # -- checkpoints -------------------------------------------------------------------------------

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

        self.callbacks._flush_futures()
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
            except state.OtherProgram as error:
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

    def _put_into_effect(self, made: dict[str, Any] | None) -> None:
        """Have the optimizer train with what the program was given anew since the checkpoint.

        All but the learning rate is Python's, and part of the graph that was just traced; that is a
        variable, and was set to what it was.
        """
        changes, optimizer = self._session.agent.changes, self.model.optimizer
        names = {
            change: changed.found(change, self._made, made) for change in list(changes.values())
        }
        if any(_RATE in found for found in names.values()):
            optimizer.learning_rate = self._made[_RATE]
        now = _made(self.model)
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

    def _variables(self) -> list[Any]:
        functions = (self.model.train_function, self.model.test_function)
        watched = [getattr(function, "watched", None) for function in functions]
        extra = [variable for one in watched if one is not None for variable in one.variables]
        return state.variables_of(self.model, extra)


def _made(model: Any) -> dict[str, Any]:
    """What the optimizer of a model was made with, in plain values."""
    try:
        found = dict(changed.flat(model.optimizer.get_config()))
    except Exception:  # whatever an optimizer of the program's own raises, or there is none
        return {}
    found.pop("name", None)
    inner = "inner_optimizer.config."  # of one that scales the loss
    return {name.removeprefix(inner): value for name, value in found.items()}


def _told(error: state.OtherProgram, changes: dict[str, Change]) -> state.OtherProgram:
    """`error`, with the hyper-parameters of which it may come."""
    if not changes:
        return error
    told = ", ".join(map(str, changes.values()))
    return state.OtherProgram(f"an extension cannot set {told}: it makes another program ({error})")


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
