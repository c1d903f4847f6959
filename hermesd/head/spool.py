"""Bytes on their way to a reader that may be slow: on the disk, and no longer than until read.

They lie in unlinked files of limited length, so that the disk gets back what was read although
the writer never stops.
"""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path
from typing import IO

SEGMENT_BYTES = 16 * 2**20


class Spool:
    """First in, first out. `unread` counts the bytes that wait."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.unread = 0
        self._folder = folder
        self._limit = segment_bytes
        self._segments: deque[_Segment] = deque()

    @property
    def files(self) -> int:
        """How many files there are: none holds bytes that were read but the first."""
        return len(self._segments)

    def put(self, data: bytes) -> None:
        """Keep a piece."""
        if not self._segments or self._segments[-1].end >= self._limit:
            self._segments.append(_Segment(self._folder))
        self._segments[-1].put(data)
        self.unread += len(data)

    def get(self) -> bytes:
        """The oldest piece. Raises IndexError if there is none."""
        segment = self._segments[0]
        data = segment.get()
        self.unread -= len(data)
        if not segment.pieces:
            if len(self._segments) > 1:
                self._segments.popleft().file.close()
            else:
                segment.rewind()
        return data

    def close(self) -> None:
        """Forget everything."""
        while self._segments:
            self._segments.popleft().file.close()


class _Segment:
    """A file with the lengths of the pieces in it that are not read yet."""

    def __init__(self, folder: Path) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - see `close`
        self.pieces: deque[int] = deque()
        self.end = self._read = 0

    def put(self, data: bytes) -> None:
        self.file.seek(self.end)
        self.file.write(data)
        self.end += len(data)
        self.pieces.append(len(data))

    def rewind(self) -> None:
        """All of it was read: write from the beginning again."""
        self.end = self._read = 0

    def get(self) -> bytes:
        self.file.seek(self._read)
        data = self.file.read(self.pieces.popleft())
        self._read += len(data)
        return data
