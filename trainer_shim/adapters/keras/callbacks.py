"""What the callbacks of a fit keep in their attributes: copied at a boundary, and restored.

Nothing that changed is left out silently. Tensors and variables are copied as arrays. A layer,
metric, function or random number generator is made again by the program and stands for itself,
wherever it is kept. A list, dict, set, array or object of the program's own that the callback has
had from the start is filled in place, since the script may also hold it. Anything else that is not
as it was when the fit began cannot be copied at all; what functions keep is copied as far as
possible.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import os
import pickle
import types
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from trainer_shim.adapters.keras import state
from trainer_shim.adapters.keras.backend import here
from trainer_shim.adapters.keras.callback_functions import Doubt, Function, held
from trainer_shim.adapters.keras.random import copy_generator, set_generator
from trainer_shim.adapters.keras.state import State
from trainer_shim.saver import OtherProgram

# Objects that are given the contents of others, since the script may hold them too.
#
# Only what is known to keep all that it has in its contents is filled.


def fill(current: Any, value: Any) -> bool:
    """Give an object the contents of another of its type; whether that can be."""
    import numpy as np

    if type(current) is not type(value):
        return False
    if current is value:
        return True
    if isinstance(current, (list, collections.deque)):
        current.clear()
        current.extend(value)
    elif isinstance(current, (dict, set)):
        current.clear()
        current.update(value)
    elif isinstance(current, np.ndarray) and current.flags.owndata and current.flags.writeable:
        if (current.shape, current.dtype) != (value.shape, value.dtype):
            return False
        current[...] = value
    elif isinstance(current, types.MethodType):
        return current.__func__ is value.__func__ and fill(current.__self__, value.__self__)
    elif _is_plain_object(current):
        vars(current).clear()
        vars(current).update(vars(value))
    else:
        return False
    return True


def _is_plain_object(value: Any) -> bool:
    """Whether it is of a class of Python's own, and all that it keeps in its attributes."""
    kind = type(value)
    ways = ("__reduce_ex__", "__reduce__", "__new__")
    plain = all(getattr(kind, way) is getattr(object, way) for way in ways)
    slots = any("__slots__" in vars(one) for one in kind.__mro__)
    return plain and not slots and isinstance(getattr(value, "__dict__", None), dict)


# Pickles of what callbacks keep, and the objects of the graph that these name.
#
# A tensor is pickled as its values; what the program makes again when it is run again (a
# layer, a variable, a function without a name) is pickled as a number, and found by it again.


class Pickler(pickle.Pickler):
    """Puts tensors as arrays, and by its number what `number` knows."""

    def __init__(
        self,
        stream: io.BytesIO,
        keep: Callable[[pickle.PickleBuffer], None],
        number: Callable[[Any], int | None],
    ) -> None:
        super().__init__(stream, protocol=5, buffer_callback=keep)
        self._number = number

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        number = self._number(value)
        if number is not None:
            return ("known", number)
        pickled = here().pickled(value)
        if pickled is not None:
            return pickled
        if is_made_again(value):
            raise pickle.PicklingError(f"a {type(value).__name__} made after the fit began")
        return None


class Unpickler(pickle.Unpickler):
    """Gives back what a Pickler was given, with the program's own `known` objects in it."""

    def __init__(self, stream: io.BytesIO, buffers: Iterable[Any], known: list[Any]) -> None:
        super().__init__(stream, buffers=buffers)
        self._known = known

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        return self._known[pid[1]] if pid[0] == "known" else here().unpickled(pid)


def is_made_again(value: Any) -> bool:
    """Whether it belongs to the graph, or is code that has no name of its own."""
    import keras

    if isinstance(value, types.FunctionType):
        return "<" in value.__qualname__
    of_framework = here().is_made_again(value)
    if of_framework is not None:
        return of_framework
    of_graph = (keras.Layer, keras.Optimizer, keras.Metric, keras.Loss, keras.Variable)
    others = (keras.KerasTensor, keras.random.SeedGenerator)
    return isinstance(value, (*of_graph, *others))


def variables_in(one: Any) -> list[Any]:
    """The variables of an object of the graph."""
    import keras

    backend = here()
    if isinstance(one, keras.Model):
        return state.variables_of(one, ())
    if isinstance(one, keras.Variable):
        found = [one]
    elif isinstance(one, (keras.Layer, keras.Optimizer, keras.Metric)):
        found = list(one.variables)
    elif isinstance(one, keras.random.SeedGenerator):
        found = [one.state]
    else:
        found = backend.variables_in(one)
    return [backend.plain(variable) for variable in found]


_NOT_STATE = {"_model", "model", "params"}
_CSV_NOT_STATE = {"csv_file", "writer", "append", "append_header"}
# What it writes goes to a file of its own in each process.
_BOARD_NOT_STATE = {"_writers", "_prev_summary_state", "_batch_trace_context"}
_PLAIN = (bool, int, float, str, bytes)


class Uncopyable(Exception):
    """An attribute of a callback has changed, and cannot be copied."""


class KeptAttributes:
    """The callbacks of one fit, made before their on_train_begin.

    Objects of the graph that they hold are known by a number, the same in every process that
    runs the program: they are counted in the order in which the attributes name them. `doubt` is
    told what functions of the callbacks keep that cannot be copied.
    """

    def __init__(self, callbacks: Iterable[Any], model: Any, doubt: Doubt) -> None:
        self._callbacks = list(callbacks)
        values = [value for one in self._callbacks for _, value in _attributes(one)]
        # After the callbacks those functions of theirs that may keep something.
        self._callbacks += held(values, doubt)
        self._doubt = doubt
        self._known: list[Any] = []
        self._numbers: dict[int, int] = {}
        for one in (*self._callbacks, model):
            self._number(one)
        self._prints: dict[tuple[int, str], int] = {}  # of what functions kept at first
        self._first = self._look()
        self._first_known = len(self._known)
        self._begun: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._variables: set[Any] = set()

    def begun(self) -> None:
        """Their on_train_begin is over: a change is one from here on."""
        self._begun = self._look()
        self._variables = {here().key(v) for one in self._known for v in variables_in(one)}

    # Out.

    def check(self) -> None:
        """Raises Uncopyable, naming callback and attribute, if a copy would leave something out."""
        for number, callback in enumerate(self._callbacks):
            for name, value in _attributes(callback):
                self._pickled(number, name, value, len(self._known), copied=False)

    def copy(self, covered: Iterable[Any], ended: bool) -> State:
        """Each callback's class and attributes, and the generators and variables that callbacks
        hold: not the variables `covered`. `ended` is for a fit whose on_train_begin will not be
        run again.

        Raises Uncopyable.
        """
        known = self._first_known if ended else len(self._known)
        before = self._first if ended else self._begun
        states = []
        for number, callback in enumerate(self._callbacks):
            attributes = {}
            copied = not type(callback).__module__.startswith("keras.")
            for name, value in _attributes(callback):
                pickled = self._pickled(number, name, value, known, copied)
                if pickled is not None:
                    is_same = (number, name) in before and before[number, name][0] is value
                    attributes[name] = (*pickled, is_same)
            one: State = {"class": _name(callback), "attributes": attributes}
            if _is_csv_logger(callback) and os.path.exists(callback.filename):
                one["bytes"] = os.path.getsize(callback.filename)
            states.append(one)
        return {"each": states, "variables": self._values(covered, known)}

    def _values(self, covered: Iterable[Any], known: int) -> list[Any]:
        others = {here().key(variable) for variable in covered}
        values = []
        for one in self._known[:known]:
            generator = copy_generator(one)
            if generator is not None:
                values.append(generator)
                continue
            variables = [v for v in variables_in(one) if here().key(v) not in others]
            if any(here().key(variable) not in self._variables for variable in variables):
                raise Uncopyable(f"a {type(one).__name__} of a callback has made new variables")
            values.append(state.copy_variables(variables))
        return values

    def _pickled(
        self, number: int, name: str, value: Any, known: int, copied: bool
    ) -> tuple[bytes, list[pickle.PickleBuffer]] | None:
        """None for what is as it was when the fit began. Raises Uncopyable."""

        def keep(buffer: pickle.PickleBuffer) -> None:
            # A callback of the program's own may write to its array while the copy is saved.
            buffers.append(pickle.PickleBuffer(bytearray(buffer.raw())) if copied else buffer)

        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        try:
            Pickler(stream, keep, lambda one: self._known_as(one, known)).dump(value)
        except Exception as error:  # whatever an object's own __reduce__ raises
            if not self._is_unchanged(number, name, value):
                callback = self._callbacks[number]
                reason = f"{_name(callback)}.{name} cannot be copied: {error}"
                if not isinstance(callback, Function):
                    raise Uncopyable(reason) from error
                self._doubt(reason)
            return None
        pickled = stream.getvalue()
        # What a function has not changed others may, such as the arguments of a longer run.
        is_functions = isinstance(self._callbacks[number], Function)
        if is_functions and self._prints.get((number, name)) == _checksum(pickled, buffers):
            return None
        return pickled, buffers

    def _is_unchanged(self, number: int, name: str, value: Any) -> bool:
        before = self._begun.get((number, name))
        return before is not None and _alike(before, (value, *_contents(value)))

    # Back.

    def before_train_begin(self, past: State) -> None:
        """Check that these are the same callbacks, and let none throw away what it wrote."""
        now = [_name(callback) for callback in self._callbacks]
        then = [one["class"] for one in past["each"]]
        if now != then:
            raise OtherProgram(f"the callbacks are {now}, at the checkpoint they were {then}")
        for callback, one in zip(self._callbacks, past["each"]):
            if _is_csv_logger(callback) and "bytes" in one:
                callback.append = True
        self.forget_rows(past)

    def forget_rows(self, past: State) -> None:
        """Rows of a log that were written after the checkpoint will be written again."""
        for callback, one in zip(self._callbacks, past["each"]):
            if "bytes" not in one or not os.path.exists(callback.filename):
                continue
            if os.path.getsize(callback.filename) > one["bytes"]:
                os.truncate(callback.filename, one["bytes"])

    def put_back(self, past: State, covered: Iterable[Any]) -> None:
        """Make them what they were in `past`. Raises OtherProgram."""
        values = past["variables"]
        if len(values) > len(self._known):
            held = f"{len(self._known)}, at the checkpoint {len(values)}"
            raise OtherProgram(f"the number of objects that the callbacks hold is {held}")
        others = {here().key(variable) for variable in covered}
        for one, copies in zip(self._known, values):
            if copy_generator(one) is not None:
                set_generator(one, copies)
                continue
            variables = [v for v in variables_in(one) if here().key(v) not in others]
            state.set_variables(variables, copies)
        for callback, one in zip(self._callbacks, past["each"]):
            for name, (pickled, buffers, is_same) in one["attributes"].items():
                value = Unpickler(io.BytesIO(pickled), buffers, self._known).load()
                if not (is_same and fill(dict(_attributes(callback)).get(name), value)):
                    _put(callback, name, value)

    # The objects that the program makes again.

    def _number(self, one: Any) -> int:
        if id(one) not in self._numbers:
            self._numbers[id(one)] = len(self._known)
            self._known.append(one)
        return self._numbers[id(one)]

    def _known_as(self, one: Any, known: int) -> int | None:
        number = self._numbers.get(id(one))
        return number if number is not None and number < known else None

    def _look(self) -> dict[tuple[int, str], tuple[Any, ...]]:
        """Number the objects of the graph; each attribute's value and contents."""
        found: dict[tuple[int, str], tuple[Any, ...]] = {}
        for number, callback in enumerate(self._callbacks):
            for name, value in _attributes(callback):
                buffers: list[pickle.PickleBuffer] = []
                stream = io.BytesIO()
                with contextlib.suppress(Exception):  # what cannot be pickled is seen when copied
                    Pickler(stream, buffers.append, self._seen).dump(value)
                    if isinstance(callback, Function):
                        print_of = _checksum(stream.getvalue(), buffers)
                        self._prints.setdefault((number, name), print_of)
                found[number, name] = (value, *_contents(value))
        return found

    def _seen(self, one: Any) -> int | None:
        if id(one) in self._numbers or is_made_again(one) or copy_generator(one) is not None:
            return self._number(one)
        return None


def _attributes(callback: Any) -> Iterator[tuple[str, Any]]:
    import keras

    if isinstance(callback, Function):
        return callback.items()
    skipped = _NOT_STATE
    if _is_csv_logger(callback):
        skipped = skipped | _CSV_NOT_STATE
    elif isinstance(callback, keras.callbacks.TensorBoard):
        skipped = skipped | _BOARD_NOT_STATE
    return ((name, value) for name, value in list(vars(callback).items()) if name not in skipped)


def _put(callback: Any, name: str, value: Any) -> None:
    put = callback.put if isinstance(callback, Function) else functools.partial(setattr, callback)
    put(name, value)


def _name(callback: Any) -> str:
    return callback.name if isinstance(callback, Function) else type(callback).__qualname__


def _checksum(pickled: bytes, buffers: Iterable[pickle.PickleBuffer]) -> int:
    whole = zlib.crc32(pickled)
    for buffer in buffers:
        whole = zlib.crc32(buffer.raw(), whole)
    return whole


def _contents(value: Any) -> tuple[Any, ...]:
    """What can be seen to change in an object that stays the same."""
    if isinstance(value, io.IOBase):
        with contextlib.suppress(OSError, ValueError):
            return (value.tell(),)
        return ()
    if isinstance(value, Iterator):
        return (object(),)  # it changes unseen
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return tuple(value)
    if isinstance(value, types.ModuleType):
        return ()
    return tuple(getattr(value, "__dict__", {}).values())


def _alike(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    if len(before) != len(now):
        return False
    return all(
        (a is b and copy_generator(a) is None)  # a generator is the same one, and has gone on
        or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b)
        for a, b in zip(before, now)
    )


def _is_csv_logger(callback: Any) -> bool:
    import keras

    return isinstance(callback, keras.callbacks.CSVLogger)
