"""What our policies are to reach at least on recorded curves, what is hoped for, and what they do.

Each figure is over FIFO, or another policy, on the same orders: ratio of the means, geometric
mean over the files; `median` is of the ratios order by order, `of_bound` the share of what
knowing the future would give. Of overhead (a share of the device time) and makespan (over FIFO's)
less is better. 16 trials an order; `guided` has all trials of a file, in a tenth of the orders.
`python -m benchmarks.research.floors --curves FILE ... [--orders N] [--out FILE]`; the floors are
those of the four recordings that stand for the models of the Hermes paper.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import publish
from hermesd.refusal import Refused
from hermesd.sim.compare import Case, OrderResult, Recorded, Scene, compare, order_of
from hermesd.sim.contenders import Contender, contenders
from hermesd.sim.orders import BINS
from hermesd.sim.rows import compared, geometric

DEVICES = (1, 4)
TRIALS, ORDERS, FEWER_OF_ALL = 16, 200, 10
HERMES = "hermes:placement=homes,g_thres=4"
LESS_IS_BETTER = ("overhead", "makespan")
COLUMNS = [
    "policy", "over", "figure", "bin", "files", "devices", "orders", "floor", "goal", "reached",
    "median", "of_bound", "met",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A figure of a policy over another's, and what is asked of it with each of `DEVICES`.

    Without floor and goal it is told, not judged.
    """

    figure: str
    bin: str
    floor: tuple[float, ...] = ()
    goal: tuple[float, ...] = ()
    policy: str = "best_first"
    over: str = "fifo"
    #: Whether it is that of the worst file alone.
    worst: bool = False

    def of(self, values: tuple[float, ...], devices: int) -> float | None:
        """What is asked with so many devices; None if nothing is."""
        return dict(zip(DEVICES, values, strict=False)).get(devices)

    def met(self, reached: float, devices: int) -> str:
        """The most that is met: `goal`, `floor` or `no`; `-` where nothing is asked."""
        floor, goal = self.of(self.floor, devices), self.of(self.goal, devices)
        sign = -1 if self.figure in LESS_IS_BETTER else 1
        for name, wanted in (("goal", goal), ("floor", floor)):
            if wanted is not None and sign * reached >= sign * wanted:
                return name
        return "-" if floor is None else "no"


ASKED = (
    Asked("time_to_good", "1", (2.55, 2.45), (3.3, 2.9)),
    Asked("time_to_good", "2", (1.22, 1.22), (1.35, 1.35)),
    Asked("time_to_best", "1", (3.2, 1.95), (4.4, 2.1)),
    Asked("time_to_good", "1", (1.12, 1.08), (1.35, 1.3), over="asha"),
    Asked("time_to_good", "1", (2.2, 2.1), policy="asha"),
    Asked("time_to_good", "1", (2.0, 1.75), (2.5, 2.3), over=HERMES),
    Asked("time_to_good", "1", (1.8,), (2.2,), worst=True),
    Asked("time_to_good", "2", (1.1,), (1.2,), worst=True),
    Asked("overhead", "1", (0.02, 0.02), (0.01, 0.01)),
    Asked("overhead", "2", (0.02, 0.02), (0.01, 0.01)),
    Asked("makespan", "1", (1.02, 1.02)),
    Asked("makespan", "2", (1.02, 1.02)),
    Asked("top4", "all", (15.0, 15.0), (30.0, 30.0), policy="guided"),
    Asked("overhead", "all", policy="guided"),
    Asked("makespan", "all", policy="guided"),
)


def scene(path: Path, devices: int, bin_name: str, orders: int) -> Scene:
    """The fixed reading: the loss of the data, the file's own costs of a switch. Raises Refused."""
    count = max(1, orders // FEWER_OF_ALL) if bin_name == "all" else orders
    found = Scene(Recorded(path, "base", None), devices, BINS[bin_name], TRIALS, count, 0)
    order_of(found, 0)
    return found


def contender(label: str) -> Contender:
    """The one policy of that name and settings."""
    return contenders(label)[0]


def simulated(files: Sequence[Path], orders: int, processes: int) -> dict[Case, list[OrderResult]]:
    """All orders of every policy that is asked after, where it is. Raises Refused."""
    wanted = [(asked.bin, label) for asked in ASKED for label in (asked.policy, asked.over)]
    cases = [
        Case(scene(path, devices, bin_name, orders), contender(label))
        for bin_name, label in dict.fromkeys(wanted)
        for devices in DEVICES
        for path in files
    ]
    left = sum(case.scene.orders for case in cases)

    def progress(done: int) -> None:
        nonlocal left
        left -= done
        if sys.stderr.isatty():
            print(f"\r{left} orders left ", end="", file=sys.stderr, flush=True)

    return compare(cases, processes, progress)


def row(
    asked: Asked, devices: int, scenes: Sequence[Scene], results: Mapping[Case, list[OrderResult]]
) -> list[str | float]:
    """A line of the table, over the scenes of these files."""
    ours = [results[Case(each, contender(asked.policy))] for each in scenes]
    theirs = [results[Case(each, contender(asked.over))] for each in scenes]
    pairs = list(zip(ours, theirs, strict=True))
    files = str(len(scenes))
    told: list[str | float]
    if asked.figure == "overhead":
        reached = float(np.mean([one.effort.overhead for each in ours for one in each]))
        told = [reached, "-", "-"]
    elif asked.figure == "makespan":
        # How many times as long, not how many times as fast.
        long = [compared(asked.figure, other, mine) for mine, other in pairs]
        reached = geometric([each.ratio for each in long])
        told = [reached, geometric([each.median for each in long]), "-"]
    else:
        fast = [compared(asked.figure, mine, other) for mine, other in pairs]
        if asked.worst:
            place = min(range(len(fast)), key=lambda each: fast[each].ratio)
            fast, files = [fast[place]], scenes[place].recorded.path.stem
        reached = geometric([each.ratio for each in fast])
        told = [
            reached,
            geometric([each.median for each in fast]),
            geometric([each.bound_share for each in fast]),
        ]
    limits = [asked.of(values, devices) for values in (asked.floor, asked.goal)]
    return [
        asked.policy, asked.over, asked.figure, asked.bin, files, devices, scenes[0].orders,
        *("-" if each is None else each for each in limits), *told, asked.met(reached, devices),
    ]  # fmt: skip


def table(files: Sequence[Path], orders: int, processes: int) -> list[list[str | float]]:
    """A row for each figure and number of devices with which it is asked after.

    Raises:
        Refused: a file that is none of recorded curves, or has too few of either sort.
    """
    results = simulated(files, orders, processes)
    return [
        row(asked, devices, [scene(path, devices, asked.bin, orders) for path in files], results)
        for asked in ASKED
        for devices in DEVICES
        if not asked.worst or asked.of(asked.floor, devices) is not None
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.research.floors")
    parser.add_argument("--curves", nargs="+", type=Path, required=True)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--out", type=Path, help="instead of benchmarks/results/floors.json")
    words = parser.parse_args()
    if words.orders < 1:
        parser.error(f"--orders {words.orders}: expected 1 or more")
    try:
        rows = table(words.curves, words.orders, len(os.sched_getaffinity(0)))
    except Refused as error:
        sys.exit(str(error))
    publish("floors", COLUMNS, rows, words.out)


if __name__ == "__main__":
    main()
