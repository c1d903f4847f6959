"""The median stopping rule (Golovin et al., Google Vizier, KDD 2017), by holding trials back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.decide.queue import QueueEntry, SortedCandidates
from hermesd.core.losses import truncate
from hermesd.core.model import Quantum, Time, TrialId
from hermesd.core.policy import Claim, Facts, Score, View, planned, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_length, filler_seconds, loss_or_inf, steps_of, told

GOING, BEHIND = 0.0, 1.0
# The averages at so many steps are kept up though nobody is looked at there at the moment.
KEPT = 64


@dataclass(frozen=True, slots=True)
class Median:
    """In order of submission; who falls behind the median of the others is held back.

    A trial is behind if its lowest loss by then is above the median of what the others' losses were
    on average up to the same step. It comes back when no other waits, or when later trials have
    raised the median.
    """

    name: ClassVar[str] = "median"
    #: When a trial is first looked at: a share of the planned length up to 1, a number of steps
    #: above 1.
    grace: float = 0.1
    #: How often it is looked at after that, likewise.
    every: float = 0.1
    #: So many others, at least, must have got as far.
    min_trials: int = 3

    def __post_init__(self) -> None:
        check_length("grace", self.grace)
        check_length("every", self.every)
        require(self.min_trials >= 1, "min_trials", self.min_trials, "1 or more")

    def plan(self, view: View) -> Iterator[Claim]:
        """Those not behind, whoever has a device first; then the others, the lowest loss first."""
        return planned(self.ledger(), view)

    def ledger(self) -> Medians:
        return Medians(self)

    def words(self, trial: Trial) -> str:
        step = self.looked_at(trial)
        if not step:
            return f"step {trial.step}, in its grace"
        best = "highest" if trial.maximized else "lowest"
        return f"{best} {told(trial, lowest(trial, step))} by step {step}"

    def looked_at(self, trial: Trial) -> int:
        """The last step at which a trial is compared, 0 within its grace."""
        grace, every = (steps_of(each, trial.planned_steps) for each in (self.grace, self.every))
        if trial.step < grace:
            return 0
        return grace + (trial.step - grace) // every * every

    def until_next(self, trial: Trial) -> Quantum:
        at, every = self.looked_at(trial), steps_of(self.every, trial.planned_steps)
        return Quantum(until_step=at + every if at else steps_of(self.grace, trial.planned_steps))


class Medians:
    """One study's trials at each step that they are looked at: their averages and lowest losses.

    Who is not behind the lower of what medians the others can make, or behind the higher, is
    so whatever its own average. So only those are judged anew that changed, or whose lowest loss
    lies between where these two were and where they are.
    """

    def __init__(self, policy: Median) -> None:
        self._policy = policy
        self._trials: dict[TrialId, Trial] = {}
        self._changed: dict[TrialId, None] = {}
        # By step: the averages of all that got there; the lowest losses of the candidates that
        # are looked at there; the lowest and the highest median as they last were.
        self._averages: dict[int, SortedCandidates] = {}
        self._lowest: dict[int, SortedCandidates] = {}
        self._medians: dict[int, tuple[float, float]] = {}
        self._looked_at: dict[TrialId, int] = {}
        self._line = SortedCandidates()

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._trials[trial.id] = trial
            self._changed[trial.id] = None

    def order(self, now: Time) -> Iterator[TrialId]:
        self._settle()
        return self._line.trials()

    def place(self, trial: TrialId, now: Time) -> Score | None:
        self._settle()
        return self._line.place(trial)

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        known, place = self._trials[trial], self.place(trial, now)
        words = self._policy.words(known)
        if place is None or place[0] == GOING:
            return Claim(trial, self._policy.until_next(known), words)
        quantum = Quantum(filler_seconds(known, facts))
        return Claim(trial, quantum, f"behind the median: {words}", held_back=True)

    def _settle(self) -> None:
        """Judge those that changed, and those that the others left behind or caught up with."""
        if not self._changed:
            return
        changed = [self._trials[name] for name in self._changed]
        self._changed.clear()
        for trial in changed:
            self._look(trial)
        if len(self._averages) > KEPT:
            for step in [step for step in self._averages if not self._lowest[step]]:
                del self._averages[step], self._lowest[step], self._medians[step]
        for step, averages in self._averages.items():
            for trial in changed:
                if trial.step >= step and not trial.shelved:
                    key = (average(trial, step),)
                    averages.put(QueueEntry(key, trial.spec.number, trial.id))
                else:
                    averages.drop(trial.id)
        turned = {trial.id: trial for trial in changed}
        for step in self._averages:
            turned |= {name: self._trials[name] for name in self._turned(step)}
        for trial in turned.values():
            self._put(trial)

    def _look(self, trial: Trial) -> None:
        """Put a trial's lowest loss where it is looked at now."""
        stands = trial.candidate and not trial.shelved
        step = self._policy.looked_at(trial) if stands else 0
        before = self._looked_at.get(trial.id, 0)
        self._looked_at[trial.id] = step
        if before and before != step:
            self._lowest[before].drop(trial.id)
        if not step:
            return
        if step not in self._averages:
            self._averages[step], self._lowest[step] = SortedCandidates(), SortedCandidates()
            self._medians[step] = (math.inf, math.inf)
            for each in self._trials.values():
                if each.step >= step and not each.shelved:
                    key = (average(each, step),)
                    self._averages[step].put(QueueEntry(key, each.spec.number, each.id))
        key = (lowest(trial, step),)
        self._lowest[step].put(QueueEntry(key, trial.spec.number, trial.id))

    def _turned(self, step: int) -> list[TrialId]:
        """The candidates that a change of the averages may have put behind or brought back."""
        averages, low, high = self._averages[step], math.inf, math.inf
        if len(averages) > self._policy.min_trials:
            low, high = (median_without(averages, each) for each in (math.inf, -math.inf))
        before, self._medians[step] = self._medians[step], (low, high)
        ends = ((min(low, before[0]),), (max(high, before[1]), math.inf))
        return [entry.trial for entry in self._lowest[step].between((ends[0],), (ends[1],))]

    def _put(self, trial: Trial) -> None:
        if not trial.candidate or trial.shelved:
            self._line.drop(trial.id)
            return
        key = (GOING, float(not trial.phase.on_device))
        if self._behind(trial.id):
            key = (BEHIND, loss_or_inf(trial))
        self._line.put(QueueEntry(key, trial.spec.number, trial.id))

    def _behind(self, trial: TrialId) -> bool:
        """Whether a candidate's lowest loss is above the median of the others' averages."""
        step = self._looked_at[trial]
        if not step or len(averages := self._averages[step]) <= self._policy.min_trials:
            return False
        own, shown = averages.get(trial), self._lowest[step].get(trial)
        assert own is not None
        assert shown is not None
        return shown.key[0] > median_without(averages, own.key[0])


def average(trial: Trial, step: int) -> float:
    """The mean of a trial's losses up to `step`; infinite without a finite one."""
    seen = truncate(trial.curve, step)
    count = sum(chunk.size for chunk in seen)
    mean = sum(chunk.total for chunk in seen) / count if count else math.inf
    return mean if math.isfinite(mean) else math.inf


def lowest(trial: Trial, step: int) -> float:
    """The lowest of a trial's mean losses up to `step`; infinite without a finite one."""
    means = (chunk.mean for chunk in truncate(trial.curve, step))
    return min((mean for mean in means if math.isfinite(mean)), default=math.inf)


def median_without(averages: SortedCandidates, value: float) -> float:
    """The median of a line's scores but for one occurrence of `value`, or the score next to it."""
    others = len(averages) - 1
    out = min(averages.rank(((value,),)), others)

    def at(place: int) -> float:
        return averages[place if place < out else place + 1].key[0]

    return (at((others - 1) // 2) + at(others // 2)) / 2
