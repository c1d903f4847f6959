"""Other processes of this machine, as /proc shows them: finding, ending and waiting for them.

A process number is never trusted to remain the same process: whoever waits for a process, or ends
one that was found by what it looks like, holds a pidfd, and whoever remembers one also remembers
when it was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# What the system says of a process that has ended.
_GONE = (FileNotFoundError, ProcessLookupError)
# The system numbers no process beyond that (PID_MAX_LIMIT).
_LARGEST = 1 << 22
# Stands for a folder whose path is too long; so many levels above it are looked at first.
_PLACE, _LEVELS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 64
_OWN_MEMORY = ("RssAnon", "RssShmem")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A process that was there when it was looked at."""

    pid: int
    #: In clock ticks since boot: tells it from a later process of the same number.
    birth: int

    @classmethod
    def of(cls, pid: int) -> Remembered:
        """The process that has this number now."""
        return cls(pid, _birth(pid))

    def session(self) -> set[int]:
        """The processes of the session that it leads or led; none once another has its number,
        which no other gets before the last of the session is gone."""
        return session(self.pid) if _birth(self.pid) in (self.birth, 0) else set()

    async def end(self) -> None:
        """End that session, with what its processes fork meanwhile: what is left would hold their
        pipes open, and asyncio waits for those as well."""
        while pids := self.session():
            kill(pids)
            for pid in pids:
                await exited(pid)


def _birth(pid: int) -> int:
    """When a process was started; 0 if there is none of that number."""
    try:
        return int(_stat(pid)[19])
    except _GONE:
        return 0


async def exited(pid: int) -> None:
    """Wait for the end of a process, ours or not; at once when there is none."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def kill(pids: Iterable[int]) -> None:
    """SIGKILL, for those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def of_user(pids: Iterable[int], uid: int) -> set[int]:
    """Those of these processes that are this user's: a number that a program has told us, or that
    was its own once, may be that of anybody's process by now."""
    return {pid for pid in pids if runs_as(pid, uid)}


def kill_those(are_meant: Callable[[int], bool]) -> set[int]:
    """SIGKILL to every process but this one of which that is so; their ids. Raises OSError if the
    system does not let all be looked at."""
    killed = set()
    for pid in _table().keys() - {os.getpid()}:
        try:
            fd = os.pidfd_open(pid)
        except _GONE:
            continue
        try:
            # Opened first: if the number has passed to another since, the signal reaches nobody.
            if are_meant(pid):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                killed.add(pid)
        except (*_GONE, PermissionError):
            continue  # it is gone, or somebody else's
        finally:
            os.close(fd)
    return killed


def started_with(pid: int, variable: str) -> str | None:
    """A variable of the environment that a process was started with. Raises OSError."""
    begin = os.fsencode(f"{variable}=")
    for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if item.startswith(begin):
            return os.fsdecode(item[len(begin) :])
    return None


def folder(pid: int) -> Path:
    """Where a process works; of a place whose path is longer than the system tells, the first one
    above it that is not. Raises OSError."""
    place = f"/proc/{pid}/cwd"
    if (path := _path(place)) is not None:
        return path
    here, levels = os.open(place, _PLACE), _LEVELS
    while True:
        try:
            above = os.open("../" * levels, _PLACE, dir_fd=here)
        except OSError:
            os.close(here)
            raise
        path = _path(f"/proc/self/fd/{above}")
        if path is None:
            here, above = above, here
        os.close(above)
        if path is not None and levels == 1:
            os.close(here)
            return path
        if path is not None:
            levels = 1  # that may have been too far


def _path(link: str) -> Path | None:
    try:
        return Path(os.readlink(link))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    return None


def resident_bytes(pids: Iterable[int]) -> int:
    """What these processes hold in memory, less pages of files; what they share counts for each."""
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            said = _status(pid)
            kilobytes += sum(int(said[name][0]) for name in _OWN_MEMORY if name in said)
    return kilobytes << 10


def numbered(inner: int, member: int, uid: int) -> int:
    """Which process of the user `uid` here is the one that has the number `inner` where process
    `member` is, that may have a world of its own; 0 if there is none of either."""
    if not 0 < inner <= _LARGEST:
        return 0
    try:
        world = os.readlink(f"/proc/{member}/ns/pid")
        if world == os.readlink("/proc/self/ns/pid"):
            return inner if runs_as(inner, uid) else 0
    except OSError:
        return 0
    for pid in _table():
        with contextlib.suppress(OSError, LookupError):
            is_it = _inner(pid) == inner and os.readlink(f"/proc/{pid}/ns/pid") == world
            if is_it:
                return pid if runs_as(pid, uid) else 0
    return 0


def runs_as(pid: int, uid: int) -> bool:
    """Whether a process, of which somebody has told us, is this user's. Of our own account we
    believe it: who runs as that has no need to tell."""
    if uid == os.geteuid():
        return True
    try:
        return set(_status(pid)["Uid"]) == {str(uid)}
    except OSError:
        return False


def accounts() -> set[int]:
    """The users as whom anything runs."""
    found: set[int] = set()
    for pid in _table():
        with contextlib.suppress(OSError):
            found.update(map(int, _status(pid)["Uid"]))
    return found


def _inner(pid: int) -> int:
    """The number of a process in its own world."""
    return int(_status(pid)["NSpid"][-1])


def parent(pid: int) -> int | None:
    """Who started a process, or took it over; None if it has ended."""
    try:
        return int(_stat(pid)[1])
    except _GONE:
        return None


def below(pid: int) -> set[int]:
    """The descendants of a process."""
    children: dict[int, set[int]] = {}
    for child, (parent, _) in _table().items():
        children.setdefault(parent, set()).add(child)
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        fresh = children.get(unseen.pop(), set()) - found
        found |= fresh
        unseen += fresh
    return found


def session(leader: int) -> set[int]:
    """The processes of a session, whose leader may be gone."""
    return {pid for pid, (_, sid) in _table().items() if sid == leader}


def _table() -> dict[int, tuple[int, int]]:
    """Parent and session of every process that has not ended."""
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent, _, sid = _stat(int(entry.name))[:4]
        except (*_GONE, PermissionError):
            continue
        if state not in "ZX":
            table[int(entry.name)] = (int(parent), int(sid))
    return table


# A process gives itself a name of any bytes, and the system cuts one off in the middle of a letter.


def _stat(pid: int) -> list[str]:
    """The fields of /proc's stat from the state on. Raises OSError."""
    text = Path(f"/proc/{pid}/stat").read_bytes().decode("latin-1")
    return text[text.rindex(")") + 2 :].split()


def _status(pid: int) -> dict[str, list[str]]:
    """What /proc's status says, by its names. Raises OSError."""
    # In lines as the system parts them: a name may hold other ends of lines.
    lines = Path(f"/proc/{pid}/status").read_bytes().decode("latin-1").split("\n")
    named = (line.partition(":") for line in lines)
    return {name: words.split() for name, _, words in named}
