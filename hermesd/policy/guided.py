"""Best first, with probes chosen by a model of the trials over their hyper-parameters.

A trial is judged by its pace along the leader's curve: how many of the leader's steps one of its
own steps is worth. A Gaussian process predicts the paces of trials that have not run. One of them
is probed if it may be faster than the fastest trial that was probed and is not good yet.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice, repeat
from typing import Any, ClassVar, Literal

import numpy as np

from hermesd.core.model import Time, TrialId, TrialSpec
from hermesd.core.policy import Claim, Earlier, Facts, Field, Ranking, Score, View, planned, require
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BAR, BestFirst
from hermesd.policy.good_soon import GOOD, NEVER, SLOWEST, good_soon, path_of, slowness_of
from hermesd.policy.memory import SLOPE, Memory, why_none
from hermesd.policy.pace import Track
from hermesd.policy.process import Floats, Ints, Process, positions
from hermesd.policy.reliability import Reliability

# Inverting takes time with the cube of the probes: it is learned from so many at most.
MOST_PROBES = 200
# What is known of where the good end is read off so many trials.
SAMPLED = 64
# How far the process is believed about a trial that was probed: its neighbors were seen as well.
BELIEF = 0.8
PROMISES, HURRIES, IS_GOOD, HOPELESS, UNPROMISING = 0.0, 1.0, 2.0, 3.0, 4.0
# A trial's row, on the scale that suits its study; one that is not there is on a shelf.
SHOWN: Any = [(name, bool) for name in ("there", "final", "curve", "candidate", "probed")]
SHOWN += [("level", float), ("step", float)]


@dataclass(frozen=True, slots=True)
class Guided:
    """`best_first`, but a trial is probed only if it promises to be among the fastest.

    After the first probes, trials that are not good yet are in order of their slowness: the probed
    ones by what they and their neighbors showed, the others by what is expected.
    """

    name: ClassVar[str] = "guided"
    probe_share: float = 0.025
    #: So many go in order of submission.
    first_probes: int = 4
    #: So many deviations are taken off what is expected.
    caution: float = 1.0
    history: Literal["own", "shared", "off"] = "own"

    def __post_init__(self) -> None:
        BestFirst(self.probe_share)
        require(self.first_probes >= 2, "first_probes", self.first_probes, "2 or more")
        require(0 <= self.caution < math.inf, "caution", self.caution, "0 or more")

    def plan(self, view: View) -> Iterator[Claim]:
        """Every candidate, most deserving first."""
        return planned(self.ledger(), view)

    def ledger(self) -> Survey:
        return Survey(self)

    def remembering(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> Guided:
        """With what earlier studies predict for these trials; itself where that is nothing."""
        memory = Memory(earlier if self.history != "off" else (), specs)
        if not memory.studies:
            return self
        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        return RecallingGuided(**settings, memory=memory)

    def remembered(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> str:
        """Why it goes by no earlier study."""
        return why_none(self.history, earlier, specs)

    def words(self, trial: Trial) -> str:
        return self.best_first().words(trial)

    def best_first(self) -> BestFirst:
        """The policy whose probes, quanta and losses these are."""
        return BestFirst(self.probe_share)


@dataclass(frozen=True)
class RecallingGuided(Guided):
    """The same, with what earlier studies predict: the process begins with it while it holds."""

    memory: Memory = field(kw_only=True)

    def ledger(self) -> Survey:
        return Survey(self, self.memory)

    def remembered(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> str:
        """Which earlier studies it goes by."""
        return f"{', '.join(self.memory.studies)}, whose order counts while it holds"

    def words(self, trial: Trial) -> str:
        said = Guided.words(self, trial)
        if self.best_first().probed(trial):
            return said
        return f"{said}, {self.memory.words(trial.spec.number)}"


class Survey:
    """What one study's trials show and promise, in arrays by their number.

    The leader's curve moves the slowness of all trials: that is worked out anew when anything has
    changed. What the process makes of the parameters is kept while it learns from the same trials.
    """

    def __init__(self, policy: Guided, memory: Memory | None = None) -> None:
        self._policy = policy
        self._memory = memory
        self._best_first = policy.best_first()
        self._trials: list[Trial] = []
        self._numbers: dict[TrialId, int] = {}
        self._shown = np.zeros(0, SHOWN)
        self._learned: Ints | None = None
        self._explained = False
        self._ranks: Ranks | None = None

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            number, known = trial.spec.number, len(self._trials)
            if number >= known:
                self._trials += [trial] * (number + 1)
                self._shown = np.concatenate((self._shown, np.zeros(number + 1, SHOWN)))
            self._trials[number] = trial
            self._numbers[trial.id] = number
            if self._shown["there"][number] == trial.shelved:
                self._learned = None
            self._shown[number] = self._seen(trial)
            self._ranks = None

    def order(self, now: Time) -> Iterator[TrialId]:
        return (self._trials[number].id for number in self._ranked().order())

    def place(self, trial: TrialId, now: Time) -> Score | None:
        return self._ranked().place(self._numbers[trial]) if trial in self._numbers else None

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        number, ranks = self._numbers[trial], self._ranked()
        known = self._trials[number]
        words = self._best_first.words(known)
        if self._memory is not None and not self._best_first.probed(known):
            words = f"{words}, {self._memory.words(number)}"
        if ranks.slowness is not None:
            pace = math.exp(-ranks.slowness[number])
            words = f"{words}, {pace:.2g} of the leader's pace"
        return Claim(trial, self._best_first.quantum(known, facts), words)

    def _seen(self, trial: Trial) -> tuple[bool | float, ...]:
        there, order = not trial.shelved, self._best_first
        return (
            there,
            trial.phase.final,
            there and bool(trial.curve),
            there and trial.candidate,
            there and order.probed(trial),
            order.level(trial),
            trial.step,
        )

    def _of(self, numbers: Ints) -> list[Trial]:
        return [self._trials[number] for number in numbers]

    def _ranked(self) -> Ranks:
        """The order as things are."""
        if self._ranks is None:
            final = self._shown["final"]
            there = np.argsort(final, kind="stable")
            shown = there[self._shown["curve"][there]]
            suited = self._policy.best_first().suited(self._of(_some(shown)))
            if suited != self._best_first:
                self._best_first = suited
                for number in np.flatnonzero(self._shown["there"]):
                    self._shown[number] = self._seen(self._trials[number])
            self._ranks = self._rank(there[self._shown["probed"][there]])
        return self._ranks

    def _rank(self, probed: Ints) -> Ranks:
        """The order; `probed` are those that were probed, the finished ones last."""
        order, level = self._best_first, self._shown["level"]
        candidate = self._shown["candidate"]
        known = np.flatnonzero(candidate & self._shown["probed"])
        known = known[np.argsort(level[known], kind="stable")]
        unknown = np.flatnonzero(candidate & ~self._shown["probed"])
        if self._memory is not None:
            unknown = np.array(sorted(unknown.tolist(), key=self._memory.place), np.int64)
        leader = self._trials[probed[level[probed].argmin()]] if len(probed) else None
        path = path_of(order, leader) if leader is not None else None
        if leader is None or path is None or len(probed) < self._policy.first_probes:
            return Ranks(self._trials, level, known, unknown)
        slowness = self._slowness(path, probed)
        means, deviations = self._expected(probed, slowness)
        field = Field(leader, self._of(_some(probed)))
        if not self._explained:
            return self._unguided(field, known, unknown)
        slowness[known] += BELIEF * (means[known] - slowness[known])
        slowness[unknown] = means[unknown] - self._policy.caution * deviations[unknown]
        adapted = good_soon(order, order.good, field, most=1.0)
        facing = None
        if adapted is not None and len(known):
            facing = adapted.facing(self._trials[known[0]])
        return Ranks(self._trials, level, known, unknown, slowness, facing)

    def _unguided(self, field: Field, known: Ints, unknown: Ints) -> Ranks:
        """The order of `best_first`: the process knows nothing of these trials."""
        ranking: Ranking = self._best_first
        adapted = self._best_first.adapted(field)
        if adapted is not None and len(known):
            ranking = adapted.facing(self._trials[known[0]])
        trials, place = self._trials, np.zeros(len(self._shown))
        ordered = sorted(known.tolist(), key=lambda number: (ranking.score(trials[number]), number))
        place[ordered] = np.arange(len(ordered))
        return Ranks(trials, place, np.array(ordered, np.int64), unknown)

    def _slowness(self, path: Track, probed: Ints) -> Floats:
        """How many times as many steps as the leader each needs for its loss, as a logarithm."""
        slowness = np.full(len(self._shown), SLOWEST)
        level, step = self._shown["level"], self._shown["step"]
        able = probed[np.isfinite(level[probed]) & (step[probed] > 0)]
        shown = level[able].tolist(), step[able].tolist()
        slowness[able] = list(map(slowness_of, repeat(path), *shown))
        return slowness

    def _expected(self, probed: Ints, slowness: Floats) -> tuple[Floats, Floats]:
        """What the process expects of each trial, and its deviation; learned from some."""
        learned = probed[:: 1 + (len(probed) - 1) // MOST_PROBES]
        there = np.flatnonzero(self._shown["there"])
        if self._learned is None:
            self._table = positions([trial.spec for trial in self._of(there)])
        if self._learned is None or not np.array_equal(self._learned, learned):
            rows = self._table[np.searchsorted(there, learned)]
            self._learned, self._process = learned, Process(rows, self._table)
        predicted = self._predicted(learned, slowness)
        away = slowness[learned] - predicted[learned]
        expected = np.zeros((2, len(self._shown)))
        expected[:, there] = self._process.prospects(away)
        self._explained = bool(predicted.any()) or self._process.explains(away)
        means, deviations = expected
        return means + predicted, deviations

    def _predicted(self, probed: Ints, slowness: Floats) -> Floats:
        """The slowness of each trial by earlier studies; zeros where they do not hold."""
        found, memory = np.zeros(len(self._shown)), self._memory
        if memory is None:
            return found
        known = memory.predicted[[memory.row[each] for each in probed.tolist()]]
        if Reliability().holds(known, slowness[probed], ()):
            there = np.flatnonzero(self._shown["there"])
            found[there] = SLOPE * memory.predicted[[memory.row[each] for each in there.tolist()]]
        return found


class Ranks:
    """The candidates of one study in order, by number; `facing` says who is good or hopeless.

    First the unknown that promise more than the best known one that hurries, then the known that
    hurry, the good, the hopeless, and the rest of the unknown. Without a slowness all unknown come
    first, as they were submitted; where none is good or hopeless, the lowest loss goes first.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        level: Floats,
        known: Ints,
        unknown: Ints,
        slowness: Floats | None = None,
        facing: Ranking | None = None,
    ) -> None:
        self.slowness = slowness
        self._trials = trials
        self._level = level
        self._known = dict.fromkeys(known.tolist())
        self._unknown = dict.fromkeys(unknown.tolist())
        self._facing = facing
        self._parts: dict[int, float] = {}
        self._fastest = known.tolist()
        self._worth = len(self._unknown)
        self._bar = math.inf
        if slowness is None:
            return
        self._unknown = dict.fromkeys(unknown[slowness[unknown].argsort(kind="stable")].tolist())
        if facing is not None:
            self._fastest = known[slowness[known].argsort(kind="stable")].tolist()
        first = next((n for n in self._fastest if self._part(n) == HURRIES), None)
        self._bar = BAR if first is None else float(slowness[first])
        self._worth = bisect_right([slowness[n] for n in self._unknown], self._bar)

    def order(self) -> Iterator[int]:
        yield from islice(self._unknown, self._worth)
        yield from (number for number in self._fastest if self._part(number) == HURRIES)
        yield from (number for number in self._known if self._part(number) == IS_GOOD)
        yield from (number for number in self._fastest if self._part(number) == HOPELESS)
        yield from islice(self._unknown, self._worth, None)

    def place(self, number: int) -> Score | None:
        """What that order goes by; None for a trial that is no candidate."""
        slow = 0.0 if self.slowness is None else float(self.slowness[number])
        if number in self._unknown:
            return (PROMISES if slow <= self._bar else UNPROMISING, slow, number)
        if number not in self._known:
            return None
        part, level = self._part(number), float(self._level[number])
        by_loss = part == IS_GOOD or self._facing is None
        return (part, level if by_loss else slow, level, number)

    def _part(self, number: int) -> float:
        """Which part of the order a known trial belongs to."""
        part = self._parts.get(number)
        if part is None:
            part = HURRIES
            if self._facing is not None:
                kind = self._facing.score(self._trials[number])[0]
                part = {GOOD: IS_GOOD, NEVER: HOPELESS}.get(kind, HURRIES)
            self._parts[number] = part
        return part


def _some(numbers: Ints) -> Ints:
    """Evenly many of them, `SAMPLED` at most."""
    return numbers[:: max(1, -(-len(numbers) // SAMPLED))]
