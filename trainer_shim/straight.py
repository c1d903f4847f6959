"""Writing a file past the kernel's page cache, where that can be done.

Rule: whole pieces are written from one buffer, whose pages are there from the first piece on. In
the page cache every byte gets a fresh page, which takes more of the processor than all else of a
checkpoint. What the file system or the memory does not allow is written by the cache, as ever.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from types import TracebackType

# Of one call: a thread in it cannot be stopped, and a suspend waits for it.
PIECE_BYTES = 1 << 20
_SYNCED_AT_ONCE = 4 * PIECE_BYTES


class File:
    """A new file at `path`, for parts of any size. All of it is durable after `finish`.

    With `is_read_soon` it is written by the cache, where it is found then.
    """

    def __init__(self, path: str, is_read_soon: bool) -> None:
        self._is_possible = not is_read_soon  # to go past the cache
        self._is_straight = False
        self._unsynced = 0
        self._filled = 0
        self._buffer: mmap.mmap | bytearray
        try:
            self._buffer = mmap.mmap(-1, PIECE_BYTES)  # from the start of a page, as it has to be
        except OSError:
            self._buffer, self._is_possible = bytearray(PIECE_BYTES), False
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def write(self, part: memoryview) -> None:
        """Write these bytes after the ones before. Raises OSError, on a full disk above all."""
        at = 0
        while at < len(part):
            size = min(len(part) - at, PIECE_BYTES - self._filled)
            self._buffer[self._filled : self._filled + size] = part[at : at + size]
            self._filled += size
            at += size
            if self._filled == PIECE_BYTES:
                self._go_straight(self._is_possible)
                self._flush()

    def finish(self) -> None:
        """Write what is left. Raises OSError."""
        self._go_straight(False)  # it is no whole piece
        self._flush()
        os.fsync(self._fd)

    def _flush(self) -> None:
        with memoryview(self._buffer) as whole, whole[: self._filled] as piece:
            at = 0
            while at < len(piece):
                try:
                    at += os.write(self._fd, piece[at:])
                except OSError as error:
                    if not self._is_straight or error.errno != errno.EINVAL:
                        raise
                    self._is_possible = False
                if at < len(piece):  # what is left of it may lie anywhere
                    self._go_straight(False)
        if not self._is_straight:
            self._unsynced += self._filled
            if self._unsynced >= _SYNCED_AT_ONCE:
                os.fdatasync(self._fd)
                self._unsynced = 0
        self._filled = 0

    def _go_straight(self, is_to: bool) -> None:
        if is_to == self._is_straight:
            return
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        try:
            changed = flags | os.O_DIRECT if is_to else flags & ~os.O_DIRECT
            fcntl.fcntl(self._fd, fcntl.F_SETFL, changed)
        except OSError:
            self._is_possible = False
        else:
            self._is_straight = is_to
