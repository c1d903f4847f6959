"""A trial on a device: which step of its recording it has reached, and where its next limit is."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from hermesd.core.model import Quantum, RunId, Time
from hermesd.sim.curves import NO_PASSES, Job, Passes, elapsed

REPORT_SECONDS = 1.0
# An iteration that ends within this share of its length after a limit ends at the limit.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class RecordedStay:
    """A trial on a device: it trained the steps `first + 1 .. last`."""

    trial: int
    device: int
    #: When the device was taken.
    taken: Time
    #: When it began to train: later, where its first iteration takes longer than the others.
    begun: Time
    ended: Time
    #: When the device was free again.
    freed: Time
    first: int
    last: int
    step_seconds: float
    passes: Passes = NO_PASSES

    def time_of(self, step: int) -> Time:
        """When a step of this stay was done."""
        return self.begun + elapsed(self.first, step, self.step_seconds, self.passes)


@dataclass(slots=True)
class LiveRecording:
    """A stay that goes on."""

    run: RunId
    trial: int
    device: int
    job: Job
    taken: Time
    first: int
    quantum: Quantum
    #: The last step that was reported.
    told: int = 0
    grant: int = 0
    #: When the first iteration began.
    started: Time = 0.0
    begun: Time = 0.0
    granted: Time = 0.0
    #: The quantum has ended.
    over: bool = False
    #: The last milestone.
    passed: float = 0.0
    #: The device was asked back.
    leaving: bool = False
    #: And the trial is then kept as a checkpoint.
    saved: bool = False
    #: The last step is done.
    done: bool = False
    #: Numbers what is to happen next.
    plan: int = 0
    #: The losses by which limits are judged, at the steps where they are.
    seen: dict[int, float] = field(default_factory=dict)

    @property
    def fresh(self) -> bool:
        """Whether the trial has never run before."""
        return self.first == 0

    @property
    def opening(self) -> float:
        """The seconds that the stay's first iteration takes more than the others."""
        return self.job.opening_seconds if self.fresh else 0.0

    def begin(self, now: Time) -> None:
        """The first iteration begins."""
        self.started = self.granted = now
        self.begun = now + self.opening
        self.told = self.first

    def grants(self, grant: int, quantum: Quantum, granted: Time) -> None:
        """A new quantum, that counts from `granted`."""
        self.grant, self.quantum, self.granted, self.over = grant, quantum, granted, False

    def stay(self, ended: Time, freed: Time) -> RecordedStay:
        """The stay as it was."""
        return RecordedStay(
            self.trial,
            self.device,
            self.taken,
            self.begun,
            ended,
            freed,
            self.first,
            self.told,
            self.job.step_seconds,
            self.job.passes,
        )

    def time_of(self, step: int) -> Time:
        """When a step is done."""
        return self.begun + self.job.seconds(self.first, step)

    def boundary(self, at: Time) -> int:
        """The first step that is done at a time or after it; the job's last if none is."""
        least = 1 if self.started < at < self.begun else 0
        if self.job.passes.seconds:
            until = at - self.begun - ROUNDING * self.job.step_seconds
            steps = range(self.first, self.job.steps)
            done = bisect_left(steps, until, key=partial(self.job.seconds, self.first))
        else:
            # A limit may be further away than a whole number of steps can say.
            iterations = min((at - self.begun) / self.job.step_seconds, self.job.steps)
            done = math.ceil(iterations - ROUNDING)
        return min(self.first + max(least, done), self.job.steps)

    def next_step(self) -> int:
        """The step at which the job ends, a limit or a milestone is met, or a report is due."""
        quantum, after = self.quantum, self.told + 1
        steps = [self.job.steps]
        if not self.over:
            steps.append(max(after, self._quantum_ends()))
        if self.fresh and self.told == 0:
            steps.append(max(after, self.boundary(self.started + REPORT_SECONDS)))
        until = min(steps)
        losses = [each.loss for each in quantum.milestones if each.percent > self.passed]
        if quantum.loss is not None and not self.over:
            losses.append(quantum.loss)
        self.seen.clear()
        if losses:
            for step, loss in self._judged(until):
                if loss <= max(losses):
                    self.seen[step] = loss
                    return step
        return until

    def _quantum_ends(self) -> int:
        """The step at which the seconds or the steps of the quantum are over."""
        ends = self.job.steps
        if self.quantum.seconds is not None:
            ends = self.boundary(self.granted + self.quantum.seconds)
        if self.quantum.until_step is not None:
            ends = min(ends, self.quantum.until_step)
        return ends

    def _judged(self, until: int) -> Iterator[tuple[int, float]]:
        """What a node would see of the loss at each of its reports, up to a step."""
        step = self.told
        while step < until:
            due = self.boundary(self.time_of(step) + REPORT_SECONDS)
            before, step = step, min(max(step + 1, due), until)
            if chunks := self.job.told(before, step):
                yield step, chunks[-1].mean

    def pass_milestones(self, loss: float | None) -> list[float]:
        """The milestones that this loss passes, each said once."""
        said = [] if loss is None else self.quantum.passed(loss, self.passed)
        self.passed = max([self.passed, *said])
        return said

    def expires(self, step: int, loss: float | None) -> bool:
        """Whether the quantum ends with this step; said once."""
        target = self.quantum.loss
        met = target is not None and loss is not None and loss <= target
        if self.over or not (met or step >= self._quantum_ends()):
            return False
        self.over = True
        return True
