"""The `for` statement that reads a DataLoader.

Only a `for` statement can be begun in its middle, since its body is what a finished iteration
leaves out. Batches that are taken in any other way are recognized here, by the instruction from
which the iterator was called and by what stands between the two.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import gc
import inspect
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from trainer_shim.adapters.torch.frame_locals import keep_locals

_FOR = dis.opmap["FOR_ITER"]
_POP_TOP = dis.opmap["POP_TOP"]
_RETURNS = {"RETURN_VALUE", "RETURN_CONST"}
_APPENDS = {"LIST_APPEND", "SET_ADD", "MAP_ADD"}
# By how many instructions a loop that has ended takes its iterator off the stack.
_ENDING = (sys.version_info >= (3, 12)) + (sys.version_info >= (3, 13))
_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_INDEX_AT = object.__basicsize__
_BAR = {"n", "last_print_n"}
Loop = tuple[types.FrameType, list[Any]]

# By its code and place how many enumerates a for statement read through when it was last looked at.
_found_at: dict[tuple[types.CodeType, int], int] = {}


class OtherWay(Exception):
    """The batches are not read by a plain `for` statement; the message says how they are."""


class ByHand(OtherWay):
    """They are taken one by one, as by `next`."""


def statement(frame: types.FrameType, iterator: Any, since: int | None = None) -> Loop:
    """The frame whose `for` statement asks for a batch, and the enumerates, and frames of tqdm's
    bars, that it asks through.

    `frame` is the one that called the iterator, and `since` what `collections()` was when that was
    asked for. Raises OtherWay.
    """
    if threading.current_thread() is not threading.main_thread():
        raise OtherWay("the batches are taken by another thread")
    sources, bars = [iterator], []
    while True:
        code = frame.f_code
        is_suspendable = bool(code.co_flags & _SUSPENDABLE)
        if is_suspendable and f"{os.sep}tqdm{os.sep}" in code.co_filename and frame.f_back:
            sources += _run_in(frame)
            bars.append(frame)
            frame = frame.f_back
            continue
        if code.co_code[frame.f_lasti] != _FOR:
            if is_suspendable:
                raise OtherWay(f"the batches pass through the generator {code.co_name}")
            raise ByHand("the batches are not taken by a for statement")
        if _is_comprehended(code, frame.f_lasti):
            raise OtherWay("the batches are taken in a comprehension")
        if is_suspendable:
            raise OtherWay(f"the batches pass through the generator {code.co_name}")
        return frame, [*_counters(sources, (code, frame.f_lasti), since), *bars]


def collections() -> int:
    """How often Python's collector of garbage has run."""
    return sum(generation["collections"] for generation in gc.get_stats())


def _run_in(frame: types.FrameType) -> list[Any]:
    """The generator that is run in this frame."""
    for generation in range(3):
        for one in gc.get_objects(generation):
            if type(one) is types.GeneratorType and one.gi_frame is frame:
                return [one]
    return []


def _counters(sources: list[Any], site: tuple[types.CodeType, int], since: int | None) -> list[Any]:
    """The enumerates that read from any of these, at this place.

    To look at all objects of a process takes a tenth of a second. What reads from an iterator was
    made when that was, or later, so it is among the youngest if none have been collected since.
    That is believed of a place where all objects said the same before.
    """
    if since == collections() and site in _found_at:
        young = [one for one in gc.get_objects(0) if _is_between(one)]
        found = _reading(sources, young)
        if len(found) == _found_at[site]:
            return found
    found = _reading(sources)
    _found_at[site] = len(found)
    return found


def _is_between(one: Any) -> bool:
    return type(one) in (enumerate, tuple) or _is_passage(type(one))


def _reading(sources: list[Any], among: list[Any] | None = None) -> list[Any]:
    """The enumerates `among` these objects, or all, that read from any of the sources."""
    found: list[Any] = []
    sources = list(sources)
    for source in sources:
        for holder in _holders(source, among):
            if type(holder) is enumerate:
                sources.append(holder)
                found.append(holder)
            through = _passing(holder, among)
            if through:
                raise OtherWay(f"the batches pass through {through[0]}()")
    for counter in found:
        if _index(counter).value != _said_index(counter):
            raise OtherWay("the index of enumerate() is not where it is expected")
    return found


def passages(iterator: Any) -> list[str]:
    """The names of Python's own iterators that read from this one."""
    holders = gc.get_referrers(iterator)
    counting = ["enumerate" for one in holders if type(one) is enumerate]
    return [*counting, *(name for one in holders for name in _passing(one))]


def _holders(held: Any, among: list[Any] | None) -> list[Any]:
    if among is None:
        return gc.get_referrers(held)
    return [one for one in among if any(other is held for other in gc.get_referents(one))]


def _passing(holder: Any, among: list[Any] | None = None) -> list[str]:
    # A zip holds what it reads from in a tuple.
    outer = _holders(holder, among) if type(holder) is tuple else [holder]
    return [type(one).__name__ for one in outer if _is_passage(type(one))]


def _is_passage(kind: type) -> bool:
    """Whether this is one of Python's own iterators over another; a generator is told apart by
    its frame, and one over a list or a dict (a debugger's) takes nothing from it."""
    if kind in (enumerate, types.GeneratorType) or kind.__name__.endswith("_iterator"):
        return False
    return kind.__module__ in ("builtins", "itertools") and issubclass(kind, Iterator)


def _index(counter: Any) -> ctypes.c_ssize_t:
    return ctypes.c_ssize_t.from_address(id(counter) + _INDEX_AT)


def _said_index(counter: Any) -> Any:
    return counter.__reduce__()[1][1]


def advance(counter: Any, by: int) -> None:
    """Have an enumerate, or a bar of tqdm, count on as if it had given `by` items more."""
    if not isinstance(counter, types.FrameType):
        _index(counter).value += by
        return
    values = counter.f_locals
    if _BAR.difference(values):
        return  # of one that is not shown, or of a notebook's own
    for name in _BAR:
        values[name] += by
    keep_locals(counter)
    bar = vars(values["self"])
    for name in (_BAR | {"initial"}) & bar.keys():  # of its rate, what was there before
        bar[name] += by


@functools.cache
def _body(code: types.CodeType, at: int) -> range:
    """The instructions that the FOR_ITER at `at` repeats."""
    for instruction in dis.get_instructions(code):
        if instruction.offset == at:
            return range(at + 1, instruction.argval)
    return range(0)


@functools.cache
def _is_comprehended(code: types.CodeType, at: int) -> bool:
    """Whether the FOR_ITER at `at` is a comprehension's, which from Python 3.12 on is a part of the
    function that it stands in: one that gathers says of how many loops, from the innermost on."""
    instructions = list(dis.get_instructions(code))
    loops = [one.offset for one in instructions if one.opcode == _FOR]
    for one in instructions:
        if one.opname in _APPENDS and one.arg is not None:
            around = [loop for loop in loops if one.offset in _body(code, loop)]
            if at in around[len(around) - one.arg + 1 :]:
                return True
    return False


def is_inside(frame: types.FrameType | None, code: types.CodeType, at: int) -> bool:
    """Whether `frame`, or one it was called from, is in the body of that `for` statement."""
    while frame is not None:
        if frame.f_code is code and frame.f_lasti in _body(code, at):
            return True
        frame = frame.f_back
    return False


def is_break(frame: types.FrameType, code: types.CodeType, at: int) -> bool:
    """Whether `frame` has just left that `for` statement by `break`: what follows the loop
    is executed next, as after its last batch. Otherwise it is being returned from."""
    if frame.f_code is not code or code.co_code[frame.f_lasti] != _POP_TOP:
        return False
    following = _operations(code, frame.f_lasti + 2)
    if following[-1][0] not in _RETURNS:
        return True
    return following == _operations(code, _body(code, at).stop, _ENDING)


def _operations(code: types.CodeType, start: int, skipped: int = 0) -> list[tuple[str, Any]]:
    """The two instructions from `start` on, or the one if that returns, after `skipped` others."""
    found = [one for one in dis.get_instructions(code) if one.offset >= start]
    operations = [(one.opname, one.argval) for one in found[skipped : skipped + 2]]
    return operations[:1] if operations[0][0] in _RETURNS else operations
