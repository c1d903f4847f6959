"""How the speed of a training follows its workers and servers (Optimus, EuroSys 2018).

Each form is linear in coefficients theta that are at least 0: non-negative least squares finds
them from some ten observations, and again with every later one. Of w workers, p servers and
a global batch of M:

    synchronous     1 / f = t0 M / w + t1 + t2 w / p + t3 w + t4 p
    asynchronous    w / f = t0 + t1 w / p + t2 w + t3 p
    all-reduce      1 / f = t0 M / w + t1 + t2 (w - 1) / w + t3 w

The last is ours, for programs without servers: each worker sends and receives (w - 1) / w of the
gradients, twice, in a number of messages that grows with w.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from operator import mul
from typing import NamedTuple

import numpy as np

from hermesd.policy.curve import Floats
from hermesd.policy.elastic.gain import Split

# Of two fits whose errors are this near, the one with the form's earlier terms is taken.
TIE = 1e-9


class Exchange(StrEnum):
    """How the workers of a training exchange gradients."""

    ALL_REDUCE = "all_reduce"
    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"

    def terms(self, w: int, p: int, batch: float) -> tuple[float, ...]:
        """What the coefficients of this form are multiplied by."""
        if self is Exchange.SYNCHRONOUS:
            return batch / w, 1.0, w / p, w, p
        if self is Exchange.ASYNCHRONOUS:
            return 1.0, w / p, w, p
        return batch / w, 1.0, (w - 1) / w, w

    def steps(self, w: int) -> int:
        """The steps that are done in the time that the terms sum up to: w if each worker does one
        of its own."""
        return w if self is Exchange.ASYNCHRONOUS else 1


class Observed(NamedTuple):
    """The speed that a training showed with so many workers and servers."""

    split: Split
    steps_per_second: float
    #: The global batch; what it counts (samples, tokens) is the caller's choice.
    batch: float = 1.0


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """f(p, w): steps a second for any number of workers and servers."""

    exchange: Exchange
    theta: tuple[float, ...]
    batch: float = 1.0

    def __call__(self, workers: int, servers: int = 0) -> float:
        exchange = self.exchange
        seconds = sum(map(mul, self.theta, exchange.terms(workers, servers, self.batch)))
        return exchange.steps(workers) / seconds if seconds > 0 else math.inf


def fit_speed(exchange: Exchange, observed: Sequence[Observed]) -> SpeedModel | None:
    """The coefficients whose speeds are nearest to those observed, by their relative errors.

    Args:
        exchange: how the workers exchange gradients.
        observed: of one training or of several that differ in their batch alone; the model has
            the batch of the last.

    Returns:
        The model; None without an observation. As long as there are too few to tell, the earlier
        terms of the form explain all that they can: more workers are taken to help until they
        were seen not to.
    """
    seen = [each for each in observed if each.steps_per_second > 0]
    if not seen:
        return None
    rows = np.array([exchange.terms(*each.split, each.batch) for each in seen], dtype=float)
    seconds = np.array(
        [exchange.steps(each.split.workers) / each.steps_per_second for each in seen]
    )
    theta = nonnegative(rows / seconds[:, None], np.ones(len(seen)))
    return SpeedModel(exchange, tuple(theta.tolist()), seen[-1].batch)


def nonnegative(rows: Floats, values: Floats) -> Floats:
    """The x, none below 0, that makes |rows x - values| least.

    At it, some unknowns are 0 and the others are where they would be without the bound. Of the few
    unknowns of a form every subset is tried.
    """
    count = rows.shape[1]
    norms = np.linalg.norm(rows, axis=0)
    scaled = rows / np.where(norms > 0, norms, 1.0)
    best, least = np.zeros(count), float(values @ values)
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = scaled[:, chosen]
            found = np.linalg.lstsq(part, values, rcond=None)[0]
            if (found < 0).any():
                continue
            error = float(((part @ found - values) ** 2).sum())
            if error < least - TIE * float(values @ values):
                least, best = error, np.zeros(count)
                best[list(chosen)] = found
    return best / np.where(norms > 0, norms, 1.0)
