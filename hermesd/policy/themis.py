"""Themis (NSDI 2020): finish-time fairness, the next quantum to whom sharing delays most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum, Time
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.curve import own_step_seconds


@dataclass(frozen=True, slots=True)
class Themis:
    """The largest rho = T_shared / T_alone first, for turns of `quantum_seconds`.

    T_alone is what a trial's planned steps take at its measured speed; T_shared is the time since
    its submission and what its steps left take at that speed. While the length is unknown, the
    steps done stand for it. A trial that was never measured has no bound on its rho: it goes
    first.
    """

    name: ClassVar[str] = "themis"
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        require(
            0.1 <= self.quantum_seconds < math.inf,
            "quantum_seconds",
            self.quantum_seconds,
            "0.1 seconds or more",
        )

    def plan(self, view: View) -> Sequence[Claim]:
        """Every candidate, the largest rho first, in order of submission where they are equal."""
        rated = [(rho(trial, view.now), trial) for trial in view.trials if trial.candidate]
        rated.sort(key=lambda pair: -pair[0])
        quantum = Quantum(self.quantum_seconds)
        return [
            Claim(
                trial.id,
                quantum,
                f"rho {ratio:.3g}, {self.words(trial)}" if ratio < math.inf else self.words(trial),
            )
            for ratio, trial in rated
        ]

    def words(self, trial: Trial) -> str:
        alone = alone_seconds(trial)
        if alone is None:
            return "not measured yet"
        return f"{alone:.1f} s alone"


def alone_seconds(trial: Trial) -> float | None:
    """T_alone: the seconds of the whole trial on a device of its own; None while unmeasured."""
    seconds = own_step_seconds(trial)
    steps = max(trial.step, trial.planned_steps or 0)
    return seconds * steps if seconds and steps else None


def rho(trial: Trial, now: Time) -> float:
    """T_shared / T_alone; infinite while the trial is unmeasured."""
    alone, seconds = alone_seconds(trial), own_step_seconds(trial)
    if alone is None or seconds is None:
        return math.inf
    left = max(0, (trial.planned_steps or 0) - trial.step)
    return (now - trial.submitted + left * seconds) / alone
