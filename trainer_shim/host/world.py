"""The namespaces of its own that a trial runs in where process images work.

The host is in them too, and so is the CRIU that it starts: processes, mounts and users look
the same to it as to the trial. Process numbers of a trial begin high: when it is brought back, in
a world where only its host and CRIU run, they are free.
"""

from __future__ import annotations

import ctypes
import os

FIRST_PID = 1000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC = 2, 4, 4096, 16384
_LAST_PID = "/proc/sys/kernel/ns_last_pid"


def begin(directory: str) -> str:
    """Prepare this world for a trial; a folder in memory that is the trial's own and ends with it.

    It stands at the same place for whoever brings the trial back. Raises OSError.
    """
    folder = os.path.join(directory, "run")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _mount("hermes", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=0700")
    return folder


def show(directory: str, place: str) -> None:
    """Have what lies in `directory` be found at `place` too, where a program from another machine
    expects it. Raises OSError."""
    if os.path.realpath(directory) != os.path.realpath(place):
        os.makedirs(place, exist_ok=True)
        _mount(directory, place, "", _MS_BIND | _MS_REC, "")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [os.fsencode(word) for word in (source, target, kind)]
    if libc.mount(*words, flags, os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {source}: {os.strerror(number)}", target)


def number_high() -> None:
    """Have the processes that are started next get high numbers. Raises OSError."""
    with open(_LAST_PID) as file:
        is_high = int(file.read()) >= FIRST_PID
    if not is_high:
        with open(_LAST_PID, "w") as file:
            file.write(str(FIRST_PID))
