"""A whole pool in virtual time: a head, nodes, trainings that follow recordings, and faults.

Two phases. Faults on: whatever happens, nothing that must never happen does (`Broken`). Faults
off: everything must finish, with the results of an undisturbed training, and leave nothing behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from hermesd.core.commands import Command, Launch
from hermesd.core.events import Cancelled, Event, Paused, Submitted, Unpaused
from hermesd.core.model import NodeId, Phase, RunId, Time, TrialId
from hermesd.core.scheduler import LeaseTerms
from hermesd.core.state import State
from hermesd.sim.agenda import Agenda
from hermesd.sim.faults import Chance, Faults
from hermesd.sim.ground import Broken, Ground
from hermesd.sim.head import Disk, Head, replayed
from hermesd.sim.host import Host
from hermesd.sim.node import Box, Daemon, Work
from hermesd.sim.stream import Stream

CLIENT_SECONDS = 3.0
SETTLE_SECONDS = 60.0


class World:
    """The pool. `history` holds what happened, with its time, for the reader of a failure."""

    def __init__(
        self,
        seed: int,
        submissions: Sequence[Submitted],
        work: Mapping[TrialId, Work],
        boxes: Sequence[Box],
        lease: LeaseTerms,
        faults: Faults,
    ) -> None:
        self.agenda = Agenda()
        self.chance = Chance(seed, faults)
        self.ground = Ground()
        self.disk = Disk()
        self.history: list[tuple[Time, object]] = []
        self.boxes = {box.id: box for box in boxes}
        self.daemons: dict[NodeId, Daemon] = {}
        self.head: Head | None = None
        self._lease = lease
        self._durability = max(each.study.durability_seconds for each in submissions)
        self.work = work
        self._reachable = dict.fromkeys(self.boxes, True)
        self._acknowledged: dict[str, None] = {}
        self._launched: dict[RunId, Head] = {}
        self._over: dict[TrialId, Phase] = {}
        self._requests = 0
        self._start_head()
        for box in boxes:
            self._start_daemon(box.id)
        for submission in submissions:
            self._ask(submission, submission.request_id)
        for kind, deed in self._deeds().items():
            self._plan(kind, deed)

    # -- the two phases ----------------------------------------------------------------------------

    def run(self, faulty_seconds: float, calm_seconds: float) -> None:
        """Both phases.

        Raises:
            Broken: something happened that must not, or what must happen did not.
        """
        while self.agenda.now < faulty_seconds:
            self.agenda.step()
        self._calm_down()
        while not self.finished:
            self.agenda.step()
            if self.agenda.now > faulty_seconds + calm_seconds:
                raise Broken(f"not finished after {calm_seconds:g} s: {self.unfinished()}")
        end = self.agenda.now + SETTLE_SECONDS
        while self.agenda.now < end:
            self.agenda.step()
        self._check_results()
        self._check_nothing_is_left()

    def _calm_down(self) -> None:
        self.history.append((self.agenda.now, "calm"))
        self.chance.calm()
        if self.head is None:
            self._start_head()
        for node, daemon in self.daemons.items():
            self._reachable[node] = True
            if not daemon.alive:
                self._start_daemon(node)
        everybody = Unpaused(tuple(self.work), "calm")
        # After what people asked for before and is still being said again.
        self.agenda.after(2 * CLIENT_SECONDS, lambda: self._ask(everybody, "calm"))

    @property
    def state(self) -> State | None:
        return self.head.state if self.head else None

    @property
    def finished(self) -> bool:
        """Whether every trial is over, as the head sees it."""
        state = self.state
        return state is not None and all(
            trial in state.trials and state.trials[trial].phase.final for trial in self.work
        )

    def unfinished(self) -> list[str]:
        """The trials that are not over, with their phases."""
        trials = self.state.trials if self.state else {}
        return [f"{t.id} {t.phase} {t.reason}" for t in trials.values() if not t.phase.final]

    # -- faults ------------------------------------------------------------------------------------

    def _deeds(self) -> dict[str, Callable[[], str]]:
        return {
            "head_crash": self._crash_head,
            "daemon_crash": self._crash_daemon,
            "host_crash": self._crash_host,
            "program_crash": self._crash_program,
            "stall": self._stall,
            "reboot": self._reboot,
            "cut": self._cut,
            "partition": self._part,
            "corruption": self._corrupt,
            "person": self._person,
        }

    def _plan(self, kind: str, deed: Callable[[], str]) -> None:
        """The next fault of a kind, and the one after it then."""
        mean = getattr(self.chance.faults, kind)
        if mean == math.inf:
            return

        def strike() -> None:
            if getattr(self.chance.faults, kind) < math.inf:
                self.history.append((self.agenda.now, f"{kind}: {deed()}"))
                self._plan(kind, deed)

        self.agenda.after(self.chance.random.expovariate(1 / mean), strike)

    def _start_head(self) -> None:
        self.head = Head(self.disk, self.agenda, self.chance, self._lease, self._watch)
        missing = [each for each in self._acknowledged if each not in self.head.state.requests]
        if missing:
            raise Broken(f"acknowledged, yet forgotten: {missing}")

    def _start_daemon(self, node: NodeId) -> None:
        self.daemons[node] = Daemon(
            self.boxes[node], self.agenda, self.chance, self.ground, self.work, self._dial
        )

    def _dial(self, node: NodeId) -> Stream | None:
        if self.head is None or not self._reachable[node]:
            return None
        stream = Stream(self.agenda, self.chance, node)
        return stream if self.head.accept(stream) else None

    def _crash_head(self) -> str:
        head = self.head
        if head is None:
            return "is down"
        if head.writing is None and tables(replayed(self.disk)) != tables(head.state):
            raise Broken("a replay of the journal is not the state")
        head.die(written=self.chance.happens(0.5))
        self.head = None
        self._launched = {run: by for run, by in self._launched.items() if by is not head}
        down = self.chance.random.choice([1.0, 5.0, 2 * self._lease.silence_seconds])
        self.agenda.after(down, lambda: None if self.head else self._start_head())
        return f"for {down:g} s"

    def _crash_daemon(self) -> str:
        node = self.chance.random.choice(list(self.daemons))
        self._down(node, self.chance.random.uniform(0.5, 20.0))
        return node

    def _down(self, node: NodeId, seconds: float) -> None:
        if self.daemons[node].alive:
            self.daemons[node].die()

            def up() -> None:
                if not self.daemons[node].alive:
                    self._start_daemon(node)

            self.agenda.after(seconds, up)

    def _reboot(self) -> str:
        node = self.chance.random.choice(list(self.daemons))
        box = self.boxes[node]
        self._down(node, self.chance.random.uniform(5.0, 60.0))
        for host in box.hosts.values():
            host.die()
        box.hosts.clear()
        box.boot += 1
        return node

    def _some_host(self) -> Host | None:
        hosts = [host for box in self.boxes.values() for host in box.hosts.values()]
        return self.chance.random.choice(hosts) if hosts else None

    def _crash_host(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        folder = host.folder
        self._check_loss(host)
        del self.boxes[folder.node].hosts[folder.trial]
        host.die()
        daemon = self.daemons[folder.node]
        if daemon.alive:
            daemon.host_died(folder.trial)
        return f"{host.run}, {host.phase}"

    def _crash_program(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        self._check_loss(host)
        host.crash()
        return str(host.run)

    def _stall(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        host.stall(self.chance.random.uniform(1.0, 40.0))
        return str(host.run)

    def _cut(self) -> str:
        streams = [daemon.stream for daemon in self.daemons.values() if daemon.stream]
        if not streams:
            return "there is none"
        stream = self.chance.random.choice(streams)
        stream.cut()
        return stream.node

    def _part(self) -> str:
        node = self.chance.random.choice(list(self.boxes))
        self._reachable[node] = False
        stream = self.daemons[node].stream
        if stream is not None:
            stream.cut()
        seconds = self.chance.random.uniform(5.0, 2 * self._lease.silence_seconds)
        self.agenda.after(seconds, lambda: self._reachable.update({node: True}))
        return f"{node} for {seconds:.0f} s"

    def _corrupt(self) -> str:
        folders = [f for box in self.boxes.values() for f in box.folders.values() if f.newest]
        if not folders:
            return "there is none"
        folder = self.chance.random.choice(folders)
        folder.damage()
        return folder.trial

    # -- people ------------------------------------------------------------------------------------

    def _person(self) -> str:
        trial = self.chance.random.choice(list(self.work))
        self._requests += 1
        name = f"r{self._requests}"
        event: Event = Paused((trial,), name)
        if self.chance.happens(0.5):
            event = Unpaused((trial,), name)
        elif self.chance.happens(0.15):
            event = Cancelled((trial,), name)
        self._ask(event, name)
        return f"{type(event).__name__} {trial}"

    def _ask(self, event: Event, request: str) -> None:
        """Send a request until it is answered; the head may take it, and die before it says so."""
        head, answered = self.head, []

        def done(commands: list[Command]) -> None:
            answered.append(True)
            if head is not None and request in head.state.requests:
                self._acknowledged[request] = None

        if head is not None:
            head.tell(event, done)
        self.agenda.after(CLIENT_SECONDS, lambda: None if answered else self._ask(event, request))

    # -- what must hold --------------------------------------------------------------------------

    def _watch(self, head: Head, commands: list[Command]) -> None:
        """After every decision."""
        now = self.agenda.now
        self.history += head.writing or []
        head.state.check()
        if head.scheduler.decide(now):
            raise Broken("deciding twice said something new")
        for command in commands:
            if isinstance(command, Launch):
                if self._launched.get(command.run) is not None:
                    raise Broken(f"{command.run} was launched twice")
                self._launched[command.run] = head

    def _check_loss(self, host: Host) -> None:
        """One fault costs a trial what it trained since a checkpoint was last due, at most."""
        late = host.overdue_seconds(self._durability)
        if late > 0:
            raise Broken(f"{host.run}: a durable checkpoint is overdue by {late:.1f} s")

    def _check_results(self) -> None:
        assert self.state is not None
        for trial in self.state.trials.values():
            recording = self.work[trial.id].recording
            for chunk in trial.curve:
                span = recording.losses[chunk.first_step - 1 : chunk.last_step]
                if chunk.size == len(span) and not math.isclose(
                    chunk.total, sum(span), rel_tol=1e-9, abs_tol=1e-9
                ):
                    raise Broken(f"{trial.id}: {chunk} is not what was trained")
            if trial.use.busy_seconds > self.ground.trained.get(trial.id, 0.0) + 1e-6:
                raise Broken(f"{trial.id} was trained for less than {trial.use.busy_seconds} s")
            if trial.phase is Phase.COMPLETED and trial.step != recording.steps:
                raise Broken(f"{trial.id} completed at step {trial.step} of {recording.steps}")
            if trial.phase not in (Phase.COMPLETED, Phase.CANCELLED):
                raise Broken(f"{trial.id} is {trial.phase}: {trial.reason}")

    def _check_nothing_is_left(self) -> None:
        for node, box in self.boxes.items():
            if box.hosts:
                raise Broken(f"{node} still has hosts of {list(box.hosts)}")
            if live := self.daemons[node].machine.live():
                raise Broken(f"{node} still speaks of {live}")
        if self.ground.devices or self.ground.trials:
            raise Broken(f"still computing: {self.ground.trials}")


def tables(state: State) -> dict[str, object]:
    """All that a replay must give back; `dirty` is what the scheduler has not looked at yet."""
    return {name: value for name, value in vars(state).items() if name != "dirty"}
