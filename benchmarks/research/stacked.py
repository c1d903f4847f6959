"""Small networks trained side by side in numpy: every weight is a stack, a layer for each training.

For curves that need no framework and take seconds. All trainings of a stack have one optimizer
and batch size, and learning rates and weight decays of their own; they begin at the same weights
and draw their batches by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = list[Floats]

OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam")
MOMENTUM, MEAN_SQUARE, TINY = 0.9, 0.9, 1e-8
ADAM = (0.9, 0.999)


@dataclass(frozen=True)
class Task:
    """Inputs [n, in], what should come out [n, out], and the widths of the layers, both included.

    Hidden layers are tanh.
    """

    inputs: Floats
    wanted: Floats
    widths: tuple[int, ...]
    #: Whether the loss is a cross-entropy; else it is the mean square.
    classes: bool

    def weights(self, chance: Generator) -> Weights:
        """Where every training begins: a matrix and a row of zeros for each layer."""
        found: Weights = []
        for before, after in zip(self.widths, self.widths[1:], strict=False):
            found += [chance.normal(0, before**-0.5, (before, after)), np.zeros((1, after))]
        return found


@dataclass(frozen=True)
class Trained:
    """The loss of each training's batches by iteration, and the same with the penalty."""

    base: Floats
    total: Floats


def train(
    task: Task,
    first: Weights,
    optimizer: int,
    batch: int,
    settings: Sequence[tuple[float, float]],
    iterations: int,
    chance: Generator,
) -> Trained:
    """Train a network for each learning rate and weight decay; a loss may come out as no number."""
    rates, decays = (np.array(each)[:, None, None] for each in zip(*settings, strict=True))
    weights = [np.repeat(each[None], len(settings), axis=0) for each in first]
    step = Step(OPTIMIZERS[optimizer], rates, weights)
    base, penalty = np.empty((2, len(settings), iterations))
    with np.errstate(all="ignore"):
        for iteration in range(iterations):
            drawn = chance.integers(0, len(task.inputs), (len(settings), batch))
            base[:, iteration], slopes = gradients(task, weights, drawn)
            squares = sum((each**2).sum(axis=(1, 2)) for each in weights[::2])
            penalty[:, iteration] = decays[:, 0, 0] * squares / 2
            for place in range(0, len(weights), 2):
                slopes[place] += decays * weights[place]
            step.take(slopes)
    return Trained(base, base + penalty)


def gradients(task: Task, weights: Weights, drawn: NDArray[np.int64]) -> tuple[Floats, Weights]:
    """The mean loss of each training's batch, and its slope along every weight."""
    layers = [task.inputs[drawn]]
    for matrix, offset in zip(weights[::2], weights[1::2], strict=True):
        linear = layers[-1] @ matrix + offset
        layers.append(np.tanh(linear) if len(layers) < len(weights) // 2 else linear)
    losses, slope = _loss(task, layers[-1], task.wanted[drawn])
    slopes: Weights = []
    for place in range(len(weights) - 2, -1, -2):
        below = layers[place // 2]
        slopes[:0] = [below.transpose(0, 2, 1) @ slope, slope.sum(axis=1, keepdims=True)]
        if place:
            slope = (slope @ weights[place].transpose(0, 2, 1)) * (1 - below**2)
    return losses, slopes


def _loss(task: Task, shown: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """The mean loss over a batch, and its slope along what the last layer shows."""
    if not task.classes:
        away = shown - wanted
        count = away.shape[1] * away.shape[2]
        return (away**2).mean(axis=(1, 2)), 2 * away / count
    shifted = shown - shown.max(axis=2, keepdims=True)
    likely = np.exp(shifted)
    sums = likely.sum(axis=2, keepdims=True)
    losses = (np.log(sums[:, :, 0]) - (shifted * wanted).sum(axis=2)).mean(axis=1)
    return losses, (likely / sums - wanted) / shown.shape[1]


class Step:
    """An optimizer, and what it remembers."""

    def __init__(self, name: str, rates: Floats, weights: Weights) -> None:
        self._name, self._rates, self._weights = name, rates, weights
        self._moments = [np.zeros_like(each) for each in weights]
        self._squares = [np.zeros_like(each) for each in weights]
        self._taken = 0

    def take(self, slopes: Weights) -> None:
        """Move the weights, in place."""
        self._taken += 1
        parts = zip(self._weights, slopes, self._moments, self._squares, strict=True)
        for weight, slope, moment, square in parts:
            weight -= self._rates * self._direction(slope, moment, square)

    def _direction(self, slope: Floats, moment: Floats, square: Floats) -> Floats:
        match self._name:
            case "sgd":
                return slope
            case "momentum":
                moment *= MOMENTUM
                moment += slope
                return moment
            case "rmsprop":
                square *= MEAN_SQUARE
                square += (1 - MEAN_SQUARE) * slope**2
                return slope / (np.sqrt(square) + TINY)
            case _:
                first, second = ADAM
                moment *= first
                moment += (1 - first) * slope
                square *= second
                square += (1 - second) * slope**2
                level = np.sqrt(square / (1 - second**self._taken))
                return moment / (1 - first**self._taken) / (level + TINY)
