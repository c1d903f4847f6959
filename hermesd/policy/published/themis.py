"""Themis (NSDI 2020): finish-time fairness; the next quantum goes to the trial that sharing delays
most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from hermesd.core.model import Quantum, Time, TrialId
from hermesd.core.policy import Claim, Facts, Score, View, check_quantum_seconds, planned
from hermesd.core.trial import Trial
from hermesd.policy.curve import own_step_seconds

# So many are sorted at first, and so many times as many each time that more are asked for.
FIRST, MORE = 64, 8
# The terms of a rho less than any.
NO_CANDIDATE = np.array([[0.0], [-math.inf], [1.0]])


@dataclass(frozen=True, slots=True)
class Themis:
    """The largest rho = T_shared / T_alone first.

    T_alone is what a trial's planned steps take at its measured speed; T_shared is the time since
    its submission and what its steps left take at that speed. While the length is unknown, the
    steps done stand for it. A trial that was never measured has no bound on its rho: it goes first.
    """

    name: ClassVar[str] = "themis"
    #: The length of a turn.
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_quantum_seconds(self.quantum_seconds)

    def plan(self, view: View) -> Iterator[Claim]:
        """Every candidate, the largest rho first, in order of submission where they are equal."""
        return planned(self.ledger(), view)

    def ledger(self) -> Ratios:
        return Ratios(self)

    def words(self, trial: Trial) -> str:
        alone = alone_seconds(trial)
        if alone is None:
            return "not measured yet"
        return f"{alone:.1f} s alone"


class Ratios:
    """The candidates of one study by their rho at any time, in arrays by their number.

    Every rho moves with the time, each at a speed of its own: they are worked out anew for each
    order, and no more of them are sorted than somebody asks for.
    """

    def __init__(self, policy: Themis) -> None:
        self._policy = policy
        self._trials: dict[TrialId, Trial] = {}
        self._names: list[TrialId] = []
        self._terms = np.empty((3, 0))

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            number, known = trial.spec.number, len(self._names)
            if number >= known:
                self._names += [""] * (number + 1)
                more = np.repeat(NO_CANDIDATE, len(self._names) - known, axis=1)
                self._terms = np.concatenate((self._terms, more), axis=1)
            self._names[number] = trial.id
            self._trials[trial.id] = trial
            stands = trial.candidate and not trial.shelved
            self._terms[:, number] = terms(trial) if stands else NO_CANDIDATE[:, 0]

    def order(self, now: Time) -> Iterator[TrialId]:
        """By parts, each of the largest that are left: a few at first, then more and more."""
        submitted, left, alone = self._terms
        with np.errstate(over="ignore"):
            worth = -((now - submitted + left) / alone)
        rest, count = worth < math.inf, FIRST
        while rest.any():
            among = worth[rest]
            last = np.partition(among, count - 1)[count - 1] if count < len(among) else among.max()
            above, level = (np.flatnonzero(rest & each) for each in (worth < last, worth == last))
            for number in chain(above[np.argsort(worth[above], kind="stable")], level):
                yield self._names[number]
            rest &= worth > last
            count *= MORE

    def place(self, trial: TrialId, now: Time) -> Score | None:
        known = self._trials.get(trial)
        if known is None or not known.candidate or known.shelved:
            return None
        return (-rho(known, now), known.spec.number)

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        known = self._trials[trial]
        ratio, words = rho(known, now), self._policy.words(known)
        reason = f"rho {ratio:.3g}, {words}" if ratio < math.inf else words
        return Claim(trial, Quantum(self._policy.quantum_seconds), reason)


def alone_seconds(trial: Trial) -> float | None:
    """T_alone: the seconds of the whole trial on a device of its own; None while unmeasured."""
    seconds = own_step_seconds(trial)
    steps = max(trial.step, trial.planned_steps or 0)
    return seconds * steps if seconds and steps else None


def terms(trial: Trial) -> tuple[float, float, float]:
    """Submission, seconds left and T_alone, for a rho of (now - submission + left) / T_alone."""
    alone, seconds = alone_seconds(trial), own_step_seconds(trial)
    if alone is None or seconds is None:
        return trial.submitted, math.inf, 1.0
    return trial.submitted, max(0, (trial.planned_steps or 0) - trial.step) * seconds, alone


def rho(trial: Trial, now: Time) -> float:
    """T_shared / T_alone; infinite while the trial is unmeasured."""
    submitted, left, alone = terms(trial)
    return (now - submitted + left) / alone
