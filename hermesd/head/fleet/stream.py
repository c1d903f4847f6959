"""NodeService: one stream for each node. A Hello comes first; then events come in, and commands and
leases go out.

The stream's handler only translates and queues. What a node says takes effect in the loop, and is
acknowledged once the journal has it. What the core rejects (outdated, or sent twice) is
acknowledged too, since the node would otherwise repeat it forever.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import hermesd
from hermesd import wire
from hermesd.codec import Malformed
from hermesd.core.bounds import implausible
from hermesd.core.commands import Command
from hermesd.core.events import (
    Checkpointed,
    CopyEvent,
    DeviceFailed,
    FidelityKnown,
    Looked,
    MilestonePassed,
    NodeJoined,
    NodeLost,
    NodeSilent,
    QuantumEnded,
    Reclaimed,
    Reported,
    RunStarted,
    Yielded,
)
from hermesd.core.model import NodeId, RunId, StudyId, TrialId, study_of
from hermesd.core.state import State
from hermesd.core.tables import left_behind
from hermesd.head.blobs import Blobs
from hermesd.head.budget import PIECE_BYTES
from hermesd.head.fleet.duplicate_nodes import see_who_was_there
from hermesd.head.fleet.rate_limit import DEVICES_COUNTED
from hermesd.head.fleet.relay import Relay
from hermesd.head.fleet.session import NodeSession, SessionEnded, hang_up, watch, write
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.fleet.stale_state import StaleState
from hermesd.head.loop import Head
from hermesd.head.refusals import NotFound, NotNow
from hermesd.head.security.admission import Admission
from hermesd.head.security.guard import about, caller, note_stream, note_stream_late
from hermesd.head.usage import with_usage
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2_grpc
from hermesd.refusal import FieldError, Refused, shown
from hermesd.security.identity import Role

# Which versions talk to each other: the same major, minors at most one apart.


def compatible(ours: str, theirs: str) -> bool:
    """Whether two versions may work together; a version that is none is not."""
    pair = [re.match(r"(\d+)\.(\d+)", version) for version in (ours, theirs)]
    if pair[0] is None or pair[1] is None:
        return False
    (major, minor), (other_major, other_minor) = (map(int, m.groups()) for m in pair if m)
    return major == other_major and abs(minor - other_minor) <= 1


# The first message of a node: who it says it is, and whether it may be.

HELLO_SECONDS = 10.0
# What one counts as beside what it says: all that is decided anew, and what is written for it.
HELLO_BYTES = 64 * PIECE_BYTES


async def hello(requests: AsyncIterator[pb.AttachRequest]) -> tuple[pb.Hello, NodeJoined]:
    """The first message, and the event that it is. Raises Refused, NotNow."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            first = await anext(aiter(requests))
    except (StopAsyncIteration, TimeoutError):
        raise Refused(FieldError("hello", "nothing", "a Hello first")) from None
    kind = first.WhichOneof("message")
    if kind != "hello":
        raise Refused(FieldError("hello", kind or "nothing", "a Hello first"))
    if not compatible(hermesd.__version__, first.hello.version):
        raise NotNow(
            f"the head has version {hermesd.__version__}, the node {first.hello.version}:"
            " they may be at most one minor version apart"
        )
    try:
        joined = wire.event_from_proto(first)
    except Malformed as error:
        raise Refused(FieldError("hello", "malformed", str(error))) from None
    assert isinstance(joined, NodeJoined)
    if wrong := implausible(joined.node, joined):
        raise Refused(FieldError("hello", "implausible", wrong))
    for device in joined.devices:
        if device.node != joined.node or not device.id.startswith(f"{joined.node}/"):
            expected = f"a device of {joined.node}, named {joined.node}/…"
            raise Refused(FieldError("hello.devices", shown(device.id), expected))
    for place, _ in joined.yields:
        if place != joined.node and not place.startswith(f"{joined.node}/"):
            expected = f"{joined.node} or a device of it"
            raise Refused(FieldError("hello.yields", shown(place), expected))
    holder = caller.get()
    if holder is not None and holder.role is Role.NODE and holder.name not in ("", joined.node):
        expected = f"{holder.name}, as its certificate"
        raise Refused(FieldError("hello.node", shown(joined.node), expected))
    return first.hello, joined


# Whose is what a node says and has: its own, another study's of the same name, or nobody's.
#
# What this head does not know is not its to remove. A study's id is never given out again,
# so one that was submitted here, under the same identity, and is there no more was removed.

log = get_logger()


def to_forget(holdings: pb.Holdings, state: State, taken: Mapping[StudyId, str]) -> list[TrialId]:
    """The trials to be forgotten; `taken` has the identity of every study that ever was."""
    return [
        held.trial
        for held in holdings.trials
        if (study := study_of(held.trial)) not in state.studies
        and taken.get(study) == held.identity
    ]


def passed_over(
    state: State, node: NodeId, identity: str, event: wire.NodeEvent
) -> tuple[str, str] | None:
    """Why what a node said is not to reach the core, and before that how bad it is, as the log has
    it; None if it is to.

    Only the second is a fault. The first a node says that has files of another head; the last, one
    that was away, of a stay of which nobody knows any more on which node it was.
    """
    if _foreign(state, identity, event):
        return "info", "said of another study of that name"
    if not _its_own(state, node, event):
        return "error", "a node spoke of another's run"
    if _is_stale(state, event):
        return "debug", "said of a stay that is over"
    return None


def _foreign(state: State, identity: str, event: wire.NodeEvent) -> bool:
    """Whether the event is about a run of another study that bore this name at another head."""
    if isinstance(event, DeviceFailed | Yielded | Reclaimed | Looked) or not identity:
        return False
    trial = state.trials.get(event.trial if isinstance(event, CopyEvent) else event.run.trial)
    return trial is not None and state.studies[trial.spec.study].identity != identity


def _its_own(state: State, node: NodeId, event: wire.NodeEvent) -> bool:
    """Whether the event is about this node: it or its device, or a run that is not another's."""
    if isinstance(event, DeviceFailed):
        return event.device.startswith(f"{node}/")
    if isinstance(event, Yielded | Reclaimed):
        return event.place.partition("/")[0] == node
    if isinstance(event, CopyEvent | Looked):
        return event.node == node
    checkpoint = getattr(event, "checkpoint", None)
    if checkpoint is not None and checkpoint.trial != event.run.trial:
        return False
    trial = state.trials.get(event.run.trial)
    device = trial.device_of(event.run) if trial is not None else None
    return device is None or state.slots[device].device.node == node


def _is_stale(state: State, event: wire.NodeEvent) -> bool:
    """Whether the event is of a stay that was over long ago, of which the core would take it, since
    it might help the next one: nobody knows any more on which node that was."""
    if not isinstance(event, Checkpointed | FidelityKnown):
        return False
    trial = state.trials.get(event.run.trial)
    return trial is not None and trial.device_of(event.run) is None


# After these a run goes on: nothing at its node waits for them to be safe.
_GOES_ON = (RunStarted, Reported, QuantumEnded, MilestonePassed)


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """The servicer. `revoke` ends the certificate of a node that has left, if it has one;
    `admission` says who may be which node."""

    def __init__(
        self,
        head: Head,
        sessions: NodeSessions,
        relay: Relay,
        blobs: Blobs,
        taken: Mapping[StudyId, str],
        setback: StaleState,
        revoke: Callable[[NodeId], object],
        admission: Admission,
    ) -> None:
        self._head = head
        self._sessions = sessions
        self._relay = relay
        self._blobs = blobs
        self._taken = taken
        self._setback = setback
        self._revoke = revoke
        self._admission = admission

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
        about.set(f"node {joined.node}")
        joined = self._admission.admitted(caller.get(), joined)
        session = NodeSession(
            joined.node, context.peer(), functools.partial(self._grant, joined.node),
            self._head.scheduler.lease.lease_seconds, said.transfer_address, said.transfer_key,
            (joined.boot_id, joined.disk),
        )  # fmt: skip
        session.note_clock(said.boottime_seconds)
        rate_limit = self._sessions.rate_limit_for(joined)
        await rate_limit.collect(said.ByteSize() + HELLO_BYTES, session)
        if self._sessions.find(joined.node) is None:
            unheard = self._sessions.unheard_seconds(joined.node)
            see_who_was_there(self._head.state, joined, said.boottime_seconds, unheard)
        self._sessions.reserve(session)
        rate_limit.devices = DEVICES_COUNTED if joined.owner else len(joined.devices)
        self._setback.note(said)
        reason = "the stream ended"
        try:
            await note_stream(f"node {joined.node}")
            await self._head.tell(joined, lambda sent: self._welcome(session, sent))
            log.info("node attached", node=joined.node, devices=len(joined.devices))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(session, request_iterator, tasks))
                tasks.create_task(write(session, context))
                tasks.create_task(watch(session))
                tasks.create_task(hang_up(session))
        except* SessionEnded as ended:
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
                    words = f"node {joined.node}, which left for good: its certificate ended"
                    note_stream_late(words)

    def _welcome(self, session: NodeSession, sent: Sequence[Command]) -> None:
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
        session: NodeSession,
        requests: AsyncIterator[pb.AttachRequest],
        tasks: asyncio.TaskGroup,
    ) -> None:
        rate_limit = self._sessions.rate_limit(session.node)
        async for request in requests:
            what, was_asked = request.WhichOneof("message"), False
            session.hear(request.boottime_seconds, asks=what == "heartbeat")
            match what:
                case "heartbeat":
                    pass
                case "goodbye":
                    session.left = request.goodbye.for_good
                    raise SessionEnded(f"it said goodbye: {shown(request.goodbye.reason)}")
                case "usage":
                    session.note_usage(request.usage)
                case "not_saved":
                    session.note_not_saved(request.not_saved)
                case "file_chunk":
                    was_asked = self._relay.deliver(session, request.file_chunk)
                case "holdings":
                    tasks.create_task(self._held(session, request.holdings))
                case "hello":
                    raise Refused(FieldError("hello", "a second one", "one Hello a stream"))
                case _:
                    await self._report(session, request)
            if not was_asked:
                await rate_limit.collect(request.ByteSize(), session)
        raise SessionEnded("the stream ended")

    def _grant(self, node: NodeId, sent_boottime_seconds: float) -> pb.Lease:
        state = self._head.state
        parting = state.nodes[node].parting
        return pb.Lease(
            sent_boottime_seconds=sent_boottime_seconds,
            lease_seconds=self._head.scheduler.lease.lease_seconds,
            left_behind=left_behind(state, node) if parting else None,
            head=self._setback.head,
            journal_sequence=self._head.committed,
            authority_mark=self._admission.authority_mark,
            report_seconds=self._sessions.report_seconds,
        )

    async def _held(self, session: NodeSession, holdings: pb.Holdings) -> None:
        """Have the node forget what was removed, once it is safe that it was."""
        self._setback.held(session.node, holdings)
        if gone := to_forget(holdings, self._head.state, self._taken):
            await self._head.beyond(self._head.journal.last - 1)
            session.send(pb.AttachResponse(forget=pb.Forget(trials=gone)))

    async def _report(self, session: NodeSession, request: pb.AttachRequest) -> None:
        """Pass an event on; acknowledge it once it is safe, or known to be of no use."""
        sequence = request.sequence
        try:
            event = wire.event_from_proto(request)
        except Malformed as error:
            self._drop(session, sequence, "error", "malformed message dropped", error=str(error))
            return
        if event is None or isinstance(event, NodeJoined):
            session.passed_over(sequence)
            return
        if wrong := implausible(session.node, event):
            self._drop(session, sequence, "error", "implausible message dropped", error=wrong)
            return
        if why := passed_over(self._head.state, session.node, request.identity, event):
            self._drop(session, sequence, *why, kind=type(event).__name__)
            return
        block = None
        if isinstance(event, Reported):
            block = with_usage(event, request.report.points, self._use_of(session, event.run))
        elif isinstance(event, RunStarted):
            self._use_of(session, event.run)  # which was that of who was there before
        hurried = not isinstance(event, _GOES_ON)
        await self._head.post(event, session.passed_on(sequence, hurried), block)

    def _drop(self, session: NodeSession, sequence: int, level: str, why: str, **what: str) -> None:
        """Pass over a message that is of no use; the log says why, as far as it is worth a line."""
        if self._sessions.rate_limit(session.node).is_worth_a_line():
            getattr(log, level)(why, node=session.node, **what)
        session.passed_over(sequence)

    def _use_of(self, session: NodeSession, run: RunId) -> float | None:
        """How busy the device of a run was found since this was asked last, 0 to 1."""
        trial = self._head.state.trials.get(run.trial)
        if trial is None or trial.run is None or trial.run.id != run:
            return None
        return session.use_of(trial.run.devices[0])
