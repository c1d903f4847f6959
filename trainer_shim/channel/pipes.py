"""Two pipes in place of a pair of sockets, between a host and its training process.

When a process image is restored, it can be given the other ends of pipes, but not those of sockets.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol


class ByteStream(Protocol):
    """What frames need of a connected socket; `Pipes` has it too."""

    def recv(self, size: int, /) -> bytes:
        """At most this many bytes; none at the stream's end."""
        ...

    def send(self, data: bytes | bytearray, /) -> int:
        """Send what is taken at once; how much that was."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""
        ...

    def setblocking(self, blocks: bool, /) -> None:
        """Whether to wait, or raise BlockingIOError."""
        ...

    def fileno(self) -> int:
        """The descriptor that shows when there is something to read."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Pipes:
    """One end: what is read comes from one pipe, what is sent goes into the other."""

    def __init__(self, reads: int, writes: int) -> None:
        self.reads = reads
        self.writes = writes

    def recv(self, size: int, /) -> bytes:
        """At most this many bytes; none when the other end is closed."""
        return os.read(_pipe(self.reads), size)

    def send(self, data: bytes | bytearray, /) -> int:
        """Write what the pipe takes; how much that was."""
        return os.write(_pipe(self.writes), data)

    def sendall(self, data: bytes, /) -> None:
        """Write all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(_pipe(self.writes), view) :]

    def setblocking(self, blocks: bool, /) -> None:
        """For both pipes."""
        os.set_blocking(self.reads, blocks)
        os.set_blocking(self.writes, blocks)

    def fileno(self) -> int:
        """The pipe that is read."""
        return self.reads

    def close(self) -> None:
        """Close both, once."""
        for fd in {self.reads, self.writes} - {-1}:
            os.close(fd)
        self.reads = self.writes = -1


def _pipe(fd: int) -> int:
    """A program that closes what it has not opened may have a file of its own there by now."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        raise OSError(errno.EBADF, "the channel's descriptor is another file's")
    return fd


def pipe_pair() -> tuple[Pipes, Pipes]:
    """Two ends that are connected, closed on exec unless made inheritable."""
    (here, there), (read, write) = os.pipe(), os.pipe()
    return Pipes(here, write), Pipes(read, there)
