"""Python's own iterators that variables and attributes of the program hold, and whether a pass over
the data has taken items from them.

Each is compared with what it was when the pass began. The lines between passes are run again and
take from it as before; the lines in a pass are not.
"""

from __future__ import annotations

import ast
import gc
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainer_shim.adapters.torch.frame_locals import of_program

_PLACED: dict[type, str] = {
    type(iter([])): "list",
    type(iter(())): "tuple",
    type(reversed([])): "reversed",
}
_RANGE = type(iter(range(0)))
_FEW = 64  # values of a list that is looked into
_DEEP = 6  # iterators that read from one another
_PLAIN = (type(None), bool, int, float, str)

Place = list[Any]


def is_iterator(value: Any) -> bool:
    """Whether it is an iterator of Python itself, a generator among them."""
    kind = type(value)
    if kind in _PLAIN or kind.__module__ not in ("builtins", "itertools"):
        return False
    return issubclass(kind, Iterator)


def place_of(value: Any) -> Place | None:
    """Its kind and how far it is; None for what cannot be moved.

    Of a list and the like the index, None at its end; of a range what is left; of a `count` its
    next number and step; of a `cycle` how many it has, and how many of them it has given again.
    """
    kind = type(value)
    if kind in _PLACED:
        reduced = value.__reduce__()
        return [_PLACED[kind], reduced[2] if len(reduced) > 2 else None]
    if kind is _RANGE:
        _, (whole,), *index = value.__reduce__()
        left = whole[index[0] :] if index and index[0] else whole
        return ["range", left.start, left.stop, left.step]
    if kind is itertools.count:
        return _count(value)
    return _cycle(value) if kind is itertools.cycle else None


def _count(value: Any) -> Place | None:
    try:
        numbers = ast.literal_eval(f"[{repr(value)[len('count(') : -1]}]")
    except (ValueError, SyntaxError):
        return None  # of numbers that are no literals
    return ["count", numbers[0], numbers[1] if len(numbers) > 1 else 1]


def _cycle(value: Any) -> Place | None:
    try:
        _, (items,), (had, is_again) = value.__reduce__()
    except (AttributeError, TypeError, ValueError, DeprecationWarning):
        return None
    return ["cycle", len(had), (items.__reduce__()[2] if is_again and had else 0)]


def _state(value: Any, deep: int = 0) -> Any:
    """What is another once something was taken from it."""
    at = None
    if isinstance(value, _PLAIN):
        return value
    is_held = type(value) is tuple and len(value) < _FEW  # by a `map`, what it reads
    if deep == _DEEP or not (is_held or is_iterator(value)):
        return id(value)
    known = place_of(value)
    if known is not None:
        return repr(known)
    if isinstance(value, types.GeneratorType):
        if value.gi_frame is None or value.gi_running:
            return None  # at its end, or what the pass is run by
        at = value.gi_frame.f_lasti
    return (at, *(_state(one, deep + 1) for one in gc.get_referents(value)))


class PythonIterators:
    """Those that were there when a pass began, each with its state then."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[Callable[[], Any], Any]] = {}
        self._taken: set[tuple[str, int]] = set()

    def note(self, name: str, value: Any) -> None:
        """A variable or an attribute has this value, or holds it, where a pass begins."""
        for one in _of(value):
            self._known[name, id(one)] = (_reference(one), _state(one))

    def pass_begins(self, frame: types.FrameType) -> None:
        """What lines before it have taken is taken by them again."""
        for key, (reference, _) in list(self._known.items()):
            self._known[key] = (reference, _state(reference()))
        for own in of_program(frame):
            for name, value in list(own.f_locals.items()):
                self.note(name, value)

    def pass_is_over(self) -> list[str]:
        """What was taken within it is not taken again: of which generators that is so, by name."""
        names = []
        for key, (reference, before) in list(self._known.items()):
            value = reference()
            if value is None:
                del self._known[key]
                self._taken.discard(key)
            elif _state(value) != before:
                self._taken.add(key)
                names += [key[0]] if isinstance(value, types.GeneratorType) else []
        return names

    def is_taken_from(self, name: str, value: Any) -> bool:
        """Whether lines that are not run again have taken from it, or from one that it holds."""
        for one in _of(value):
            key = (name, id(one))
            if key in self._taken or (key in self._known and self._known[key][1] != _state(one)):
                return True
        return False


def _of(value: Any) -> list[Any]:
    """The iterators that a value is, or holds as a list or the like."""
    items: Iterable[Any] = [value]
    if type(value) in (dict, list, tuple) and len(value) < _FEW:  # no class of the program's own
        items = value.values() if type(value) is dict else value
    return [one for one in items if is_iterator(one)]


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a map, a zip
        return lambda: value
