"""What earlier studies with the same parameters predict for the trials of a new one.

The prediction is read off from where the trials of earlier studies ended. The most promising trials
are probed first, and one of the least promising, to see whether the prediction holds for this
study. While it does, `best_first` ranks all trials by it as well as by their losses if earlier
studies agree (see `reliability`). Otherwise the probed trials correct it, and only trials that may
be faster than the fastest one are probed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Setting, TrialSpec
from hermesd.core.policy import FEWEST_EARLIER, SHARED, Earlier
from hermesd.core.trial import Trial
from hermesd.policy.curve import start_loss
from hermesd.policy.pace import track
from hermesd.policy.process import (
    NOISE,
    WEIGHT,
    Alike,
    Floats,
    Ints,
    parameters_of,
    positions,
)

# What is predicted for other settings is read off so many trials; how alike settings count is
# learned from so many, and of one study so many are kept for what their losses showed.
MOST, MOST_LEARNED, MOST_KEPT = 1_024, 512, 128
# An end is put as log(EDGE + how far above the best, the way from there to the start being 1). No
# end is further than FURTHEST: one that broke has to count as a number, a little worse than one
# that came to nothing, and must not outweigh all others in a mean.
EDGE, FURTHEST = 0.05, 1.5
# Rows that are asked about at once: how alike each is to all that were seen is to fit in a cache.
AT_ONCE = 128
# Widths of the kernel that are tried; what the mean of all weighs: next to nothing, but where no
# row is near there would be nothing to divide by.
WIDTH, WIDTHS, TINY = 0.2, (math.inf, 0.5, 0.2, 0.1, 0.05), 1e-6
# Slowness goes by the prediction times b; mean and variance of b, before anything is seen.
SLOPE, SLOPE_VARIANCE = 0.7, 0.3
# The usual variance of slowness, and as how many observations that counts.
USUAL, PRIOR = 1.0, 4.0
# An unprobed trial's slowness is taken to be this many deviations below what is expected. Of so
# many trials that is worked out at once.
CAUTION, NEXT = 0.7, 64


def ends(study: Earlier) -> list[float]:
    """How near each trial of an earlier study came to the best, as a logarithm: lower is better.

    Empty if too few came to anything, or all to the same.
    """
    known = [_lowest(trial) for trial in study.trials]
    lows = [low for low in known if low < math.inf]
    begins = sorted(begin for t in study.trials if (begin := start_loss(t)) < math.inf)
    if len(lows) < FEWEST_EARLIER:
        return []
    best, start = min(lows), begins[len(begins) // 2]
    if not best < start:
        return []
    return [math.log(EDGE + min(FURTHEST, (low - best) / (start - best))) for low in known]


def _lowest(trial: Trial) -> float:
    """The lowest loss that a trial settled at; infinite without one."""
    curve = trial.curve
    if not curve or not all(math.isfinite(chunk.total) for chunk in curve):
        return math.inf
    return float(track(curve).losses[-1])


def varied_in(specs: Iterable[TrialSpec]) -> set[str]:
    """The parameters that differ among these trials."""
    first: dict[str, Setting] = {}
    pairs = (pair for spec in specs for pair in spec.parameters)
    return {name for name, value in pairs if first.setdefault(name, value) != value}


def settings_of(spec: TrialSpec, names: Container[str]) -> str:
    """The same for the same values of these parameters, be they written 1 or 1.0."""
    return repr(sorted((name, _plain(value)) for name, value in spec.parameters if name in names))


def _plain(value: Setting) -> Setting:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def why_none(history: str, earlier: Sequence[Earlier], specs: Iterable[TrialSpec]) -> str:
    """Why a policy with this setting goes by no earlier study, for people."""
    if history == "off":
        return "none, by `history: off`"
    if not earlier:
        shared = " or shared with it" if history == SHARED else ""
        return (
            f"none: when this study began, none of its owner's{shared} "
            f"with the same parameter names had {FEWEST_EARLIER} trials that had ended"
        )
    if not varied_in(specs):
        return "none, as all trials have the same settings"
    few = f"fewer than {FEWEST_EARLIER} trials{' each' if len(earlier) > 1 else ''}"
    names = ", ".join(each.study for each in earlier)
    return f"none: when this study began, {few} of {names} had come to anything, or all to the same"


class Rows(NamedTuple):
    """Trials as their settings tell them apart."""

    #: A row for each, and a column for each parameter.
    places: Floats
    #: A number for each that is that of its settings.
    settings: Ints

    def of(self, chosen: NDArray[np.bool_] | slice) -> Rows:
        return Rows(self.places[chosen], self.settings[chosen])


class Kernel:
    """How alike rows are: the product over the parameters of exp(-distance / width).

    Each width is the one with which values are best ranked by the others, one after the other; an
    infinite one leaves its parameter out. So is a parameter left out that is the same in all rows,
    as it says nothing of rows where it differs.

    Args:
        rows: a column for each parameter.
        values: of each row.
        studies: whose each row is, from 0: one study's values may be higher than another's, so
            ranks are those within a study.
    """

    def __init__(self, rows: Floats, values: Floats, studies: Ints) -> None:
        same = np.ptp(rows, axis=0) == 0
        self.narrow = [0.0 if each else 1 / WIDTH for each in same.tolist()]
        far = np.zeros((len(rows), len(rows)))
        for narrow, column in zip(self.narrow, rows.T, strict=True):
            far += narrow * _apart(column, column)
        for place, column in enumerate(rows.T):
            if same[place]:
                continue
            distance = _apart(column, column)
            far -= self.narrow[place] * distance
            agrees = {each: _agrees(far + distance / each, values, studies) for each in WIDTHS}
            best = max(agrees, key=lambda each: agrees[each])
            self.narrow[place] = 1 / best
            far += distance / best

    def regression(self, seen: Rows, values: Floats, asked: Rows, same: Same) -> Floats:
        """The mean of the values seen, weighted by how alike their rows are to those asked.

        Args:
            same: what is known of the settings asked about; rows seen with these settings are left
                out, as they are in it.
        """
        found = []
        for begin in range(0, len(asked.places), AT_ONCE):
            part = asked.of(slice(begin, begin + AT_ONCE))
            far = np.where(part.settings[:, None] == seen.settings[None, :], np.inf, 0.0)
            for place, each in enumerate(self.narrow):
                if each:
                    far += each * _apart(part.places[:, place], seen.places[:, place])
            own = Same(*(each[begin : begin + AT_ONCE] for each in same))
            found.append(_weighted(far, values, own))
        return np.concatenate(found)


class Same(NamedTuple):
    """Of each row that is asked about: how many ran with its settings, and the sum of what they
    came to."""

    counts: Floats
    sums: Floats


def _apart(left: Floats, right: Floats) -> Floats:
    """How far each pair of values is apart; never more than numbers can be."""
    return np.asarray(np.minimum(np.abs(left[:, None] - right[None, :]), 1.0))


def _weighted(far: Floats, values: Floats, same: Same) -> Floats:
    near = np.exp(-far)
    sums = near @ values + same.sums + TINY * values.mean()
    return np.asarray(sums / (near.sum(axis=1) + same.counts + TINY))


def _agrees(far: Floats, values: Floats, studies: Ints) -> float:
    """How far each study's values rank as all others predict; 0 where nothing tells one from
    another: then the higher a value is, the lower is the mean of the others."""
    if np.ptp(far) == 0:
        return 0.0
    others = far + np.diag(np.full(len(far), np.inf))
    nothing = np.zeros(len(far))
    guesses = _weighted(others, values, Same(nothing, nothing))
    own = [studies == each for each in range(studies.max() + 1)]
    return sum(int(each.sum()) * rank_correlation(guesses[each], values[each]) for each in own)


def rank_correlation(left: Floats, right: Floats) -> float:
    """Spearman's, with equals in the order that they are given in; 0 of fewer than two."""
    count = len(left)
    if count < 2:
        return 0.0
    ranks = [np.argsort(np.argsort(each, kind="stable")) for each in (left, right)]
    return 1 - 6 * float(((ranks[0] - ranks[1]) ** 2).sum()) / (count * (count**2 - 1))


@dataclass(frozen=True, slots=True)
class Learned:
    """What earlier studies say of any study with their parameters."""

    #: Those that say something, each with a few of its trials: the same ones of the same grid.
    studies: tuple[Earlier, ...]
    #: Some of their trials, by lot, and what these came to.
    specs: list[TrialSpec]
    values: Floats
    #: How many ran with the same settings, and the sum of what they came to.
    same: Mapping[str, tuple[int, float]]
    #: The parameters: the kernel is asked about rows with a column for each.
    names: list[str]
    #: Those of them that make out a trial's settings: others are the same throughout a study.
    varied: set[str]
    kernel: Kernel | None
    #: How many steps trials usually had.
    length: float

    def rows(self, specs: Sequence[TrialSpec]) -> Rows:
        """As the kernel is asked about; only rows of one call can be compared."""
        numbers: dict[str, int] = {}
        settings = [
            numbers.setdefault(settings_of(spec, self.varied), len(numbers)) for spec in specs
        ]
        return Rows(positions(specs, self.names), np.array(settings))


@lru_cache(maxsize=2)
def learned(earlier: tuple[Earlier, ...]) -> Learned:
    """Takes time with the number of all trials, so it is done once.

    The lot of a trial is the same for the same settings, so studies of one grid are learned from
    by the same part of it; trials that repeat others' settings come last.
    """
    told = [(study, found) for study in earlier if (found := ends(study))]
    varied = set().union(*(varied_in(each.spec for each in study.trials) for study, _ in told))
    drawn: list[tuple[int, int, int, Trial, float]] = []
    same: dict[str, tuple[int, float]] = {}
    for place, (study, found) in enumerate(told):
        times: Counter[str] = Counter()
        for trial, value in zip(study.trials, found, strict=True):
            settings = settings_of(trial.spec, varied)
            drawn.append((times[settings], crc32(settings.encode()), place, trial, value))
            times[settings] += 1
            count, total = same.get(settings, (0, 0.0))
            same[settings] = count + 1, total + value
    drawn.sort(key=itemgetter(0, 1, 2))
    kept: list[list[Trial]] = [[] for _ in told]
    for _, _, place, trial, _ in drawn:
        if len(kept[place]) < MOST_KEPT:
            kept[place].append(trial)
    studies = (Earlier(each.study, few) for (each, _), few in zip(told, kept, strict=True))
    specs = [trial.spec for *_, trial, _ in drawn[:MOST]]
    values = np.array([value for *_, value in drawn[:MOST]])
    own = np.array([place for _, _, place, _, _ in drawn[:MOST_LEARNED]])
    names = parameters_of(specs)
    kernel = None
    if drawn:
        kernel = Kernel(positions(specs[: len(own)], names), values[: len(own)], own)
    steps = [trial.step for study in earlier for trial in study.trials if trial.step]
    length = float(np.median(steps)) if steps else 0.0
    return Learned(tuple(studies), specs, values, same, names, varied, kernel, length)


class Memory:
    """What is predicted for each trial of a study, by its number.

    Args:
        earlier: studies of the same parameters, the latest first.
        specs: the trials of the new study.
    """

    def __init__(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> None:
        known = learned(tuple(earlier))
        self.studies = tuple(each.study for each in known.studies)
        self.length = known.length
        self.row = {spec.number: row for row, spec in enumerate(specs)}
        if known.kernel is None:
            return
        rows = known.rows([*known.specs, *specs])
        first = len(known.specs)
        seen, asked = rows.of(slice(first)), rows.of(slice(first, None))
        self.rows = asked.places
        if not np.ptp(self.rows, axis=0).any():
            self.studies = ()  # Trials of the same settings: nothing tells one from another.
            return
        found = [known.same.get(settings_of(spec, known.varied), (0, 0.0)) for spec in specs]
        same = Same(*np.array(found, float).T)
        #: Whether most of the trials have settings that ran before.
        self.ran_before = 2 * np.count_nonzero(same.counts) >= len(specs)
        self.predicted = known.kernel.regression(seen, known.values, asked, same)
        # The worst comes second: what is alike says nothing of whether the order holds.
        best, *others = self.predicted.argsort(kind="stable").tolist()
        self.order = np.array([best, *others[-1:], *others[:-1]])
        self._place = {row: place for place, row in enumerate(self.order.tolist())}
        self._ascending = np.sort(self.predicted)

    def place(self, number: int) -> int:
        """How many trials are probed before this one."""
        return self._place[self.row[number]]

    def words(self, number: int) -> str:
        """What was predicted for a trial, for people."""
        return f"place {self.rank(number) + 1} of {len(self.row)} by earlier studies"

    def rank(self, number: int) -> int:
        """How many trials are predicted to be better than this one."""
        return int(self._ascending.searchsorted(self.predicted[self.row[number]]))

    def outlook(self, probed: Sequence[int], slowness: Floats) -> Outlook:
        """What is expected of the others after what these showed."""
        rows = np.array([self.row[number] for number in probed])
        return Outlook(self, rows, slowness)


class Outlook:
    """The slowness expected of trials that were not probed.

    A Gaussian process whose mean is a constant and the prediction times b, both learned from
    the probed.
    """

    def __init__(self, memory: Memory, seen: Ints, slowness: Floats) -> None:
        self._memory = memory
        self._seen = memory.rows[seen]
        self._weights = (WEIGHT,) * self._seen.shape[1]
        predicted = memory.predicted[seen]
        self._center = float(predicted.mean())
        self._predicted = predicted - self._center
        away = slowness - SLOPE * self._predicted
        self._level = float(away.mean())
        noisy = Alike(self._seen, self._seen).kernel(self._weights)
        noisy += SLOPE_VARIANCE * np.outer(self._predicted, self._predicted)
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
        predicted = memory.predicted[rows] - self._center
        across = Alike(memory.rows[rows], self._seen).kernel(self._weights)
        across = across + SLOPE_VARIANCE * np.outer(predicted, self._predicted)
        own = 1 + SLOPE_VARIANCE * predicted**2
        unexplained = np.maximum(own - ((across @ self._inverse) * across).sum(axis=1), 0.0)
        means = SLOPE * predicted + self._level + across @ self._reach
        return np.asarray(means - CAUTION * np.sqrt(self._size * unexplained))
