"""The files of a checkpoint of Keras fits: pickles, with their arrays beside them.

The result of a fit that has ended never changes again. It is a file of its own, written once; later
checkpoints contain it as a hard link.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Sequence
from typing import Any, Callable

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.keras.state import State
from trainer_shim.checkpoint_dir import Builder
from trainer_shim.saver import CannotCapture, OtherProgram

_VERSION = 6
_NAME, _MODEL = "keras", "model.keras"


class Part:
    """A state as `<name>.state` and `<name>.arrays`, pickled when this is made.

    `written` is a checkpoint that has the two already.
    """

    def __init__(self, name: str, state: Any, written: str | None = None) -> None:
        self._name = name
        self._arrays: list[pickle.PickleBuffer] = []
        self._pickled = pickle.dumps(state, protocol=5, buffer_callback=self._keep)
        self._written = written

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        self._arrays.append(buffer)
        return False

    def write(self, builder: Builder) -> None:
        """Link the two files, or write them: the pickle, and the arrays one after the other."""
        names = f"{self._name}.state", f"{self._name}.arrays"
        written, self._written = self._written, builder.path
        if written is not None and all(builder.link(name, written) for name in names):
            return
        raws = [array.raw() for array in self._arrays]
        sizes = pickle.dumps([raw.nbytes for raw in raws])
        builder.add(names[0], [len(sizes).to_bytes(8, "big"), sizes, self._pickled])
        builder.add(names[1], [raw for raw in raws if raw.nbytes])


def _load(folder: str, name: str) -> Any:
    """What a Part wrote."""
    with open(os.path.join(folder, f"{name}.state"), "rb") as file:
        sizes = pickle.loads(file.read(int.from_bytes(file.read(8), "big")))
        pickled = file.read()
    buffers = []
    with open(os.path.join(folder, f"{name}.arrays"), "rb") as file:
        for size in sizes:
            buffers.append(bytearray(size))  # writable, as the arrays were
            file.readinto(buffers[-1])
    return pickle.loads(pickled, buffers=buffers)


class Fits:
    """The records of the fits that have ended, each with the checkpoint it was read from, if any.

    The last one may still change, and shares its arrays with what its fit goes on from when it is
    asked for more: it is no part of its own before the next fit.
    """

    def __init__(self) -> None:
        self.records: list[State] = []
        self._read: list[str | None] = []
        self._parts: list[Part] = []

    def append(self, record: State, folder: str | None = None) -> None:
        """One more fit has ended; it had already in the checkpoint in `folder`, if there is one."""
        self.records.append(record)
        self._read.append(folder)

    def parts(self, count: int) -> list[Part]:
        """The first `count` records, to be written."""
        for number in range(len(self._parts), count):
            self._parts.append(Part(_part(number), self.records[number], self._read[number]))
        return self._parts[:count]


def _part(number: int) -> str:
    return f"{_NAME}.fit-{number + 1}"


class FitSnapshot:
    """A state to be written, and the parts of the fits before it.

    A `model` whose fit is over is written too, as `model.keras`, which loads without Hermes;
    `unsaved` is told why Keras could not do that, or None.
    """

    def __init__(
        self,
        state: State,
        parts: Sequence[Part],
        model: Any,
        unsaved: Callable[[str | None], None],
    ) -> None:
        self._model, self._unsaved = model, unsaved
        self._parts = list(parts)
        backend = private.backend()
        about = {"version": _VERSION, "backend": backend, "parts": len(self._parts)}
        whole = {**about, "state": state}
        self._whole = Part(_NAME, whole)

    def prepare(self, builder: Builder) -> None:
        """Save the trained model; all else was copied when this was made."""
        if self._model is not None:
            _save(self._model, builder, self._unsaved)

    def write(self, builder: Builder) -> None:
        """Write what there is no file of yet."""
        for part in [*self._parts, self._whole]:
            part.write(builder)
        builder.adopt()


class ModelAlone:
    """`model.keras` of a program that can't go on from there."""

    def __init__(self, model: Any, unsaved: Callable[[str | None], None]) -> None:
        self._model, self._unsaved = model, unsaved

    def prepare(self, builder: Builder) -> None:
        """Save the model. Raises CannotCapture."""
        _save(self._model, builder, self._unsaved)
        if not os.path.exists(os.path.join(builder.partial, _MODEL)):
            raise CannotCapture("Keras can't save the model")

    def write(self, builder: Builder) -> None:
        """Take up what was saved."""
        builder.adopt()


def _save(model: Any, builder: Builder, unsaved: Callable[[str | None], None]) -> None:
    path = os.path.join(builder.partial, _MODEL)
    try:
        model.save(path)
    except Exception as error:  # a model that Keras cannot save is resumed all the same
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        unsaved(in_a_line(error))
    else:
        unsaved(None)


def in_a_line(error: Exception) -> str:
    """An exception as part of a sentence."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def load(folder: str) -> State | None:
    """The state that a FitSnapshot wrote, with all records; None of another kind of checkpoint.

    Raises OtherProgram.
    """
    if not os.path.exists(os.path.join(folder, f"{_NAME}.state")):
        return None
    whole = _load(folder, _NAME)
    if whole["version"] != _VERSION:
        raise OtherProgram(f"a Keras checkpoint of version {whole['version']}, not {_VERSION}")
    if whole["backend"] != private.backend():
        then, now = whole["backend"], private.backend()
        raise OtherProgram(f"a checkpoint of Keras on {then}, this is Keras on {now}")
    state: State = whole["state"]
    earlier = [_load(folder, _part(number)) for number in range(whole["parts"])]
    return {**state, "records": [*earlier, *state["records"]]}
