"""A node in virtual time: the daemon around the very `NodeMachine` that the real one drives.

The machine's memory, the outbox and the stream die with the daemon; hosts and folders outlive it
and are taken over by the next one, as `hermesd.node` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hermesd.core.events import (
    DeviceFailed,
    NodeJoined,
    ParkLost,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunSuspended,
)
from hermesd.core.model import Device, Fidelity, NodeId, Tier, Time, TrialId
from hermesd.core.node_machine import NodeMachine, NodeTerms
from hermesd.core.node_messages import (
    Action,
    Assignment,
    Demote,
    End,
    Extend,
    Failed,
    Fence,
    Forget,
    Found,
    Gone,
    Halt,
    HostFact,
    Input,
    Known,
    Leased,
    LetGo,
    Order,
    Save,
    Saved,
    Spawn,
    Tell,
)
from hermesd.sim.agenda import Agenda, Deed
from hermesd.sim.curves import Recording
from hermesd.sim.disk import Folder
from hermesd.sim.faults import Chance
from hermesd.sim.ground import Ground
from hermesd.sim.host import Host
from hermesd.sim.stream import Stream

HEARTBEAT_SECONDS = 2.0
REDIAL_SECONDS = 2.0
LOCAL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event with its number in the daemon's outbox."""

    sequence: int
    event: RunEvent | DeviceFailed


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sent: Time


@dataclass(frozen=True, slots=True)
class Acknowledged:
    sequence: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a trial's program will do, should it ever run."""

    recording: Recording
    fidelity: Fidelity


@dataclass(slots=True)
class Box:
    """The machine that a daemon runs on: what outlives the daemon."""

    id: NodeId
    devices: tuple[Device, ...]
    terms: NodeTerms
    grace_seconds: float
    boot: int = 1
    folders: dict[TrialId, Folder] = field(default_factory=dict)
    hosts: dict[TrialId, Host] = field(default_factory=dict)

    def folder(self, trial: TrialId) -> Folder:
        return self.folders.setdefault(trial, Folder(self.id, trial))


class Daemon:
    """One life of a node daemon. `dial` opens a stream, None if nobody answers."""

    def __init__(
        self,
        box: Box,
        agenda: Agenda,
        chance: Chance,
        ground: Ground,
        work: Mapping[TrialId, Work],
        dial: Callable[[NodeId], Stream | None],
    ) -> None:
        self.alive = True
        self.machine = NodeMachine(box.terms)
        self.stream: Stream | None = None
        self._box = box
        self._agenda = agenda
        self._chance = chance
        self._ground = ground
        self._work = work
        self._dial = dial
        self._outbox: deque[Numbered] = deque()
        self._last = 0
        self._seen: dict[TrialId, int] = {}
        self._marks: dict[TrialId, deque[tuple[int, int]]] = {}
        self._alarm = 0
        for trial, folder in list(box.folders.items()):
            if folder.run is not None:
                self._adopt(trial, folder, folder.run)
        self._attach()

    def die(self) -> None:
        """kill -9 of the daemon alone."""
        self.alive = False
        for host in self._box.hosts.values():
            host.attach(None)
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
                self._last += 1
                numbered = Numbered(self._last, event)
                self._outbox.append(numbered)
                if self.stream is not None:
                    self._send(self.stream, numbered)
            case Extend(expires):
                for host in list(self._box.hosts.values()):
                    host.extend(expires)
            case Forget(trial):
                self._later(LOCAL_SECONDS, lambda: self._forget(trial))
            case Spawn():
                self._later(LOCAL_SECONDS, lambda: self._spawn(action))
            case Fence(run):
                self._later(LOCAL_SECONDS, lambda: self.bury(run.trial))
            case _:
                self._later(LOCAL_SECONDS, lambda: self._ask(action))

    def _ask(self, action: LetGo | Halt | Save | Demote | End) -> None:
        """Pass an action on to its host, if there is one."""
        run = action.assignment.run if isinstance(action, LetGo) else action.run
        if isinstance(action, LetGo):
            self._box.folder(run.trial).begin(action.assignment)
        host = self._box.hosts.get(run.trial)
        if host is None:
            return
        match action:
            case LetGo(assignment):
                host.resume(run, assignment.launch.devices)
            case Halt(_, tier, seconds):
                host.suspend(run, tier, seconds)
            case Save(_, name):
                host.save(run, name)
            case Demote(_, name):
                host.demote(run, name)
            case End():
                host.kill(run)

    # -- trials ------------------------------------------------------------------------------------

    def _spawn(self, order: Spawn) -> None:
        run = order.assignment.run
        self._dismiss(run.trial)
        folder = self._box.folder(run.trial)
        if folder.last is not None and folder.last.run.attempt >= run.attempt:
            raise AssertionError(f"{run} was started here before")
        folder.begin(order.assignment)
        if self._chance.happens(self._chance.faults.not_started):
            self.say(Failed(run, "not_started", "the disk is full"))
            return
        work = self._work[run.trial]
        host = Host(
            self._agenda,
            self._ground,
            folder,
            work.recording,
            work.fidelity,
            self._box.grace_seconds,
        )
        self._box.hosts[run.trial] = host
        self._listen(host, 0)
        host.extend(self.machine.lease)
        host.start(run, order.assignment.launch.devices, folder.restorable(order.checkpoint))

    def _adopt(self, trial: TrialId, folder: Folder, assignment: Assignment) -> None:
        run, host = assignment.run, self._box.hosts.get(trial)
        if host is None:
            self.say(Found(assignment, "parked" if folder.parked else "ended", 0))
            self._report_death(trial)
            return
        parked = assignment.launch.parked
        if host.run == run:
            words = {"running": "running" if host.step else "starting", "parked": "parked"}
            self.say(Found(assignment, words.get(host.phase, "ended"), host.step))
        elif host.phase == "parked" and parked == host.run:
            before = replace(assignment.launch, run=parked, parked=None)
            self.say(Found(replace(assignment, launch=before), "parked", host.step))
            self.say(assignment)
        else:
            self.say(Found(assignment, "ended", 0))
            self.say(Gone(run, "the daemon ended before it had started the run"))
        self._listen(host, 0)

    def _listen(self, host: Host, after: int) -> None:
        trial = host.folder.trial
        self._seen[trial] = after
        self._marks[trial] = deque()

        def heard(seq: int, fact: HostFact) -> None:
            self._later(LOCAL_SECONDS, lambda: self._heard(host, seq, fact))

        host.attach(heard, after)

    def _heard(self, host: Host, seq: int, fact: HostFact) -> None:
        trial = host.folder.trial
        if self._box.hosts.get(trial) is not host or seq <= self._seen[trial]:
            return
        if host.phase == "parked":
            host.folder.parked = True
        self._seen[trial] = seq
        self._marks[trial].append((self.say(fact), seq))

    def host_died(self, trial: TrialId) -> None:
        """The connection to a host ended."""
        self._later(LOCAL_SECONDS, lambda: self._report_death(trial))

    def _report_death(self, trial: TrialId) -> None:
        folder = self._box.folder(trial)
        if folder.run is None or trial in self._box.hosts:
            return
        run = folder.run.run
        outcome = folder.outcomes.get(run.attempt)
        if outcome is not None:
            self.say(outcome)
            return
        if folder.newest is not None:
            self.say(Saved(run, folder.newest))
        self.say(Gone(run, "the trial's host is gone"))

    def bury(self, trial: TrialId) -> None:
        """End a host and all that it has by force, and say so."""
        if self._dismiss(trial):
            self._report_death(trial)

    def _dismiss(self, trial: TrialId) -> bool:
        host = self._box.hosts.pop(trial, None)
        if host is not None:
            host.die()
        return host is not None

    def _forget(self, trial: TrialId) -> None:
        self._dismiss(trial)
        self._box.folders.pop(trial, None)

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
        stream.to_head(NodeJoined(self._box.id, boot, self._box.devices, live))
        for numbered in self._outbox:
            self._send(stream, numbered)
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
        for trial, marks in self._marks.items():
            acked = 0
            while marks and marks[0][0] <= sequence:
                acked = marks.popleft()[1]
            host = self._box.hosts.get(trial)
            if acked and host is not None:
                host.ack(acked)
        for trial in settled:
            if self.machine.forgot(trial):
                self._dismiss(trial)
                self._box.folder(trial).run = None

    def _later(self, seconds: float, deed: Deed) -> None:
        """Later, if this daemon still lives."""
        self._agenda.after(seconds, lambda: deed() if self.alive else None)
