"""Trials of 1, 2 and 4 devices on 8, in virtual time: `python -m benchmarks.gangs`.

How much of the devices' time is used while trials wait, how long devices are kept for a trial that
lacks some, and the longest wait of any trial of each width.
"""

from __future__ import annotations

import argparse
import random

from benchmarks.report import publish
from tests.core.gang_cluster import GangCluster, GangOutcome

SWITCH_SECONDS = 0.2
TRIALS = {1: 16, 2: 6, 4: 3}
QUANTA: tuple[dict[int, float], ...] = (
    {1: 30, 2: 30, 4: 30}, {1: 20, 2: 30, 4: 45}, {1: 45, 2: 30, 4: 20}, {1: 7, 2: 30, 4: 61},
)  # fmt: skip
COLUMNS = (
    "nodes", "quanta of 1, 2, 4", "use %", "least use %", "longest gathering s", "longest wait 1 s",
    "longest wait 2 s", "longest wait 4 s",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gangs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="mixes of each kind (default 10)")
    seeds = parser.parse_args().seeds
    rows: list[list[str | float]] = []
    for nodes in ((8,), (4, 4)):
        for quanta in QUANTA:
            played = [_play(nodes, quanta, seed) for seed in range(seeds)]
            use = [100 * each.utilization for each in played]
            gathering = max(max(each.gathering_seconds, default=0.0) for each in played)
            waits = [
                max(
                    max(of)
                    for each in played
                    for trial, of in each.waits.items()
                    if trial.startswith(f"w{width}/")
                )
                for width in TRIALS
            ]
            named = ", ".join(f"{quanta[width]:g}" for width in TRIALS)
            where = " + ".join(map(str, nodes))
            rows.append([where, named, sum(use) / seeds, min(use), gathering, *waits])
    publish("gangs", COLUMNS, rows)


def _play(nodes: tuple[int, ...], quanta: dict[int, float], seed: int) -> GangOutcome:
    chance = random.Random(seed)
    work = {width: [chance.uniform(60, 300) for _ in range(n)] for width, n in TRIALS.items()}
    return GangCluster(nodes, work, quanta, SWITCH_SECONDS).play()


if __name__ == "__main__":
    main()
