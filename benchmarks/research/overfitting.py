"""Trials that overfit: policies that read the training loss, judged by the validation loss.

The runs are those of *overfitting* (`benchmarks.research.curves`), whose training losses go on
falling where the validation losses rise. Which trials are good, and when, is by the validation loss
whatever a policy reads: the training loss; the validation loss at each step; or the validation loss
`EPOCHS` times in a run, as programs report it. Times are those of FIFO over a policy's, in the mean
over the orders of 16 trials of which four are good.

`python -m benchmarks.research.overfitting [--orders N] [--seed N]`
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import publish
from benchmarks.research.curves import long, memorizing
from hermesd.sim.compare import read
from hermesd.sim.contenders import contenders
from hermesd.sim.curves import Curves, Job
from hermesd.sim.drive import Drive
from hermesd.sim.figures import Figures, figures_of
from hermesd.sim.orders import BINS, draw, goal_of

NAME, POLICIES = "overfitting", "fifo,asha,best_first"
DEVICES, BIN, TRIALS, ORDERS, EPOCHS = (1, 4), "1", 16, 40, 20
TRAINING, VALIDATION, EACH_EPOCH = "training", "validation", "validation each epoch"
RATIOS = ("time_to_good", "time_to_best", "near_best")
COLUMNS = ["reads", "policy", "devices", "orders", *RATIOS]


def recorded(seed: int) -> tuple[Curves, Curves]:
    """The same runs by their training and by their validation losses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}.npz"
        found = []
        for shape in (memorizing, None):
            np.savez(path, **long(NAME, seed, shape))
            found.append(read(path))
    training, validation = found
    return training, validation


def each_epoch(job: Job) -> Job:
    """The job if it reports its loss at the end of each epoch only."""
    ends = np.linspace(0, job.steps, EPOCHS + 1)[1:]
    return replace(job, points=tuple(map(int, ends)))


def shown(training: Curves, validation: Curves) -> Mapping[str, tuple[Job, ...]]:
    """The runs as policies see them, by what they read."""
    return {
        TRAINING: training.jobs,
        VALIDATION: validation.jobs,
        EACH_EPOCH: tuple(map(each_epoch, validation.jobs)),
    }


def rows(orders: int, seed: int) -> list[list[str | float]]:
    """What each policy reaches by what it reads."""
    training, validation = recorded(seed)
    goal, number = goal_of(validation), {id(job): n for n, job in enumerate(validation.jobs)}
    drawn = [draw(validation, goal, BINS[BIN], TRIALS, each, 0) for each in range(orders)]
    found: list[list[str | float]] = []
    for devices in DEVICES:
        seconds: dict[tuple[str, str], list[Figures]] = {}
        for reads, jobs in shown(training, validation).items():
            for policy in contenders(POLICIES):
                seconds[reads, policy.label] = [
                    figures_of(
                        order,
                        Drive(
                            replace(order, jobs=tuple(jobs[number[id(job)]] for job in order.jobs)),
                            devices,
                            policy.policy,
                            policy.placement,
                        ).run(),
                    )
                    for order in drawn
                ]
        for (reads, label), mine in seconds.items():
            fifo = seconds[reads, "fifo"]
            ratios = [mean(name, fifo) / mean(name, mine) for name in RATIOS]
            found.append([reads, label, devices, orders, *ratios])
    return found


def mean(name: str, figures: list[Figures]) -> float:
    return float(np.mean([getattr(each, name) for each in figures]))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.research.overfitting", description=__doc__
    )
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    publish("overfitting", COLUMNS, rows(asked.orders, asked.seed))


if __name__ == "__main__":
    main()
