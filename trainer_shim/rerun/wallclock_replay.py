"""The time of day that a program's beginning has read, given to it again when it is run again.

What a program names by the clock or by `uuid4` before it trains (the folder of its run, a log in
it) gets the same name when it is run again. Only the program's own lines get these readings, each
by its file, its number and how often it has read. What a line reads beyond that continues from its
last reading, lest a program that waits for something think that it has waited for days. Libraries,
which may sign by the clock or let things expire, read the true time, and so does the program once
it trains. The clocks that only measure (`perf_counter`, `monotonic`) are left alone.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import os
import sys
import threading
import time
import uuid
from typing import Any, Callable

from trainer_shim.program.source_files import is_programs_own

# Of each line, in nanoseconds since 1970; of one that asks for a UUID, as numbers.
Readings = dict[str, list[int]]

MOST = 1_000
_OWN = os.sep + os.path.join("trainer_shim", "rerun", "wallclock_replay.py")
_true_time = time.time_ns
_true_uuid = uuid.uuid4

_given: Readings = {}
_turns: dict[str, int] = {}
_count = 0
_behind = 0  # what was told last, less the true time of then
_process: int | None = None  # that of the program, while it is told
_is_rerun = False
_replaced: list[tuple[Any, str, Any]] = []


def begin(told: Readings, is_rerun: bool) -> None:
    """The program's first line comes next; `told` is what `given` was at its checkpoint."""
    global _given, _process, _is_rerun, _count, _behind
    _given = {line: list(readings) for line, readings in told.items()}
    _count = sum(map(len, _given.values()))
    _process, _is_rerun = os.getpid(), is_rerun
    _behind = 0
    _turns.clear()
    for name, place in (("localtime", 0), ("gmtime", 0), ("ctime", 0), ("strftime", 1)):
        _replace(time, name, _at_a_time(getattr(time, name), place))
    _replace(time, "asctime", _at_a_time(time.asctime, 0))
    _replace(time, "time", _seconds)
    _replace(time, "time_ns", _nanoseconds)
    _replace(uuid, "uuid4", _uuid4)
    for name, read in (("now", _now), ("utcnow", _utcnow)):
        _replace(datetime.datetime, name, classmethod(read))


def trains() -> None:
    """The program's first step comes next, or is passed."""
    if not _is_rerun:
        _end()


def returned() -> None:
    """The program is where its checkpoint was taken."""
    _end()


def given() -> Readings:
    """What was read so far, to be told again."""
    return {line: list(readings) for line, readings in _given.items()}


def _end() -> None:
    global _process
    _process = None
    while _replaced:
        _set(*_replaced.pop())


def _read() -> int:
    """What the clock says to whoever has called what is replaced."""
    global _behind
    line = _line()
    if line is None:
        return _true_time()
    told = _told(line)
    if told is not None:
        _behind = told - _true_time()
        return told
    return _keep(line, _true_time() + _behind)


def _line() -> str | None:
    """The program's own line that has called what is replaced; None for who is told nothing."""
    if _process is None:
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_OWN):
        frame = frame.f_back
    is_main = threading.current_thread() is threading.main_thread()
    if _process != os.getpid() or not is_main or not is_programs_own(frame.f_code.co_filename):
        return None
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _told(line: str) -> int | None:
    """What a line was told when it first asked as often as now; None if it did not."""
    readings, turn = _given.setdefault(line, []), _turns.get(line, 0)
    _turns[line] = turn + 1
    return readings[turn] if turn < len(readings) else None


def _keep(line: str, reading: int) -> int:
    global _count
    if _count < MOST:
        _count += 1
        _given[line].append(reading)
    return reading


# What replaces the originals.


def _seconds() -> float:
    return _read() / 1e9


def _nanoseconds() -> int:
    return _read()


def _uuid4() -> uuid.UUID:
    line = _line()
    if line is None:
        return _true_uuid()
    asks = f"{line} uuid4"  # it may read the time, too
    told = _told(asks)
    return uuid.UUID(int=_keep(asks, _true_uuid().int) if told is None else told)


def _at_a_time(original: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A function of `time` that takes now where its argument in this place says no other time."""
    takes_seconds = original.__name__ not in ("strftime", "asctime")
    localtime = time.localtime

    @functools.wraps(original)
    def function(*args: Any) -> Any:
        if len(args) > place and not (args[place] is None and takes_seconds):
            return original(*args)
        seconds = _read() // 10**9
        return original(*args[:place], seconds if takes_seconds else localtime(seconds))

    return function


def _now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
    return cls.fromtimestamp(_read() / 1e9, tz)


def _utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
    return cls.fromtimestamp(_read() / 1e9, datetime.timezone.utc).replace(tzinfo=None)


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, vars(owner)[name]))
    _set(owner, name, value)


def _set(owner: Any, name: str, value: Any) -> None:
    if not isinstance(owner, type):
        setattr(owner, name, value)
        return
    # A class written in C takes no new attribute; a class in its place would be another one to
    # whoever has it already. Its names are in a dictionary like any other's.
    for names in (one for one in gc.get_referents(vars(owner)) if isinstance(one, dict)):
        names[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
