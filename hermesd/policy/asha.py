"""ASHA that gives nothing up: successive halving by holding trials back (arXiv 1810.05934).

A trial trains up to a rung and goes on only while it is among the best 1/eta of all that have
reached that rung. The others are kept suspended behind all that may go on and all that are new;
they go on as more trials arrive at the rung, or when a device would stand idle otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum, TrialId
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.curve import PROBE_STEPS, loss_at

BELOW_FIRST = -1


@dataclass(frozen=True, slots=True)
class Asha:
    """Rungs at `min_rung`, then each `eta` times as far, below `max_rung`.

    A rung is a share of a trial's planned length up to 1, and a number of steps above 1. While a
    trial's length is unknown, a first rung given as a share is at 20 steps. Past the last rung a
    trial runs to its end.
    """

    name: ClassVar[str] = "asha"
    eta: int = 3
    min_rung: float = 1 / 16
    max_rung: float = 1.0

    def __post_init__(self) -> None:
        require(self.eta >= 2, "eta", self.eta, "2 or more")
        for name, value in (("min_rung", self.min_rung), ("max_rung", self.max_rung)):
            expected = "a share of the length up to 1, or a number of steps above 1"
            require(0 < value < math.inf, name, value, expected)

    def plan(self, view: View) -> Sequence[Claim]:
        """Promotions, the highest rung first; then trials below the first rung, as submitted.

        Those held back come last instead of being left out: which of the claims before them can
        be placed is not known here, and no device is to stand idle.
        """
        candidates = [trial for trial in view.trials if trial.candidate]
        rungs = {trial.id: self._rung(trial) for trial in candidates}
        promotable = self._promotable([*view.trials, *view.finished])
        by_merit = sorted(
            (trial for trial in candidates if rungs[trial.id] > BELOW_FIRST),
            key=lambda trial: (-rungs[trial.id], self._loss(trial, rungs[trial.id])),
        )
        promoted = [each for each in by_merit if each.id in promotable[rungs[each.id]]]
        newcomers = [each for each in candidates if rungs[each.id] == BELOW_FIRST]
        held_back = [each for each in by_merit if each.id not in promotable[rungs[each.id]]]
        claims = [self._claim(trial, "promoted") for trial in promoted]
        claims += [self._claim(trial, "below the first rung") for trial in newcomers]
        return claims + [self._claim(trial, "held back") for trial in held_back]

    def words(self, trial: Trial) -> str:
        rung = self._rung(trial)
        if rung == BELOW_FIRST:
            return f"step {trial.step}, first rung at {self._step_of(trial, 0)}"
        at, loss = self._step_of(trial, rung), self._loss(trial, rung)
        return f"rung {rung} (step {at}), loss {loss:.4g}"

    def _promotable(self, trials: Sequence[Trial]) -> dict[int, frozenset[TrialId]]:
        """The best 1/eta of the trials that reached each rung, finished ones included."""
        reached: dict[int, list[Trial]] = {}
        for trial in trials:
            for rung in range(self._rung(trial) + 1):
                reached.setdefault(rung, []).append(trial)
        best = {}
        for rung, there in reached.items():
            ranked = sorted(there, key=lambda each, at=rung: self._loss(each, at))  # type: ignore[misc]
            best[rung] = frozenset(each.id for each in ranked[: len(there) // self.eta])
        return best

    def _claim(self, trial: Trial, why: str) -> Claim:
        above = self._rung(trial) + 1
        until = self._step_of(trial, above) if self._is_rung(trial, above) else None
        return Claim(trial.id, Quantum(until_step=until), f"{why}: {self.words(trial)}")

    def _rung(self, trial: Trial) -> int:
        """The highest rung that a trial has reached."""
        rung = BELOW_FIRST
        while self._is_rung(trial, rung + 1) and trial.step >= self._step_of(trial, rung + 1):
            rung += 1
        return rung

    def _is_rung(self, trial: Trial, rung: int) -> bool:
        """Whether a trial has so many rungs; there is no top while its length is unknown."""
        if self.max_rung <= 1 and trial.planned_steps is None:
            return True
        return self._step_of(trial, rung) < steps(self.max_rung, 1, trial.planned_steps)

    def _step_of(self, trial: Trial, rung: int) -> int:
        """Where a rung is for a trial, in its own steps."""
        times: int = self.eta**rung
        if self.min_rung <= 1 and trial.planned_steps is None:
            return PROBE_STEPS * times
        return steps(self.min_rung, times, trial.planned_steps)

    def _loss(self, trial: Trial, rung: int) -> float:
        return loss_at(trial, self._step_of(trial, rung))


def steps(setting: float, times: int, planned_steps: int | None) -> int:
    """A multiple of a setting in steps, at least 1: the setting is a share up to 1, else steps."""
    whole = (planned_steps or 0) if setting <= 1 else 1
    return max(1, math.ceil(setting * times * whole))
