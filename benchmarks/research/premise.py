"""Do few settings get far, and most of these early? The premise of time-sharing, for any curves.

Figure 2 of Hermes (Electronics 2021, 10(3), 350): of 192 configurations a quarter reach half of
the loss drop, and of those 60 % are there by iteration 500 (fast) and 85 % by 1,000 (moderate) of
3,000. Here the drop is from the median loss at the first iteration to the lowest of the file, and
a trial reaches a share of it when its smoothed loss does. `reached` is the share of all trials
that do; `by_N`, `fast`, `moderate` and `slow` are shares of those. `python -m
benchmarks.research.premise FILE ... [--shares LIST] [--fast N] [--moderate N]`: archives of
curves, or studies written by `hermesctl study export`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import median, publish
from hermesd.refusal import Refused
from hermesd.sim.compare import read
from hermesd.sim.curves import Curves

# The marks of the printed distribution, in iterations.
MARKS = (50, 100, 250, 500, 1_000, 2_000, 3_000)
COLUMNS = [
    "file", "share", "goal", "trials", "reached", "p50", *(f"by_{mark}" for mark in MARKS),
    "fast", "moderate", "slow",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Premise:
    """How many of a file's trials reach a goal, and after how many iterations, sorted."""

    goal: float
    trials: int
    reached: tuple[int, ...]

    def by(self, iteration: float) -> float:
        """Of those that reach the goal, the share that has by an iteration; 0 if none does."""
        there = sum(step <= iteration for step in self.reached)
        return there / len(self.reached) if self.reached else 0.0


def premise(curves: Curves, share: float) -> Premise:
    """Who reaches a share of the drop from the usual start to the lowest loss of all, and when."""
    smoothed = [job.smoothed for job in curves.jobs]
    start = float(np.median([job.losses[0] for job in curves.jobs]))
    best = min(float(losses.min()) for losses in smoothed)
    goal = start - share * (start - best)
    steps = [int(np.argmax(losses <= goal)) + 1 for losses in smoothed if losses.min() <= goal]
    return Premise(goal, len(smoothed), tuple(sorted(steps)))


def row(name: str, share: float, found: Premise, fast: int, moderate: int) -> list[str | float]:
    """A line of the table; a mark that lies behind the last iteration of all says nothing new."""
    soon, in_time = found.by(fast), found.by(moderate)
    classes = [soon, in_time - soon, 1 - in_time] if found.reached else [0.0, 0.0, 0.0]
    return [
        name, f"{share:.0%}", found.goal, found.trials, len(found.reached) / found.trials,
        float(median(found.reached)) if found.reached else "-",
        *(found.by(mark) for mark in MARKS), *classes,
    ]  # fmt: skip


def table(
    files: Sequence[Path], shares: Sequence[float], fast: int, moderate: int
) -> list[list[str | float]]:
    """A row for each file and share. Raises Refused."""
    rows = []
    for path in files:
        curves = read(path, iterations=None)
        rows += [row(curves.name, each, premise(curves, each), fast, moderate) for each in shares]
    return rows


def share_of(text: str) -> float:
    """A share of the drop: above 0 and at most 1."""
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.research.premise")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shares", nargs="+", type=share_of, default=[0.25, 0.5, 0.75, 0.9])
    parser.add_argument("--fast", type=int, default=500)
    parser.add_argument("--moderate", type=int, default=1_000)
    words = parser.parse_args()
    if not 0 < words.fast < words.moderate:
        parser.error(
            f"--fast {words.fast} --moderate {words.moderate}: expected 0 < fast < moderate"
        )
    try:
        rows = table(words.files, words.shares, words.fast, words.moderate)
    except Refused as error:
        sys.exit(str(error))
    publish("premise", COLUMNS, rows)


if __name__ == "__main__":
    main()
