"""Policies on curves of all kinds: how many times as fast as FIFO each is, and as ASHA.

The kinds are the recordings that settings were chosen on (*dev*), other people's logs (*text*,
*images*, *large*, by the beginning of a file's name), and the curves that are made here
(`benchmarks.research.curves`: *small*, *long*, *hard*). 16 trials an order of which four are good,
or twelve with `--bin 2`; all other files of a kind are the history of each. Ratios of the means
over the orders; `file` is `all` in the geometric mean over a kind, and so is `kind` in that over
all files.

`python -m benchmarks.research.kinds --curves FILE ... [--orders N] [--bin 2] [--resume]`; each
file's figures are kept at once in kinds.figures.json (kinds_bin2.figures.json), and with `--resume`
those of an earlier run are not made again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import Figures, publish
from benchmarks.research.curves import HARD, LONG, SMALL, write
from hermesd.refusal import Refused
from hermesd.sim.compare import Recorded, Scene, cases_of, compare
from hermesd.sim.contenders import contenders
from hermesd.sim.orders import BINS
from hermesd.sim.rows import compared, geometric

DEVICES, TRIALS, ORDERS, BIN = (1, 4), 16, 200, "1"
POLICIES = "fifo,asha,best_first:history=off,best_first"
LOGS = {"taskset": "text", "deepobs": "images", "algoperf": "large"}
MADE = {
    **dict.fromkeys(SMALL, "small"),
    **dict.fromkeys(LONG, "long"),
    **dict.fromkeys(HARD, "hard"),
}
RATIOS = ("time_to_good", "time_to_best", "near_best", "auc")
MEANS = (*RATIOS, "of_bound")
ALL = "all"
COLUMNS = ["kind", "file", "policy", "devices", "orders", *MEANS, "overhead", "over_asha"]


def kind_of(path: Path) -> str:
    """What kind of curves a file has, by its name."""
    return MADE.get(path.stem) or LOGS.get(path.stem.partition("_")[0], "dev")


def scenes(files: Sequence[Path], orders: int, bin_name: str = BIN) -> Iterator[Scene]:
    """Each file with each number of devices."""
    for path in files:
        history = tuple(each for each in files if kind_of(each) == kind_of(path))
        recorded = Recorded(path, "base", None)
        for devices in DEVICES:
            yield Scene(recorded, devices, BINS[bin_name], TRIALS, orders, 0, history=history)


def measured(scene: Scene, policies: str, processes: int) -> dict[str, dict[str, float]]:
    """The figures of each policy in a scene. Raises Refused."""
    results = compare(cases_of([scene], contenders(policies)), processes, lambda done: None)
    by_label = {case.contender.label: found for case, found in results.items()}
    rows = {}
    for label, mine in by_label.items():
        fast = {name: compared(name, mine, by_label["fifo"]) for name in RATIOS}
        rows[label] = {name: each.ratio for name, each in fast.items()}
        rows[label]["of_bound"] = fast["time_to_good"].bound_share
        rows[label]["overhead"] = float(np.mean([one.effort.overhead for one in mine]))
    return rows


def figures(
    files: Sequence[Path], orders: int, processes: int, kept: Figures, bin_name: str = BIN
) -> dict[tuple[str, str, str, int], dict[str, float]]:
    """What each policy reaches, by kind, file, policy and devices. Raises Refused."""
    found = {}
    for scene in scenes(files, orders, bin_name):
        kind, file, devices = kind_of(scene.recorded.path), scene.recorded.path.stem, scene.devices
        labels = [each.label for each in contenders(POLICIES)]
        keys = {label: f"{file} {label} {devices}" for label in labels}
        if any(kept.get(key) is None for key in keys.values()):
            for label, row in measured(scene, POLICIES, processes).items():
                kept.keep(keys[label], row)
            print(f"{file}, {devices}: done", file=sys.stderr, flush=True)
        for label, key in keys.items():
            figures_of = kept.get(key)
            assert figures_of is not None  # just measured
            found[kind, file, label, devices] = figures_of
    return found


def table(
    found: dict[tuple[str, str, str, int], dict[str, float]], orders: int
) -> list[list[str | float]]:
    """Each file's row, after those of its kind, after those of all."""
    kinds = list(dict.fromkeys(kind for kind, *_ in found))
    files = [(kind, file) for kind, file, *_ in found]
    groups = [(ALL, ALL), *((kind, ALL) for kind in kinds), *dict.fromkeys(files)]
    cases = list(dict.fromkeys((policy, devices) for _, _, policy, devices in found))
    rows: list[list[str | float]] = []
    for kind, file in groups:
        for policy, devices in cases:
            theirs = [
                (row, found[k, f, "asha", d])
                for (k, f, p, d), row in found.items()
                if kind in (ALL, k) and file in (ALL, f) and (p, d) == (policy, devices)
            ]
            means = [geometric([row[name] for row, _ in theirs]) for name in MEANS]
            over = geometric([row["time_to_good"] / asha["time_to_good"] for row, asha in theirs])
            overhead = float(np.mean([row["overhead"] for row, _ in theirs]))
            rows.append([kind, file, policy, devices, orders, *means, overhead, over])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.research.kinds", description=__doc__
    )
    parser.add_argument("--curves", nargs="*", type=Path, default=[])
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--bin", choices=("1", "2"), default=BIN)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="a folder instead of benchmarks/results")
    words = parser.parse_args()
    if words.orders < 1:
        parser.error(f"--orders {words.orders}: expected 1 or more")
    name = "kinds" if words.bin == BIN else f"kinds_bin{words.bin}"
    kept = Figures(name, {"orders": words.orders, "policies": POLICIES}, words.resume, words.out)
    with tempfile.TemporaryDirectory() as folder:
        files = [*words.curves, *(write(Path(folder), name, 0) for name in MADE)]
        try:
            found = figures(files, words.orders, words.processes, kept, words.bin)
        except Refused as error:
            sys.exit(str(error))
    out = None if words.out is None else words.out / f"{name}.json"
    publish(name, COLUMNS, table(found, words.orders), out)


if __name__ == "__main__":
    main()
