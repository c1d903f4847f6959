"""One node's stream as the head sees it: what waits to be sent, and when the node was last heard.

Nothing here waits for the node. Commands queue up to a limit, past which the node counts as silent.
Acknowledgments and leases do not queue, since the newest one stands for all before it. They go
along with whatever else is sent, and alone only now and then, since a message costs more than its
content.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import grpc

from hermesd import wire
from hermesd.core.commands import Command
from hermesd.core.model import DeviceId, NodeId, RunId, TrialId
from hermesd.core.node.messages import Save
from hermesd.core.state import Rejected
from hermesd.head.clock import boottime
from hermesd.head.loop import Answer, Answered
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

OUTBOX_LIMIT = 1_024
WARNINGS_LIMIT, WARNING_CHARACTERS = 8, 500
WATCH_SECONDS = 1.0
SILENCE_SECONDS = 5.0
# A node reports once a second, and more seldom the more nodes there are beyond so many: but often
# enough for its lease to be renewed as often as before.
REPORT_SECONDS = 1.0
NODES_WITHOUT_DELAY = 200
# A node that says other things than heartbeats is answered so often, and for so many messages.
PATIENCE_SECONDS = 4.0
PATIENCE_LIMIT = 64
# With a short lease more often: what is left of one counts when the head is not heard.
PATIENCE_LEASES = 0.1


class SessionEnded(Exception):
    """The stream is over, and why."""


class NodeSession:
    """The outbox of one stream.

    `grant` makes the lease of a message by when that was sent, by the node's clock.
    """

    def __init__(
        self,
        node: NodeId,
        peer: str,
        grant: Callable[[float], pb.Lease],
        lease_seconds: float,
        transfer_address: str = "",
        transfer_key: bytes = b"",
        where: tuple[str, str] = ("", ""),
    ) -> None:
        self.node = node
        self.peer = peer
        # Where other nodes fetch checkpoints from it; empty: nowhere.
        self.transfer_address = transfer_address
        # Made at each start of its daemon.
        self.transfer_key = transfer_key
        # The boot of its machine, and its state directory.
        self.where = where
        self.heard = boottime()
        # How far the clock of its machine is ahead of ours.
        self.ahead_seconds = 0.0
        # How often it was told to report; it beats a little later than that.
        self.report_seconds = REPORT_SECONDS
        self.attached = False
        # It has said goodbye for good.
        self.left = False
        #: Why it ends, once it does.
        self.closing: str | None = None
        self.closed = asyncio.Event()
        self.usage: dict[DeviceId, types.Usage] = {}
        #: The training processes of its trials, as of its last report.
        self.pids: dict[TrialId, Sequence[int]] = {}
        self._untold: dict[DeviceId, float] = {}  # not told among points yet
        self.warnings: list[str] = []
        self.disk: pb.DiskUsage | None = None
        # Whoever waits for a checkpoint holds one of these.
        self._saves: WeakValueDictionary[RunId, asyncio.Future[str]] = WeakValueDictionary()
        self._outbox: deque[pb.AttachResponse] = deque()
        self._grant = grant
        self._patience_seconds = min(PATIENCE_SECONDS, PATIENCE_LEASES * lease_seconds)
        # When the last message was sent that said so; 0: it was answered.
        self._sent = 0.0
        self._acknowledged = self._told = 0
        # How many events are on their way to the disk; what was of no use waits for those before.
        self._passed_on = self._behind = 0
        # An answer is due whether something is said or not.
        self._due = False
        self._answered = -math.inf
        self._wake = asyncio.Event()

    @property
    def silent(self) -> bool:
        """Whether too much time has passed since the last message."""
        return boottime() - self.heard >= self.silence_seconds

    @property
    def silence_seconds(self) -> float:
        """How much time that is."""
        return SILENCE_SECONDS + self.report_seconds - REPORT_SECONDS

    def hear(self, sent_boottime_seconds: float, asks: bool) -> None:
        """The node has said something: that earns a lease, and an answer at once if it `asks`."""
        self.heard = boottime()
        self.note_clock(sent_boottime_seconds)
        self._sent = sent_boottime_seconds or self._sent
        if asks or self.heard - self._answered >= self._patience_seconds:
            self._answer()

    def note_clock(self, boottime_seconds: float) -> None:
        """What a message says of when it was sent; 0: nothing."""
        if boottime_seconds:
            self.ahead_seconds = boottime_seconds - boottime()

    def note_usage(self, report: pb.UsageReport) -> None:
        """How busy its devices are, what its disk has, and what it cannot find out: so much of that
        as people read."""
        self.disk = report.disk if report.HasField("disk") else None
        self.usage = {usage.device: usage.usage for usage in report.devices}
        self.pids = {each.trial: each.pids for each in report.processes}
        self._untold = {usage.device: usage.usage.utilization for usage in report.devices}
        self.warnings = [words[:WARNING_CHARACTERS] for words in report.warnings[:WARNINGS_LIMIT]]

    def save(self, run: RunId) -> asyncio.Future[str]:
        """Ask for a checkpoint of a run as it is now; comes to why, if none can be written."""
        self.send(wire.command_to_proto(Save(run)))
        return self._saves.setdefault(run, asyncio.get_running_loop().create_future())

    def note_not_saved(self, said: pb.NotSaved) -> None:
        """A checkpoint could not be written, for which somebody may wait."""
        waiting = self._saves.pop(RunId(said.trial, said.attempt), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(said.reason[:WARNING_CHARACTERS])

    def use_of(self, device: DeviceId) -> float | None:
        """How busy a device was found since this was asked last, 0 to 1."""
        return self._untold.pop(device, None)

    def send(self, message: pb.AttachResponse) -> None:
        """Queue a message; a node that lets too many pile up is let go."""
        if len(self._outbox) >= OUTBOX_LIMIT:
            self.close("it does not read its messages")
            return
        self._outbox.append(message)
        self._wake.set()

    def passed_on(self, sequence: int, hurried: bool) -> Answered:
        """An event is on its way; what is to hear of its end: then all up to it is safe.

        One that the core rejected is of no use to anybody, hence safe as well. Of what is not
        `hurried` that is said with what comes next.
        """
        self._passed_on += 1

        def answered(answer: Answer, commands: Sequence[Command]) -> None:
            if not isinstance(answer, Exception) or isinstance(answer, Rejected):
                self._passed_on -= 1
                self._is_safe(sequence, hurried)
                self._settle()

        return answered

    def passed_over(self, sequence: int) -> None:
        """A message is of no use to anybody: it is safe once what came before it is."""
        self._behind = sequence
        self._settle()

    def _settle(self) -> None:
        if self._behind > self._acknowledged and not self._passed_on:
            self._is_safe(self._behind, hurried=True)

    def _is_safe(self, sequence: int, hurried: bool) -> None:
        self._acknowledged = max(self._acknowledged, sequence)
        if hurried or self._acknowledged - self._told >= PATIENCE_LIMIT:
            self._answer()

    def _answer(self) -> None:
        self._due = True
        self._wake.set()

    def close(self, reason: str) -> None:
        """End the stream once what is queued was sent, or soon: the node may not read it."""
        self.closing = self.closing or reason
        self.closed.set()
        self._wake.set()

    async def messages(self) -> AsyncIterator[pb.AttachResponse]:
        """What to write, for the one task that writes; ends when the session is closing."""
        while True:
            if self._outbox:
                yield self._answering(self._outbox.popleft())
            elif self._due:
                yield self._answering(pb.AttachResponse())
            elif self.closing is not None:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _answering(self, message: pb.AttachResponse) -> pb.AttachResponse:
        """The message with what the node waits to hear."""
        self._due = False
        if self._sent:
            message.lease.CopyFrom(self._grant(self._sent))
            message.lease.report_seconds = self.report_seconds = self._paced(message.lease)
            self._sent, self._answered = 0.0, self.heard
        if self._acknowledged > self._told:
            message.acknowledged_sequence = self._told = self._acknowledged
        return message

    def _paced(self, lease: pb.Lease) -> float:
        """How often the node may report, of what so many nodes ask for."""
        longest = self._patience_seconds + REPORT_SECONDS
        return min(max(REPORT_SECONDS, lease.report_seconds), longest)


async def write(session: NodeSession, context: Any) -> None:
    """The one task that writes to the stream."""
    async for message in session.messages():
        try:
            await context.write(message)
        except grpc.aio.InternalError:  # the connection broke: the reader may not have seen it yet
            raise SessionEnded("the stream broke") from None
    raise SessionEnded(session.closing or "closed")


async def watch(session: NodeSession) -> None:
    """End the stream of a node that is not heard; time that we ourselves slept does not count."""
    while True:
        before = boottime()
        # Not before that can it be silent.
        seconds = max(WATCH_SECONDS, session.heard + session.silence_seconds - before)
        await asyncio.sleep(seconds)
        now = boottime()
        if now - before > seconds + WATCH_SECONDS:
            session.heard = min(now, session.heard + now - before - WATCH_SECONDS)
        if session.silent:
            raise SessionEnded(f"no heartbeat for {session.silence_seconds:g} s")


async def hang_up(session: NodeSession) -> None:
    """End the stream of a node that does not read what is left for it when it is closed."""
    await session.closed.wait()
    await asyncio.sleep(WATCH_SECONDS)
    raise SessionEnded(session.closing or "closed")
