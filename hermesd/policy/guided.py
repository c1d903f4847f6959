"""Best first, with the probes ordered by a model of the trials over their hyper-parameters.

A trial is judged by its pace along the curve of the one that leads: how many of the leader's steps
one of its own was worth. What paces the others would have is read off a Gaussian process, and one
of them is probed whenever it may be faster than the fastest that was probed and is not good yet.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Setting, Time, TrialId
from hermesd.core.policy import Claim, Facts, Field, Ranking, Score, View, planned, require
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.good_soon import GOOD, NEVER, good_soon, path_of
from hermesd.policy.pace import Track

# A Gaussian process over hyper-parameters: what trials that never ran are likely to show.
#
# Pure numpy and deterministic. Parameters count as they are told apart: numbers by their rank
# among the study's values, so that neither a unit nor a logarithm matters, anything else by
# equality.

Floats: TypeAlias = NDArray[np.float64]
# The weight of each parameter, and the noise.
Settings: TypeAlias = tuple[tuple[float, ...], float]

# What weights and noise (beside a variance of 1) are tried; and the weight before any is known.
WEIGHTS, NOISES = (0.03, 0.1, 0.3, 0.6, 0.9), (0.01, 0.03, 0.1, 0.3)
WEIGHT, NOISE = 0.5, 0.3
ROUNDS = 2
# Weights are learned from so many observations at most: it takes time with the cube of them.
MOST_LEARNED = 64
# The prior of the variance counts as so many observations.
PRIOR = 2.0
APART = 1000.0


def positions(trials: Sequence[Trial]) -> Floats:
    """Each trial's parameters in a row: numbers from 0 to 1, other values far from all else."""
    rows = [dict(trial.spec.parameters) for trial in trials]
    names = sorted({name for row in rows for name in row})
    columns = [_placed([row.get(name, "") for row in rows]) for name in names]
    return np.array(columns).reshape(len(names), len(rows)).T


def _placed(values: Sequence[Setting]) -> list[float]:
    numbers = sorted({v for v in values if not isinstance(v, bool | str | tuple)})
    others = sorted({str(v) for v in values if isinstance(v, bool | str | tuple)})
    last = max(1, len(numbers) - 1)
    of_number = {number: place / last for place, number in enumerate(numbers)}
    of_other = {text: APART * place for place, text in enumerate(others, 1)}
    return [of_other[str(v)] if isinstance(v, bool | str | tuple) else of_number[v] for v in values]


class Process:
    """What is expected at the rows `asked`, of values that are observed at the rows `seen`.

    Half of the similarity of two rows is the mean of that of their parameters, exp(-distance), so
    that each counts by itself; half is the product over all, in which each has a weight. Weights
    and noise are those that make the observations most likely, one after the other, with a prior
    that holds them near a half. A row without parameters is like any other.

    What follows from the rows, the weights and the noise is kept: the values change more often.
    """

    def __init__(self, seen: Floats, asked: Floats) -> None:
        self._thin = slice(None, None, 1 + (len(seen) - 1) // MOST_LEARNED)
        self._alike_thin = Alike(seen[self._thin], seen[self._thin])
        self._alike_seen, self._alike_asked = Alike(seen, seen), Alike(asked, seen)
        self._factors: dict[Settings, Factor] = {}
        self._settings: Settings | None = None

    def prospects(self, values: Floats) -> tuple[Floats, Floats]:
        """The values expected at the rows asked about, and the deviations from them."""
        mean = float(values.mean())
        away, usual = values - mean, max(float(values.var()), 1e-6)
        settings = self._learned(away[self._thin], usual)
        if settings != self._settings:
            self._settings = settings
            weights, noise = settings
            noisy = self._alike_seen.kernel(weights) + noise * np.eye(len(values))
            self._inverse = np.linalg.inv(noisy)
            across = self._alike_asked.kernel(weights)
            self._reach = across @ self._inverse
            self._unexplained = np.maximum(1.0 - (self._reach * across).sum(axis=1), 0.0)
        size = (float(away @ self._inverse @ away) + PRIOR * usual) / (len(away) + PRIOR)
        return mean + self._reach @ away, np.sqrt(size * self._unexplained)

    def _learned(self, away: Floats, usual: float) -> Settings:
        """The likeliest weights and noise, each improved by itself in turn."""
        known: dict[Settings, float] = {}

        def likelihood(settings: Settings) -> float:
            if settings not in known:
                known[settings] = self._likelihood(away, usual, settings)
            return known[settings]

        weights, noise = (WEIGHT,) * self._alike_thin.parameters, NOISE
        for _ in range(ROUNDS):
            for place in range(len(weights)):
                tried = [(*weights[:place], each, *weights[place + 1 :]) for each in WEIGHTS]
                weights = max((weights, *tried), key=lambda each: likelihood((each, noise)))
            noise = max((noise, *NOISES), key=lambda each: likelihood((weights, each)))
        return weights, noise

    def _likelihood(self, away: Floats, usual: float, settings: Settings) -> float:
        """The logarithm of how likely the values are, whatever their variance."""
        factor = self._factors.get(settings)
        if factor is None:
            factor = self._factors[settings] = _factor(self._alike_thin, settings)
        white = factor.whitening @ away
        count = len(away) + PRIOR
        size = (float(white @ white) + PRIOR * usual) / count
        return -count / 2 * math.log(size) - factor.volume - factor.doubt


class Factor(NamedTuple):
    """What a likelihood takes of some settings whatever the values are.

    The inverse of the root of the covariance, the logarithm of the root's determinant, and how far
    the prior is against these settings.
    """

    whitening: Floats
    volume: float
    doubt: float


def _factor(alike: Alike, settings: Settings) -> Factor:
    similar, weights = alike.kernel(settings[0]), np.array(settings[0])
    noisy = similar + settings[1] * np.eye(len(similar))
    root = np.linalg.cholesky(noisy)
    whitening = np.asarray(np.linalg.inv(root), np.float64)
    doubt = float((np.log(weights / (1 - weights)) ** 2).sum()) / 8
    return Factor(whitening, float(np.log(np.diag(root)).sum()), doubt)


class Alike:
    """How alike each pair of rows is: in each parameter, and what follows for any weights."""

    def __init__(self, left: Floats, right: Floats) -> None:
        alike = np.exp(-np.abs(left.T[:, :, None] - right.T[:, None, :]))
        self.parameters, self._shape = len(alike), alike.shape[1:]
        self._unlike: Floats = 1 - alike
        self._mean: Floats = alike.mean(axis=0) if len(alike) else np.ones(self._shape)

    def kernel(self, weights: tuple[float, ...]) -> Floats:
        """How alike each pair of rows is altogether."""
        product = np.ones(self._shape)
        for weight, unlike in zip(weights, self._unlike, strict=True):
            product *= 1 - weight * unlike
        kernel: Floats = (self._mean + product) / 2
        return kernel


Ints: TypeAlias = NDArray[np.int64]

# Inverting takes time with the cube of the probes: it is learned from so many at most.
MOST_PROBES = 200
# What is known of where the good end is read off so many trials.
SAMPLED = 64
# Slownesses are logarithms of 1 / pace. This is that of a trial that shows nothing; where all
# that were probed are good, or never will be, one that may be below this bar is probed next.
SLOWEST, BAR = 4.0, 1.0
# A later quantum is at least so many switches.
SWITCHES = 5.0
# How far the process is believed about a trial that was probed: its neighbours were seen as well.
BELIEF = 0.8
PROMISES, HURRIES, IS_GOOD, HOPELESS, UNPROMISING = 0.0, 1.0, 2.0, 3.0, 4.0
# A trial's row, on the scale that suits its study; one that is not there is on a shelf.
SHOWN: Any = [(name, bool) for name in ("there", "final", "curve", "candidate", "probed")]
SHOWN += [("level", float), ("step", float)]


@dataclass(frozen=True, slots=True)
class Guided:
    """`best_first`, but a trial is probed only if it promises to be among the fastest.

    The first `first_probes` go in order of submission. Then the trials that are not good yet are
    in order of their slowness: those that were probed by what they showed and their neighbours
    did, the others by what is expected less `caution` deviations.
    """

    name: ClassVar[str] = "guided"
    probe_share: float = 0.025
    first_probes: int = 4
    caution: float = 1.0

    def __post_init__(self) -> None:
        BestFirst(self.probe_share)
        require(self.first_probes >= 2, "first_probes", self.first_probes, "2 or more")
        require(0 <= self.caution < math.inf, "caution", self.caution, "0 or more")

    def plan(self, view: View) -> Iterator[Claim]:
        """Every candidate, most deserving first."""
        return planned(self.ledger(), view)

    def ledger(self) -> Survey:
        return Survey(self)

    def words(self, trial: Trial) -> str:
        return self.best_first().words(trial)

    def best_first(self) -> BestFirst:
        """The policy whose probes, quanta and losses these are."""
        return BestFirst(self.probe_share, switches=SWITCHES)


class Survey:
    """What one study's trials show and promise, in arrays by their number.

    The leader's curve moves the slowness of all trials: that is worked out anew when anything has
    changed. What the process makes of the parameters is kept while it learns from the same trials.
    """

    def __init__(self, policy: Guided) -> None:
        self._policy = policy
        self._best_first = policy.best_first()
        self._trials: list[Trial] = []
        self._numbers: dict[TrialId, int] = {}
        self._shown = np.zeros(0, SHOWN)
        self._learned: Ints | None = None
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
        leader = self._trials[probed[level[probed].argmin()]] if len(probed) else None
        path = path_of(order, leader) if leader is not None else None
        if leader is None or path is None or len(probed) < self._policy.first_probes:
            return Ranks(self._trials, level, known, unknown)
        slowness = self._slowness(path, probed)
        means, deviations = self._expected(probed, slowness)
        slowness[known] += BELIEF * (means[known] - slowness[known])
        slowness[unknown] = means[unknown] - self._policy.caution * deviations[unknown]
        field = Field(leader, self._of(_some(probed)))
        adapted = good_soon(order, order.good, field, most=1.0)
        facing = None
        if adapted is not None and len(known):
            facing = adapted.facing(self._trials[known[0]])
        return Ranks(self._trials, level, known, unknown, slowness, facing)

    def _slowness(self, path: Track, probed: Ints) -> Floats:
        """How many times as many steps as the leader each needs for its loss, as a logarithm."""
        slowness = np.full(len(self._shown), SLOWEST)
        level, step = self._shown["level"], self._shown["step"]
        able = probed[np.isfinite(level[probed]) & (step[probed] > 0)]
        paces = [max(path.step_of(each), 0.5) for each in level[able].tolist()]
        slowness[able] = [
            min(SLOWEST, -math.log(pace / each))
            for pace, each in zip(paces, step[able].tolist(), strict=True)
        ]
        return slowness

    def _expected(self, probed: Ints, slowness: Floats) -> tuple[Floats, Floats]:
        """What the process expects of each trial, and its deviation; learned from some."""
        learned = probed[:: 1 + (len(probed) - 1) // MOST_PROBES]
        there = np.flatnonzero(self._shown["there"])
        if self._learned is None:
            self._table = positions(self._of(there))
        if self._learned is None or not np.array_equal(self._learned, learned):
            rows = self._table[np.searchsorted(there, learned)]
            self._learned, self._process = learned, Process(rows, self._table)
        expected = np.zeros((2, len(self._shown)))
        expected[:, there] = self._process.prospects(slowness[learned])
        means, deviations = expected
        return means, deviations


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
