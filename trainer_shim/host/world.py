"""The namespaces in which a trial runs where process images work. (Where CRIU works by capabilities
instead, they are the machine's.)

The host is in them too, and so is the CRIU that it starts: processes, mounts and users look the
same to both as to the trial. Process numbers of a trial begin high, so they are free when it is
restored, in a world where only its host and CRIU run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import math
import os
import time
from collections.abc import Mapping

FIRST_PID = 1000
_NEWTIME, _NEWIPC = 0x80, 0x08000000
_CLOCKS = "/proc/{}/ns/time"
CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
Clocks = Mapping[str, float]  # in seconds
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC = 2, 4, 4096, 16384
_LAST_PID = "/proc/sys/kernel/ns_last_pid"
SHARED_MEMORY = "/dev/shm"
# The path of a Unix socket has at most 107 bytes, and libraries take long names for theirs.
_SHORT_BYTES = 64


def is_root() -> bool:
    """Whether this is the machine's root: the users here are all that there are."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", str(2**32 - 1)]


def begin(directory: str) -> str:
    """Prepare this world for a trial; a folder in memory that is the trial's own and ends with it,
    or one on disk in the machine's own namespaces.

    It stands at the same place for whoever brings the trial back. Raises OSError.
    """
    folder = os.path.join(directory, "run")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with contextlib.suppress(PermissionError):
        _mount("hermes", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=0700")
    return folder


def show(directory: str, place: str) -> None:
    """Have what lies in `directory` be found at `place` too, where a program from another machine
    expects it. Raises OSError."""
    if os.path.realpath(directory) != os.path.realpath(place):
        os.makedirs(place, exist_ok=True)
        _mount(directory, place, "", _MS_BIND | _MS_REC, "")


def short_path(folder: str, is_own: bool) -> str:
    """A path of the folder that leaves room for the names of sockets: its own, or that of a link in
    the shared memory of a world that `is_own`, the same in every world. Raises OSError."""
    if len(os.fsencode(folder)) <= _SHORT_BYTES:
        return folder
    if not is_own:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder)
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    link = os.path.join(SHARED_MEMORY, f"tmp-{name}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(folder, link)
    return link


def fork(shown: Clocks | None = None) -> int:
    """Fork a process with clocks of its own, which show this if anything is given: what was brought
    back from an image finds them where they were. Where clocks cannot be had it has those of this
    process."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        home = os.open(_CLOCKS.format("self"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.fork()
    # Only who can come back goes.
    is_away = libc.setns(home, _NEWTIME) == 0 and libc.unshare(_NEWTIME) == 0
    pid = None
    try:
        if is_away and shown:
            _set_clocks(shown)
        pid = os.fork()
    finally:
        if pid != 0 and is_away and libc.setns(home, _NEWTIME) != 0:
            raise OSError(ctypes.get_errno(), "cannot come back from the program's clocks")
        os.close(home)
    return pid


def own_ipc() -> None:
    """Have shared memory and semaphores of System V that are this process's own: an image holds
    them then. CRIU can read those of a machine's root only; elsewhere they stay the machine's."""
    if is_root():
        ctypes.CDLL(None).unshare(_NEWIPC)  # if it fails, too


def enter_clocks(pid: int) -> Clocks:
    """Have the clocks of a process from now on, and what they show."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(_CLOCKS.format(pid), os.O_RDONLY | os.O_CLOEXEC)
        ctypes.CDLL(None).setns(fd, _NEWTIME)  # if it fails, they are the same
        os.close(fd)
    return {name: time.clock_gettime(number) for name, number in CLOCKS.items()}


def _set_clocks(shown: Clocks) -> None:
    """Before the first process has them."""
    with open("/proc/self/timens_offsets", "w") as file:
        for name, number in CLOCKS.items():
            offset = shown[name] - time.clock_gettime(number)
            whole = math.floor(offset)
            file.write(f"{name} {whole} {int((offset - whole) * 1e9)}\n")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [os.fsencode(word) for word in (source, target, kind)]
    if libc.mount(*words, flags, os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {source}: {os.strerror(number)}", target)


def number_high() -> None:
    """Have the processes that are started next get high numbers, in a world. Raises OSError."""
    with open(_LAST_PID) as file:
        is_high = int(file.read()) >= FIRST_PID
    if not is_high:
        with contextlib.suppress(PermissionError), open(_LAST_PID, "w") as file:
            file.write(str(FIRST_PID))
