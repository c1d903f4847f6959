"""A Gaussian process over hyper-parameters: what trials that never ran are likely to show.

Pure numpy and deterministic. Parameters count as they are told apart: numbers by their rank among
the study's values, so that neither a unit nor a logarithm matters, anything else by equality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Scalar
from hermesd.core.trial import Trial

Floats: TypeAlias = NDArray[np.float64]

# What weights and noise (beside a variance of 1) are tried; and the weight before any is known.
WEIGHTS, NOISES = (0.03, 0.1, 0.3, 0.6, 0.9), (0.01, 0.03, 0.1, 0.3)
WEIGHT, NOISE = 0.5, 0.3
ROUNDS = 2
# Weights are learned from so many observations at most: it takes time with the cube of them.
MOST_LEARNED = 64
# The prior of the variance counts as so many observations.
PRIOR = 2.0
APART = 1000.0


class Prospect(NamedTuple):
    """A value that is expected, and its uncertainty."""

    mean: float
    deviation: float


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


def prospects(seen: Floats, values: Floats, asked: Floats) -> list[Prospect]:
    """What is expected at the rows `asked`, of values that were observed at the rows `seen`.

    Half of the similarity of two rows is the mean of that of their parameters, exp(-distance), so
    that each counts by itself; half is the product over all, in which each has a weight. Weights
    and noise are those that make the observations most likely, one after the other, with a prior
    that holds them near a half. A row without parameters is like any other.
    """
    mean = float(values.mean())
    away, usual = values - mean, max(float(values.var()), 1e-6)
    thin = slice(None, None, 1 + (len(seen) - 1) // MOST_LEARNED)
    weights, noise = _learned(_alike(seen[thin], seen[thin]), away[thin], usual)
    inverse = np.linalg.inv(_kernel(_alike(seen, seen), weights) + noise * np.eye(len(seen)))
    size = (float(away @ inverse @ away) + PRIOR * usual) / (len(away) + PRIOR)
    across = _kernel(_alike(asked, seen), weights)
    means = mean + across @ inverse @ away
    unexplained = 1.0 - ((across @ inverse) * across).sum(axis=1)
    deviations = np.sqrt(size * np.maximum(unexplained, 0.0))
    return [Prospect(float(m), float(d)) for m, d in zip(means, deviations, strict=True)]


def _learned(alike: Floats, away: Floats, usual: float) -> tuple[Floats, float]:
    """The likeliest weights and noise, each improved by itself in turn."""
    weights, noise = np.full(len(alike), WEIGHT), NOISE
    best = _likelihood(alike, away, usual, weights, noise)
    for _ in range(ROUNDS):
        for place in range(len(alike)):
            for weight in WEIGHTS:
                tried = weights.copy()
                tried[place] = weight
                if (found := _likelihood(alike, away, usual, tried, noise)) > best:
                    best, weights = found, tried
        for each in NOISES:
            if (found := _likelihood(alike, away, usual, weights, each)) > best:
                best, noise = found, each
    return weights, noise


def _likelihood(alike: Floats, away: Floats, usual: float, weights: Floats, noise: float) -> float:
    """The logarithm of how likely the values are, whatever their variance."""
    root = np.linalg.cholesky(_kernel(alike, weights) + noise * np.eye(len(away)))
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
