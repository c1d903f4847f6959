"""Rungs and synchronous halving: what the policies that compare trials at rungs share.

Nothing here ends a trial: one that is not among the best of a rung is held back behind all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from hermesd.core.decide.queue import Bound, QueueEntry, SortedCandidates
from hermesd.core.model import Phase, Quantum, Time, TrialId
from hermesd.core.policy import Claim, Facts, Score
from hermesd.core.trial import Trial
from hermesd.policy.curve import filler_seconds, loss_at, steps_of, told

LOST = frozenset({Phase.FAILED, Phase.CANCELLED})
GOING, HELD_BACK = 0.0, 1.0


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs, each as many times as far as the one before.

    Both ends are a share of a trial's planned length up to 1, and a number of steps above 1.
    """

    #: As many times as far.
    eta: int
    #: The first rung, if none is skipped.
    lowest: float
    #: All rungs are below this.
    top: float
    #: So many rungs are skipped from below.
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


class Round:
    """Those of a bracket that may train to one rung: who has shown what there.

    It is over when all that have the rung have reached it, or ended. Then the best 1/eta of them,
    one at least, may train to the next: ties go to who was better at the rung before, and so on
    down, then to who is not finished, then to the earlier.
    """

    def __init__(self, ladder: Ladder, rung: int) -> None:
        self._ladder = ladder
        self._rung = rung
        self.members: set[TrialId] = set()
        self._here = SortedCandidates()
        self._training: set[TrialId] = set()
        self._unfinished: set[TrialId] = set()
        self._bar: Bound = ()

    def note(self, trial: Trial, key: Score | None) -> None:
        """Take in a trial as it is, with its key of the round before; None: it is no member."""
        for each in (self.members, self._training, self._unfinished):
            each.discard(trial.id)
        if key is not None:
            self.members.add(trial.id)
        if key is None or not self._ladder.has(trial, self._rung):
            self._here.drop(trial.id)
            return
        key = (self._ladder.loss(trial, self._rung), *key)
        self._here.put(QueueEntry(key, trial.spec.number, trial.id))
        if not trial.phase.final:
            self._unfinished.add(trial.id)
            if trial.step < self._ladder.step_of(trial, self._rung):
                self._training.add(trial.id)

    def turned(self) -> list[TrialId]:
        """Those whose fate the last changes may have changed: who were best, or are now."""
        before = self._bar
        if self._training or not self._unfinished:
            self._bar = ()
        elif (best := max(1, len(self._here) // self._ladder.eta)) < len(self._here):
            self._bar = self._here[best]
        else:
            self._bar = ((math.inf,) * (self._rung + 3),)
        low, high = sorted((before, self._bar))
        return [entry.trial for entry in self._here.between(low, high)]

    def key(self, trial: TrialId) -> Score | None:
        """The key of one that may train to the next rung; None for the others."""
        entry = self._here.get(trial)
        return entry.key if entry is not None and entry < self._bar else None


class Bracket:
    """The rounds of some trials on one ladder, and the rung that each may train to now."""

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._rounds = [Round(ladder, 0)]

    def note(self, trials: Mapping[TrialId, Trial], changed: Iterable[TrialId]) -> set[TrialId]:
        """Take in those that changed; returns those that now may train to another rung, too.

        A round is only asked about those that came, left or changed in the one below. Those that
        failed or were cancelled are no longer in it.
        """
        keys: dict[TrialId, Score | None] = {}
        for name in changed:
            trial = trials[name]
            gone = trial.shelved or trial.phase in LOST
            keys[name] = None if gone else (float(trial.phase.final),)
        touched = set(keys)
        for rung in count():
            if rung == len(self._rounds):
                if not any(keys.values()):
                    return touched
                self._rounds.append(Round(self._ladder, rung))
            here = self._rounds[rung]
            for name, key in keys.items():
                here.note(trials[name], key)
            keys = {name: here.key(name) for name in (*here.turned(), *keys)}
            touched.update(keys)
        raise AssertionError("rungs do not end")

    def goal(self, trial: TrialId) -> int:
        """The rung that a trial may train to."""
        rung = 0
        while rung + 1 < len(self._rounds) and trial in self._rounds[rung + 1].members:
            rung += 1
        return rung


class Halving:
    """Synchronous halving in one bracket or several: who may go on, and who is held back.

    Those going come bracket by bracket, whoever has a device first; those held back come last, by
    the highest rung of the first ladder that they reached, then by their loss there.
    """

    def __init__(
        self,
        ladders: Sequence[Ladder],
        bracket: Callable[[Trial], int],
        named: Callable[[int], str],
    ) -> None:
        self._ladders = ladders
        self._bracket = bracket
        self._named = named
        self._brackets = [Bracket(ladder) for ladder in ladders]
        self._trials: dict[TrialId, Trial] = {}
        self._changed: dict[TrialId, None] = {}
        # By the trial that trains for them, those that are alike; and whose of these have changed.
        self._riders: dict[TrialId, set[TrialId]] = {}
        self._carriers: dict[TrialId, None] = {}
        self._line = SortedCandidates()

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            before = self._trials.get(trial.id)
            for carrier in (before.carrier if before else None, trial.carrier):
                if carrier is not None:
                    riders = self._riders.setdefault(carrier, set())
                    (riders.add if carrier == trial.carrier else riders.discard)(trial.id)
                    self._carriers[carrier] = None
            self._trials[trial.id] = trial
            self._changed[trial.id] = None

    def order(self, now: Time) -> Iterator[TrialId]:
        self._settle()
        return self._line.trials()

    def place(self, trial: TrialId, now: Time) -> Score | None:
        self._settle()
        return self._line.place(trial)

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        self._settle()
        known = self._trials[trial]
        key, _, first = self._first(known)
        bracket = self._bracket(self._trials[first])
        ladder, name = self._ladders[bracket], self._named(bracket)
        name += f"for {first}, " if first != trial else ""
        if key[0] == HELD_BACK:
            words = f"{name}held back: {describe(ladder, known)}"
            return Claim(trial, Quantum(filler_seconds(known, facts)), words, held_back=True)
        rung = self._brackets[bracket].goal(first)
        until = ladder.step_of(known, rung) if ladder.has(known, rung) else None
        return Claim(trial, Quantum(until_step=until), f"{name}{describe(ladder, known)}")

    def _settle(self) -> None:
        """Bring the line up to date: what changed is taken in together, round by round."""
        dealt: dict[int, list[TrialId]] = {}
        for name in self._changed:
            dealt.setdefault(self._bracket(self._trials[name]), []).append(name)
        self._changed.clear()
        touched = dict(self._carriers)
        self._carriers.clear()
        for bracket, names in dealt.items():
            for name in self._brackets[bracket].note(self._trials, names):
                touched[name] = None
                if (carrier := self._trials[name].carrier) is not None:
                    touched[carrier] = None
        for name in touched:
            if name in self._trials:  # a carrier may be of another study
                self._put(self._trials[name])

    def _put(self, trial: Trial) -> None:
        if not trial.candidate or trial.shelved:
            self._line.drop(trial.id)
            return
        self._line.put(QueueEntry(self._first(trial)[0], trial.spec.number, trial.id))

    def _first(self, trial: Trial) -> tuple[Score, int, TrialId]:
        """What a trial's place goes by, and whose that is: of those that it trains for, each in its
        own bracket, the one that may go on first."""
        riders = (self._trials[each] for each in self._riders.get(trial.id, ()))
        alike = [trial, *(each for each in riders if not (each.shelved or each.phase.final))]
        return min((self._key(each, trial), each.spec.number, each.id) for each in alike)

    def _key(self, trial: Trial, carrier: Trial) -> Score:
        bracket = self._bracket(trial)
        ladder, rung = self._ladders[bracket], self._brackets[bracket].goal(trial.id)
        if ladder.reached(trial) < rung or not ladder.has(trial, rung):
            return (GOING, bracket, not carrier.phase.on_device)
        first, own = (standing(each, trial) for each in (self._ladders[0], ladder))
        return (HELD_BACK, *first, bracket, *own)


def standing(ladder: Ladder, trial: Trial) -> Score:
    """What trials that are held back are sorted by."""
    rung = ladder.reached(trial)
    return (-rung, ladder.loss(trial, rung) if rung >= 0 else math.inf)


def describe(ladder: Ladder, trial: Trial) -> str:
    """Where a trial stands, for people."""
    rung = ladder.reached(trial)
    if rung < 0:
        if not ladder.has(trial, 0):
            return f"step {trial.step}, no rung ahead"
        return f"step {trial.step}, first rung at {ladder.step_of(trial, 0)}"
    at, loss = ladder.step_of(trial, rung), ladder.loss(trial, rung)
    return f"rung {rung} (step {at}), {told(trial, loss)}"
