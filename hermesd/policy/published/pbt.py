"""Population-based training (arXiv 1711.09846), by holding the losers back.

All trials of the study are one population. Each trains to the end of the round and waits there for
the others; then the worst are replaced by forks of the best, with parameters that were explored.
The result of a round follows from the losses at its last step alone, whatever the order in which
the trials got there.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hermesd.core.losses import truncate
from hermesd.core.model import Phase, Quantum
from hermesd.core.policy import Claim, Exploit, Exploration, View, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import loss_at, told

# So many of the last values of two trials are compared by a test (section 4.1.1).
_COMPARED = 10


@dataclass(frozen=True, slots=True)
class Pbt:
    """At the end of each round, forks of the best trials replace the worst.

    A fork's parameters are those of its parent, each drawn anew or multiplied by a factor. A trial
    that failed, or diverged, counts as the worst.
    """

    name: ClassVar[str] = "pbt"
    #: A round ends when all trials have done so many further epochs.
    ready: int = 1000
    #: How many steps an epoch has; 1 to count a round in steps.
    steps_per_epoch: int = 1
    #: With `truncation`, each of the worst trials is replaced by a fork of one of the best, drawn
    #: at random. With `tournament`, each is compared with another drawn at random, and replaced by
    #: a fork of that if it is worse; with `t_test` only if Welch's test says so of the last ten
    #: values of both, which for long curves are means of several iterations.
    exploit: Literal["truncation", "tournament", "t_test"] = "truncation"
    #: How many trials are the worst, and how many the best, under `truncation`.
    share: float = 0.2
    #: How probable it may be, under `t_test`, that two trials which are alike would differ so.
    significance: float = 0.05
    #: The factors.
    perturb: tuple[float, ...] = (0.8, 1.2)
    #: The probability that a parameter of a fork is drawn anew.
    resample: float = 0.25
    #: The parameters that forks explore; none: all that are searched.
    explore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(1 <= self.ready <= 10**12, "ready", self.ready, "1 to 10^12")
        per_epoch = self.steps_per_epoch
        require(1 <= per_epoch <= 10**12, "steps_per_epoch", per_epoch, "1 to 10^12")
        require(0 < self.share <= 0.5, "share", self.share, "more than 0, at most 0.5")
        require(0 < self.significance < 1, "significance", self.significance, "between 0 and 1")
        require(0 <= self.resample <= 1, "resample", self.resample, "0 to 1")
        fit = all(math.isfinite(each) and each > 0 for each in self.perturb)
        require(bool(self.perturb) and fit, "perturb", self.perturb, "numbers above 0")

    @property
    def interval_steps(self) -> int:
        """How many steps a round has."""
        return self.ready * self.steps_per_epoch

    @property
    def exploration(self) -> Exploration:
        return Exploration(self.explore, self.perturb, self.resample)

    def plan(self, view: View) -> Iterator[Claim]:
        """Those that have furthest to go to the round's end, the earlier first; nobody past that
        before it is settled who is replaced."""
        losers = {each.loser for each in self.exploits(view)}
        front = self._front(view)
        is_open = not self._is_saving(view, front)
        going = [
            trial
            for trial in view.trials
            if trial.candidate and self._round(trial) <= front and trial.id not in losers
            if is_open or trial.phase.on_device
        ]
        for trial in sorted(going, key=lambda each: (self._round(each), each.spec.number)):
            until = (self._round(trial) + 1) * self.interval_steps
            # It parks there by itself, also while the head is away.
            yield Claim(trial.id, Quantum(until_step=until, exact=True), self.words(trial))

    def exploits(self, view: View) -> Sequence[Exploit]:
        front = self._front(view)
        step = front * self.interval_steps
        forks = [each for each in view.trials if each.spec.proposal == self.name]
        if not front or any(self._began(fork) == front for fork in forks):
            return ()
        if self._is_saving(view, front):
            return ()
        here = [trial for trial in view.trials if not trial.awaits_fork]
        ranked = sorted(here, key=lambda each: (loss_at(each, step), each.spec.number))
        gone = [trial for trial in view.finished if _is_lost(trial) and not trial.replaced_by]
        if self.exploit == "truncation":
            pairs = self._truncation(ranked, gone, front)
        else:
            pairs = self._tournament(ranked, gone, front)
        worst = {trial.id: math.inf for trial in gone}
        losses = {trial.id: loss_at(trial, step) for trial in ranked} | worst
        return [
            Exploit(loser.id, winner.id)
            for loser, winner in pairs
            if losses[winner.id] < losses[loser.id] and _can_be_forked(winner, step)
            if self.exploit != "t_test" or self._is_clear(winner, loser, step)
        ]

    def words(self, trial: Trial) -> str:
        step = self._round(trial) * self.interval_steps
        ahead = f"ready at step {step + self.interval_steps}"
        return f"{told(trial, loss_at(trial, step))} at step {step}, {ahead}" if step else ahead

    def _truncation(
        self, ranked: Sequence[Trial], gone: Sequence[Trial], front: int
    ) -> Iterator[tuple[Trial, Trial]]:
        line = [*ranked, *gone]
        count = max(1, math.floor(self.share * len(line) + 1e-9))
        step = front * self.interval_steps
        best = [each for each in line[:count] if _can_be_forked(each, step)]
        for loser in line[len(line) - count :] if best else ():
            yield loser, best[_drawn(len(best), loser, front)]

    def _tournament(
        self, ranked: Sequence[Trial], gone: Sequence[Trial], front: int
    ) -> Iterator[tuple[Trial, Trial]]:
        places = {trial.id: place for place, trial in enumerate(ranked)}
        for loser in [*ranked, *gone]:
            own = places.get(loser.id, len(ranked))
            if others := len(ranked) - (loser.id in places):
                drawn = _drawn(others, loser, front)
                yield loser, ranked[drawn + (drawn >= own)]

    def _is_clear(self, winner: Trial, loser: Trial, step: int) -> bool:
        """Whether what two trials showed last is no chance. One without a loss is worse."""
        if math.isinf(loss_at(loser, step)) or loser.phase.final:
            return True
        one, other = _last(winner, step), _last(loser, step)
        is_better = statistics.fmean(one) < statistics.fmean(other)
        return is_better and _probability(one, other) < self.significance

    def _is_saving(self, view: View, front: int) -> bool:
        """Whether one that has come to a round's end has yet to tell of its checkpoint there."""
        step = front * self.interval_steps
        return any(
            trial.phase.on_device
            and trial.fidelity.restorable
            and (trial.checkpoint is None or trial.checkpoint.step < step)
            for trial in view.trials
            if front
        )

    def _front(self, view: View) -> int:
        """The round that all have come to the beginning of. One that waits for the checkpoint that
        it begins from keeps nobody waiting: its node may be away for long."""
        rounds = (self._round(trial) for trial in view.trials if not trial.awaits_fork)
        return min(rounds, default=0)

    def _round(self, trial: Trial) -> int:
        return self._began(trial) if trial.awaits_fork else trial.step // self.interval_steps

    def _began(self, fork: Trial) -> int:
        """The round that a fork began in."""
        return fork.forked.step // self.interval_steps if fork.forked else 0


def _is_lost(trial: Trial) -> bool:
    """Whether it came to no good end."""
    return trial.phase is Phase.FAILED or (trial.phase is Phase.STOPPED and trial.not_finite)


def _can_be_forked(trial: Trial, step: int) -> bool:
    """Whether another can go on from where a trial was at a step, or after that, and has more to
    train."""
    saved, planned = trial.checkpoint, trial.planned_steps
    is_there = saved is not None and not saved.image_of and saved.step >= step
    has_more = planned is None or step < planned
    return is_there and has_more and trial.fidelity.restorable and not trial.phase.final


def _last(trial: Trial, step: int) -> list[float]:
    """The last values that a trial showed by a step."""
    return [chunk.mean for chunk in truncate(trial.curve, step)[-_COMPARED:]]


def _probability(one: Sequence[float], other: Sequence[float]) -> float:
    """That means of the same would differ by as much as these (B. L. Welch, 1947): two-sided."""
    if min(len(one), len(other)) < 2:
        return 1.0
    errors = [statistics.variance(each) / len(each) for each in (one, other)]
    distance = abs(statistics.fmean(one) - statistics.fmean(other))
    if not (error := sum(errors)):
        return 0.0 if distance else 1.0
    parts = zip(errors, (one, other), strict=True)
    freedom = error**2 / sum(each**2 / (len(of) - 1) for each, of in parts)
    # Rounded down, it is rather called chance.
    return 1.0 - _within(distance / math.sqrt(error), max(1, int(freedom + 1e-9)))


def _within(t: float, freedom: int) -> float:
    """How much of Student's distribution lies between -t and t (Abramowitz and Stegun, 26.7.3 and
    26.7.4)."""
    angle, is_odd = math.atan(t / math.sqrt(freedom)), freedom % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if is_odd else total


def _drawn(count: int, trial: Trial, front: int) -> int:
    """A number below `count`, the same whenever it is asked for."""
    said = f"{trial.spec.seed}/{trial.id}/{front}".encode()
    return int.from_bytes(hashlib.sha256(said).digest()[:8], "big") % count
