"""What a node has to tell its head, kept in order until the head has it safe.

After a reconnect, every message with a number is sent again with that number, from the first one
that was not acknowledged. While more than `ROOM` messages wait, whoever can wait adds none, except
for the few that each trial may always add (`host_events`); hosts keep their own events meanwhile.
The outcome of a run is always added.

A head with many nodes asks for fewer reports. Then all reports of a run between two that are sent
are joined into one. Everything else is sent at once, along with the reports before it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from hermesd import wire
from hermesd.core.events import Reported
from hermesd.core.model import RunId
from hermesd.core.node.messages import Series
from hermesd.node.clock import boottime
from hermesd.node.sanitize import message_of
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.wire import NodeEvent

ROOM = 1000
BULK = 4
# Of a trial there is no report more often, and what is larger than this gains nothing by others.
REPORT_SECONDS = 1.0
LARGE_BYTES = 1 << 16


class OutboxEntry(NamedTuple):
    """A numbered message and the event that it carries."""

    sequence: int
    event: NodeEvent
    message: pb.AttachRequest


class Outbox:
    """Numbered messages in order; unnumbered ones go before them, or after (parts of files)."""

    def __init__(self) -> None:
        self.last = 0
        # How often reports go, as the head wants it.
        self.report_seconds = REPORT_SECONDS
        # The reports that wait for others of their runs, and up to which number messages may go.
        self._held: dict[RunId, pb.AttachRequest] = {}
        self._free, self._freed_at = 0, -math.inf
        self._freeing: asyncio.TimerHandle | None = None
        self._waiting: deque[OutboxEntry] = deque()
        self._sent = 0
        self._urgent: deque[pb.AttachRequest] = deque()
        self._bulk: deque[pb.AttachRequest] = deque()
        self._taken = asyncio.Event()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def tell(self, event: NodeEvent, points: Sequence[Series] = (), identity: str = "") -> None:
        """Have the head told of an event, sooner or later; `identity` is that of its study."""
        message = message_of(event, points)
        if message is None:
            return
        message.identity = identity
        if not isinstance(event, Reported) or event.not_finite:
            self.put(event, message)
        elif not self._joins(event.run, message):
            self._number(event, message)
            self._hold(event.run, message)

    def put(self, event: NodeEvent, message: pb.AttachRequest) -> None:
        """Number a message and queue it; nothing is held back any longer."""
        self._number(event, message)
        self.seal()

    def _joins(self, run: RunId, message: pb.AttachRequest) -> bool:
        """Whether a report that was not sent yet says by now what this one says."""
        held = self._held.get(run)
        if held is None or held.identity != message.identity or held.ByteSize() > LARGE_BYTES:
            return False
        return wire.join_reports(held.report, message.report)

    def _hold(self, run: RunId, message: pb.AttachRequest) -> None:
        wait = self._freed_at + self.report_seconds - boottime()
        if self.report_seconds <= REPORT_SECONDS or wait <= 0:
            self.seal()
            return
        self._held[run] = message
        if self._freeing is None:
            self._freeing = asyncio.get_running_loop().call_later(wait, self.seal)

    def seal(self) -> None:
        """Have all go that was told by now: no later report becomes part of it."""
        self._free, self._freed_at = self.last, boottime()
        self._held.clear()
        if self._freeing is not None:
            self._freeing.cancel()
            self._freeing = None
        self._changed.set()

    def _number(self, event: NodeEvent, message: pb.AttachRequest) -> None:
        self.last += 1
        message.sequence = self.last
        self._waiting.append(OutboxEntry(self.last, event, message))
        if len(self._waiting) >= ROOM:
            self._room.clear()

    def put_transient(self, message: pb.AttachRequest) -> None:
        """Queue a message that is worth something only now: heartbeat, usage, farewell."""
        self._urgent.append(message)
        self._changed.set()

    async def offer(self, message: pb.AttachRequest) -> None:
        """Queue a message that gives way to all others; waits while enough of them are queued."""
        while len(self._bulk) >= BULK:
            self._taken.clear()
            await self._taken.wait()
        self._bulk.append(message)
        self._changed.set()

    async def room(self) -> None:
        """Wait until more may be added."""
        await self._room.wait()

    def acknowledge(self, sequence: int) -> list[OutboxEntry]:
        """Forget what the head has safe up to `sequence`; those are returned."""
        done = []
        while self._waiting and self._waiting[0].sequence <= sequence:
            done.append(self._waiting.popleft())
        self._sent = max(0, self._sent - len(done))
        if len(self._waiting) < ROOM:
            self._room.set()
        return done

    def rewind(self) -> None:
        """A new stream: send everything again that was not acknowledged."""
        self._sent = 0
        self._urgent.clear()
        self._bulk.clear()
        self._changed.set()

    async def take(self) -> pb.AttachRequest:
        """The next message to send; waits for one."""
        while True:
            if self._urgent:
                return self._urgent.popleft()
            if self._sent < len(self._waiting) and self._waiting[self._sent].sequence <= self._free:
                self._sent += 1
                return self._waiting[self._sent - 1].message
            if self._bulk:
                self._taken.set()
                return self._bulk.popleft()
            self._changed.clear()
            await self._changed.wait()

    @property
    def empty(self) -> bool:
        """Whether the head has everything safe."""
        return not self._waiting
