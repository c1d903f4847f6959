"""Files that a library keeps in order: SQLite databases, each of several files, and HDF5 files.

They are never cut, and none is overwritten while it is open. The content of a database is restored
as a whole, by SQLite itself if it is open; what was added since the checkpoint remains in it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from trainer_shim import file_moves

_DATABASE = b"SQLite format 3\0"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_BESIDE = ("-wal", "-shm", "-journal")  # of a database
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_BUSY_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.05


def is_one(path: str) -> bool:
    """Whether there is such a file, which nobody has open: to close it would take locks away."""
    with contextlib.suppress(OSError), file_moves.opening(path, "rb") as file:
        return _is_known(file.read(len(_DATABASE)))
    return False


def is_open(fd: int, path: str) -> bool:
    """Whether an open file is one, or belongs to one."""
    with contextlib.suppress(OSError):
        return _is_known(os.pread(fd, len(_DATABASE), 0)) or os.path.exists(_main_of(path))
    return False


def beside(path: str) -> str:
    """The database that a file is a part of, if there is one that nobody has open; else empty."""
    main = _main_of(path)
    return main if main and is_one(main) else ""


def _main_of(path: str) -> str:
    return next((path[: -len(suffix)] for suffix in _BESIDE if path.endswith(suffix)), "")


def put_back(kept: str, path: str, is_in_use: bool, earlier: str) -> None:
    """Have what lies at `kept` again at `path`; at `earlier`, or the like, if what is there is in
    use and cannot take it."""
    if is_in_use:
        if not _take_over(kept, path):
            _move(kept, file_moves.free(earlier))
        return
    for suffix in _BESIDE:
        file_moves.remove(path + suffix)
    _move(kept, path)


def _move(source: str, target: str) -> None:
    """The database first: what is left of a move that was broken off is moved by its own names."""
    for suffix in ("", *_BESIDE):
        if os.path.exists(source + suffix):
            file_moves.move(source + suffix, target + suffix)


def _take_over(source: str, target: str) -> bool:
    """Have the database `target` hold what the other one does, as one change of it; False if it is
    none, or was busy all the time."""
    try:
        import sqlite3
    except ImportError:
        return False
    until = time.monotonic() + _BUSY_SECONDS

    def look(status: int, remaining: int, total: int) -> None:
        if status in _BUSY and time.monotonic() >= until:
            raise TimeoutError

    try:
        with contextlib.ExitStack() as stack:
            before, now = (_opened(stack, sqlite3, one) for one in (source, target))
            before.backup(now, progress=look, sleep=_LOOK_AGAIN_SECONDS)
    except (sqlite3.Error, TimeoutError):
        return False
    return True


def _opened(stack: contextlib.ExitStack, sqlite3: Any, path: str) -> Any:
    return stack.enter_context(contextlib.closing(sqlite3.connect(path, timeout=0.0)))


def _is_known(beginning: bytes) -> bool:
    return beginning == _DATABASE or beginning.startswith(_HDF5)
