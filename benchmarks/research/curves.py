"""Curves of another kind than those that settings were chosen on: made here, the same each time.

`python -m benchmarks.research.curves FOLDER [NAME ...] [--seed N]` writes archives that `hermesd
simulate` reads. *small*: four small networks, really trained (see `benchmarks.research.stacked`)
on generated data with noise, batches down to 4 and a floor that nobody gets below, so that curves
are noisy and ends close. *long*: no trainings, but made-up curves of large models: power laws of
different exponents, warm-ups, plateaus and learning-rate decay, that cross late and end close
together. *hard*: made-up curves with one thing each that misleads who judges early: lengths that
differ, learning rates that fall as a cosine, overfitting, noise.

A name and a seed decide the bytes, on one machine with one numpy. Seconds are made up in
both: iterations trained 12 at a time have no times of their own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.research.stacked import OPTIMIZERS, Task, Trained, train

Arrays: TypeAlias = dict[str, Any]
Shape: TypeAlias = Callable[[Generator, NDArray[Any]], NDArray[Any]]

BATCHES, RATES, DECAYS = (4, 8, 16, 32), (0.1, 0.03, 0.01, 0.001), (0.01, 0.001, 0.0001)
ITERATIONS = 1_000
# What an iteration takes of the time of one of batch 16 with SGD.
FIXED, OF_OPTIMIZER = 0.5, (1.0, 1.03, 1.06, 1.1)
RUNS, POINTS = 96, 256


# Small: data to train on.


def spirals(chance: Generator) -> Task:
    """Three arms of a spiral; a tenth of the labels are wrong."""
    label = np.arange(3_000) % 3
    radius = chance.uniform(0.1, 1.0, len(label))
    angle = 5.0 * radius + label * 2 * np.pi / 3 + chance.normal(0, 0.15, len(label))
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    wrong = chance.random(len(label)) < 0.1
    shown = np.where(wrong, chance.integers(0, 3, len(label)), label)
    return Task(2 * points, np.eye(3)[shown], (2, 48, 48, 3), classes=True)


def regression(chance: Generator) -> Task:
    """Ten inputs of which five matter (Friedman's first function), and much noise."""
    x = chance.random((4_000, 10))
    value = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    value += 10 * x[:, 3] + 5 * x[:, 4] + chance.normal(0, 2.5, len(x))
    scaled = (value - value.mean()) / value.std()
    return Task(2 * x - 1, scaled[:, None], (10, 64, 1), classes=False)


def autoencoder(chance: Generator) -> Task:
    """Four hidden numbers seen through 32 curved ones, with noise; six numbers to keep them in."""
    hidden = chance.normal(size=(4_000, 4))
    seen = np.tanh(hidden @ chance.normal(size=(4, 32))) + chance.normal(0, 0.2, (4_000, 32))
    return Task(seen, seen, (32, 32, 6, 32, 32), classes=False)


def language(chance: Generator) -> Task:
    """The next of 24 letters after two, which follow each other by a law that leaves much open."""
    law = chance.dirichlet(np.full(24, 0.15), size=(24, 24)).cumsum(axis=2)
    text = [0, 1]
    for luck in chance.random(6_000).tolist():
        text.append(min(23, int(np.searchsorted(law[text[-2], text[-1]], luck))))
    letters = np.eye(24)[text]
    return Task(
        np.concatenate((letters[:-2], letters[1:-1]), axis=1), letters[2:], (48, 64, 24), True
    )


def small(name: str, seed: int) -> Arrays:
    """192 trainings of one network: every optimizer, batch size, learning rate, weight decay."""
    chance = np.random.default_rng([seed, *name.encode()])
    task = SMALL[name](chance)
    first = task.weights(chance)
    rows: list[tuple[float, ...]] = []
    trained: list[Trained] = []
    for optimizer, batch in product(range(len(OPTIMIZERS)), BATCHES):
        settings = list(product(RATES, DECAYS))
        rows += [(optimizer, batch, rate, decay) for rate, decay in settings]
        trained.append(train(task, first, optimizer, batch, settings, ITERATIONS, chance))
    seconds = [
        0.06 * OF_OPTIMIZER[int(row[0])] * (FIXED + (1 - FIXED) * row[1] / 16) for row in rows
    ]
    with np.errstate(over="ignore"):  # A training that breaks may pass what the file can hold.
        base = np.concatenate([each.base for each in trained]).astype(np.float32)
        total = np.concatenate([each.total for each in trained]).astype(np.float32)
    return {
        "base": base,
        "total": total,
        "step_s": np.array(seconds),
        "cfg": np.array(rows),
        "meta": np.array(json.dumps({"name": name, "seed": seed, "opts": list(OPTIMIZERS)})),
    }


# Long: the curves alone.


def power_laws(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """From near 7 to floors close together; how fast says little about how far."""
    floor = 2.0 + 0.1 * chance.normal(size=(RUNS, 1))
    exponent, warm = chance.uniform(0.7, 1.0, (RUNS, 1)), chance.uniform(0.002, 0.02, (RUNS, 1))
    losses: NDArray[Any] = floor + 5.0 * (1 + time / warm) ** -exponent
    return losses


def decayed(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """The same under a learning rate that falls: what is high is behind early and gains late."""
    rate, begun = chance.uniform(0.0, 1.0, (RUNS, 1)), chance.uniform(0.5, 0.9, (RUNS, 1))
    late = np.clip((time - begun) / (1 - begun), 0, 1)
    held = rate * (0.5 * (1 - np.sin(late * np.pi / 2)) - 0.25)
    losses: NDArray[Any] = power_laws(chance, time) + held
    return losses


def plateaus(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """The same with a plateau: at first half of the way, and the rest from some time on."""
    until = chance.uniform(0.01, 0.6, (RUNS, 1))
    there = 1 / (1 + np.exp(-(time - until) / 0.02))
    losses: NDArray[Any] = power_laws(chance, time) + 0.8 * (1 - there) * (1 - np.exp(-40 * time))
    return losses


# Hard: the curves alone, of one thing each that misleads who judges early.


def falls(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """From 2.3 to floors apart, each at a rate of its own: the plain curves of these."""
    floor, rate = chance.uniform(0.2, 1.5, (RUNS, 1)), chance.uniform(2.0, 20.0, (RUNS, 1))
    losses: NDArray[Any] = floor + (2.3 - floor) * np.exp(-rate * time)
    return losses


def lengths(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """Epochs as a hyper-parameter, an eighth to all of the steps: what is longer gets further."""
    return falls(chance, time)


def cosine(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """A warm-up, then a rate that falls as a cosine: what has a high one gains late, and most."""
    rate, warm = chance.uniform(0.0, 1.0, (RUNS, 1)), chance.uniform(0.01, 0.1, (RUNS, 1))
    trained = np.clip((time - warm / 2) / (1 - warm / 2), 0, 1)
    held = 0.6 * rate * (1 + np.cos(np.pi * trained)) / 2
    losses: NDArray[Any] = falls(chance, trained) + held - 0.3 * rate * trained
    return losses


def overfitting(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """Validation losses: half of them rise again, each from a time and at a slope of its own."""
    rises = _rises(chance, time)
    losses: NDArray[Any] = falls(chance, time) + rises
    return losses


def memorizing(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """Training losses of the same runs: from where those of validation rise, these fall faster."""
    rises = _rises(chance, time)
    losses: NDArray[Any] = falls(chance, time) * np.exp(-rises)
    return losses


def _rises(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    turns, slope = chance.uniform(0.05, 0.6, (RUNS, 1)), chance.uniform(0.0, 1.5, (RUNS, 1))
    rises: NDArray[Any] = slope * (chance.random((RUNS, 1)) < 0.5)
    return rises * np.clip(time - turns, 0, None)


def noisy(chance: Generator, time: NDArray[Any]) -> NDArray[Any]:
    """Each loss a small batch's: off by as much as trials differ."""
    losses: NDArray[Any] = falls(chance, time) + chance.normal(0, 0.5, (RUNS, POINTS))
    return losses


def long(name: str, seed: int, shape: Shape | None = None) -> Arrays:
    """Logged runs, with noise that lasts a few points; some are cut short, as real ones are.

    Of the shape of that name, or of another one with the same numbers drawn.
    """
    chance = np.random.default_rng([seed, *name.encode()])
    shape = shape or {**LONG, **HARD}[name]
    losses = shape(chance, np.linspace(0, 1, POINTS)[None, :])
    noise = chance.normal(0, 0.02, (RUNS, POINTS))
    for point in range(1, POINTS):
        noise[:, point] += 0.6 * noise[:, point - 1]
    losses = losses + noise
    length = np.where(chance.random(RUNS) < 0.1, chance.integers(64, POINTS, RUNS), POINTS)
    if name == "lengths":
        length = chance.choice([POINTS // 8, POINTS // 4, POINTS // 2, POINTS], RUNS)
    losses[np.arange(POINTS)[None, :] >= length[:, None]] = np.nan
    return {
        "loss": losses.astype(np.float32),
        "length": length,
        "sec_per_step": chance.lognormal(0.0, 0.3, RUNS),
        "meta": np.array(json.dumps({"name": name, "seed": seed})),
    }


SMALL: Mapping[str, Callable[[Generator], Task]] = {
    "spirals": spirals,
    "regression": regression,
    "autoencoder": autoencoder,
    "language": language,
}
LONG: Mapping[str, Shape] = {
    "power_laws": power_laws,
    "decayed": decayed,
    "plateaus": plateaus,
}
HARD: Mapping[str, Shape] = {
    "lengths": lengths,
    "cosine": cosine,
    "overfitting": overfitting,
    "noisy": noisy,
}


def write(folder: Path, name: str, seed: int) -> Path:
    """Make a file of these curves in a folder."""
    path = folder / f"{name}.npz"
    np.savez_compressed(path, **(small if name in SMALL else long)(name, seed))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.research.curves", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*SMALL, *LONG, *HARD)))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = asked.names or [*SMALL, *LONG, *HARD]
    if unknown := sorted({*names} - {*SMALL, *LONG, *HARD}):
        parser.error(f"NAME: {unknown[0]!r}: expected one of {', '.join((*SMALL, *LONG, *HARD))}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(write(asked.folder, name, asked.seed))


if __name__ == "__main__":
    main()
