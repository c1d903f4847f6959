"""What earlier studies with the same parameters predict for the trials of a new one.

The prediction is read off from where the trials of earlier studies ended. The most promising trials
are probed first, and one of the least promising, to see whether the prediction holds for this
study. While it does, the probed trials correct it, and only trials that may be faster than the
fastest one are probed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np

from hermesd.core.model import TrialSpec
from hermesd.core.policy import Earlier
from hermesd.core.trial import Trial
from hermesd.policy.curve import start_loss
from hermesd.policy.pace import track
from hermesd.policy.process import Alike, Floats, Ints, parameters_of, positions

# Fewer trials than these make no history. No more of all earlier ones are asked what they came to,
# those of the new study's own settings aside; how alike settings count is learned from so many, and
# of one study no more are kept for what their losses told.
ENOUGH, MOST, MOST_LEARNED, MOST_KEPT = 8, 1_024, 512, 128
# An end is told as log(EDGE + how far above the best, the way from there to the start being 1).
EDGE, FURTHEST = 0.05, 1.5
# Rows that are asked about at once: how alike each is to all that were seen is to fit in a cache.
AT_ONCE = 128
# Widths of the kernel that are tried; what the mean of all weighs, where nothing is near.
WIDTH, WIDTHS, TINY = 0.2, (0.05, 0.1, 0.2, 0.5, math.inf), 1e-6
# Slowness goes by what was foretold times b; mean and variance of b, before anything is seen.
SLOPE, SLOPE_VARIANCE = 0.7, 0.3
# The weight of a parameter; the noise over the variance of the process; the usual variance, and as
# how many observations that counts.
WEIGHT, NOISE, USUAL, PRIOR = 0.5, 0.3, 1.0, 4.0
# An unprobed trial's slowness is taken to be this many deviations below what is expected. Of so
# many trials that is worked out at once.
CAUTION, NEXT = 0.7, 64


def ends(study: Earlier) -> list[tuple[TrialSpec, float]]:
    """How near each trial of an earlier study came to the best, as a logarithm: lower is better.

    None if too few came to anything, or all to the same.
    """
    known = [(trial.spec, _lowest(trial)) for trial in study.trials]
    lows = [low for _, low in known if low < math.inf]
    begins = sorted(begin for t in study.trials if (begin := start_loss(t)) < math.inf)
    if len(lows) < ENOUGH:
        return []
    best, start = min(lows), begins[len(begins) // 2]
    if not best < start:
        return []
    far = [(spec, min(FURTHEST, (low - best) / (start - best))) for spec, low in known]
    return [(spec, math.log(EDGE + each)) for spec, each in far]


def _lowest(trial: Trial) -> float:
    """The lowest loss that a trial settled at; infinite without one."""
    curve = trial.curve
    if not curve or not all(math.isfinite(chunk.total) for chunk in curve):
        return math.inf
    return float(track(curve).losses[-1])


def lot(spec: TrialSpec) -> int:
    """A number as if drawn by lot, but the same for the same settings: those that are first by it
    are a fair sample of a grid, and in studies of one grid they are the same ones."""
    return crc32(repr(sorted(spec.parameters)).encode())


class Kernel:
    """How alike rows are: the product over the parameters of exp(-distance / width).

    Each width is the one with which values are best ranked by the others, one after the other; an
    infinite one leaves its parameter out. So is a parameter left out that is the same in all rows,
    as it says nothing of rows where it differs.

    Args:
        rows: a column for each parameter.
        values: of each row.
        studies: whose each row is, from 0: only values of one study are compared.
    """

    def __init__(self, rows: Floats, values: Floats, studies: Ints) -> None:
        same = np.ptp(rows, axis=0) == 0
        apart = [_apart(column, column) for column in rows.T]
        self.narrow = [0.0 if each else 1 / WIDTH for each in same.tolist()]
        far = sum((n * d for n, d in zip(self.narrow, apart, strict=True)), np.zeros(values.size))
        for place, distance in enumerate(apart):
            if same[place]:
                continue
            others = far - self.narrow[place] * distance
            agrees = {each: _agrees(others + distance / each, values, studies) for each in WIDTHS}
            best = max(agrees, key=lambda each: agrees[each])
            self.narrow[place] = 1 / best
            far = others + distance / best

    def regression(self, seen: Floats, values: Floats, asked: Floats, again: bool = True) -> Floats:
        """The mean of the values seen, weighted by how alike their rows are to those asked.

        Args:
            again: whether the very same row counts; else what would be foretold without it.
        """
        found = []
        for begin in range(0, len(asked), AT_ONCE):
            part = asked[begin : begin + AT_ONCE]
            far = np.zeros((len(part), len(seen)))
            other = np.full(far.shape, again)
            for place, each in enumerate(self.narrow):
                if each or not again:
                    apart = _apart(part[:, place], seen[:, place])
                    far += each * apart
                    other |= apart > 0
            found.append(_weighted(np.where(other, far, np.inf), values))
        return np.concatenate(found)


def _apart(left: Floats, right: Floats) -> Floats:
    """How far each pair of values is apart; never more than numbers can be."""
    return np.asarray(np.minimum(np.abs(left[:, None] - right[None, :]), 1.0))


def _weighted(far: Floats, values: Floats) -> Floats:
    near = np.exp(-far)
    return np.asarray((near @ values + TINY * values.mean()) / (near.sum(axis=1) + TINY))


def _agrees(far: Floats, values: Floats, studies: Ints) -> float:
    """How far each study's values rank as they are foretold by all others."""
    guesses = _weighted(far + np.diag(np.full(len(far), np.inf)), values)
    own = [studies == each for each in range(studies.max() + 1)]
    return sum(rank_correlation(guesses[each], values[each]) for each in own)


def rank_correlation(left: Floats, right: Floats) -> float:
    """Spearman's, with equals in the order that they are given in; 0 of fewer than two."""
    count = len(left)
    if count < 2:
        return 0.0
    ranks = [np.argsort(np.argsort(each, kind="stable")) for each in (left, right)]
    return 1 - 6 * float(((ranks[0] - ranks[1]) ** 2).sum()) / (count * (count**2 - 1))


@dataclass(frozen=True, slots=True)
class Learned:
    """What earlier studies tell of any study with their parameters."""

    #: Those that say something, each with a few of its trials, the same ones of the same grid.
    few: tuple[Earlier, ...]
    #: What trials came to, in the order of their lots.
    ends: list[tuple[TrialSpec, float]]
    #: The parameters: rows that the kernel is asked about have a column for each.
    names: list[str]
    kernel: Kernel | None
    #: How many steps trials usually had.
    length: float


@lru_cache(maxsize=16)
def learned(earlier: tuple[Earlier, ...]) -> Learned:
    """Takes time with the number of all trials, so it is done once."""
    studies: list[Earlier] = []
    seen: list[tuple[TrialSpec, float, int]] = []
    for each in earlier:
        trials = sorted(each.trials, key=lambda trial: lot(trial.spec))
        if found := ends(Earlier(each.study, trials)):
            seen += [(spec, value, len(studies)) for spec, value in found]
            studies.append(Earlier(each.study, trials[:MOST_KEPT]))
    steps = [trial.step for study in earlier for trial in study.trials if trial.step]
    length = float(np.median(steps)) if steps else 0.0
    seen.sort(key=lambda each: lot(each[0]))
    names = parameters_of(spec for spec, *_ in seen)
    if not seen:
        return Learned((), [], names, None, length)
    specs, values, own = zip(*seen[:MOST_LEARNED], strict=True)
    kernel = Kernel(positions(specs, names), np.array(values), np.array(own))
    return Learned(
        tuple(studies), [(spec, value) for spec, value, _ in seen], names, kernel, length
    )


class Memory:
    """What is foretold of each trial of a study, by its number.

    Args:
        earlier: studies of the same parameters, the latest first.
        specs: the trials of the new study.
    """

    def __init__(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> None:
        known = learned(tuple(earlier))
        self.studies = tuple(each.study for each in known.few)
        self.length = known.length
        self.row = {spec.number: row for row, spec in enumerate(specs)}
        if known.kernel is None:
            return
        wanted = {frozenset(spec.parameters) for spec in specs}
        again = [each for each in known.ends if frozenset(each[0].parameters) in wanted]
        others = [each for each in known.ends if frozenset(each[0].parameters) not in wanted]
        there = {frozenset(spec.parameters) for spec, _ in again}
        #: Whether most of the trials have settings that ran before.
        self.again = 2 * sum(frozenset(spec.parameters) in there for spec in specs) >= len(specs)
        seen = [*again, *others[: max(0, MOST - len(again))]]
        rows = positions([*(spec for spec, _ in seen), *specs], known.names)
        self.rows, values = rows[len(seen) :], np.array([value for _, value in seen])
        if not np.ptp(self.rows, axis=0).any():
            self.studies = ()  # Trials of the same settings: nothing tells one from another.
            return
        self.foretold = known.kernel.regression(rows[: len(seen)], values, self.rows)
        # The worst comes second: what is alike says nothing of whether the order holds.
        best, *others = self.foretold.argsort(kind="stable").tolist()
        self.order = np.array([best, *others[-1:], *others[:-1]])
        self._place = {row: place for place, row in enumerate(self.order.tolist())}
        self._ascending = np.sort(self.foretold)

    def place(self, number: int) -> int:
        """How many trials are probed before this one."""
        return self._place[self.row[number]]

    def words(self, number: int) -> str:
        """What was foretold of a trial, for people."""
        told = ", ".join(self.studies)
        return f"place {self.rank(number) + 1} of {len(self.row)} by what {told} came to"

    def rank(self, number: int) -> int:
        """How many trials are foretold to be better than this one."""
        return int(self._ascending.searchsorted(self.foretold[self.row[number]]))

    def outlook(self, probed: Sequence[int], slowness: Floats) -> Outlook:
        """What is expected of the others after what these showed."""
        rows = np.array([self.row[number] for number in probed])
        return Outlook(self, rows, slowness)


class Outlook:
    """The slowness expected of trials that were not probed.

    A Gaussian process whose mean is a constant and what was foretold times b, both learned from
    the probed.
    """

    def __init__(self, memory: Memory, seen: Ints, slowness: Floats) -> None:
        self._memory = memory
        self._seen = memory.rows[seen]
        self._weights = (WEIGHT,) * self._seen.shape[1]
        foretold = memory.foretold[seen]
        self._center = float(foretold.mean())
        self._foretold = foretold - self._center
        away = slowness - SLOPE * self._foretold
        self._level = float(away.mean())
        noisy = Alike(self._seen, self._seen).kernel(self._weights)
        noisy += SLOPE_VARIANCE * np.outer(self._foretold, self._foretold)
        noisy += NOISE * np.eye(len(seen))
        self._inverse = np.linalg.inv(noisy)
        self._reach = self._inverse @ (away - self._level)
        found = float((away - self._level) @ self._reach)
        self._size = (found + PRIOR * USUAL) / (len(seen) + PRIOR)
        self._least: dict[int, float] = {}

    def least(self, number: int) -> float:
        """The slowness that a trial has at least, as far as can be expected."""
        row = self._memory.row[number]
        if row not in self._least:
            # Those that come next are asked about next, and cost little more beside this one.
            place = self._memory.place(number)
            rows = self._memory.order[place : place + NEXT]
            self._least.update(zip(rows.tolist(), self._of(rows).tolist(), strict=True))
        return self._least[row]

    def _of(self, rows: Ints) -> Floats:
        memory = self._memory
        foretold = memory.foretold[rows] - self._center
        across = Alike(memory.rows[rows], self._seen).kernel(self._weights)
        across = across + SLOPE_VARIANCE * np.outer(foretold, self._foretold)
        own = 1 + SLOPE_VARIANCE * foretold**2
        unexplained = np.maximum(own - ((across @ self._inverse) * across).sum(axis=1), 0.0)
        means = SLOPE * foretold + self._level + across @ self._reach
        return np.asarray(means - CAUTION * np.sqrt(self._size * unexplained))
