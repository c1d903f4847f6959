"""NodeService: one stream a node. Hello first, then events in, commands out, and leases with them.

The stream's handler only translates and queues: what a node says takes effect in the loop, and
is acknowledged when the journal has it. What the core rejects (stale, doubled) is acknowledged
too, or the node would say it for ever.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import structlog

import hermesd
from hermesd import wire
from hermesd.core.bounds import implausible
from hermesd.core.commands import Command
from hermesd.core.copies import left_behind
from hermesd.core.events import (
    MilestonePassed,
    NodeJoined,
    NodeLost,
    NodeSilent,
    QuantumEnded,
    Reported,
    RunStarted,
)
from hermesd.core.model import NodeId, StudyId
from hermesd.head.blobs import Blobs
from hermesd.head.greeting import hello
from hermesd.head.loop import Head
from hermesd.head.monitor import with_usage
from hermesd.head.ownership import passed_over, unneeded
from hermesd.head.refusals import NotFound
from hermesd.head.relay import Relay
from hermesd.head.rivals import see_who_was_there
from hermesd.head.session import Ended, Session, hang_up, watch, write
from hermesd.head.sessions import Sessions
from hermesd.head.setback import Setback
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2_grpc
from hermesd.refusal import FieldError, Refused, shown

log = structlog.get_logger()

# After these a run goes on: nothing at its node waits for them to be safe.
_GOES_ON = (RunStarted, Reported, QuantumEnded, MilestonePassed)


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """The servicer. `revoke` ends the certificate of a node that has left, if it has one."""

    def __init__(
        self,
        head: Head,
        sessions: Sessions,
        relay: Relay,
        blobs: Blobs,
        taken: Mapping[StudyId, str],
        setback: Setback,
        revoke: Callable[[NodeId], object],
    ) -> None:
        self._head = head
        self._sessions = sessions
        self._relay = relay
        self._blobs = blobs
        self._taken = taken
        self._setback = setback
        self._revoke = revoke

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        path = self._blobs.path(request.sha256)
        if path is None:
            raise NotFound(f"no code snapshot {shown(request.sha256)}")
        async for chunk in self._blobs.read(path):
            yield pb.GetBlobResponse(data=chunk)

    async def Attach(  # type: ignore[override]  # a handler may write instead of yielding
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Any
    ) -> None:
        said, joined = await hello(request_iterator)
        session = Session(
            joined.node, context.peer(), functools.partial(self._grant, joined.node),
            self._head.scheduler.lease.lease_seconds, said.transfer_address, said.transfer_key,
            (joined.boot_id, joined.disk),
        )  # fmt: skip
        toll = self._sessions.toll(joined.node)
        await toll.collect(said.ByteSize(), session)
        if self._sessions.find(joined.node) is None:
            unheard = self._sessions.unheard_seconds(joined.node)
            see_who_was_there(self._head.state, joined, said.boottime_seconds, unheard)
        self._sessions.reserve(session)
        toll.devices = len(joined.devices)
        self._setback.note(said)
        reason = "the stream ended"
        try:
            await self._head.tell(joined, lambda sent: self._welcome(session, sent))
            log.info("node attached", node=joined.node, devices=len(joined.devices))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(session, request_iterator, tasks))
                tasks.create_task(write(session, context))
                tasks.create_task(watch(session))
                tasks.create_task(hang_up(session))
        except* Ended as ended:
            reason = str(ended.exceptions[0])
        finally:
            session.attached = False
            self._relay.lost(session)
            if self._sessions.release(session):
                log.info("node silent", node=joined.node, reason=reason)
                self._head.push(NodeSilent(joined.node, reason))
                if session.left:
                    self._head.push(NodeLost(joined.node, left=True))
                    self._revoke(joined.node)

    def _welcome(self, session: Session, sent: Sequence[Command]) -> None:
        """The Hello is safe: grants first, then what the node may have missed."""
        lease = self._head.scheduler.lease
        session.attached = True
        session.send(
            pb.AttachResponse(
                welcome=pb.Welcome(
                    head_version=hermesd.__version__,
                    lease_seconds=lease.lease_seconds,
                    lease_grace_seconds=lease.grace_seconds,
                )
            )
        )
        said = {(type(command), getattr(command, "run", None)) for command in sent}
        for command in self._head.scheduler.outstanding(session.node):
            if (type(command), getattr(command, "run", None)) not in said:
                self._sessions.carry_out(command)

    async def _read(
        self,
        session: Session,
        requests: AsyncIterator[pb.AttachRequest],
        tasks: asyncio.TaskGroup,
    ) -> None:
        toll = self._sessions.toll(session.node)
        async for request in requests:
            what = request.WhichOneof("message")
            session.hear(request.boottime_seconds, asks=what == "heartbeat")
            match what:
                case "heartbeat":
                    pass
                case "goodbye":
                    session.left = request.goodbye.for_good
                    raise Ended(f"it said goodbye: {shown(request.goodbye.reason)}")
                case "usage":
                    session.note_usage(request.usage)
                case "file_chunk":
                    self._relay.deliver(session, request.file_chunk)
                case "holdings":
                    tasks.create_task(self._held(session, request.holdings))
                case "hello":
                    raise Refused(FieldError("hello", "a second one", "one Hello a stream"))
                case _:
                    await self._report(session, request)
            if what != "file_chunk":  # somebody asked for those
                await toll.collect(request.ByteSize(), session)
        raise Ended("the stream ended")

    def _grant(self, node: NodeId, sent_boottime_seconds: float) -> pb.Lease:
        state = self._head.state
        parting = state.nodes[node].parting
        return pb.Lease(
            sent_boottime_seconds=sent_boottime_seconds,
            lease_seconds=self._head.scheduler.lease.lease_seconds,
            left_behind=left_behind(state, node) if parting else None,
            head=self._setback.head,
            journal_sequence=self._head.committed,
        )

    async def _held(self, session: Session, holdings: pb.Holdings) -> None:
        """Have the node forget what was removed, once it is safe that it was."""
        self._setback.held(session.node, holdings)
        if gone := unneeded(holdings, self._head.state, self._taken):
            await self._head.beyond(self._head.journal.last - 1)
            session.send(pb.AttachResponse(forget=pb.Forget(trials=gone)))

    async def _report(self, session: Session, request: pb.AttachRequest) -> None:
        """Pass an event on; acknowledge it once it is safe, or known to be of no use."""
        sequence = request.sequence
        try:
            event = wire.event_from_proto(request)
        except wire.Malformed as error:
            log.error("malformed message dropped", node=session.node, error=str(error))
            session.passed_over(sequence)
            return
        if event is None or isinstance(event, NodeJoined):
            session.passed_over(sequence)
            return
        if wrong := implausible(session.node, event):
            log.error("implausible message dropped", node=session.node, error=wrong)
            session.passed_over(sequence)
            return
        if passed_over(self._head.state, session.node, request.identity, event):
            session.passed_over(sequence)
            return
        block = None
        if isinstance(event, Reported):
            block = with_usage(event, request.report.points)
        hurried = not isinstance(event, _GOES_ON)
        await self._head.post(event, session.passed_on(sequence, hurried), block)
