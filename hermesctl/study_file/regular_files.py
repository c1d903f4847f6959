"""Opens files that somebody else named, so that a named pipe in their place cannot make us wait.

Only regular files are ever opened. Opening a pipe without a writer waits for one, and opening a
device may do more than read it.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from hermesctl.text import nearest

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> BufferedReader:
    """Open the regular file at `path`, or at the end of a link, to be read. Never waits.

    Raises OSError, whose `strerror` says what is there instead.
    """
    try:
        _check(os.stat(path), path)
        # It may have been replaced since; by a pipe we would wait for, but for O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise OSError(errno.EINVAL, "a path with a NUL", str(path)) from None
    try:
        _check(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind_of(path: Path) -> str:
    """What is at `path` if it is no regular file: `a directory`, `no such file`; empty if it is."""
    try:
        return _kind(os.stat(path))
    except ValueError:
        return "no such file"
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return "no such file" if missing else error.strerror or "nothing readable"


def near_file(path: Path) -> str:
    """The file that `path` most likely means where nothing is there; empty for none."""
    if kind_of(path) != "no such file":
        return ""
    try:
        with os.scandir(path.parent) as entries:
            near = nearest(path.name, [entry.name for entry in entries if entry.is_file()])
    except (OSError, ValueError):
        return ""
    return str(path.with_name(near)) if near else ""


def _kind(info: os.stat_result) -> str:
    return "" if stat.S_ISREG(info.st_mode) else _KINDS[stat.S_IFMT(info.st_mode)]


def _check(info: os.stat_result, path: Path) -> None:
    if kind := _kind(info):
        error = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.EINVAL
        raise OSError(error, f"Is {kind}", str(path))
