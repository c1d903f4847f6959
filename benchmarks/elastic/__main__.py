"""Elastic width against other ways to share devices, simulated: `python -m benchmarks.elastic`.

Without `--curves`: nine jobs of the Optimus paper, and twice and three times as many, under its
allocation, DRF, Tetris, first in first out and fixed widths (`cluster`); and one decision for 4,000
jobs that come to 100,000 tasks on 16,000 nodes, for which the paper needs 5 s. With `--speeds` the
jobs alone, as fast as was measured (`measured`). With the files of recorded curves that `hermesd
simulate` reads: a search at one width, at another, and at any. With `--live`, six jobs for real, at
one width, at two and at any.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from benchmarks.elastic import cluster, live, measured, search
from benchmarks.elastic.place import place
from benchmarks.report import median, publish
from hermesd.core.decide.scheduler import undisturbed
from hermesd.policy.elastic.gain import ServedJob, Split, divide
from hermesd.policy.elastic.speed import Exchange, SpeedModel
from hermesd.refusal import Refused

JOBS = (9, 18, 27)
LARGE = ["jobs", "tasks", "nodes", "placed", "allocate_cpu_s", "place_cpu_s", "decision_cpu_s"]
NODE, TASK = (28.0, 56.0), (4.0, 8.0)


def decided(jobs: int, tasks: int, nodes: int) -> list[str | float]:
    """A decision: who gets what, and where; medians of five."""
    chance = random.Random(0)

    def law() -> SpeedModel:
        theta = (0.05, 0.05, 0.005, 0.0005, 0.0005)
        return SpeedModel(
            Exchange.SYNCHRONOUS,
            tuple(each * chance.uniform(0.3, 3.0) for each in theta),
            chance.choice((64.0, 128.0, 256.0)),
        )

    asked = [
        ServedJob(
            f"s/{number}", chance.uniform(1e3, 1e5), law(), TASK, TASK, Split(1, 1), Split(40, 40)
        )
        for number in range(jobs)
    ]
    capacity = tuple(tasks * each for each in TASK)
    rooms = {f"n{number}": NODE for number in range(nodes)}
    allocating, placing = [], []
    for _ in range(5):
        with undisturbed():
            begun = time.process_time()
            splits = divide(asked, capacity)
            allocated = time.process_time()
            placed = place(asked, splits, rooms)
            placing.append(time.process_time() - allocated)
        allocating.append(allocated - begun)
    given = sum(map(sum, splits.values()))
    times = [median(each) for each in (allocating, placing)]
    return [jobs, given, nodes, len(placed), *times, sum(times)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    parser.add_argument("--curves", nargs="+", type=Path, help="of a search, in its stead")
    parser.add_argument("--orders", type=int, default=20, help="of a file (default 20)")
    parser.add_argument("--seeds", type=int, default=3, help="of the paper's jobs (default 3)")
    parser.add_argument("--live", action="store_true", help="six jobs on CPU slots, in their stead")
    parser.add_argument("--speeds", type=Path, help="a file of speeds of jobs, in their stead")
    words = parser.parse_args()
    if words.live:
        publish("elastic_live", live.COLUMNS, live.compared())
        return
    if words.curves:
        try:
            publish("elastic_search", search.COLUMNS, search.compared(words.curves, words.orders))
        except Refused as error:
            sys.exit(str(error))
        return
    try:
        speeds = measured.read(words.speeds) if words.speeds else {}
    except (Refused, OSError) as error:
        sys.exit(str(error))
    rows = [row for jobs in JOBS for row in cluster.compared(jobs, words.seeds, speeds)]
    publish("elastic_measured" if speeds else "elastic_cluster", cluster.COLUMNS, rows)
    if speeds:
        return
    publish("elastic_decision", LARGE, [decided(4_000, 100_000, 16_000)])


if __name__ == "__main__":
    main()
