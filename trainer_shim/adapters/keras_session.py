"""The fits of one process: those that have ended, the one under way, and what they promise.

Rule: what cannot be brought back is found out and said, and such a program only parks.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer_shim.adapters import keras_files as files
from trainer_shim.adapters import keras_private as private
from trainer_shim.adapters import keras_state as state
from trainer_shim.adapters import seeds_private
from trainer_shim.adapters.keras_backend import Watched, here
from trainer_shim.adapters.keras_callbacks import Uncopyable
from trainer_shim.adapters.keras_data import is_pipeline
from trainer_shim.adapters.keras_fit import Fit
from trainer_shim.adapters.keras_past import NOTHING, Past
from trainer_shim.adapters.keras_pipeline import are_ours, order_of
from trainer_shim.agent import NOT_FURTHER, Agent, CannotCapture

_RECORDS_BYTES = 2 << 30
_UNKNOWN = "how many batches its only epoch has was not known before its end"


class Session:
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
        self._past = Past(NOTHING)
        untested = private.untested()
        if untested is not None:
            self.obstacle(untested)
        if agent.restore is not None:
            with self.restoring():
                past = files.load(agent.restore)
            self._past = Past(past or NOTHING)
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

    def _capture(self) -> files.Snapshot:
        try:
            fit = None if self.fit is None else self.fit.copy()
            model = self._trained if self.fit is None else None
            records = self._fits.records
            count = len(records) if self._end is None else len(records) - 1
            whole = {"records": records[count:], "fit": fit, "end": self._end}
            return files.Snapshot(whole, self._fits.parts(count), model, self._says_unsaved)
        except Uncopyable as error:
            self.obstacle(str(error))
            raise CannotCapture(str(error)) from error
        except Exception as error:  # whatever the framework raises: this run trains on
            raise CannotCapture(f"{type(error).__name__}: {error}") from error

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
        self.fit, self._trained = None, fit.model
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

    def _at_end(self) -> tuple[int, files.Snapshot]:
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

    def seen(self, model: Any, watched: Watched, spec: Any) -> None:
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
