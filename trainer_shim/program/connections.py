"""The network connections (TCP) of a tree of processes.

An image may hold them only if both ends are in the tree: nobody else waits until it is back.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

_REPAIR = 19  # of TCP
_PIDFD_GETFD = 438  # a system call
_LISTENS, _IS_CLOSED, _LINGERS = "0A", "07", "06"
# For so long the system keeps the ports of a connection that has ended (a minute), and a bit more.
LINGER_SECONDS, _POLL_SECONDS = 65.0, 0.2
# How an address of IPv4 is written where sockets of both kinds are taken.
_MAPPED = "0000000000000000FFFF0000"


class _Connection(NamedTuple):
    near: str
    far: str
    state: str
    socket: str

    @property
    def port(self) -> int:
        """The near one."""
        return int(self.near.rpartition(":")[2], 16)


def are_within(tree: Collection[int]) -> bool:
    """Whether no connection of these processes, which are stopped, leads out of their tree."""
    theirs = _of(tree)
    ends = {(each.near, each.far) for each in theirs}
    connected = (each for each in theirs if each.state not in (_LISTENS, _IS_CLOSED))
    return all((each.far, each.near) in ends for each in connected)


def ports(tree: Collection[int]) -> list[int]:
    """Those of this machine that the connections of these processes have."""
    return sorted({each.port for each in _of(tree)})


def wait_for(ports: Collection[int]) -> None:
    """Wait while connections that have ended keep some of these ports, as after a host was killed
    whose processes were amid talking to each other."""
    until = time.monotonic() + LINGER_SECONDS
    while ports and time.monotonic() < until:
        lingering = (each.port for each in _connections("self") if each.state == _LINGERS)
        if not any(port in ports for port in lingering):
            return
        time.sleep(_POLL_SECONDS)


def are_held() -> bool:
    """Whether CRIU can write down and restore open connections: that takes rights over the network,
    which is the machine's."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, _REPAIR, 1)
        except OSError:
            return False
    return True


def go_on(pids: Collection[int]) -> None:
    """Have the connections of these processes, which are stopped, be as they were before CRIU wrote
    them down. It leaves them mute: the ends of processes that are killed then say no farewell,
    which would keep their ports from those that are restored."""
    if not are_held():
        return
    for pid in pids:
        with suppress(OSError):  # gone
            process = os.pidfd_open(pid)
            try:
                for number, name in _opened(pid):
                    if name.startswith("socket:"):
                        _speak_again(process, number)
            finally:
                os.close(process)


def _speak_again(process: int, number: int) -> None:
    """Of a process (its pidfd), have one socket be no longer mute, if it is one of TCP."""
    fd = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, number, 0)
    if fd < 0:
        return
    # Its kind is said, whatever it is: not every kind can be asked for it.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    with found, suppress(OSError):  # another kind
        if found.getsockopt(socket.IPPROTO_TCP, _REPAIR):
            found.setsockopt(socket.IPPROTO_TCP, _REPAIR, 0)


def _of(tree: Collection[int]) -> set[_Connection]:
    sockets = {name for pid in tree for name in _sockets(pid)}
    return {
        each for pid in tree for each in _connections(pid) if f"socket:[{each.socket}]" in sockets
    }


def _sockets(pid: int) -> Iterator[str]:
    return (name for _, name in _opened(pid))


def _opened(pid: int) -> Iterator[tuple[int, str]]:
    """What a process has open, as links name it."""
    with suppress(OSError):  # gone, or not to be read
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield int(number), os.readlink(f"/proc/{pid}/fd/{number}")


def _connections(pid: int | str) -> Iterator[_Connection]:
    """All of the network that a process is in."""
    for kind in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/{pid}/net/{kind}") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                near, far = (end.removeprefix(_MAPPED) for end in words[1:3])
                yield _Connection(near, far, words[3], words[9])
