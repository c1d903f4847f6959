"""ASHA that gives nothing up: successive halving by holding trials back (arXiv 1810.05934).

A trial trains up to a rung and goes on only while it is among the best 1/eta of all that have
reached that rung. The others are kept suspended behind all that may go on and all that are new;
they go on as more trials arrive at the rung, or when a device would stand idle otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from hermesd.core.model import Quantum
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

    def plan(self, view: View) -> Iterator[Claim]:
        """Promotions, the highest rung first; then trials below the first rung, as submitted.

        Those held back come last instead of being left out: which of the claims before them can
        be placed is not known here, and no device is to stand idle.
        """
        firsts = _Firsts(self)
        newcomers: list[Trial] = []
        entered: list[Trial] = []
        for trial in view.trials:
            (newcomers if trial.step < firsts[trial.planned_steps] else entered).append(trial)
        entered += [each for each in view.finished if each.step >= firsts[each.planned_steps]]
        promoted, held_back = self._divided(entered)
        return chain(
            (self._claim(trial, "promoted") for trial in promoted),
            self._newcomers(newcomers),
            (replace(self._claim(t, "held back"), held_back=True) for t in held_back),
        )

    def _newcomers(self, trials: Sequence[Trial]) -> Iterator[Claim]:
        """Claims to the first rung; most newcomers are as new as the others, and are told so."""
        same: dict[tuple[int, int | None], tuple[Quantum, str]] = {}
        for trial in trials:
            if trial.candidate:
                key = (trial.step, trial.planned_steps)
                if key not in same:
                    claim = self._claim(trial, "below the first rung")
                    same[key] = (claim.quantum, claim.reason)
                yield Claim(trial.spec.id, *same[key])

    def _divided(self, entered: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
        """The candidates that may go on past their rung, and those that may not, best first.

        Of each rung the best 1/eta of those that reached it, finished ones included, may.
        """
        reached: dict[int, list[tuple[float, int, Trial]]] = {}
        top = {}
        for place, trial in enumerate(entered):
            top[trial.id] = self._rung(trial)
            for rung in range(top[trial.id] + 1):
                reached.setdefault(rung, []).append((self._loss(trial, rung), place, trial))
        going: list[Trial] = []
        held: list[Trial] = []
        for rung in sorted(reached, reverse=True):
            ranked = sorted(reached[rung])
            for rank, (_, _, trial) in enumerate(ranked):
                if top[trial.id] == rung and trial.candidate:
                    (going if rank < len(ranked) // self.eta else held).append(trial)
        return going, held

    def words(self, trial: Trial) -> str:
        rung = self._rung(trial)
        if rung == BELOW_FIRST:
            return f"step {trial.step}, first rung at {self._step_of(0, trial.planned_steps)}"
        at, loss = self._step_of(rung, trial.planned_steps), self._loss(trial, rung)
        return f"rung {rung} (step {at}), loss {loss:.4g}"

    def _claim(self, trial: Trial, why: str) -> Claim:
        above, planned = self._rung(trial) + 1, trial.planned_steps
        until = self._step_of(above, planned) if self._is_rung(above, planned) else None
        return Claim(trial.id, Quantum(until_step=until), f"{why}: {self.words(trial)}")

    def _rung(self, trial: Trial) -> int:
        """The highest rung that a trial has reached."""
        rung, planned = BELOW_FIRST, trial.planned_steps
        while self._is_rung(rung + 1, planned) and trial.step >= self._step_of(rung + 1, planned):
            rung += 1
        return rung

    def first_rung(self, planned_steps: int | None) -> float:
        """The step of the first rung for a trial of this length; endless if it has none."""
        return self._step_of(0, planned_steps) if self._is_rung(0, planned_steps) else math.inf

    def _is_rung(self, rung: int, planned_steps: int | None) -> bool:
        """Whether a trial has so many rungs; there is no top while its length is unknown."""
        if self.max_rung <= 1 and planned_steps is None:
            return True
        return self._step_of(rung, planned_steps) < steps(self.max_rung, 1, planned_steps)

    def _step_of(self, rung: int, planned_steps: int | None) -> int:
        """Where a rung is for a trial of this length, in its own steps."""
        times: int = self.eta**rung
        if self.min_rung <= 1 and planned_steps is None:
            return PROBE_STEPS * times
        return steps(self.min_rung, times, planned_steps)

    def _loss(self, trial: Trial, rung: int) -> float:
        return loss_at(trial, self._step_of(rung, trial.planned_steps))


class _Firsts(dict[int | None, float]):
    """The step of the first rung by a trial's planned length, each worked out once."""

    def __init__(self, policy: Asha) -> None:
        super().__init__()
        self._policy = policy

    def __missing__(self, planned_steps: int | None) -> float:
        self[planned_steps] = step = self._policy.first_rung(planned_steps)
        return step


def steps(setting: float, times: int, planned_steps: int | None) -> int:
    """A multiple of a setting in steps, at least 1: the setting is a share up to 1, else steps."""
    whole = (planned_steps or 0) if setting <= 1 else 1
    return max(1, math.ceil(setting * times * whole))
