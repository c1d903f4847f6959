"""The seeds that a program sets itself, told to it again when it is run again.

A seed is the program's own choice; but one that it takes from the clock would be another one
in each process, and with it its data, their order and its first weights. Seeds are known by the
line that sets them and by how many it has set. What is left out when the program is run again, such
as the body of a loop that has ended, is not looked at.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
from typing import Any, Callable, Union

Plain = Union[int, float, str, "list[Any]", None]  # None for a seed that cannot be written down
Seeds = dict[str, list[Plain]]  # of each line, in the order of its turns

MOST = 10_000
_TOO_MANY = f"the program sets more than {MOST} seeds, and is told no more of them again"
_PASSED_BY = tuple(os.sep + name for name in ("trainer_shim", "random.py", "rng_utils.py"))

_given: Seeds = {}
_count = 0
_told: Seeds = {}
_process: int | None = None  # that of the program
_has_trained = False
_left_out: list[Callable[[], bool]] = []
_doubt: Callable[[str], None] | None = None


def begin(told: Seeds, doubt: Callable[[str], None]) -> None:
    """The program's first line comes next; `told` is what `given` was at its checkpoint, `doubt` is
    called with a reason why what comes may not be the same again."""
    global _told, _process, _doubt
    _told, _process, _doubt = told, os.getpid(), doubt


def leave_out(is_now: Callable[[], bool]) -> None:
    """What is done while `is_now` is not done when the program is run again."""
    _left_out.append(is_now)


def trains() -> None:
    """The program's first step comes next, or is passed."""
    global _has_trained
    _has_trained = True


def returned() -> None:
    """The program is where its checkpoint was taken: what it sets from here on is new."""
    _told.clear()


def given() -> Seeds:
    """The seeds that were set so far, to be told again."""
    return {line: list(values) for line, values in _given.items()}


def seed(kind: str, value: Any, early: bool = False) -> Any:
    """What the generator `kind` is to be seeded with, where the program has said `value`; if it is
    an `early` one, only before the program trains."""
    global _count
    is_main = threading.current_thread() is threading.main_thread()
    if value is None or _process != os.getpid() or not is_main or (early and _has_trained):
        return value
    if _count > MOST or any(is_now() for is_now in _left_out):
        return value
    _count += 1
    if _count > MOST:
        if _doubt is not None:
            _doubt(_TOO_MANY)
        return value
    line = f"{kind} {_line()}"
    here = _given.setdefault(line, [])
    plain, before = _plain(value), _told.get(line, [])[len(here) : len(here) + 1]
    if plain is not None and before and before[0] is not None:
        plain = before[0]
        value = _of_plain(plain)
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
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return ["numbers", *map(operator.index, value)]
    except TypeError:
        return None


def _of_plain(plain: Plain) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain
    return bytes.fromhex(rest[0]) if kind == "bytes" else rest
