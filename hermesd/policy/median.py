"""The median stopping rule (Golovin et al., Google Vizier, KDD 2017), by holding trials back."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.curve import filler_seconds, loss_or_inf, steps_of


@dataclass(frozen=True, slots=True)
class Median:
    """In order of submission; who falls behind the median of the others is held back.

    Trials are looked at after `grace` and then each `every`, both a share of the planned length
    up to 1 and a number of steps above 1. A trial is behind if its lowest loss by then is above
    the median of what the others' losses were on average up to the same step, over the at least
    `min_trials` others that got there. It comes back when no other waits, or when later trials
    have raised the median.
    """

    name: ClassVar[str] = "median"
    grace: float = 0.1
    every: float = 0.1
    min_trials: int = 3

    def __post_init__(self) -> None:
        expected = "a share of the length up to 1, or a number of steps above 1"
        for name, value in (("grace", self.grace), ("every", self.every)):
            require(0 < value < math.inf, name, value, expected)
        require(self.min_trials >= 1, "min_trials", self.min_trials, "1 or more")

    def plan(self, view: View) -> Sequence[Claim]:
        """Those not behind, whoever has a device first; then the others, the lowest loss first."""
        candidates = [trial for trial in view.trials if trial.candidate]
        behind = self._behind(candidates, [*view.trials, *view.finished])
        held_back = {trial.id for trial in behind}
        going = [trial for trial in candidates if trial.id not in held_back]
        going.sort(key=lambda trial: not trial.phase.on_device)
        claims = []
        for trial in going:
            claims.append(Claim(trial.id, self._until_next(trial), self.words(trial)))
        for trial in sorted(behind, key=loss_or_inf):
            words = f"behind the median: {self.words(trial)}"
            quantum = Quantum(filler_seconds(trial, view.facts))
            claims.append(Claim(trial.id, quantum, words, held_back=True))
        return claims

    def words(self, trial: Trial) -> str:
        step = self._looked_at(trial)
        if not step:
            return f"step {trial.step}, in its grace"
        return f"lowest loss {lowest(trial, step):.4g} by step {step}"

    def _behind(self, candidates: Sequence[Trial], trials: Sequence[Trial]) -> list[Trial]:
        """The candidates whose lowest loss is above the median of the others' averages."""
        looked_at = {trial.id: self._looked_at(trial) for trial in candidates}
        own: dict[int, dict[str, float]] = {}
        for step in sorted({step for step in looked_at.values() if step}):
            there = [trial for trial in trials if trial.step >= step]
            own[step] = {trial.id: average(trial, step) for trial in there}
        ordered = {step: sorted(averages.values()) for step, averages in own.items()}
        behind = []
        for trial in candidates:
            step = looked_at[trial.id]
            if not step or len(ordered[step]) <= self.min_trials:
                continue
            if lowest(trial, step) > median_without(ordered[step], own[step][trial.id]):
                behind.append(trial)
        return behind

    def _looked_at(self, trial: Trial) -> int:
        """The last step at which a trial is compared, 0 within its grace."""
        grace, every = (steps_of(each, trial.planned_steps) for each in (self.grace, self.every))
        if trial.step < grace:
            return 0
        return grace + (trial.step - grace) // every * every

    def _until_next(self, trial: Trial) -> Quantum:
        at, every = self._looked_at(trial), steps_of(self.every, trial.planned_steps)
        return Quantum(until_step=at + every if at else steps_of(self.grace, trial.planned_steps))


def average(trial: Trial, step: int) -> float:
    """The mean of a trial's losses up to `step`; infinite without a finite one."""
    seen = [chunk for chunk in trial.curve if chunk.last_step <= step]
    count = sum(chunk.size for chunk in seen)
    mean = sum(chunk.total for chunk in seen) / count if count else math.inf
    return mean if math.isfinite(mean) else math.inf


def lowest(trial: Trial, step: int) -> float:
    """The lowest of a trial's mean losses up to `step`; infinite without a finite one."""
    means = (chunk.mean for chunk in trial.curve if chunk.last_step <= step)
    return min((mean for mean in means if math.isfinite(mean)), default=math.inf)


def median_without(ordered: Sequence[float], value: float) -> float:
    """The median of a sorted sequence but for one occurrence of `value`."""
    out = bisect_left(ordered, value)
    others = len(ordered) - 1

    def at(place: int) -> float:
        return ordered[place if place < out else place + 1]

    return (at((others - 1) // 2) + at(others // 2)) / 2
