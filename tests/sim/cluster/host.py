"""A trial's host and its training program in virtual time, following a recorded training.

It does what the real one does, as a node daemon can see it: iterations, reports, parks,
checkpoints and outcomes, and a lease that it watches itself. It outlives its daemon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from hermesd.core.events import Checkpointed, FidelityKnown, Reported, RunCompleted, RunFailed
from hermesd.core.losses import chunked
from hermesd.core.model import Checkpoint, DeviceId, Fidelity, RunId, Tier, Time
from hermesd.core.node.messages import (
    HostFact,
    LeftDevice,
    Parked,
    Planned,
    Progress,
    Started,
)
from hermesd.sim.agenda import Agenda, Deed
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.disk import Folder
from tests.sim.cluster.ground import Ground

# What a simulated host says, and what it means to do later.

Heard: TypeAlias = Callable[[int, HostFact], None]


class Voice:
    """Facts, numbered, and kept until they are acknowledged."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._seq = 0
        self._log: list[tuple[int, HostFact]] = []
        self._heard: Heard | None = None
        self._heard_since: Time = 0.0

    def attach(self, heard: Heard | None, after: int = 0) -> None:
        """Tell everything behind `after` that was not acknowledged, and all that follows."""
        self._heard, self._heard_since = heard, self._agenda.now
        for seq, fact in list(self._log):
            if heard is not None and seq > after:
                heard(seq, fact)

    def say(self, fact: HostFact) -> None:
        """Number a fact and tell it, if somebody listens."""
        self._seq += 1
        self._log.append((self._seq, fact))
        if self._heard is not None:
            self._heard(self._seq, fact)

    def ack(self, seq: int) -> None:
        """Facts up to this one are safe at the head."""
        self._log = [entry for entry in self._log if entry[0] > seq]

    @property
    def heard_seconds(self) -> float:
        """For how long somebody has listened; 0 if nobody does."""
        return self._agenda.now - self._heard_since if self._heard else 0.0


class Turns:
    """Deeds to come of a program that may be interrupted, or end, before."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._turn = self._process = 0
        self._over = False

    def next(self, process: bool = False) -> None:
        """The program is interrupted, or (`process`) its process is no more."""
        self._turn += 1
        self._process += process

    def end(self) -> None:
        """Nothing is done any more."""
        self._over = True

    def after(self, seconds: float, deed: Deed, process: bool = False) -> None:
        """Later, unless the program was interrupted since (`process`: unless it ended)."""
        turn, ended = self._turn, self._process

        def if_still() -> None:
            still = self._process == ended if process else self._turn == turn
            if still and not self._over:
                deed()

        self._agenda.after(seconds, if_still)


# How far a training that follows a recording has come, as arithmetic on virtual time.


class Training:
    """Iterations done, while it goes on and while it stands; `step_seconds` is what one takes."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._base = 0
        self._reported = 0
        self._since: Time | None = None
        self.step_seconds = recording.step_seconds

    def restore(self, step: int) -> None:
        """Stand at a step, all before it reported."""
        self._base = self._reported = step

    def go(self, now: Time, slowness: float) -> None:
        """Iterations are done from now on, each in so many times what was recorded."""
        self._since, self.step_seconds = now, slowness * self.recording.step_seconds

    def seconds_to(self, step: int, now: Time) -> float:
        """Until so many iterations are done."""
        assert self._since is not None
        return max(0.0, self._since + (step - self._base) * self.step_seconds - now)

    def stand(self, now: Time) -> None:
        """No more iterations; what was begun of one is lost."""
        self._base, self._since = self.step(now), None

    def stall(self, now: Time, seconds: float) -> bool:
        """The iteration begins anew, so many seconds from now; False if none is being done."""
        if self._since is None:
            return False
        self._base, self._since = self.step(now), now + seconds
        return True

    def step(self, now: Time) -> int:
        """Iterations done by now."""
        if self._since is None:
            return self._base
        done = max(0.0, now - self._since) / self.step_seconds
        return min(self._base + math.floor(done + 1e-6), self.recording.steps)

    def over(self, now: Time) -> bool:
        return self.step(now) >= self.recording.steps

    def seconds_left(self, now: Time) -> float:
        """Until the last iteration is done."""
        return self.seconds_to(self.recording.steps, now)

    def seconds_to_boundary(self, now: Time) -> float:
        """Until the running iteration is done."""
        assert self._since is not None
        one, gone = self.step_seconds, now - self._since
        if gone <= 0:
            return one - gone
        return one * (math.floor(gone / one + 1e-6) + 1) - gone

    def report(self, run: RunId, now: Time) -> Reported | None:
        """What was done since the last report; None if nothing was."""
        step, before = self.step(now), self._reported
        if step == before:
            return None
        self._reported = step
        losses = self.recording.losses[before:step]
        return Reported(
            run,
            step,
            chunked(before + 1, losses),
            (("loss", losses[-1]),),
            busy_seconds=(step - before) * self.step_seconds,
        )


# What the simulated hosts take for what, in seconds and bytes, and what they are made to do.

REPORT_SECONDS = 1.0
START_SECONDS = 0.6
RESUME_SECONDS = 0.02
PARK_SECONDS = 0.01
SAVE_SECONDS = 0.4
COPY_SECONDS = 0.7
KILL_SECONDS = 0.05
PARKED_BYTES = 100


@dataclass(slots=True, eq=False)
class TrainingGoal:
    """A suspension under way."""

    tier: Tier
    cause: str
    name: str


class SimulatedHost:
    """One host. `phase` is idle, rebuilding, running, parked or ended."""

    def __init__(
        self,
        agenda: Agenda,
        ground: Ground,
        folder: Folder,
        recording: Recording,
        fidelity: Fidelity,
        grace_seconds: float,
    ) -> None:
        self.phase = "idle"
        self.run = RunId(folder.trial, 0)
        self.lease: Time = -math.inf
        self.folder = folder
        self._agenda = agenda
        self._ground = ground
        self._training = Training(recording)
        self._fidelity = fidelity
        self._grace = grace_seconds
        self._started = False
        self._goal: TrainingGoal | None = None
        self._next: tuple[RunId, tuple[DeviceId, ...]] | None = None
        self._turns = Turns(agenda)
        # Where others go on from, and those of these steps at which nothing was written yet.
        self._forks: frozenset[int] = frozenset()
        self._due: set[int] = set()
        self.voice = Voice(agenda)

    # The daemon's side.

    def standing(self) -> list[HostFact]:
        """What was said once and for all of the program that there is now."""
        if not self._started or self.phase not in ("running", "parked"):
            return []
        judged = FidelityKnown(self.run, self._fidelity, "", "none")
        return [judged, Planned(self.run, self._training.recording.steps)]

    def extend(self, expires: Time) -> None:
        """Go on until then, unless told again."""
        self.lease = expires
        self._agenda.at(expires, self._watch_lease)

    def start(
        self,
        run: RunId,
        devices: tuple[DeviceId, ...],
        restore: Checkpoint | None,
        forks: Collection[int] = (),
    ) -> None:
        """Begin to train from a checkpoint or from the beginning; others go on from `forks`."""
        if self.phase != "idle" or run.attempt <= self.run.attempt:
            return
        self._forks = frozenset(forks)
        self._due = {each for each in forks if each > (restore.step if restore else 0)}
        self._training.restore(restore.step if restore else 0)
        self._go(run, devices, START_SECONDS)

    def rebuild(self, run: RunId, restore: Checkpoint | None, forks: Collection[int] = ()) -> None:
        """Put the program where its checkpoint was taken, and hold it there."""
        self._forks = frozenset(forks)
        self._due = {each for each in forks if each > (restore.step if restore else 0)}
        self._training.restore(restore.step if restore else 0)
        self.run, self.phase = run, "rebuilding"
        self._turns.after(START_SECONDS, self._rebuilt)

    def _rebuilt(self) -> None:
        self.phase = "parked"
        self.voice.say(Parked(self.run, self.step, PARKED_BYTES, "rebuilt"))
        if self._next is not None:
            self.resume(*self._next)

    def resume(self, run: RunId, devices: tuple[DeviceId, ...]) -> None:
        """Let the parked program go on, once it stands where it is to."""
        if self.phase == "rebuilding":
            self._next = run, devices
        if self.phase == "parked" and self._goal is None and run.attempt > self.run.attempt:
            self._ground.rebuilt += not self._started
            self._go(run, devices, RESUME_SECONDS)

    def suspend(self, run: RunId, tier: Tier, seconds: float, cause: str = "request") -> None:
        """Give the device back at the next boundary."""
        if run.attempt < self.run.attempt:
            return
        if tier is Tier.KILL:
            self.kill(run, cause)
        elif self.phase == "parked" and tier is Tier.CHECKPOINT:
            self.demote(run, f"a{run.attempt}-s{self.step}", cause)
        elif self.phase == "running" and self._goal is None:
            kept = tier if self.can_be_rebuilt else Tier.PARK
            self._goal = goal = TrainingGoal(kept, cause, f"a{run.attempt}-s{self.step}")
            self._turns.after(seconds, lambda: self._deadline(goal), process=True)
            if self._started:
                self._aim_for_boundary()

    def report(self, run: RunId) -> None:
        """Say what was done since the last report."""
        if run.attempt >= self.run.attempt and self.phase == "running" and self._started:
            self._report()

    def save(self, run: RunId, name: str) -> None:
        """Write a durable checkpoint while the run goes on, or stays parked."""
        if run.attempt < self.run.attempt or self._goal is not None or not self._started:
            return
        if self.can_be_rebuilt and self.phase in ("running", "parked"):
            step, present = self.step, self.run
            self._turns.after(SAVE_SECONDS, lambda: self._saved(present, name, step), process=True)

    def demote(self, run: RunId, name: str, cause: str = "request") -> None:
        """Write the parked program down and end it."""
        if run.attempt < self.run.attempt or self.phase != "parked" or self._goal is not None:
            return
        if self.can_be_rebuilt:
            self._goal = TrainingGoal(Tier.CHECKPOINT, cause, name)
            self._turns.after(SAVE_SECONDS, self._leave)

    def kill(self, run: RunId, cause: str = "request") -> None:
        """End the program now."""
        if run.attempt < self.run.attempt:
            return
        if self.phase in ("rebuilding", "running", "parked"):
            self._turns.next()
            self._goal = TrainingGoal(Tier.KILL, cause, "")
            self._turns.after(KILL_SECONDS, self._killed)
        elif self.phase == "idle":
            self._say_killed(cause)

    def die(self) -> None:
        """The host and everything of it are gone, without a word."""
        self._gone("dead")
        self._turns.end()
        self.voice.attach(None)

    # Faults.

    def crash(self, signature: str = "") -> None:
        """The program ends badly."""
        if self.phase in ("rebuilding", "running", "parked"):
            step = self.step
            self._report()
            self._gone("ended")
            self._end(RunFailed(self.run, "exception", "it broke", signature, step))

    def stall(self, seconds: float) -> None:
        """The present iteration takes that much longer."""
        if self.phase == "running" and self._training.stall(self._agenda.now, seconds):
            self._turns.next()
            if self._goal is None:
                self._plan_work()
            else:
                self._aim_for_boundary()

    # Training.

    @property
    def can_be_rebuilt(self) -> bool:
        return self._fidelity is not Fidelity.PARK_ONLY

    @property
    def step(self) -> int:
        """Iterations done by now."""
        return self._training.step(self._agenda.now)

    def _go(self, run: RunId, devices: tuple[DeviceId, ...], seconds: float) -> None:
        self._ground.begin(run, devices)
        self.run, self.phase = run, "running"
        self._turns.next()
        self._goal = None
        self._turns.after(seconds, self._first_boundary)

    def _first_boundary(self) -> None:
        fresh, self._started = not self._started, True
        self.voice.say(Started(self.run, self.step, awaits_step=fresh))
        self._training.go(self._agenda.now, self._ground.slowness_of(self.run))
        if fresh:
            for fact in self.standing():
                self.voice.say(fact)
        self._fork()
        if self._goal is None:
            self._plan_work(first=fresh)
        else:
            self._at_boundary()

    def _plan_work(self, first: bool = False) -> None:
        """The next report; the first step of a process is told at once."""
        period = max(0.0 if first else REPORT_SECONDS, self._training.step_seconds)
        now = self._agenda.now
        ends = [self._training.seconds_to(each, now) for each in self._due if each > self.step]
        self._turns.after(min(period, self._training.seconds_left(now), *ends), self._work)

    def _work(self) -> None:
        self._report()
        self._fork()
        if self._training.over(self._agenda.now):
            self._complete()
        else:
            self._plan_work()

    def _fork(self) -> None:
        """Write the checkpoint from which others go on, where they do."""
        if (step := self.step) in self._due and self.can_be_rebuilt:
            self._due.remove(step)
            name = f"a{self.run.attempt}-fork-s{step}"
            saved = self.folder.save(self.run, name, step, self._forks)
            self.voice.say(Checkpointed(self.run, replace(saved, is_fork=True)))

    def _report(self) -> None:
        report = self._training.report(self.run, self._agenda.now)
        if report is not None:
            self._ground.train(self.run.trial, report.busy_seconds)
            self.voice.say(Progress(report))

    def _aim_for_boundary(self) -> None:
        self._turns.next()
        seconds = self._training.seconds_to_boundary(self._agenda.now)
        self._turns.after(seconds, self._at_boundary)

    def _at_boundary(self) -> None:
        goal = self._goal
        assert goal is not None
        self._pause()
        if self._training.over(self._agenda.now):
            self._complete()
        elif goal.tier is Tier.PARK:
            self._turns.after(PARK_SECONDS, self._park)
        else:
            self._turns.after(SAVE_SECONDS, self._leave)

    def _pause(self) -> None:
        self._report()
        self._training.stand(self._agenda.now)

    # Ends.

    def _deadline(self, goal: TrainingGoal) -> None:
        if self._goal is not goal or goal.tier is Tier.KILL:
            return
        if goal.tier is Tier.PARK:
            self._pause()
            self._park()
        else:
            self.kill(self.run, f"{goal.cause}: deadline missed")

    def _park(self) -> None:
        assert self._goal is not None
        cause, self._goal = self._goal.cause, None
        self._turns.next()
        self.phase = "parked"
        self._ground.end(self.run)
        if not self._started:
            self._started = True
            self.voice.say(Started(self.run, self.step))
        self.voice.say(Parked(self.run, self.step, PARKED_BYTES, cause))

    def _saved(self, run: RunId, name: str, step: int) -> None:
        self.voice.say(Checkpointed(run, self.folder.save(run, name, step, self._forks)))

    def _leave(self) -> None:
        goal, step = self._goal, self.step
        assert goal is not None
        kept = self.folder.save(self.run, goal.name, step, self._forks)
        self._gone("idle")
        self._end(LeftDevice(self.run, Tier.CHECKPOINT, step, kept, goal.cause))

    def _killed(self) -> None:
        assert self._goal is not None
        cause = self._goal.cause
        self._gone("idle")
        self._say_killed(cause)

    def _say_killed(self, cause: str) -> None:
        kept = self.folder.newest
        self._end(LeftDevice(self.run, Tier.KILL, kept.step if kept else 0, kept, cause))

    def _complete(self) -> None:
        step = self._training.recording.steps
        name = f"a{self.run.attempt}-final"
        kept = self.folder.save(self.run, name, step) if self.can_be_rebuilt else None
        self._gone("ended")
        self._end(RunCompleted(self.run, step, kept))

    def _gone(self, phase: str) -> None:
        """The program's process is no more."""
        self._training.stand(self._agenda.now)
        self._turns.next(process=True)
        self._goal = None
        self.phase = phase
        self._ground.end(self.run)

    def _end(self, outcome: HostFact) -> None:
        self.folder.outcomes[self.run.attempt] = outcome
        self.voice.say(outcome)

    def _watch_lease(self) -> None:
        if self.phase == "running" and self._goal is None and self._agenda.now >= self.lease:
            self.suspend(self.run, Tier.CHECKPOINT, self._grace, "lease")
