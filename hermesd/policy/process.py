"""A Gaussian process over hyper-parameters, which predicts what trials that never ran will show.

Pure numpy, and deterministic. Numbers are compared by their rank among the values at hand, so
neither a unit nor a logarithm matters; other values are equal or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Setting, TrialSpec

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
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
# Values are explained if what the others predict for them correlates so much with them.
EXPLAINS = 0.4
# So many values say whether they are; alike rows differ by so much at least.
FAIR, TOLD_APART = 5, 1e-9
APART = 1000.0


def parameters_of(specs: Iterable[TrialSpec]) -> list[str]:
    """The names of all parameters that any of the trials has, in order."""
    return sorted({name for spec in specs for name, _ in spec.parameters})


def positions(specs: Sequence[TrialSpec], names: Sequence[str] | None = None) -> Floats:
    """Each trial's parameters in a row: numbers from 0 to 1, other values far from all else.

    A column for each of `names`, whoever has it; without them, for each that any trial has.
    """
    rows = [dict(spec.parameters) for spec in specs]
    names = parameters_of(specs) if names is None else names
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

    def explains(self, values: Floats) -> bool:
        """Whether each of the values is told from the others, the present settings given.

        While there are few of them, it is enough that some rows are more alike than others.
        """
        assert self._settings is not None  # what is expected was asked before
        similar = self._alike_seen.kernel(self._settings[0])
        if np.ptp(similar[~np.eye(len(similar), dtype=bool)]) < TOLD_APART:
            return False
        if len(values) < FAIR:
            return True
        away = values - values.mean()
        left_out = away - (self._inverse @ away) / np.diag(self._inverse)
        if away.std() == 0 or left_out.std() == 0:
            return False
        return bool(np.corrcoef(away, left_out)[0, 1] >= EXPLAINS)

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
