"""A node daemon in virtual time, around the very `NodeMachine` that the real one drives.

The machine's memory, the outbox and the stream die with the daemon; hosts and folders outlive it
and are taken over by the next one, as `hermesd.node` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hermesd.core.events import (
    DeviceFailed,
    NodeJoined,
    ParkLost,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunSuspended,
)
from hermesd.core.file_events import Copied, CopyEvent, Dropped, Looked, NotCopied, Spoilt
from hermesd.core.model import Checkpoint, NodeId, Tier, TrialId
from hermesd.core.node_actions import Action, Bring, Clear, Tell, Watch
from hermesd.core.node_machine import NodeMachine
from hermesd.core.node_messages import Attached, Fetch, Input, Known, Leased, Order
from hermesd.sim.agenda import Deed
from hermesd.sim.box import Box, Site
from hermesd.sim.pace import COPY_SECONDS
from hermesd.sim.stream import Acknowledged, Heartbeat, Numbered, Stream
from hermesd.sim.trainers import Trainers

HEARTBEAT_SECONDS = 2.0
REDIAL_SECONDS = 2.0


class Daemon:
    """One life of a node daemon. `dial` opens a stream, None if nobody answers."""

    def __init__(self, box: Box, site: Site, dial: Callable[[NodeId], Stream | None]) -> None:
        self.alive = True
        self.machine = NodeMachine(box.terms)
        self.stream: Stream | None = None
        self.trainers = Trainers(box, site, self.say, lambda: self.machine.lease, self._later)
        self._box = box
        self._site = site
        self._agenda = site.agenda
        self._chance = site.chance
        self._dial = dial
        self._outbox: deque[Numbered] = deque()
        self._last = 0
        self._alarm = 0
        self.trainers.adopt()
        self._attach()

    def die(self) -> None:
        """kill -9 of the daemon alone."""
        self.alive = False
        for host in self._box.hosts.values():
            host.voice.attach(None)
        if self.stream is not None:
            self.stream.cut()

    # -- the machine -----------------------------------------------------------------------------

    def say(self, message: Input) -> int:
        """Give the machine an input and do what it says."""
        self._do(self.machine.handle(message, self._agenda.now))
        return self._last

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._carry_out(action)
        self._alarm += 1
        alarm, due = self._alarm, self.machine.deadline
        if due is not None:

            def ring() -> None:
                if self._alarm == alarm:
                    self._do(self.machine.tick(self._agenda.now))

            self._later(max(0.0, due - self._agenda.now), ring)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Tell(event):
                self._tell(event)
            case Bring(order):
                seconds = self._chance.random.uniform(0.0, 2 * COPY_SECONDS)
                self._later(seconds, lambda: self._copy(order))
            case Watch():
                raise AssertionError("no simulated study requires a path")
            case Clear(trial):
                if self.machine.forgot(trial):
                    self._box.folder(trial).retain(())
                    self._tell(Dropped(self._box.id, trial))
            case _:
                self.trainers.carry_out(action)

    def _copy(self, order: Fetch) -> None:
        """What comes too late for its trial is not kept: that was removed meanwhile."""
        saved = order.checkpoint
        folder = self._box.folder(saved.trial)
        if not self._site.fetch(saved, order.sources, folder):
            self._tell(NotCopied(order.node, saved.trial, saved.id, "nobody gave it", way=True))
            return
        if self.machine.forgot(saved.trial):
            folder.retain({saved.id, *order.keep})
        self._tell(Copied(order.node, saved.trial, saved.id))

    def give(self, wanted: Checkpoint) -> Checkpoint | None:
        """A checkpoint for another node; that it is not there, or damaged, is told to the head."""
        folder = self._box.folder(wanted.trial)
        found = folder.give(wanted.id)
        if found is None:
            reason = "it was damaged"
            self._tell(Spoilt(self._box.id, wanted.trial, wanted.id, reason, folder.newest))
        return found

    def _tell(self, event: RunEvent | DeviceFailed | CopyEvent | Looked) -> None:
        self._last += 1
        numbered = Numbered(self._last, event)
        self._outbox.append(numbered)
        if self.stream is not None:
            self._send(self.stream, numbered)

    # -- the head ----------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Dial until a stream is open; then Hello, and all that is not acknowledged."""
        stream = self._dial(self._box.id)
        if stream is None:
            self._later(REDIAL_SECONDS, self._attach)
            return
        self.stream = stream
        stream.heard_by_node = self._guarded(self._from_head)
        stream.ended_at_node = lambda: self._ended(stream)
        live, boot = self.machine.live(), f"boot {self._box.boot}"
        disk = f"disk {self._box.disk}"
        stream.to_head(NodeJoined(self._box.id, boot, self._box.devices, live, disk=disk))
        for numbered in self._outbox:
            self._send(stream, numbered)
        self.say(Attached())
        self._beat(stream)

    def _send(self, stream: Stream, numbered: Numbered) -> None:
        stream.to_head(numbered)
        if self._chance.happens(self._chance.faults.doubled):
            self._later(self._chance.random.uniform(0, 9), lambda: stream.to_head(numbered))

    def _ended(self, stream: Stream) -> None:
        if self.alive and self.stream is stream:
            self.stream = None
            self._later(self._chance.random.uniform(0.2, REDIAL_SECONDS), self._attach)

    def _beat(self, stream: Stream) -> None:
        if self.stream is stream and stream.open:
            stream.to_head(Heartbeat(self._agenda.now))
            self._later(HEARTBEAT_SECONDS, lambda: self._beat(stream))

    def _guarded(self, hear: Callable[[object], None]) -> Callable[[object], None]:
        return lambda message: hear(message) if self.alive else None

    def _from_head(self, message: object) -> None:
        match message:
            case Leased() as leased:
                self.say(leased)
            case Acknowledged(sequence):
                self._acknowledged(sequence)
            case _:
                assert isinstance(message, Order)
                self.say(message)

    def _acknowledged(self, sequence: int) -> None:
        settled: list[TrialId] = []
        while self._outbox and self._outbox[0].sequence <= sequence:
            event = self._outbox.popleft().event
            match event:
                case RunSuspended(tier=Tier.PARK):
                    continue
                case RunSuspended(run) | RunCompleted(run) | RunFailed(run) | ParkLost(run):
                    self.say(Known(run))
                    settled.append(run.trial)
                case _:
                    continue
        self.trainers.acknowledged(sequence)
        for trial in settled:
            if self.machine.forgot(trial):
                self.trainers.settle(trial)

    def _later(self, seconds: float, deed: Deed) -> None:
        """Later, if this daemon still lives."""
        self._agenda.after(seconds, lambda: deed() if self.alive else None)
