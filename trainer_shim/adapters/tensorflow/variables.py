"""The variables and iterators of a program, by the order in which it makes them.

A variable that a step has written is *stale* when the program runs again and the step does not: its
value is then not what it was. The first read of a stale variable between two steps is noticed,
wherever it comes from (every access goes through the variable's handle), and the value that was
read belongs in the journal. After that the variable is not stale any more, until the next step.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import private, store
from trainer_shim.saver import OtherProgram

_STALE, _NUMBER = "_hermes_stale", "_hermes_number"


class Variables:
    """Every eager variable. `reached(variable)` is called at the first look at a stale one."""

    def __init__(self, reached: Callable[[Any], None]) -> None:
        self.changes = 0  # counts each variable that becomes stale, or is no more
        self.stale: set[int] = set()
        # What differs from the last boundary: those that have become stale since, and the values
        # then of those that have been looked at or written.
        self._since: set[int] = set()
        self._then: dict[int, Any] = {}
        self._made: list[weakref.ref[Any]] = []
        self._numbers: dict[int, int] = {}  # of a handle -> of its variable
        self._reached = reached
        self._read = private.find(private.READ_VARIABLE, "read_variable_op")
        self._assign = private.find(private.READ_VARIABLE, "assign_variable_op")

    def hook(self) -> None:
        """Watch the variables that are made from here on."""
        owner = private.find(private.VARIABLES, "BaseResourceVariable")
        owner._handle = _Handle(self)
        original = owner.assign
        fresh = _plain_types()

        @functools.wraps(original)
        def assign(variable: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            if _STALE in vars(variable) and isinstance(value, fresh) and _is_eager():
                self.keep(self.number_of(variable))
                self.refreshed(variable)
            return original(variable, value, *args, **kwargs)

        owner.assign = assign

    def made(self, variable: Any, handle: Any) -> None:
        """A variable has got its handle."""
        unread = private.find(private.VARIABLES, "_UnreadVariable")
        if not hasattr(handle, "_id") or isinstance(variable, unread):
            return  # one of a graph
        vars(variable)[_NUMBER] = self._numbers[handle._id] = len(self._made)
        self._made.append(weakref.ref(variable))

    def number(self, handle: Any) -> int | None:
        """The number of the variable behind a handle."""
        return self._numbers.get(handle._id)

    def number_of(self, variable: Any) -> int:
        """The number of a variable."""
        number: int = vars(variable)[_NUMBER]
        return number

    def holds(self, variable: Any, numbers: set[int]) -> bool:
        """Whether a variable, TensorFlow's or Keras', is one of these."""
        import tensorflow as tf

        ours = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
        return getattr(ours, "__dict__", {}).get(_NUMBER) in numbers

    def get(self, number: int) -> Any:
        """The variable with this number; None if the program has let go of it."""
        return self._made[number]() if number < len(self._made) else None

    def name(self, variable: Any) -> str:
        """A variable as the journal calls it."""
        return f"variable {self.number_of(variable)}"

    def outdate(self, numbers: set[int]) -> None:
        """A step that is not run again has written these."""
        for number in numbers - self.stale:
            variable = self.get(number)
            if variable is not None:
                vars(variable)[_STALE] = True
                self.stale.add(number)
                self._since.add(number)
                self.changes += 1

    def refreshed(self, variable: Any) -> None:
        """The variable has the value that it had."""
        del vars(variable)[_STALE]
        self.stale.discard(self.number_of(variable))
        self.changes += 1

    def boundary(self) -> None:
        """A training step is done: its boundary is the last one."""
        if self._since:
            self._since.clear()
        if self._then:
            self._then.clear()

    def keep(self, number: int) -> None:
        """A variable is about to change, or to be looked at: keep what it was at the boundary."""
        if number in self.stale and number not in self._since and number not in self._then:
            variable = self.get(number)
            if variable is not None:
                self._then[number] = self.peek(variable)

    def at_boundary(self) -> dict[int, Any]:
        """The values at the last boundary of those that were stale then, by number."""
        values = dict(self._then)
        for number in self.stale - self._since - values.keys():
            variable = self.get(number)
            if variable is not None:
                values[number] = self.peek(variable)
        return dict(sorted(values.items()))

    def reached(self, variable: Any) -> None:
        """Somebody is about to look at a stale variable."""
        if threading.current_thread() is threading.main_thread() and _is_eager():
            self._reached(variable)

    def peek(self, variable: Any) -> Any:
        """The value, as a tensor, without the program's looking at it."""
        return self._read(vars(variable)["_handle"], variable.dtype)

    def write(self, variable: Any, value: Any) -> None:
        """Give it a value. Raises OtherProgram if that is of another type or shape."""
        import tensorflow as tf

        kind = store.kind_of(value)
        if kind[0] != variable.dtype.name or not variable.shape.is_compatible_with(kind[1]):
            found = f"{variable.name} is {variable.dtype.name} of shape {variable.shape}"
            raise OtherProgram(f"{found}, at the checkpoint it was {kind[0]} of {kind[1]}")
        handle = vars(variable)["_handle"]
        with tf.device(handle.device):
            self._assign(handle, tf.constant(value))


def of_ours(value: Any, dtype: Any) -> Any:
    """A variable that is made while a function of the program is traced, and is none of its."""
    import tensorflow as tf

    make = private.find(private.VARIABLES, "ResourceVariable")
    with tf.init_scope(), tf.device("CPU:0"):
        return make(value, trainable=False, dtype=dtype)


class _Handle:
    """A variable's `_handle`: an attribute whose setting and getting are seen."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    def __get__(self, variable: Any, owner: Any = None) -> Any:
        if variable is None:
            return self
        attributes = vars(variable)
        if _STALE in attributes:
            self._variables.reached(variable)
        try:
            return attributes["_handle"]
        except KeyError:
            raise AttributeError("_handle") from None

    def __set__(self, variable: Any, handle: Any) -> None:
        vars(variable)["_handle"] = handle
        self._variables.made(variable, handle)


def _is_eager() -> bool:
    import tensorflow as tf

    return bool(tf.executing_eagerly())


def _plain_types() -> tuple[type, ...]:
    """Values that no variable has to be read for."""
    import numpy as np

    return (int, float, np.ndarray, np.generic, private.find(private.OPS, "EagerTensor"))
