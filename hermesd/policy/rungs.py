"""Rungs and synchronous halving: what the policies that compare trials at rungs share.

Nothing here ends a trial: who is not among the best of a rung is held back behind all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermesd.core.model import Phase, Quantum, TrialId
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, Facts
from hermesd.core.trial import Trial
from hermesd.policy.curve import filler_seconds, loss_at, steps_of

LOST = frozenset({Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs at `eta ** below` x `lowest`, then each `eta` times as far, all below `top`.

    Both ends are a share of a trial's planned length up to 1, and a number of steps above 1.
    """

    eta: int
    lowest: float
    top: float
    below: int = 0

    def step_of(self, trial: Trial, rung: int) -> int:
        """Where a rung is for a trial, in its own steps."""
        return steps_of(self.lowest, trial.planned_steps, self.eta ** (rung + self.below))

    def has(self, trial: Trial, rung: int) -> bool:
        """Whether a trial has so many rungs; there is no top while only its length would say."""
        if (self.lowest > 1) == (self.top > 1):
            times: int = self.eta ** (rung + self.below)
            return self.lowest * times < self.top * (1 - 1e-9)
        if self.top <= 1 and trial.planned_steps is None:
            return True
        return self.step_of(trial, rung) < steps_of(self.top, trial.planned_steps)

    def reached(self, trial: Trial) -> int:
        """The highest rung that a trial has reached, -1 before the first."""
        rung = -1
        while self.has(trial, rung + 1) and trial.step >= self.step_of(trial, rung + 1):
            rung += 1
        return rung

    def loss(self, trial: Trial, rung: int) -> float:
        """The loss that a trial showed at a rung; infinite if it had none by then."""
        return loss_at(trial, self.step_of(trial, rung))


def check_ladder(eta: int, min_rung: float, max_rung: float) -> None:
    """Raises `BadSetting` for settings that make no ladder."""
    require(eta >= 2, "eta", eta, "2 or more")
    for name, value in (("min_rung", min_rung), ("max_rung", max_rung)):
        expected = "a share of the length up to 1, or a number of steps above 1"
        require(0 < value < math.inf, name, value, expected)


def goals(ladder: Ladder, trials: Sequence[Trial]) -> dict[TrialId, int]:
    """The rung that each trial may train to now, in synchronous halving.

    All may train to the first rung. When every trial of a rung's round has reached it (or ended),
    the best 1/eta of the round, one at least, may train to the next: ties go to the earlier
    trial. Those that failed or were cancelled are no longer in the round.
    """
    goal: dict[TrialId, int] = {}
    members = [trial for trial in trials if trial.phase not in LOST]
    rung = 0
    while members:
        goal.update((trial.id, rung) for trial in members)
        here = [trial for trial in members if ladder.has(trial, rung)]
        waited_for = [t for t in here if not (t.phase.final or t.step >= ladder.step_of(t, rung))]
        if waited_for or all(trial.phase.final for trial in here):
            break
        here.sort(key=lambda trial: ladder.loss(trial, rung))
        members = here[: max(1, len(here) // ladder.eta)]
        rung += 1
    return goal


@dataclass(frozen=True, slots=True)
class Round:
    """Where a round of halving stands: who may go on, and who is held back, best first."""

    ladder: Ladder
    going: Sequence[tuple[Trial, int]]
    held_back: Sequence[Trial]

    def claims(self) -> list[Claim]:
        """Those that go on, to the rung that ends their round or to the end."""
        claims = []
        for trial, rung in self.going:
            until = self.ladder.step_of(trial, rung) if self.ladder.has(trial, rung) else None
            claims.append(Claim(trial.id, Quantum(until_step=until), describe(self.ladder, trial)))
        return claims

    def fillers(self, facts: Facts) -> list[Claim]:
        """Those held back, in short turns, for devices that would stand idle."""
        claims = []
        for trial in self.held_back:
            words = f"held back: {describe(self.ladder, trial)}"
            quantum = Quantum(filler_seconds(trial, facts))
            claims.append(Claim(trial.id, quantum, words, held_back=True))
        return claims


def round_of(ladder: Ladder, trials: Sequence[Trial]) -> Round:
    """The round that these trials, finished ones included, are in.

    Those going are in order of submission, whoever has a device first; those held back by the
    highest rung they reached, then by their loss there.
    """
    goal = goals(ladder, trials)
    going, held_back = [], []
    for trial in trials:
        if not trial.candidate:
            continue
        rung = goal.get(trial.id, 0)
        if ladder.reached(trial) < rung or not ladder.has(trial, rung):
            going.append((trial, rung))
        else:
            held_back.append(trial)
    going.sort(key=lambda pair: (not pair[0].phase.on_device, pair[0].spec.number))
    held_back.sort(key=standing(ladder))
    return Round(ladder, going, held_back)


def standing(ladder: Ladder) -> Callable[[Trial], tuple[int, float]]:
    """The sort key of trials that are held back."""

    def key(trial: Trial) -> tuple[int, float]:
        rung = ladder.reached(trial)
        return (-rung, ladder.loss(trial, rung) if rung >= 0 else math.inf)

    return key


def describe(ladder: Ladder, trial: Trial) -> str:
    """Where a trial stands, for people."""
    rung = ladder.reached(trial)
    if rung < 0:
        if not ladder.has(trial, 0):
            return f"step {trial.step}, no rung ahead"
        return f"step {trial.step}, first rung at {ladder.step_of(trial, 0)}"
    return f"rung {rung} (step {ladder.step_of(trial, rung)}), loss {ladder.loss(trial, rung):.4g}"
