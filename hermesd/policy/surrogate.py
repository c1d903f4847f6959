"""A Gaussian process over hyper-parameters: what trials that never ran are likely to show.

Pure numpy and deterministic. Parameters count as they are told apart: numbers by their rank among
the study's values, so that neither a unit nor a logarithm matters, anything else by equality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Scalar
from hermesd.core.trial import Trial

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


def _placed(values: Sequence[Scalar]) -> list[float]:
    numbers = sorted({v for v in values if not isinstance(v, bool | str)})
    others = sorted({str(v) for v in values if isinstance(v, bool | str)})
    last = max(1, len(numbers) - 1)
    of_number = {number: place / last for place, number in enumerate(numbers)}
    of_other = {text: APART * place for place, text in enumerate(others, 1)}
    return [of_other[str(v)] if isinstance(v, bool | str) else of_number[v] for v in values]


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
        self._alike_thin = _alike(seen[self._thin], seen[self._thin])
        self._alike_seen, self._alike_asked = _alike(seen, seen), _alike(asked, seen)
        self._roots: dict[Settings, Floats] = {}
        self._settings: Settings | None = None

    def prospects(self, values: Floats) -> tuple[Floats, Floats]:
        """The values expected at the rows asked about, and the deviations from them."""
        mean = float(values.mean())
        away, usual = values - mean, max(float(values.var()), 1e-6)
        settings = self._learned(away[self._thin], usual)
        if settings != self._settings:
            self._settings = settings
            weights, noise = np.array(settings[0]), settings[1]
            noisy = _kernel(self._alike_seen, weights) + noise * np.eye(len(values))
            self._inverse = np.linalg.inv(noisy)
            across = _kernel(self._alike_asked, weights)
            self._reach = across @ self._inverse
            self._unexplained = np.maximum(1.0 - (self._reach * across).sum(axis=1), 0.0)
        size = (float(away @ self._inverse @ away) + PRIOR * usual) / (len(away) + PRIOR)
        return mean + self._reach @ away, np.sqrt(size * self._unexplained)

    def _learned(self, away: Floats, usual: float) -> Settings:
        """The likeliest weights and noise, each improved by itself in turn."""
        weights, noise = (WEIGHT,) * len(self._alike_thin), NOISE
        best = self._likelihood(away, usual, weights, noise)
        for _ in range(ROUNDS):
            for place in range(len(weights)):
                for weight in WEIGHTS:
                    tried = (*weights[:place], weight, *weights[place + 1 :])
                    if (found := self._likelihood(away, usual, tried, noise)) > best:
                        best, weights = found, tried
            for each in NOISES:
                if (found := self._likelihood(away, usual, weights, each)) > best:
                    best, noise = found, each
        return weights, noise

    def _likelihood(
        self, away: Floats, usual: float, tried: tuple[float, ...], noise: float
    ) -> float:
        """The logarithm of how likely the values are, whatever their variance."""
        weights = np.array(tried)
        if (tried, noise) not in self._roots:
            noisy = _kernel(self._alike_thin, weights) + noise * np.eye(len(away))
            self._roots[tried, noise] = np.asarray(np.linalg.cholesky(noisy), np.float64)
        root = self._roots[tried, noise]
        white = np.linalg.solve(root, away)
        count = len(away) + PRIOR
        size = (float(white @ white) + PRIOR * usual) / count
        prior = float((np.log(weights / (1 - weights)) ** 2).sum()) / 8
        return -count / 2 * math.log(size) - float(np.log(np.diag(root)).sum()) - prior


def _alike(left: Floats, right: Floats) -> Floats:
    """How alike each pair of rows is in each parameter."""
    alike: Floats = np.exp(-np.abs(left.T[:, :, None] - right.T[:, None, :]))
    return alike


def _kernel(alike: Floats, weights: Floats) -> Floats:
    """How alike each pair of rows is."""
    if not len(weights):
        return np.ones(alike.shape[1:])
    product = np.prod(1 - weights[:, None, None] * (1 - alike), axis=0)
    kernel: Floats = (alike.mean(axis=0) + product) / 2
    return kernel
