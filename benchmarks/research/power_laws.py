"""The model of DPL, Deep Power Laws (Kadra et al. 2023), as we read the paper and its program.

Five networks, each from a trial's settings to the a, b and c of a loss a + b / t^c, where t is the
share of the training done; the mean and the deviation of their answers are the prediction. They are
trained on all losses so far by absolute error: from scratch after each of the first losses and
whenever the lowest has not fallen for long, and else refined, with the newest loss in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.research.epochs import EPOCHS
from hermesd.sim.curves import Floats

NETWORKS, UNITS, BATCH = 5, 128, 64
# Adam's.
RATE, DECAYS, TINY = 1e-3, (0.9, 0.999), 1e-8
LEAK = 0.01
ROUNDS_FROM_SCRATCH, ROUNDS_OF_REFINING = 250, 20
# So many losses are each followed by a training from scratch; later, as many without a new lowest
# as `PATIENCE` are.
FIRST, PATIENCE = 10, EPOCHS + EPOCHS // 5

Numbers = NDArray[np.float32]
Places = NDArray[np.intp]


class PowerLaws:
    """Predicts the losses of trials, of those that never ran too, at any epoch."""

    def __init__(self, settings: Floats, generator: np.random.Generator) -> None:
        """The settings are a row for each trial, 0 to 1."""
        self._settings, self._generator = settings.astype(np.float32), generator
        self._known = np.zeros((len(settings), EPOCHS), bool)
        self._weights: list[Numbers] = []
        self._heard = self._without_lower = 0

    def hear(self, losses: Floats) -> None:
        """All losses so far, a row for each trial and a column for each epoch; NaN where there is
        none yet. One more than was heard last."""
        known = ~np.isnan(losses)
        ((trial, epoch),) = np.argwhere(known & ~self._known)
        order = np.argwhere(known)
        self._known = known
        newest = int(np.flatnonzero((order == (trial, epoch)).all(axis=1))[0])
        self._heard += 1
        self._without_lower += 1
        if losses[trial, epoch] == np.nanmin(losses):
            self._without_lower = 0
        settings = self._settings[order[:, 0]]
        shares = ((order[:, 1] + 1) / EPOCHS).astype(np.float32)
        wanted = losses[known].astype(np.float32)
        if self._heard <= FIRST or self._without_lower == PATIENCE:
            self._without_lower = 0
            self._weights = drawn(self._generator, settings.shape[1])
            self._train(settings, shares, wanted, ROUNDS_FROM_SCRATCH, [])
        else:
            self._train(settings, shares, wanted, ROUNDS_OF_REFINING, [newest])

    def predict(self, epochs: Floats) -> tuple[Floats, Floats]:
        """Means and deviations of each trial's loss at an epoch of its own, as one row."""
        laws = Laws(self._weights, self._settings, (epochs / EPOCHS).astype(np.float32))
        return laws.losses.mean(axis=0)[None], laws.losses.std(axis=0)[None]

    def _train(
        self, settings: Numbers, shares: Numbers, wanted: Numbers, rounds: int, always: list[int]
    ) -> None:
        """Go through the losses so many times; those at `always` are in every batch."""
        means = [np.zeros_like(each) for each in self._weights]
        squares = [np.zeros_like(each) for each in self._weights]
        count = len(wanted)
        every = np.tile(np.arange(count), (NETWORKS, 1))
        too = np.tile(np.array(always, np.intp), (NETWORKS, 1))
        step = 0
        for _ in range(rounds):
            shuffled = self._generator.permuted(every, axis=1)
            for first in range(0, count, BATCH):
                step += 1
                batch = np.concatenate((shuffled[:, first : first + BATCH], too), axis=1)
                laws = Laws(self._weights, settings[batch], shares[batch])
                slopes = laws.slopes(np.sign(laws.losses - wanted[batch]) / batch.shape[1])
                rate = RATE * np.sqrt(1 - DECAYS[1] ** step) / (1 - DECAYS[0] ** step)
                for weight, mean, square, slope in zip(
                    self._weights, means, squares, slopes, strict=True
                ):
                    mean += (1 - DECAYS[0]) * (slope - mean)
                    square += (1 - DECAYS[1]) * (slope * slope - square)
                    weight -= np.float32(rate) * mean / (np.sqrt(square) + TINY)


class Laws:
    """The networks' losses for a batch each, and how they change with the weights."""

    def __init__(self, weights: Sequence[Numbers], settings: Numbers, shares: Numbers) -> None:
        self._weights = weights
        self._into = [np.broadcast_to(settings, (NETWORKS, *settings.shape[-2:]))]
        for place in (0, 2):
            total = self._into[-1] @ weights[place] + weights[place + 1]
            self._into.append(np.maximum(total, LEAK * total))
        out = self._into[-1] @ weights[4] + weights[5]
        self._outs = out[..., 1:]
        self._gates = 1 / (1 + np.exp(-self._outs))
        self._shrinking = np.log(shares)
        factor, self._power = np.moveaxis(self._outs * self._gates, -1, 0)
        self._power = np.exp(-self._power * self._shrinking)
        self._factor = factor
        self.losses: Numbers = out[..., 0] + factor * self._power

    def slopes(self, by_loss: Numbers) -> list[Numbers]:
        """Of a sum whose slope by each loss is given, by each of the weights."""
        by_factor = by_loss * self._power
        by_power = -by_loss * self._factor * self._power * self._shrinking
        gated = self._gates * (1 + self._outs * (1 - self._gates))
        by_out = np.stack((by_loss, by_factor * gated[..., 0], by_power * gated[..., 1]), axis=-1)
        slopes: list[Numbers] = []
        for place in (4, 2, 0):
            into = self._into[place // 2]
            slopes[:0] = [into.swapaxes(1, 2) @ by_out, by_out.sum(axis=1, keepdims=True)]
            if place:
                by_out = by_out @ self._weights[place].swapaxes(1, 2)
                by_out *= np.where(into > 0, np.float32(1), np.float32(LEAK))
        return slopes


def drawn(generator: np.random.Generator, parameters: int) -> list[Numbers]:
    """New weights and offsets of each layer."""
    weights = []
    for width, following in ((parameters, UNITS), (UNITS, UNITS), (UNITS, 3)):
        for rows in (width, 1):
            drawn = generator.uniform(-1, 1, (NETWORKS, rows, following)) / np.sqrt(width)
            weights.append(drawn.astype(np.float32))
    return weights
