"""A whole cluster in virtual time: a head, nodes, and trainings that follow recordings.

Two phases. Faults on: whatever happens, nothing that must never happen does (`GroundTruthBroken`).
Faults off: everything must finish, with the results of an undisturbed training, and leave nothing
behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hermesd.core.commands import Command, Launch
from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.core.events import Event, NodeUndrained, PoolsConfigured, Submitted, Unpaused
from hermesd.core.fold.checkpoints import dispensable
from hermesd.core.model import Checkpoint, NodeId, Phase, Pool, RunId, Time, TrialId, pool_of
from hermesd.core.state import State
from hermesd.sim.agenda import Agenda
from tests.sim.cluster.faults import Chance, Faults
from tests.sim.cluster.ground import Ground, GroundTruthBroken
from tests.sim.cluster.head import Disk, SimulatedHead, replayed
from tests.sim.cluster.host import SAVE_SECONDS, SimulatedHost
from tests.sim.cluster.node import Box, Daemon, SimulatedSite, SimulatedWork
from tests.sim.cluster.stream import Stream

CLIENT_SECONDS = 3.0
SETTLE_SECONDS = 60.0
# Longer than any start or suspend may take; past it a command has been forgotten.
ANSWER_SECONDS = 100.0


class World:
    """The cluster. `history` holds what happened, with its time, for the reader of a failure."""

    def __init__(
        self,
        seed: int,
        submissions: Sequence[Submitted],
        work: Mapping[TrialId, SimulatedWork],
        boxes: Sequence[Box],
        lease: LeaseTerms,
        faults: Faults,
        pools: tuple[Pool, ...] = (),
    ) -> None:
        self.agenda = Agenda()
        self.chance = Chance(seed, faults)
        self.ground = Ground()
        self.work = work
        self.lease = lease
        self.pools = pools
        self.disk = Disk()
        self.history: list[tuple[Time, object]] = []
        self.boxes = {box.id: box for box in boxes}
        self.daemons: dict[NodeId, Daemon] = {}
        self.head: SimulatedHead | None = None
        self.reachable = dict.fromkeys(self.boxes, True)
        self.gone: set[NodeId] = set()
        self._site = SimulatedSite(self.agenda, self.chance, self.ground, work, self._giver)
        self._durability = max(each.study.durability_seconds for each in submissions)
        self._acknowledged: dict[str, None] = {}
        self._launched: set[RunId] = set()
        self._unanswered: dict[tuple[RunId, Phase], Time] = {}
        self._calm = False
        self.start_head()
        for box in boxes:
            self.start_daemon(box.id)
        self.configure(pools)
        for submission in submissions:
            self.ask(submission, submission.request_id)

    # The two phases.

    def run(self, faulty_seconds: float, calm_seconds: float) -> None:
        """Both phases.

        Raises:
            GroundTruthBroken: something happened that must not, or what must happen did not.
        """
        while self.agenda.now < faulty_seconds:
            self.agenda.step()
        self._calm_down()
        while not self.finished:
            self.agenda.step()
            if self.agenda.now > faulty_seconds + calm_seconds:
                raise GroundTruthBroken(
                    f"not finished after {calm_seconds:g} s: {self.unfinished()}"
                )
        end = self.agenda.now + SETTLE_SECONDS
        while self.agenda.now < end:
            self.agenda.step()
        self._check_results()
        self._check_nothing_is_left()

    def _calm_down(self) -> None:
        self.history.append((self.agenda.now, "calm"))
        self.chance.calm()
        self._calm = True
        self.start_head()
        for node in self.daemons:
            self.reachable[node] = node not in self.gone
            self.start_daemon(node)
        self.agenda.after(2 * CLIENT_SECONDS, lambda: self.configure(self.pools))
        everybody = Unpaused(tuple(self.work), "calm")
        # After what people asked for before and is still being said again.
        self.agenda.after(2 * CLIENT_SECONDS, lambda: self.ask(everybody, "calm"))
        for number, node in enumerate(self.boxes):
            whole = NodeUndrained(node, f"calm {number}")
            self.agenda.after(2 * CLIENT_SECONDS, partial(self.ask, whole, whole.request_id))

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

    # Who lives and who can be reached.

    def start_head(self) -> None:
        """A head reads the journal; none is started beside another."""
        if self.head is not None:
            return
        self.head = SimulatedHead(self.disk, self.agenda, self.chance, self.lease, self._watch)
        missing = [each for each in self._acknowledged if each not in self.head.state.requests]
        if missing:
            raise GroundTruthBroken(f"acknowledged, yet forgotten: {missing}")

    def crash_head(self, written: bool) -> None:
        """kill -9 of the head; what was being written is on the disk, or is not."""
        head = self.head
        assert head is not None
        if head.writing is None and tables(replayed(self.disk)) != tables(head.state):
            raise GroundTruthBroken("a replay of the journal is not the state")
        head.die(written)
        self.head = None
        self._launched.clear()

    def start_daemon(self, node: NodeId) -> None:
        """A daemon takes over its machine; none is started beside another."""
        present = self.daemons.get(node)
        if node not in self.gone and (present is None or not present.alive):
            self.daemons[node] = Daemon(self.boxes[node], self._site, self._dial)

    @property
    def spare(self) -> list[NodeId]:
        """The machines without which each pool has one, for the trials that may run only there."""
        alive = [node for node in self.boxes if node not in self.gone]
        pool = {node: pool_of(node, self.pools) for node in alive}
        return [node for node in alive if list(pool.values()).count(pool[node]) > 1]

    def lose(self, node: NodeId) -> None:
        """A machine is no more, nor its disk."""
        box, daemon = self.boxes[node], self.daemons[node]
        self.gone.add(node)
        if daemon.alive:
            daemon.die()
        box.wipe()

    def _giver(self, node: NodeId) -> Callable[[Checkpoint], Checkpoint | None] | None:
        there = self.reachable[node] and self.daemons[node].alive
        return self.daemons[node].give if there else None

    def _dial(self, node: NodeId) -> Stream | None:
        if self.head is None or not self.reachable[node]:
            return None
        stream = Stream(self.agenda, self.chance, node)
        return stream if self.head.accept(stream) else None

    def configure(self, pools: tuple[Pool, ...]) -> None:
        """An operator writes other pools into the configuration."""
        if self.pools:
            self.ask(PoolsConfigured(pools), "")

    def ask(self, event: Event, request: str) -> None:
        """Send a request until it is answered; the head may take it, and die before it says so."""
        head, answered = self.head, []

        def done(commands: list[Command]) -> None:
            answered.append(True)
            if head is not None and request in head.state.requests:
                self._acknowledged[request] = None

        if head is not None:
            head.tell(event, done)
        self.agenda.after(CLIENT_SECONDS, lambda: None if answered else self.ask(event, request))

    # What must hold.

    def _watch(self, head: SimulatedHead, commands: list[Command]) -> None:
        """After every decision."""
        now = self.agenda.now
        self.history += head.writing or []
        head.state.check()
        if head.scheduler.decide(now):
            raise GroundTruthBroken("deciding twice said something new")
        for command in commands:
            if isinstance(command, Launch):
                if command.run in self._launched:
                    raise GroundTruthBroken(f"{command.run} was launched twice")
                self._launched.add(command.run)

        if self._calm:
            self._check_answers(head.state, now)

    def _check_answers(self, state: State, now: Time) -> None:
        """While nothing goes wrong, whoever is asked to start or to leave does so in time."""
        asked = {
            (trial.run.id, trial.phase): now
            for trial in state.trials.values()
            if trial.run and trial.phase in (Phase.STARTING, Phase.SUSPENDING)
        }
        self._unanswered = {key: self._unanswered.get(key, now) for key in asked}
        for (run, phase), since in self._unanswered.items():
            if now - since > ANSWER_SECONDS:
                raise GroundTruthBroken(f"{run} is {phase} since {since:.1f} s")

    def check_loss(self, host: SimulatedHost) -> None:
        """One fault costs a trial what it trained since a checkpoint was last due, at most.

        A daemon that has just come starts to count anew; a program that cannot be rebuilt and
        a disk that rots are not its fault.
        """
        each = self.work[host.run.trial].recording.step_seconds
        slowest = max(self.ground.slowness.values(), default=1.0)
        bound = self._durability + SAVE_SECONDS + 2 * slowest * each + 0.1
        folder = host.folder
        if host.voice.heard_seconds < bound or not host.can_be_rebuilt or folder.damaged:
            return
        kept = folder.newest.step if folder.newest else 0
        late = (host.step - kept) * each - bound
        if late > 0:
            raise GroundTruthBroken(f"{host.run}: a durable checkpoint is overdue by {late:.1f} s")

    def _check_results(self) -> None:
        assert self.state is not None
        for trial in self.state.trials.values():
            recording = self.work[trial.id].recording
            for chunk in trial.curve:
                span = recording.losses[chunk.first_step - 1 : chunk.last_step]
                if chunk.size == len(span) and not math.isclose(
                    chunk.total, sum(span), rel_tol=1e-9, abs_tol=1e-9
                ):
                    raise GroundTruthBroken(f"{trial.id}: {chunk} is not what was trained")
            if trial.use.busy_seconds > self.ground.trained.get(trial.id, 0.0) + 1e-6:
                raise GroundTruthBroken(
                    f"{trial.id} was trained for less than {trial.use.busy_seconds} s"
                )
            if trial.phase is Phase.COMPLETED and trial.step != recording.steps:
                raise GroundTruthBroken(
                    f"{trial.id} completed at step {trial.step} of {recording.steps}"
                )
            if trial.phase not in (Phase.COMPLETED, Phase.CANCELLED):
                raise GroundTruthBroken(f"{trial.id} is {trial.phase}: {trial.reason}")

    def _check_nothing_is_left(self) -> None:
        for node, box in self.boxes.items():
            if box.hosts:
                raise GroundTruthBroken(f"{node} still has hosts of {list(box.hosts)}")
            if (live := self.daemons[node].machine.live()) and node not in self.gone:
                raise GroundTruthBroken(f"{node} still speaks of {live}")
        state = self.state
        assert state is not None
        for trial, node in state.leftover:
            if node not in self.gone and dispensable(state, state.trials[trial], node):
                raise GroundTruthBroken(f"{node} still has checkpoints of {trial}")
        if self.ground.devices or self.ground.trials:
            raise GroundTruthBroken(f"still computing: {self.ground.trials}")


def tables(state: State) -> dict[str, object]:
    """All that a replay must give back; `dirty` and `ended` are the scheduler's own notes."""
    return {name: value for name, value in vars(state).items() if name not in ("dirty", "ended")}
