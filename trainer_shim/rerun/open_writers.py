"""The files that this process has open for writing, and what Python still buffers for them.

They are found by the process's descriptors, which miss none. Python's own objects for them are
flushed and moved by their own methods, so that their state stays correct.
"""

from __future__ import annotations

import contextlib
import gc
import io
import operator
import os
import stat
import sys
import weakref
from collections.abc import Collection, Iterator
from typing import Any

_KINDS = (io.FileIO, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)  # inner ones first
_EVENTS = ".tfevents."
_EVENT_WRITERS = (
    ("tensorflow", "summary.SummaryWriter"),
    ("tensorflow", "compat.v1.summary.FileWriter"),
    ("tensorboard.summary", "Writer"),
    ("torch.utils.tensorboard", "SummaryWriter"),
    ("tensorboardX", "SummaryWriter"),
)
_frozen: weakref.WeakSet[Any] = weakref.WeakSet()


def freeze() -> None:
    """Take all objects that there are from the garbage collector's care: those of what was
    imported live for ever, and walking them takes 0.2 s a time, between two steps of a training."""
    _frozen.update(one for one in gc.get_objects() if issubclass(type(one), _KINDS))
    gc.freeze()


def flush(folder: str, also: Collection[str] = ()) -> dict[int, str]:
    """Write what is held back for the regular files below `folder`, and those named besides, that
    are open for writing; each one's descriptor and path."""
    found = _descriptors(folder, also=also)
    if any(_EVENTS in path for path in found.values()):
        _flush_events()
    for one in _objects(found):
        with contextlib.suppress(OSError, ValueError):
            one.flush()
    return found


def _flush_events() -> None:
    """Write what TensorBoard's writers hold back, in threads and in C++, for minutes."""
    context = sys.modules.get("tensorflow.python.eager.context")
    in_graph = context is not None and not context.executing_eagerly()
    kinds = []
    # The first one's flush would add to a graph that the program makes.
    for module, path in _EVENT_WRITERS[1:] if in_graph else _EVENT_WRITERS:
        with contextlib.suppress(AttributeError):
            kinds.append(operator.attrgetter(path)(sys.modules.get(module)))
    there = tuple(kind for kind in kinds if isinstance(kind, type))
    for one in [one for one in gc.get_objects() if issubclass(type(one), there)]:
        with contextlib.suppress(Exception):  # a library's own errors: it has been closed, say
            one.flush()


def held_by_others(folder: str) -> set[str]:
    """The files below `folder` that other processes of this session have open for writing, such as
    the `tee` of a shell script. What this process has started itself has them from it."""
    found: set[str] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if int(name) != os.getpid() and os.getsid(int(name)) == os.getsid(0):
                found.update(_descriptors(folder, name).values())
    return found


def logs(folder: str) -> set[str]:
    """The files below `folder` that this process has open to write and not to read: no cache is."""
    opened = _descriptors(folder).items()
    return {path for fd, path in opened if _flags(fd, "self") & os.O_ACCMODE == os.O_WRONLY}


def move(fd: int, position: int) -> None:
    """Go on at `position` of the file behind `fd`, also with what Python has made on it."""
    os.lseek(fd, position, os.SEEK_SET)
    for one in _objects({fd: ""}):
        with contextlib.suppress(OSError, ValueError):
            one.seek(position)


def path_of(fd: int, process: str = "self") -> str:
    """The path of the file that a process has open there. Raises OSError if there is none."""
    return os.readlink(f"/proc/{process}/fd/{fd}")


def _descriptors(folder: str, process: str = "self", also: Collection[str] = ()) -> dict[int, str]:
    found = {}
    for fd in map(int, os.listdir(f"/proc/{process}/fd")):
        with contextlib.suppress(OSError):
            path = path_of(fd, process)
            mode = os.stat(f"/proc/{process}/fd/{fd}").st_mode
            is_one = path.startswith(folder + os.sep) or path in also
            if is_one and stat.S_ISREG(mode) and _flags(fd, process) & os.O_ACCMODE != os.O_RDONLY:
                found[fd] = path
    return found


def _flags(fd: int, process: str) -> int:
    with open(f"/proc/{process}/fdinfo/{fd}") as file:
        return int(file.read().split("flags:")[1].split()[0], 8)


def _objects(descriptors: dict[int, str]) -> Iterator[Any]:
    """Python's objects on these descriptors, what lies nearer to the file first."""
    if not descriptors:
        return
    # No list of all objects, which would hold itself: what it alone still held would be closed by
    # the garbage collector, the file before the buffer that writes to it.
    there = [one for one in gc.get_objects() if issubclass(type(one), _KINDS)]
    there += _frozen
    for kind in _KINDS:
        for one in there:
            with contextlib.suppress(OSError, ValueError):
                if issubclass(type(one), kind) and one.fileno() in descriptors:
                    yield one
