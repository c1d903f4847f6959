"""What searchers that extrapolate learning curves decide about recorded trainings, as we read them.

One trial at a time trains on for an epoch: the one with the largest score by a model of all losses
so far. These are readings of papers whose own program can't be installed, or not whole:

- `dpl`: Deep Power Laws (Kadra et al. 2023), by expected improvement at the last epoch;
- `ifbo`: the rule of ifBO (Rakotoarison et al. 2024) alone, the probability to improve by a random
  threshold after a random number of epochs. Its model is a network whose weights its package
  downloads from elsewhere; in its place is the Gaussian process of Freeze-Thaw;
- `freeze_thaw`: that process (Swersky, Snoek and Adams 2014) by expected improvement at the last
  epoch, where the paper looks for the trial that tells most about which is best.

Losses are told divided by the usual one after a first epoch and at most 1: these methods know how
large a loss may become. Nothing is told of time, so the cost of a switch changes no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import erf
from typing import Protocol

import numpy as np

from benchmarks.research.epochs import EPOCHS, ends_of_epochs, ranges_of, shares_of
from benchmarks.research.freeze_thaw import FreezeThaw
from benchmarks.research.power_laws import PowerLaws
from hermesd.sim.curves import Floats, Job

# Exponents of ten of the shares of the lowest loss by which ifBO wants it to fall.
FALLS = (-4.0, -1.0)
_erf = np.vectorize(erf, otypes=[float])


class Model(Protocol):
    """What a method makes of the losses so far."""

    def hear(self, losses: Floats) -> None: ...
    def predict(self, epochs: Floats) -> tuple[Floats, Floats]: ...


# From the model, the epochs done of each trial, the lowest loss and randomness to a score of each.
Rule = Callable[[Model, Floats, float, np.random.Generator], Floats]


def expected_improvement(
    model: Model, done: Floats, lowest: float, generator: np.random.Generator
) -> Floats:
    """By how much a trial is expected to end below the lowest loss."""
    means, deviations = model.predict(np.full(len(done), float(EPOCHS)))
    deviations = np.maximum(deviations, 1e-12)
    below = (lowest - means) / deviations
    density = np.exp(-0.5 * below**2) / np.sqrt(2 * np.pi)
    gain: Floats = np.mean((lowest - means) * _share_below(below) + deviations * density, axis=0)
    return gain


def chance_at_random(
    model: Model, done: Floats, lowest: float, generator: np.random.Generator
) -> Floats:
    """How likely a trial is below a random threshold after a random number of epochs."""
    epochs = np.minimum(done + generator.integers(1, EPOCHS + 1), EPOCHS)
    wanted = lowest * (1 - 10 ** generator.uniform(*FALLS))
    means, deviations = model.predict(epochs)
    chance: Floats = np.mean(_share_below((wanted - means) / deviations), axis=0)
    return chance


METHODS: Mapping[str, tuple[Callable[[Floats, np.random.Generator], Model], Rule]] = {
    "dpl": (PowerLaws, expected_improvement),
    "ifbo": (FreezeThaw, chance_at_random),
    "freeze_thaw": (FreezeThaw, expected_improvement),
}


def turns(
    method: str, pool: Sequence[Job], jobs: Sequence[Job], seed: int
) -> Iterator[tuple[int, int, int]]:
    """Which of the jobs trains, after which step and up to which, until all are trained; the jobs
    were drawn from the pool."""
    generator = np.random.default_rng(seed)
    build, rule = METHODS[method]
    model = build(shares_of(ranges_of(pool), jobs), generator)
    losses = np.full((len(jobs), EPOCHS), np.nan)
    done = np.zeros(len(jobs))
    trial = 0
    while True:
        epoch, ends = int(done[trial]), ends_of_epochs(jobs[trial])
        losses[trial, epoch] = jobs[trial].losses[ends[epoch + 1] - 1]
        done[trial] += 1
        yield trial, ends[epoch], ends[epoch + 1]
        if done.min() == EPOCHS:
            return
        told = np.minimum(losses / np.nanmedian(losses[:, 0]), 1.0)
        model.hear(told)
        scores = rule(model, done, float(np.nanmin(told)), generator)
        trial = int(np.argmax(np.where(done < EPOCHS, scores, -np.inf)))


def _share_below(deviations: Floats) -> Floats:
    """The share of a normal distribution that is so many deviations above its mean, or less."""
    share: Floats = 0.5 * (1 + _erf(deviations / np.sqrt(2)))
    return share
