"""NodeService: one stream a node. Hello first, then events in, commands out, a lease a heartbeat.

The stream's handler only translates and queues: what a node says takes effect in the loop, and
is acknowledged when the journal has it. What the core rejects (stale, doubled) is acknowledged
too, or the node would say it for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

import hermesd
from hermesd import wire
from hermesd.core.bounds import implausible
from hermesd.core.commands import Bind, Command, Copy, Drop, Launch, Quarantine, Trust
from hermesd.core.copies import left_behind
from hermesd.core.events import (
    NodeJoined,
    NodeLost,
    NodeSilent,
    Reported,
)
from hermesd.core.fold_copies import remembered
from hermesd.core.model import Checkpoint, NodeId, StudyId
from hermesd.core.node_messages import Fetch, Order, Shed, Source, assignment
from hermesd.core.routing import addressee
from hermesd.core.trial import Trial
from hermesd.head.blobs import Blobs
from hermesd.head.clock import boottime
from hermesd.head.foresight import Foresight
from hermesd.head.greeting import hello
from hermesd.head.loop import Head
from hermesd.head.monitor import with_usage
from hermesd.head.ownership import passed_over, unneeded
from hermesd.head.refusals import NotFound, NotNow
from hermesd.head.relay import Relay
from hermesd.head.session import Ended, Session, watch, write
from hermesd.head.setback import Setback
from hermesd.head.toll import Toll
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2_grpc
from hermesd.refusal import FieldError, Refused, shown
from hermesd.ticket import ticket

log = structlog.get_logger()


class Sessions:
    """The nodes that are attached, and the commands' way to them."""

    def __init__(self) -> None:
        self.head: Head
        self._sessions: dict[NodeId, Session] = {}
        self._tolls: dict[NodeId, Toll] = {}
        self._foresight = Foresight(self._send)

    def find(self, node: NodeId) -> Session | None:
        """The session of a node that is attached and heard."""
        session = self._sessions.get(node)
        return session if session and session.attached and not session.silent else None

    def all(self) -> list[Session]:
        """The attached sessions, by node."""
        return [s for _, s in sorted(self._sessions.items()) if s.attached]

    def toll(self, node: NodeId) -> Toll:
        """A node's account of what it says."""
        return self._tolls.setdefault(node, Toll(node))

    def held_up(self) -> list[NodeId]:
        """The nodes that say more than they may."""
        return [node for node, toll in list(self._tolls.items()) if toll.late]

    def reserve(self, session: Session) -> None:
        """Take the node's place, unless somebody is there who is heard. Raises NotNow."""
        other = self._sessions.get(session.node)
        if other is not None and not other.silent and other.closing is None:
            raise NotNow(
                f"node {session.node} is attached already, from {other.peer}; this is"
                f" {session.peer}: give one of them another name"
            )
        if other is not None:
            other.close("another stream took its place")
        self._sessions[session.node] = session
        self._foresight.forget(session.node)

    def release(self, session: Session) -> bool:
        """Give the place back; False if another session has it by now."""
        if self._sessions.get(session.node) is not session:
            return False
        del self._sessions[session.node]
        return True

    def carry_out(self, command: Command) -> None:
        """Queue a command for its node. If none is attached it is said again after its Hello."""
        self._foresight.note(command, self.head)
        node = addressee(self.head.state, command)
        if node is not None and (order := self._order(command)):
            self._send(node, wire.command_to_proto(order))

    def foretell(self) -> None:
        """Tell nodes soon what to prepare for: something has changed that is no command."""
        self._foresight.plan(self.head)

    def _send(self, node: NodeId, message: pb.AttachResponse) -> bool:
        session = self._sessions.get(node)
        if session is None or not session.attached:
            return False
        session.send(message)
        return True

    def _order(self, command: Command) -> Order | None:
        state = self.head.state
        match command:
            case Launch():
                trial = state.trials[command.run.trial]
                order = assignment(command, state.studies[trial.spec.study], trial)
                return replace(order, sources=self._sources(command, order.checkpoint))
            case Copy(trial_id, _, source):
                return self._fetch(state.trials[trial_id], source)
            case Drop(trial_id):
                study = state.studies[state.trials[trial_id].spec.study]
                return Shed(trial_id, study.identity)
            case Bind() | Quarantine() | Trust():
                return None
            case _:
                return command

    def _fetch(self, trial: Trial, source: NodeId) -> Fetch | None:
        """What the copy that is under way asks of its node; None if it has come to nothing."""
        flight, study = trial.copying, self.head.state.studies[trial.spec.study]
        if flight is None:
            return None
        keep = tuple(dict.fromkeys(each.id for each in remembered(trial)))
        givers = (self._source(source, flight.checkpoint),) if source != flight.target else ()
        return Fetch(flight.checkpoint, givers, keep, flight.target, study.identity)

    def _sources(self, launch: Launch, checkpoint: Checkpoint | None) -> tuple[Source, ...]:
        """Who else has the checkpoint that the launch restores. One that is away for now counts:
        rather than to begin anew the run is tried again later."""
        if checkpoint is None:
            return ()
        state = self.head.state
        target = state.slots[launch.devices[0]].device.node
        known = [node for node in checkpoint.nodes if node in state.nodes and node != target]
        there = (node for node in known if not state.nodes[node].lost)
        return tuple(self._source(node, checkpoint) for node in there)

    def _source(self, node: NodeId, checkpoint: Checkpoint) -> Source:
        session = self.find(node)
        address = session.transfer_address if session else ""
        key = session.transfer_key if session else b""
        return Source(node, address, ticket(key, checkpoint.trial, checkpoint.id))


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
        session = Session(joined.node, context.peer(), said.transfer_address, said.transfer_key)
        toll = self._sessions.toll(joined.node)
        toll.devices = len(joined.devices)
        await toll.collect(said.ByteSize(), session)
        self._see_who_was_there(joined)
        self._sessions.reserve(session)
        self._setback.note(said)
        reason = "the stream ended"
        try:
            await self._head.tell(joined, (), lambda sent: self._welcome(session, sent))
            log.info("node attached", node=joined.node, devices=len(joined.devices))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(session, request_iterator, tasks))
                tasks.create_task(write(session, context))
                tasks.create_task(watch(session))
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

    def _see_who_was_there(self, joined: NodeJoined) -> None:
        """See that it is not another machine than the one that may still run trials under the name:
        that one is no more when it counts as lost. Raises NotNow."""
        state = self._head.state
        known = state.nodes.get(joined.node)
        if known is None or known.lost or self._sessions.find(joined.node) is not None:
            return
        if not (known.machine and joined.machine) or set(known.machine) & set(joined.machine):
            return
        if count := len(state.trials_on({joined.node})):
            trials = "trial" if count == 1 else "trials"
            raise NotNow(
                f"another machine of the name {joined.node} has {count} {trials}, and is only"
                " silent: give this one another name, or wait until that one counts as lost"
                f" (`hermesctl node lost {joined.node}` if it is off)"
            )

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
        async for request in requests:
            session.heard = boottime()
            match request.WhichOneof("message"):
                case "heartbeat":
                    self._grant(session, request.heartbeat)
                case "goodbye":
                    session.left = request.goodbye.for_good
                    raise Ended(f"it said goodbye: {shown(request.goodbye.reason)}")
                case "usage":
                    session.usage = {usage.device: usage.usage for usage in request.usage.devices}
                case "file_chunk":
                    self._relay.deliver(session, request.file_chunk)
                case "holdings":
                    tasks.create_task(self._held(session, request.holdings))
                case "hello":
                    raise Refused(FieldError("hello", "a second one", "one Hello a stream"))
                case _:
                    await self._report(session, request)
            if not request.HasField("file_chunk"):  # somebody asked for those
                await self._sessions.toll(session.node).collect(request.ByteSize(), session)
        raise Ended("the stream ended")

    def _grant(self, session: Session, heartbeat: pb.Heartbeat) -> None:
        state = self._head.state
        parting = state.nodes[session.node].parting
        session.grant(
            pb.Lease(
                heartbeat_boottime_seconds=heartbeat.boottime_seconds,
                lease_seconds=self._head.scheduler.lease.lease_seconds,
                left_behind=left_behind(state, session.node) if parting else None,
                head=self._setback.head,
                journal_sequence=self._head.committed,
            )
        )

    async def _held(self, session: Session, holdings: pb.Holdings) -> None:
        """Have the node forget what was removed, once it is safe that it was."""
        if gone := unneeded(holdings, self._head.state, self._taken):
            await self._head.beyond(self._head.journal.last - 1)
            session.send(pb.AttachResponse(forget=pb.Forget(trials=gone)))

    async def _report(self, session: Session, request: pb.AttachRequest) -> None:
        """Pass an event on; acknowledge it once it is safe, or known to be of no use."""
        sequence = request.sequence
        try:
            points = wire.points_from_proto(request.report)
            event = wire.event_from_proto(request, points)
        except wire.Malformed as error:
            log.error("malformed message dropped", node=session.node, error=str(error))
            session.acknowledge(sequence)
            return
        if event is None or isinstance(event, NodeJoined):
            session.acknowledge(sequence)
            return
        if wrong := implausible(session.node, event):
            log.error("implausible message dropped", node=session.node, error=wrong)
            session.acknowledge(sequence)
            return
        if passed_over(self._head.state, session.node, request.identity, event):
            session.acknowledge(sequence)
            return
        series = with_usage(event, points) if isinstance(event, Reported) else ()
        session.acknowledge(sequence, await self._head.post(event, series))
