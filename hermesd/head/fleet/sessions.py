"""The attached nodes, and the way of commands to them.

A node has one place, which belongs to the daemon that is heard. What is known about a daemon that
has gone counts for the next one that attaches as this node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hermesd import wire
from hermesd.core.commands import (
    Bind,
    Command,
    Copy,
    Drop,
    Gather,
    Launch,
    Miss,
    Quarantine,
    Renew,
    Trust,
)
from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.core.events import NodeJoined
from hermesd.core.model import Checkpoint, NodeId, UserId, own_pool, study_of
from hermesd.core.node.messages import (
    CheckpointSource,
    DropCopies,
    Fetch,
    Order,
    Upcoming,
    assignment,
)
from hermesd.core.routing import addressee
from hermesd.core.trial import Trial, remembered
from hermesd.head.clock import boottime
from hermesd.head.fleet.duplicate_nodes import DuplicateNodes
from hermesd.head.fleet.rate_limit import RateLimit
from hermesd.head.fleet.session import NODES_WITHOUT_DELAY, REPORT_SECONDS, NodeSession
from hermesd.head.loop import Head
from hermesd.head.statedir import expecting, seconds
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.security.enrollment import write_private
from hermesd.security.ticket import TICKET_SECONDS, ticket

# How long nodes may go on unheard, also by what a head before this one allowed them.
#
# Only time that this head has lived through counts against a node. The wall clock may have
# been set while no head ran, and what was granted before a shorter `lease_seconds` still holds.

# Parts of a lease: to end what runs when it is out, with a last checkpoint; for the two clocks.
GRACE, MARGIN = 0.2, 0.1

log = get_logger()


def terms(lease_seconds: float) -> LeaseTerms:
    """What the settings come to."""
    return LeaseTerms(lease_seconds, GRACE * lease_seconds, MARGIN * lease_seconds)


@dataclass(frozen=True, slots=True)
class Leasing:
    """The longest silence that may have been allowed to a node, in a file of the state
    directory."""

    path: Path
    lease: LeaseTerms
    #: Whether there are nodes at all: without any, nothing was allowed.
    known: bool

    @property
    def patience_seconds(self) -> float:
        """For so long after this head's start no node counts as lost."""
        if not self.known:
            return 0.0
        if self.path.exists():
            with expecting(
                self.path,
                "the seconds for which a node may go on unheard",
                f"write the longest of all that was ever allowed, {1 + GRACE + MARGIN:.1f} times"
                " lease_seconds",
            ):
                before = seconds(self.path)
        else:
            before = LeaseTerms().silence_seconds  # heads wrote no such file, and had no setting
        return max(before, self.lease.silence_seconds)

    async def keep(self) -> None:
        """Have the file hold for the next head: this one's terms once those before are over."""
        longest = max(self.patience_seconds, self.lease.silence_seconds)
        self._write(longest)
        if longest > self.lease.silence_seconds:
            await asyncio.sleep(longest)
            try:
                self._write(self.lease.silence_seconds)
            except OSError as error:  # the next head is patient for longer than it need be
                log.warning("not written down how long nodes may be silent", reason=str(error))

    def _write(self, seconds: float) -> None:
        write_private(self.path, str(seconds).encode())


# Tells nodes which of the trials that they keep will run soonest.
#
# A hint, a moment after devices were given, twice a second at most; one that is lost or
# late costs a node only what it could have prepared.

SOON_SECONDS = 0.05
PAUSE_SECONDS = 0.5


class Foresight:
    """What was last said to each node; `send` reaches one, if it is attached."""

    def __init__(self, send: Callable[[NodeId, pb.AttachResponse], bool]) -> None:
        self._send = send
        self._said: dict[NodeId, Upcoming] = {}
        self._planned: asyncio.TimerHandle | None = None
        self._spoke = 0.0

    def note(self, command: Command, head: Head) -> None:
        """A command is on its way: with a device, the turns have moved on."""
        if isinstance(command, Launch | Renew):
            self.plan(head)

    def plan(self, head: Head) -> None:
        """Speak in a moment, if that is not planned already."""
        if self._planned is None:
            loop = asyncio.get_running_loop()
            wait = max(SOON_SECONDS, self._spoke + PAUSE_SECONDS - loop.time())
            self._planned = loop.call_later(wait, self._speak, head)

    def forget(self, node: NodeId) -> None:
        """A node came anew: it knows nothing."""
        self._said.pop(node, None)

    def _speak(self, head: Head) -> None:
        self._planned, self._spoke = None, asyncio.get_running_loop().time()
        hints = head.scheduler.upcoming(head.clock())
        for node in [*hints, *(node for node in self._said if node not in hints)]:
            hint = hints.get(node, Upcoming())
            same = self._said.get(node, Upcoming()) == hint
            if not same and self._send(node, wire.command_to_proto(hint)):
                self._said[node] = hint


class NodeSessions:
    """The nodes that are attached, and the commands' way to them."""

    def __init__(self) -> None:
        self.head: Head
        self._sessions: dict[NodeId, NodeSession] = {}
        self._rate_limits: dict[NodeId, RateLimit] = {}
        self._accounts: dict[tuple[UserId, str], RateLimit] = {}
        self._rivals = DuplicateNodes()
        # When those that are gone were heard last.
        self._heard: dict[NodeId, float] = {}
        self._foresight = Foresight(self._send)

    def find(self, node: NodeId) -> NodeSession | None:
        """The session of a node that is attached and heard."""
        session = self._sessions.get(node)
        return session if session and session.attached and not session.silent else None

    def all(self) -> list[NodeSession]:
        """The attached sessions, by node."""
        return [s for _, s in sorted(self._sessions.items()) if s.attached]

    @property
    def report_seconds(self) -> float:
        """How often each may report, for all of them to cost no more than fewer that do each
        second."""
        return REPORT_SECONDS * len(self._sessions) / NODES_WITHOUT_DELAY

    def rate_limit(self, node: NodeId) -> RateLimit:
        """The account of what a node says that has come."""
        return self._rate_limits[node]

    def rate_limit_for(self, joined: NodeJoined) -> RateLimit:
        """The same for a node that comes now. Those for one user's trials alone have one together:
        who brings many is to say no more than one large one."""
        owner = joined.owner
        name = own_pool(owner) if owner else joined.node
        rate_limit = self._accounts.setdefault((owner, name), RateLimit(name))
        self._rate_limits[joined.node] = rate_limit
        return rate_limit

    def slowed_nodes(self) -> list[NodeId]:
        """The nodes that say more than they may."""
        return [node for node, rate_limit in list(self._rate_limits.items()) if rate_limit.late]

    def unheard_seconds(self, node: NodeId) -> float | None:
        """For how long nothing was heard of a node; None if nothing ever was since our start."""
        session = self._sessions.get(node)
        heard = session.heard if session is not None else self._heard.get(node)
        return boottime() - heard if heard is not None else None

    def warnings(self, node: NodeId) -> list[str]:
        """What those who look after a node should know of its daemon."""
        rate_limit = self._rate_limits.get(node)
        held_up = ["it says more than it may, and is read more slowly: see the head's log"]
        said = session.warnings if (session := self.find(node)) else []
        late = held_up if rate_limit is not None and rate_limit.late else []
        return [*self._rivals.of(node), *late, *said]

    def reserve(self, session: NodeSession) -> None:
        """Take the node's place, unless somebody is there who is heard. Raises NotNow, Doubled."""
        other = self._sessions.get(session.node)
        if other is not None and not other.silent and other.closing is None:
            self._rivals.refuse(session, other)
        if other is not None:
            other.close("another stream took its place")
        self._sessions[session.node] = session
        self._foresight.forget(session.node)

    def release(self, session: NodeSession) -> bool:
        """Give the place back; False if another session has it by now."""
        if self._sessions.get(session.node) is not session:
            return False
        del self._sessions[session.node]
        self._heard[session.node] = session.heard
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
                parts = state.riding.riders.get(trial.id, {}).values()
                order = assignment(command, state.studies[trial.spec.study], trial, parts)
                return replace(order, sources=self._sources(command, order.checkpoint))
            case Copy(trial_id, _, source):
                return self._fetch(state.trials[trial_id], source)
            case Drop(trial_id):
                study = state.studies[state.trials[trial_id].spec.study]
                return DropCopies(trial_id, study.identity)
            case Bind() | Gather() | Miss() | Quarantine() | Trust():
                return None
            case _:
                return command

    def _fetch(self, trial: Trial, source: NodeId) -> Fetch | None:
        """What the copy that is under way asks of its node; None if it has come to nothing."""
        flight, study = trial.copying, self.head.state.studies[trial.spec.study]
        if flight is None:
            return None
        keep = tuple(dict.fromkeys(each.id for each in remembered(trial)))
        target = flight.target
        givers = (self.source(source, flight.checkpoint, target),) if source != target else ()
        fetch = Fetch(flight.checkpoint, givers, keep, target, study.identity, user=study.owner)
        if flight.checkpoint.trial == trial.id:
            return fetch
        parent = self.head.state.studies.get(study_of(flight.checkpoint.trial), study)
        return replace(fetch, into=trial.id, parent_identity=parent.identity)

    def _sources(
        self, launch: Launch, checkpoint: Checkpoint | None
    ) -> tuple[CheckpointSource, ...]:
        """Who else has the checkpoint that the launch restores. One that is away for now counts:
        rather than to begin anew the run is tried again later."""
        if checkpoint is None:
            return ()
        state = self.head.state
        target = state.slots[launch.devices[0]].device.node
        known = [node for node in checkpoint.nodes if node in state.nodes and node != target]
        there = [node for node in known if not state.nodes[node].lost]
        if not there and state.trials[launch.run.trial].is_fork:
            there = known  # begun anew it would be no fork: it is tried again until they come back
        return tuple(self.source(node, checkpoint, target) for node in there)

    def source(self, node: NodeId, checkpoint: Checkpoint, target: NodeId) -> CheckpointSource:
        """A node that has it, with a ticket for the node that is to."""
        session = self.find(node)
        if session is None:
            return CheckpointSource(node, "", b"")
        ends = boottime() + session.ahead_seconds + TICKET_SECONDS
        word = ticket(session.transfer_key, checkpoint.trial, checkpoint.id, target, ends)
        return CheckpointSource(node, session.transfer_address, word)
