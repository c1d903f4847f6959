"""The head in virtual time: a journal that survives, and the very `Scheduler` of the real one.

A batch is folded and decided at once, then written; only when it is on the disk are callers
answered, events acknowledged and commands sent. What a crash finds unwritten never was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hermesd.core.commands import Command, Copy, Drop, Launch, Renew
from hermesd.core.decide.scheduler import LeaseTerms, Scheduler
from hermesd.core.events import Event, NodeJoined, NodeSilent
from hermesd.core.model import NodeId, Time
from hermesd.core.node.messages import (
    CheckpointSource,
    DropCopies,
    Fetch,
    LeaseExtended,
    Upcoming,
    assignment,
)
from hermesd.core.placement import make_placement
from hermesd.core.routing import addressee
from hermesd.core.state import Rejected, State
from hermesd.core.trial import remembered
from hermesd.policy import make_policy
from hermesd.sim.agenda import Agenda, Deed
from tests.sim.cluster.faults import Chance
from tests.sim.cluster.stream import Acknowledged, Heartbeat, Numbered, Stream

COMMIT_SECONDS = 0.02
Done: TypeAlias = Callable[[list[Command]], None]


@dataclass(slots=True)
class Disk:
    """What a crash of the head leaves: the journal's entries with their times."""

    entries: list[tuple[Time, Event | Command]] = field(default_factory=list)


def replayed(disk: Disk) -> State:
    """The state that the journal tells; policies are not asked."""
    state = State()
    for at, entry in disk.entries:
        state.apply(entry, at)
    return state


class SimulatedHead:
    """One life of the head. `watch` sees the state after each decision."""

    def __init__(
        self,
        disk: Disk,
        agenda: Agenda,
        chance: Chance,
        lease: LeaseTerms,
        watch: Callable[[SimulatedHead, list[Command]], None],
    ) -> None:
        self.alive = True
        self.scheduler = Scheduler(replayed(disk), make_policy, make_placement, lease)
        self.sessions: dict[NodeId, Stream] = {}
        self.writing: list[tuple[Time, Event | Command]] | None = None
        self._disk = disk
        self._agenda = agenda
        self._chance = chance
        self._watch = watch
        self._inbox: list[tuple[Event, Done]] = []
        self._alarm = 0
        for node in [each for each in self.state.nodes.values() if each.connected]:
            self.tell(NodeSilent(node.id, "the head was restarted"))
        self._work()

    @property
    def state(self) -> State:
        return self.scheduler.state

    def die(self, written: bool) -> None:
        """kill -9; what was being written is on the disk, or is not."""
        self.alive = False
        if self.writing is not None and written:
            self._disk.entries += self.writing
        for stream in self.sessions.values():
            stream.cut()

    def tell(self, event: Event, done: Done = lambda commands: None) -> None:
        """Something happened; `done` is called when it is safe, or known to be of no use."""
        self._inbox.append((event, done))
        self._later(0.0, self._work)

    # The loop.

    def _work(self) -> None:
        if self.writing is not None:
            return
        now, lines = self._agenda.now, list[tuple[Time, Event | Command]]()
        answers: list[Done] = []
        for event in self.scheduler.due(now):
            self.scheduler.observe(event, now)
            lines.append((now, event))
        inbox, self._inbox = self._inbox, []
        for event, done in inbox:
            try:
                self.scheduler.observe(event, now)
            except Rejected:
                answers.append(done)
                continue
            lines.append((now, event))
            answers.append(done)
        commands = self.scheduler.decide(now)
        failed = [failure.event for failure in self.scheduler.take_failures()]
        lines += [(now, entry) for entry in (*failed, *commands)]
        self.writing = lines
        self._watch(self, commands)
        seconds = COMMIT_SECONDS if lines else 0.0
        self._later(seconds, lambda: self._written(lines, answers, commands))

    def _written(
        self,
        lines: list[tuple[Time, Event | Command]],
        answers: list[Done],
        commands: list[Command],
    ) -> None:
        self._disk.entries += lines
        self.writing = None
        for done in answers:
            done(commands)
        for command in commands:
            self.send(command)
        if any(isinstance(command, Launch | Renew) for command in commands):
            self._foretell()
        if self._inbox:
            self._work()
            return
        self._alarm += 1
        alarm, due = self._alarm, self.scheduler.deadline
        if due is not None:
            self._later(
                max(0.0, due - self._agenda.now),
                lambda: self._work() if self._alarm == alarm else None,
            )

    def _foretell(self) -> None:
        """Tell the nodes what to prepare for."""
        hints = self.scheduler.upcoming(self._agenda.now)
        for node in self.state.nodes:
            if (stream := self.sessions.get(node)) is not None and stream.welcome:
                stream.to_node(hints.get(node, Upcoming()))

    # Nodes.

    def accept(self, stream: Stream) -> bool:
        """A node dials; it is refused while another stream of it is not known to be over."""
        if stream.node in self.sessions:
            return False
        self.sessions[stream.node] = stream
        stream.heard_by_head = lambda message: self._heard(stream, message)
        stream.ended_at_head = lambda: self._ended(stream)
        return True

    def _ended(self, stream: Stream) -> None:
        if self.alive and self.sessions.get(stream.node) is stream:
            del self.sessions[stream.node]
            self.tell(NodeSilent(stream.node, "the stream ended"))

    def _heard(self, stream: Stream, message: object) -> None:
        if not self.alive or self.sessions.get(stream.node) is not stream:
            return
        match message:
            case NodeJoined():
                self.tell(message, lambda commands: self._welcome(stream, commands))
            case Heartbeat(sent):
                stream.to_node(LeaseExtended(sent + self.scheduler.lease.lease_seconds))
            case Numbered(sequence, event):
                self.tell(event, lambda _: stream.to_node(Acknowledged(sequence)))
            case _:
                raise TypeError(f"a node said {message!r}")

    def _welcome(self, stream: Stream, sent: list[Command]) -> None:
        stream.welcome = True
        said = {(type(command), getattr(command, "run", None)) for command in sent}
        for command in self.scheduler.outstanding(stream.node):
            if (type(command), getattr(command, "run", None)) not in said:
                self.send(command)

    def send(self, command: Command) -> None:
        """Put a command on its node's stream; without one it is said again after a Hello."""
        node = addressee(self.state, command)
        stream = self.sessions.get(node) if node is not None else None
        if stream is None or not stream.welcome:
            return
        stream.to_node(self._order(command))
        if self._chance.happens(self._chance.faults.doubled):
            stream.to_node(self._order(command))

    def _order(self, command: Command) -> object:
        match command:
            case Launch(run, devices):
                trial = self.state.trials[run.trial]
                parts = self.state.riding.riders.get(trial.id, {}).values()
                order = assignment(command, self.state.studies[trial.spec.study], trial, parts)
                checkpoint = order.checkpoint
                here = self.state.slots[devices[0]].device.node
                nodes = [node for node in checkpoint.nodes if node != here] if checkpoint else []
                there = [node for node in nodes if not self.state.nodes[node].lost]
                return replace(order, sources=tuple(map(self._source, there)))
            case Copy(trial_id, _, source, target):
                trial = self.state.trials[trial_id]
                assert trial.copying is not None
                saved = trial.copying.checkpoint
                keep = tuple(each.id for each in remembered(trial))
                into = trial_id if saved.trial != trial_id else ""
                return Fetch(saved, (self._source(source),), keep, target, "", into)
            case Drop(trial_id):
                return DropCopies(trial_id, "")
            case _:
                return command

    def _source(self, node: NodeId) -> CheckpointSource:
        return CheckpointSource(node, "there" if node in self.sessions else "", b"")

    def _later(self, seconds: float, deed: Deed) -> None:
        self._agenda.after(seconds, lambda: deed() if self.alive else None)
