"""Files that a client asks for, on their way from a node through the head.

A node sends as fast as it can, on the stream that its reports use. What a slow client has not taken
yet is kept in a file, so that it holds up no stream and fills no memory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hermesd.head.clock import boottime
from hermesd.head.fleet.session import NodeSession
from hermesd.head.refusals import NotFound, TooMuch, Unreachable
from hermesd.pb.hermes.v1 import node_pb2

# Bytes on their way to a reader that may be slow: on the disk, and no longer than until read.
#
# They lie in unlinked files of limited length, so that the disk gets back what was read although
# the writer never stops.

SEGMENT_BYTES = 16 * 2**20


class Spool:
    """Bytes on disk, first in, first out."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        #: How many bytes wait to be read.
        self.unread = 0
        self._folder = folder
        self._limit = segment_bytes
        self._segments: deque[_Segment] = deque()

    @property
    def pieces(self) -> int:
        """How many wait."""
        return sum(len(segment.pieces) for segment in self._segments)

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


# How far a client may be behind: with a file that ends, and with a log that is followed.
FILE_LIMIT_BYTES = 16 * 2**30
FOLLOW_LIMIT_BYTES = 256 * 2**20
# Of one client, and of all: the head remembers how long each is.
PIECES_LIMIT = 500_000
ALL_PIECES_LIMIT = 2_000_000
# What may wait for all clients together; nor may it be more than what is left of the disk, which is
# the journal's.
ALL_LIMIT_BYTES = 32 * 2**30
PATIENCE_SECONDS = 30.0
# What a node sends for so long after its reader has left was on its way.
ON_ITS_WAY_SECONDS = 30.0


class Ticket:
    """One file transfer. Read it by `chunks`."""

    def __init__(
        self,
        number: int,
        session: NodeSession,
        folder: Path,
        follow: bool,
        crowded: Callable[[], bool],
    ) -> None:
        self.number = number
        self.session = session
        self.over = False
        # A program may print nothing for days; a file that is there comes at once.
        self._patience = None if follow else PATIENCE_SECONDS
        self._limit = FOLLOW_LIMIT_BYTES if follow else FILE_LIMIT_BYTES
        self._crowded = crowded
        self._spool = Spool(folder)
        self._failure: Exception | None = None
        self._wake = asyncio.Event()

    def deliver(self, chunk: node_pb2.FileChunk) -> None:
        """Take a chunk from the node."""
        self.over = self.over or chunk.last
        if chunk.error:
            self.fail(NotFound(chunk.error))
            return
        if self._failure is not None:
            return
        said = chunk.SerializeToString()
        if self._spool.unread + len(said) > self._limit or self._spool.pieces >= PIECES_LIMIT:
            self.fail(TooMuch(f"more than {self._limit} bytes were not read in time"))
            return
        try:
            if self._crowded():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._spool.put(said)
        except OSError as error:
            self.fail(TooMuch(f"too much waits to be read by clients: {error.strerror}"))
            return
        self._wake.set()

    @property
    def unread(self) -> int:
        """The bytes that wait for the client."""
        return self._spool.unread

    @property
    def pieces(self) -> int:
        """How many pieces these are."""
        return self._spool.pieces

    def fail(self, failure: Exception) -> None:
        """No more will come."""
        self._failure = self._failure or failure
        self._wake.set()

    async def chunks(self) -> AsyncIterator[node_pb2.FileChunk]:
        """The chunks in order, the last one included. Raises what went wrong."""
        while True:
            while self._spool.unread:
                chunk = node_pb2.FileChunk.FromString(self._spool.get())
                yield chunk
                if chunk.last:
                    return
            if self._failure is not None:
                raise self._failure
            self._wake.clear()
            try:
                async with asyncio.timeout(self._patience):
                    await self._wake.wait()
            except TimeoutError:
                self.fail(Unreachable(f"node {self.session.node} does not send"))

    def close(self) -> None:
        self._spool.close()


class Relay:
    """The open tickets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tickets: dict[int, Ticket] = {}
        # Whose reader has left lately, and until when the rest of it may come.
        self._left: dict[int, tuple[NodeSession, float]] = {}
        self._count = 0

    @contextmanager
    def ask(self, session: NodeSession, wanted: node_pb2.SendFile) -> Iterator[Ticket]:
        """Ask a node for a file; the ticket is good for the block."""
        self._count += 1
        ticket = Ticket(self._count, session, self._folder, wanted.log.follow, self._is_crowded)
        self._tickets[ticket.number] = ticket
        request = node_pb2.SendFile()
        request.CopyFrom(wanted)
        request.ticket = ticket.number
        session.send(node_pb2.AttachResponse(send_file=request))
        try:
            yield ticket
        finally:
            if not ticket.over:
                now = boottime()
                self._left = {n: each for n, each in self._left.items() if each[1] > now}
                self._left[ticket.number] = session, now + ON_ITS_WAY_SECONDS
                cancel = node_pb2.SendFile(ticket=ticket.number, cancel=True)
                session.send(node_pb2.AttachResponse(send_file=cancel))
            del self._tickets[ticket.number]
            ticket.close()

    def _is_crowded(self) -> bool:
        unread = sum(ticket.unread for ticket in self._tickets.values())
        if sum(ticket.pieces for ticket in self._tickets.values()) >= ALL_PIECES_LIMIT:
            return True
        return unread > min(ALL_LIMIT_BYTES, shutil.disk_usage(self._folder).free)

    def deliver(self, session: NodeSession, chunk: node_pb2.FileChunk) -> bool:
        """A chunk came on a node's stream. Whether it was asked for: one that nobody waits for any
        more is dropped."""
        ticket = self._tickets.get(chunk.ticket)
        if ticket is not None and ticket.session is session:
            ticket.deliver(chunk)
            return True
        sender, until = self._left.get(chunk.ticket, (None, 0.0))
        return sender is session and boottime() < until

    def lost(self, session: NodeSession) -> None:
        """The node's stream ended."""
        for ticket in self._tickets.values():
            if ticket.session is session:
                ticket.fail(Unreachable(f"the connection to node {session.node} was lost"))
