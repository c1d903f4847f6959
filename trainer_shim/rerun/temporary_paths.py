"""What a program makes for itself besides its files: temporary names, and shared memory.

When the program is run again, each line gets the temporary names that it got first. So what was put
there is found, and nothing is left behind that nobody knows. Segments of shared memory live as long
as the process; whoever ends the process removes them, since it has no time to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from trainer_shim.program.source_files import is_programs_own

Names = dict[str, list[str]]  # of each line, in the order of its turns

MOST = 1_000
_SEGMENTS = "/dev/shm"
_SHIM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ADAPTERS = os.path.join(_SHIM, "adapters") + os.sep

_told: Names = {}
_given: Names = {}
_process: int | None = None  # that of the program, while it is told
_count = 0


def segments(checkpoints: str) -> str:
    """The file that names the segments of the trial that has its checkpoints there."""
    return os.path.join(os.path.dirname(os.path.abspath(checkpoints)), "segments")


def begin(told: Names, checkpoints: str) -> None:
    """The program's first line comes next; `told` is what `given` was at its checkpoint."""
    global _told, _process
    _told, _process = told, os.getpid()
    original: Any = getattr(tempfile, "_get_candidate_names", None)
    if original is not None:
        tempfile._get_candidate_names = lambda: _Candidates(original())  # type: ignore[attr-defined]
    remove_segments(segments(checkpoints))  # of a process whose host was ended with it
    _watch_segments(segments(checkpoints))


def returned() -> None:
    """The program is where its checkpoint was taken."""
    _told.clear()


def given() -> Names:
    """The names so far, to be told again."""
    return {line: list(names) for line, names in _given.items()}


class _Candidates:
    """Names to try, the one of before first; the last one that is asked for is the one taken."""

    def __init__(self, others: Iterator[str]) -> None:
        global _count
        self._others = others
        self._names: list[str] | None = None
        is_main = threading.current_thread() is threading.main_thread()
        if _process != os.getpid() or not is_main or _count >= MOST:
            return
        line = _line()
        if line is None:
            return
        _count += 1
        self._names = _given.setdefault(line, [])
        self._turn = len(self._names)
        self._before = _told.get(line, [])[self._turn : self._turn + 1]
        self._names.append("")

    def __iter__(self) -> _Candidates:
        return self

    def __next__(self) -> str:
        if self._names is None:
            return next(self._others)
        name = self._before.pop() if self._before else next(self._others)
        self._names[self._turn] = name
        return name


def _line() -> str | None:
    """The program's own line that asks, by whatever way; None if an adapter does, for itself."""
    frame = sys._getframe(2)
    while frame.f_back is not None and not is_programs_own(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_ADAPTERS):
            return None
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# Shared memory.


def _watch_segments(path: str) -> None:
    """Write down the name of each segment that is made, and which one it is."""
    try:
        module: Any = importlib.import_module("_posixshmem")
    except ImportError:
        return
    original, opening = module.shm_open, os.open

    def shm_open(name: str, flags: int, *args: Any, **kwargs: Any) -> int:
        segment = int(original(name, flags, *args, **kwargs))
        if flags & os.O_EXCL:
            with contextlib.suppress(OSError):
                line = f"{os.fstat(segment).st_ino} {name}\n".encode()
                fd = opening(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    os.write(fd, line)
                finally:
                    os.close(fd)
        return segment

    module.shm_open = shm_open


def remove_segments(path: str) -> None:
    """Remove the segments of a process that is no more, but for those that are others by now."""
    with contextlib.suppress(FileNotFoundError):
        with open(path, encoding="utf-8") as file:
            lines = [line.split() for line in file]
        for words in lines:
            with contextlib.suppress(OSError, ValueError):
                inode, name = words
                segment = os.path.join(_SEGMENTS, os.path.basename(name))
                if os.stat(segment).st_ino == int(inode):
                    os.unlink(segment)
        os.unlink(path)
