"""A node daemon in virtual time, around the very `NodeMachine` that the real one drives.

The machine's memory, the outbox and the stream die with the daemon; hosts and folders outlive it
and are taken over by the next one, as `hermesd.node` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hermesd.core.events import (
    Checkpointed,
    Copied,
    CopyEvent,
    DeviceFailed,
    Dropped,
    Looked,
    NodeJoined,
    NotCopied,
    ParkLost,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunSuspended,
    Spoilt,
)
from hermesd.core.model import Checkpoint, Device, Fidelity, NodeId, RunId, Tier, Time, TrialId
from hermesd.core.node.actions import (
    Action,
    AskReport,
    ContinueRun,
    DeleteCheckpoints,
    DeleteTrialFiles,
    DiscardRebuilt,
    EndProcess,
    ExtendLeases,
    FetchCheckpoint,
    KillUnresponsive,
    Rebuild,
    ResumeRun,
    Spawn,
    SuspendRun,
    TellHead,
    WatchRequirements,
    WriteCheckpoint,
    WriteCheckpointAndExit,
)
from hermesd.core.node.machine import NodeMachine, NodeTerms
from hermesd.core.node.messages import (
    Assignment,
    Attached,
    CheckpointSource,
    Fetch,
    HostFact,
    HostLost,
    Input,
    LeaseExtended,
    Order,
    OutcomeAcknowledged,
    ProcessStarted,
    RunFound,
)
from hermesd.core.trial import NOT_FETCHED
from hermesd.sim.agenda import Agenda, Deed
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.disk import Folder
from tests.sim.cluster.faults import Chance
from tests.sim.cluster.ground import Ground
from tests.sim.cluster.host import COPY_SECONDS, SimulatedHost
from tests.sim.cluster.stream import Acknowledged, Heartbeat, Numbered, Stream

# What outlives a node daemon: its machine with devices, hosts and folders.


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """What a trial's program will do, should it ever run."""

    recording: Recording
    fidelity: Fidelity


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """What all machines of a pool share."""

    agenda: Agenda
    chance: Chance
    ground: Ground
    work: Mapping[TrialId, SimulatedWork]
    # What a node gives that can be reached: None if it has not got it; None of any other node.
    giver: Callable[[NodeId], Callable[[Checkpoint], Checkpoint | None] | None]

    def fetch(
        self, checkpoint: Checkpoint, sources: Iterable[CheckpointSource], folder: Folder
    ) -> bool:
        """See the checkpoint in a folder, from its sources if it is not there; whether it is."""
        if checkpoint.id in folder.checkpoints:
            return True
        for source in sources:
            give = self.giver(source.node) if source.address else None
            found = give(checkpoint) if give else None
            if found is not None:
                folder.checkpoints[found.id] = replace(found, nodes=(folder.node,))
                return True
        return False


@dataclass(slots=True)
class Box:
    """One machine."""

    id: NodeId
    devices: tuple[Device, ...]
    terms: NodeTerms
    #: What a host has left when its lease is out.
    grace_seconds: float
    boot: int = 1
    disk: int = 1
    folders: dict[TrialId, Folder] = field(default_factory=dict)
    hosts: dict[TrialId, SimulatedHost] = field(default_factory=dict)

    def folder(self, trial: TrialId) -> Folder:
        return self.folders.setdefault(trial, Folder(self.id, trial))

    def dismiss(self, trial: TrialId) -> bool:
        """End a trial's host and all that it has; False if there is none."""
        host = self.hosts.pop(trial, None)
        if host is not None:
            host.die()
        return host is not None

    def wipe(self) -> None:
        """Every process is gone, and so is the disk; there is a new one."""
        self.reboot()
        self.folders.clear()
        self.disk += 1

    def reboot(self) -> None:
        """Every process is gone; what is on the disk stays."""
        for trial in list(self.hosts):
            self.dismiss(trial)
        self.boot += 1


# The hosts of one daemon's trials: started, asked, listened to, taken over and buried.
#
# Decides nothing: the node's machine does. Facts reach it through `say`, in order, and are
# acknowledged to their host only when the head has what they led to.

LOCAL_SECONDS = 0.005


class Trainers:
    """All that a daemon has to do with hosts. `say` gives the number of the last message."""

    def __init__(
        self,
        box: Box,
        site: SimulatedSite,
        say: Callable[[Input], int],
        lease: Callable[[], Time],
        later: Callable[[float, Deed], None],
    ) -> None:
        self._box = box
        self._site = site
        self._say = say
        self._lease = lease
        self._later = later
        self._seen: dict[TrialId, int] = {}
        self._marks: dict[TrialId, deque[tuple[int, int]]] = {}
        self._rebuilt: dict[TrialId, RunId] = {}

    def carry_out(
        self,
        action: Spawn
        | Rebuild
        | DiscardRebuilt
        | ResumeRun
        | ContinueRun
        | SuspendRun
        | AskReport
        | WriteCheckpoint
        | WriteCheckpointAndExit
        | EndProcess
        | KillUnresponsive
        | DeleteTrialFiles
        | ExtendLeases,
    ) -> None:
        """Do what the machine says, a moment later; leases at once."""
        match action:
            case ContinueRun():
                raise AssertionError("a simulated program has no limit of its own")
            case ExtendLeases(expires):
                for host in list(self._box.hosts.values()):
                    host.extend(expires)
            case DeleteTrialFiles(trial):
                self._later(LOCAL_SECONDS, lambda: self._forget(trial))
            case Spawn():
                self._later(LOCAL_SECONDS, lambda: self._spawn(action))
            case Rebuild():
                self._later(LOCAL_SECONDS, lambda: self._rebuild(action))
            case DiscardRebuilt(trial):
                self._later(LOCAL_SECONDS, lambda: self._discard(trial))
            case KillUnresponsive(run):
                self._later(LOCAL_SECONDS, lambda: self._bury(run.trial))
            case _:
                self._later(LOCAL_SECONDS, lambda: self._ask(action))

    def adopt(self) -> None:
        """Take over every run that the head may not know the end of; what was rebuilt for a run
        that was not asked for yet ends."""
        for trial, folder in list(self._box.folders.items()):
            if folder.run is not None:
                self._adopt(trial, folder, folder.run)
            else:
                self._box.dismiss(trial)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe: hosts may forget their part."""
        for trial, marks in self._marks.items():
            done = 0
            while marks and marks[0][0] <= sequence:
                done = marks.popleft()[1]
            host = self._box.hosts.get(trial)
            if done and host is not None:
                host.voice.ack(done)

    def settle(self, trial: TrialId) -> None:
        """The head has the outcome of the newest run safe."""
        self._box.dismiss(trial)
        self._box.folder(trial).run = None

    def host_died(self, trial: TrialId) -> None:
        """The connection to a host ended."""
        self._later(LOCAL_SECONDS, lambda: self._report_death(trial))

    # Orders.

    def _ask(
        self,
        action: ResumeRun
        | SuspendRun
        | AskReport
        | WriteCheckpoint
        | WriteCheckpointAndExit
        | EndProcess,
    ) -> None:
        """Pass an action on to its host, if there is one."""
        run = action.assignment.run if isinstance(action, ResumeRun) else action.run
        if isinstance(action, ResumeRun):
            self._rebuilt.pop(run.trial, None)
            self._box.folder(run.trial).begin(action.assignment)
        host = self._box.hosts.get(run.trial)
        if host is None:
            return
        match action:
            case ResumeRun(assignment):
                host.resume(run, assignment.launch.devices)
            case SuspendRun(_, tier, seconds):
                host.suspend(run, tier, seconds)
            case AskReport(_, None):
                host.report(run)
            case AskReport():
                pass  # a simulated program reports when it would anyway
            case WriteCheckpoint(_, name):
                host.save(run, name)
            case WriteCheckpointAndExit(_, name):
                host.demote(run, name)
            case EndProcess():
                host.kill(run)

    def _spawn(self, order: Spawn) -> None:
        run = order.assignment.run
        self._box.dismiss(run.trial)
        self._rebuilt.pop(run.trial, None)
        folder = self._box.folder(run.trial)
        if folder.last is not None and folder.last.run.attempt >= run.attempt:
            raise AssertionError(f"{run} was started here before")
        folder.begin(order.assignment)
        if self._site.chance.happens(self._site.chance.faults.not_started):
            self._say(RunFailed(run, "not_started", "the disk is full"))
            return
        wanted, sources = order.checkpoint, order.assignment.sources
        if wanted is not None and sources and not self._site.fetch(wanted, sources, folder):
            self._say(RunFailed(run, NOT_FETCHED, f"{wanted.id} could not be had"))
            return
        host = self._new_host(folder)
        self._say(ProcessStarted(run))
        mine = order.assignment
        restore = folder.restorable(order.checkpoint)
        host.start(run, mine.launch.devices, restore, mine.work.forks)

    def _new_host(self, folder: Folder) -> SimulatedHost:
        work = self._site.work[folder.trial]
        host = SimulatedHost(
            self._site.agenda,
            self._site.ground,
            folder,
            work.recording,
            work.fidelity,
            self._box.grace_seconds,
        )
        self._box.hosts[folder.trial] = host
        self._listen(host, 0)
        host.extend(self._lease())
        return host

    def _rebuild(self, order: Rebuild) -> None:
        run = order.assignment.run
        self.settle(run.trial)
        if self._site.chance.happens(self._site.chance.faults.not_started):
            self._say(RunFailed(run, "not_started", "the disk is full"))
            return
        self._rebuilt[run.trial] = run
        folder = self._box.folder(run.trial)
        restore, forks = folder.restorable(order.checkpoint), order.assignment.work.forks
        self._new_host(folder).rebuild(run, restore, forks)

    def _discard(self, trial: TrialId) -> None:
        if self._rebuilt.pop(trial, None) is not None:
            self.settle(trial)

    def _adopt(self, trial: TrialId, folder: Folder, assignment: Assignment) -> None:
        run, host = assignment.run, self._box.hosts.get(trial)
        if host is None:
            self._say(RunFound(assignment, "parked" if folder.parked else "ended", 0))
            self._report_death(trial)
            return
        parked = assignment.launch.parked
        if host.run == run:
            words = {"running": "running" if host.step else "starting", "parked": "parked"}
            self._say(RunFound(assignment, words.get(host.phase, "ended"), host.step))
            self._say_standing(host)
        elif host.phase == "parked" and parked == host.run:
            before = replace(assignment.launch, run=parked, parked=None)
            self._say(RunFound(replace(assignment, launch=before), "parked", host.step))
            self._say_standing(host)
            self._say(assignment)
        else:
            self._say(RunFound(assignment, "ended", 0))
            self._say(HostLost(run, "the daemon ended before it had started the run"))
        self._listen(host, 0)

    def _say_standing(self, host: SimulatedHost) -> None:
        for fact in host.standing():
            self._say(fact)

    def _listen(self, host: SimulatedHost, after: int) -> None:
        trial = host.folder.trial
        self._seen[trial] = after
        self._marks[trial] = deque()

        def heard(seq: int, fact: HostFact) -> None:
            self._later(LOCAL_SECONDS, lambda: self._heard(host, seq, fact))

        host.voice.attach(heard, after)

    def _heard(self, host: SimulatedHost, seq: int, fact: HostFact) -> None:
        trial = host.folder.trial
        if self._box.hosts.get(trial) is not host or seq <= self._seen[trial]:
            return
        if host.phase == "parked":
            host.folder.parked = True
        self._seen[trial] = seq
        self._marks[trial].append((self._say(fact), seq))

    def _report_death(self, trial: TrialId) -> None:
        folder = self._box.folder(trial)
        if trial in self._box.hosts:
            return
        if (rebuilt := self._rebuilt.pop(trial, None)) is not None:
            self._say(HostLost(rebuilt, "the trial's host is gone"))
        if folder.run is None:
            return
        run = folder.run.run
        outcome = folder.outcomes.get(run.attempt)
        if outcome is not None:
            self._say(outcome)
            return
        if folder.newest is not None:
            self._say(Checkpointed(run, folder.newest))
        self._say(HostLost(run, "the trial's host is gone"))

    def _bury(self, trial: TrialId) -> None:
        """End a host and all that it has by force, and say so."""
        if self._box.dismiss(trial):
            self._report_death(trial)

    def _forget(self, trial: TrialId) -> None:
        self._box.dismiss(trial)
        self._box.folders.pop(trial, None)


HEARTBEAT_SECONDS = 2.0
REDIAL_SECONDS = 2.0


class Daemon:
    """One life of a node daemon. `dial` opens a stream, None if nobody answers."""

    def __init__(
        self, box: Box, site: SimulatedSite, dial: Callable[[NodeId], Stream | None]
    ) -> None:
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

    # The machine.

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
            case TellHead(event):
                self._tell(event)
            case FetchCheckpoint(order):
                seconds = self._chance.random.uniform(0.0, 2 * COPY_SECONDS)
                self._later(seconds, lambda: self._copy(order))
            case WatchRequirements():
                raise AssertionError("no simulated study requires a path")
            case DeleteCheckpoints(trial):
                if self.machine.forgot(trial):
                    self._box.folder(trial).retain(())
                    self._tell(Dropped(self._box.id, trial))
            case _:
                self.trainers.carry_out(action)

    def _copy(self, order: Fetch) -> None:
        """What comes too late for its trial is not kept: that was removed meanwhile."""
        saved = order.checkpoint
        folder = self._box.folder(saved.trial)
        if order.into:
            if (found := folder.give(saved.id)) is None:
                self._tell(NotCopied(order.node, order.into, saved.id, "not here", way=False))
                return
            child = self._box.folder(order.into)
            own = f"{order.into}@{saved.id.rpartition('@')[2]}"
            there = (self._box.id,)
            child.checkpoints[own] = replace(found, id=own, trial=order.into, nodes=there)
            child.damaged.discard(own)
            self._tell(Copied(order.node, order.into, saved.id))
            return
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

    # The head.

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
            case LeaseExtended() as leased:
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
                    self.say(OutcomeAcknowledged(run))
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
