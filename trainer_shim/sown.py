"""The seeds that a program sets itself before it trains, told to it again when it is run again.

Rule: a seed is the program's own choice; but one that it takes from the clock would be another one
in each process, and with it its data, their order and its first weights. Seeds are known by the
line that sets them. Those that are set once the program trains are not looked at: run again, it
does not come by all of them.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
from typing import Any, Union

Plain = Union[int, float, str, None]  # None for a seed that cannot be written down
Seeds = dict[str, list[Plain]]  # of each line, in the order of its turns

_MOST = 1000
_PASSED_BY = tuple(os.sep + name for name in ("trainer_shim", "random.py", "rng_utils.py"))

_given: Seeds = {}
_count = 0
_told: Seeds = {}
_process: int | None = None  # that of the program, until it trains


def begin(told: Seeds) -> None:
    """The program's first line comes next; `told` is what `given` was at its checkpoint."""
    global _told, _process
    _told, _process = told, os.getpid()


def trains() -> None:
    """From here on seeds are the program's own matter."""
    global _process
    _process = None


def given() -> Seeds:
    """The seeds that were set before the program trained, to be told again."""
    return dict(_given)


def seed(kind: str, value: Any) -> Any:
    """What the generator `kind` is to be seeded with, where the program has said `value`."""
    global _count
    is_main = threading.current_thread() is threading.main_thread()
    if value is None or _process != os.getpid() or not is_main or _count >= _MOST:
        return value
    _count += 1
    line = f"{kind} {_line()}"
    here = _given.setdefault(line, [])
    plain, before = _plain(value), _told.get(line, [])[len(here) : len(here) + 1]
    if plain is not None and before and before[0] is not None:
        plain = value = before[0]
    here.append(plain)
    return value


def _line() -> str:
    """Where the program, or the library that it has asked, sets a seed."""
    frame = sys._getframe(2)
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in _PASSED_BY):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _plain(value: Any) -> Plain:
    if isinstance(value, (str, float)):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None
