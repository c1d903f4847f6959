"""ASHA that ends no trial: successive halving by holding trials back (arXiv 1810.05934).

A trial trains to a rung, and goes on only while it is among the best 1/eta of all that have reached
that rung. The others stay suspended behind all that may go on and all new ones; they go on when
more trials have reached the rung, or when a device would otherwise be idle. PASHA adds the rungs
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from hermesd.core.decide.queue import QueueEntry, SortedCandidates
from hermesd.core.model import Quantum, Time, TrialId
from hermesd.core.policy import Claim, Facts, Score, View, planned
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_ladder, loss_at, steps_of, told

BELOW_FIRST = -1
PROMOTED, NEW, HELD_BACK = 0.0, 1.0, 2.0
# Of PASHA: the highest rung at first; rungs count from 0.
FIRST_TOP = 1
WHY = {PROMOTED: "promoted", NEW: "below the first rung", HELD_BACK: "held back"}


@dataclass(frozen=True, slots=True)
class Asha:
    """Rungs, past which the best go on; past the last one a trial runs to its end.

    A rung is a share of a trial's planned length up to 1, and a number of steps above 1. While a
    trial's length is unknown, a first rung given as a share is at 20 steps.
    """

    name: ClassVar[str] = "asha"
    #: Each rung is so many times as far as the one before; one in so many goes on past it.
    eta: int = 3
    #: The first rung.
    min_rung: float = 1 / 16
    #: All rungs are below this.
    max_rung: float = 1.0

    def __post_init__(self) -> None:
        check_ladder(self.eta, self.min_rung, self.max_rung)

    def plan(self, view: View) -> Iterator[Claim]:
        """Promotions, the highest rung first; then trials below the first rung, as submitted.

        Those held back come last instead of being left out: which of the claims before them can
        be placed is not known here, and no device is to stand idle.
        """
        return planned(self.ledger(), view)

    def ledger(self) -> Standings:
        return Standings(self)

    def words(self, trial: Trial) -> str:
        rung = self.rung(trial)
        if rung == BELOW_FIRST and self.until(trial) is None:
            return f"step {trial.step}, no rung ahead"
        if rung == BELOW_FIRST:
            return f"step {trial.step}, first rung at {self._step_of(0, trial.planned_steps)}"
        at, loss = self._step_of(rung, trial.planned_steps), self.loss(trial, rung)
        return f"rung {rung} (step {at}), {told(trial, loss)}"

    def until(self, trial: Trial) -> int | None:
        """The step of the next rung; None past the last."""
        above, planned = self.rung(trial) + 1, trial.planned_steps
        return self._step_of(above, planned) if self._is_rung(above, planned) else None

    def rung(self, trial: Trial) -> int:
        """The highest rung that a trial has reached."""
        rung, planned = BELOW_FIRST, trial.planned_steps
        while self._is_rung(rung + 1, planned) and trial.step >= self._step_of(rung + 1, planned):
            rung += 1
        return rung

    def _is_rung(self, rung: int, planned_steps: int | None) -> bool:
        """Whether a trial has so many rungs; there is no top while its length is unknown."""
        if self.max_rung <= 1 and planned_steps is None:
            return True
        return self._step_of(rung, planned_steps) < steps_of(self.max_rung, planned_steps)

    def _step_of(self, rung: int, planned_steps: int | None) -> int:
        """Where a rung is for a trial of this length, in its own steps."""
        return steps_of(self.min_rung, planned_steps, self.eta**rung)

    def loss(self, trial: Trial, rung: int) -> float:
        return loss_at(trial, self._step_of(rung, trial.planned_steps))


class Standings:
    """The rungs of one study: who has reached each, the lowest loss there first.

    Of a rung the best 1/eta of those that reached it, finished ones included, may go on. Of two
    that are equal that is the one that is not finished, then the earlier.
    """

    def __init__(self, policy: Asha) -> None:
        self._policy = policy
        self._trials: dict[TrialId, Trial] = {}
        self._rungs: dict[TrialId, int] = {}
        self._newcomers = SortedCandidates()
        # By rung, the highest last: all that have reached it, and the candidates that stand at it.
        self._reached: list[SortedCandidates] = []
        self._standing: list[SortedCandidates] = []

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._trials[trial.id] = trial
            before, top = self._rungs.get(trial.id, BELOW_FIRST), BELOW_FIRST
            if not trial.shelved:
                top = self._policy.rung(trial)
            stands = trial.candidate and not trial.shelved
            self._rungs[trial.id] = top
            while len(self._reached) <= top:
                self._reached.append(SortedCandidates())
                self._standing.append(SortedCandidates())
            for rung in range(top + 1):
                key = (self._policy.loss(trial, rung), float(trial.phase.final))
                self._reached[rung].put(entry := QueueEntry(key, trial.spec.number, trial.id))
            for rung in range(top + 1, before + 1):
                self._reached[rung].drop(trial.id)
            if before > BELOW_FIRST and (before != top or not stands):
                self._standing[before].drop(trial.id)
            if stands and top > BELOW_FIRST:
                self._standing[top].put(entry)
            if stands and top == BELOW_FIRST:
                self._newcomers.put(QueueEntry((), trial.spec.number, trial.id))
            else:
                self._newcomers.drop(trial.id)

    def order(self, now: Time) -> Iterator[TrialId]:
        rungs = range(len(self._reached) - 1, BELOW_FIRST, -1)
        for rung in rungs:
            for entry in self._standing[rung].between(end=self._bar(rung)):
                yield entry.trial
        for entry in self._newcomers.after():
            yield entry.trial
        for rung in rungs:
            for entry in self._standing[rung].between(self._bar(rung)):
                yield entry.trial

    def place(self, trial: TrialId, now: Time) -> Score | None:
        if (entry := self._newcomers.get(trial)) is not None:
            return (NEW, entry.number)
        rung = self._rungs.get(trial, BELOW_FIRST)
        entry = self._standing[rung].get(trial) if rung > BELOW_FIRST else None
        if entry is None:
            return None
        kind = PROMOTED if entry < self._bar(rung) else HELD_BACK
        return (kind, -rung, *entry.key, entry.number)

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        known, kind = self._trials[trial], (self.place(trial, now) or (NEW,))[0]
        reason = f"{WHY[kind]}: {self._policy.words(known)}"
        quantum = Quantum(until_step=self._policy.until(known))
        return Claim(trial, quantum, reason, held_back=kind == HELD_BACK)

    def _bar(self, rung: int) -> QueueEntry | tuple[()]:
        """The first of those that reached a rung that may not go on."""
        reached = self._reached[rung]
        return reached[len(reached) // self._policy.eta] if len(reached) else ()


@dataclass(frozen=True, slots=True)
class Pasha(Asha):
    """PASHA (arXiv 2207.06940), Algorithm 1: no trial is promoted past the highest rung so far.

    That is the second one at first. The next one is added whenever those that have reached the
    highest rank otherwise there than at the rung below. The paper takes losses that are nearly
    equal for equal, by a bound that it learns from the curves, and ends when all trials were tried.
    """

    name: ClassVar[str] = "pasha"

    def ledger(self) -> Standings:
        return Progressive(self)


class Progressive(Standings):
    """The rungs of one study, of which the highest is where promotions end."""

    def __init__(self, policy: Asha) -> None:
        super().__init__(policy)
        self._top = FIRST_TOP

    def note(self, trials: Iterable[Trial]) -> None:
        super().note(trials)
        self._top = FIRST_TOP
        while self._top < len(self._reached) and self._reorders(self._top):
            self._top += 1

    def _reorders(self, rung: int) -> bool:
        """Whether those that have reached a rung rank otherwise there than at the one below."""
        below = self._reached[rung - 1]
        known = (below.get(entry.trial) for entry in self._reached[rung].after())
        return any(one > next_one for one, next_one in pairwise(filter(None, known)))

    def _bar(self, rung: int) -> QueueEntry | tuple[()]:
        reached = self._reached[rung]
        return reached[0] if rung >= self._top and len(reached) else super()._bar(rung)
