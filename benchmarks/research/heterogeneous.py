"""The experiment of Hermes-v2, live on three unequal devices, beside the paper and the simulator.

12 trainings of one network, three points of the paper's Table 1 with each of its four batch sizes
(which equation (2) compares), share three CPU slots that are 80, 56 and 40 % of a core:
100:70:50, scaled to what two cores have and leaving the daemons a rest. Each is trained once on a
whole core, which gives the simulator its curves and the quanta their scale, and then under each
policy. `python -m benchmarks.research.heterogeneous [--models LIST] [--orders N] [--iterations N]
[--runs N] [--quick]`; runs that were made before are not made again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean

import numpy as np

from benchmarks.live import Lived
from benchmarks.report import median, publish
from benchmarks.research.hermes2021 import BATCHES, CORES, Runs, program, study, turn_of
from hermesd.node.machine import cgroups, cpu_quotas
from hermesd.sim.contenders import FIFO, Contender, contenders
from hermesd.sim.curves import Job
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.figures import Figures, figures_of, incumbent
from hermesd.sim.orders import ALL, SubmissionOrder, draw, goal_of

NAME, SHARES = "heterogeneous", (80, 56, 40)
# Without their batch sizes.
POINTS = ("sgd::0.001:0.001", "momentum::0.0005:0.01", "adam::0.0005:0.001")
SLOTS = ",".join(f"{share}%" for share in SHARES)
# What all others are compared with: Hermes as it was before Hermes-v2.
HERMES, SWAP, DEFAULT = "hermes, homes", "hermes, swap", "best_first"
QUICK = (HERMES, DEFAULT)
# Hermes-v2 against Hermes, MobileNet and ResNet56: less time to the lowest loss (30 of 102 s; "50
# s"), and to the mean completion (441 to 328 s, 922 to 626 s).
PAPER = {"to_lowest": "-29 % / about 50 s less", "mean_end": "-26 % / -32 %"}
SHOWN = ("to_lowest", "near_best", "mean_end", "makespan")


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds that one order took, until what."""

    to_lowest: float
    near_best: float
    mean_end: float
    makespan: float

    @classmethod
    def of(cls, order: SubmissionOrder, outcome: SimulatedOutcome) -> Taken:
        """Read off an outcome; the lowest loss is that of the smoothed curves."""
        times, lowest = incumbent(order, outcome)
        found: Figures = figures_of(order, outcome)
        return cls(float(times[np.argmin(lowest)]), found.near_best, found.jct, found.makespan)


@dataclass(frozen=True, slots=True)
class Measured:
    """A policy on an order, for real and simulated."""

    real: Taken
    simulated: Taken
    run: Lived


# Of each policy by the number of the order.
Orders = dict[int, Measured]
Results = dict[str, dict[str, Orders]]


def policies(turn: float) -> Mapping[str, Contender]:
    """Those of the paper with turns of 30 s, scaled, and ours, by what they are called here."""
    thirty = f"quantum_seconds={3 * turn:.1f}"
    printed = f"{thirty},growth_seconds=0,winner_may_stay=false"
    texts = {
        HERMES: f"hermes:placement=homes,{printed}",
        SWAP: f"hermes:placement=swap,{printed}",
        "hermes, homes that rebalance": f"hermes:placement=homes,rebalance=node,{printed}",
        "fifo": "fifo",
        "round_robin": f"round_robin:{thirty}",
        "best_first without the matrix": "best_first:speeds=equal",
        DEFAULT: "best_first",
    }
    return {name: contenders(text)[0] for name, text in texts.items()}


def values(number: int) -> tuple[list[str], list[int]]:
    """The points and the batch sizes in the order in which the grid has them; the first is ours."""
    if not number:
        return list(POINTS), list(BATCHES)
    chance = np.random.default_rng(number)
    return (
        [POINTS[place] for place in chance.permutation(len(POINTS))],
        [BATCHES[place] for place in chance.permutation(len(BATCHES))],
    )


def spec_of(model: str, iterations: int, number: int) -> dict[str, object]:
    """A study of all points with all batch sizes, in an order."""
    chosen, batches = values(number)
    return study(model, iterations, chosen, batch_size={"values": batches})


def ordered(record: Lived, number: int) -> SubmissionOrder:
    """The recorded trainings in an order."""
    curves = record.exported.curves
    place = {each: at for at, each in enumerate(product(*values(number)))}

    def at(job: Job) -> int:
        of = dict(job.parameters)
        return place[str(of["point"]), int(str(of["batch_size"]))]

    curves = replace(curves, jobs=tuple(sorted(curves.jobs, key=at)))
    return draw(curves, goal_of(curves), ALL, len(curves.jobs), 0, 0)


def measured(order: SubmissionOrder, contender: Contender, run: Lived) -> Measured:
    """What a run came to, beside what the simulator makes of the recorded curves.

    Raises:
        ValueError: a training went another way than when it was recorded.
    """
    for job, again in zip(order.jobs, run.exported.curves.jobs, strict=True):
        # Of many fast iterations some are recorded, not the same ones each time; the last always.
        if not np.isclose(job.losses[-1], again.losses[-1], rtol=1e-3):
            raise ValueError(f"{run.export}: {again.parameters} trained otherwise than recorded")
    speeds = [share / 100 for share in SHARES]
    drive = Drive(order, len(SHARES), contender.policy, contender.placement, speeds)
    return Measured(Taken.of(order, run.outcome), Taken.of(order, drive.run()), run)


def results_of(runs: Runs, options: argparse.Namespace) -> tuple[Results, list[list[str | float]]]:
    """Every policy on every order, by network; and how fast the kinds of devices were."""
    results: Results = {}
    seen: list[list[str | float]] = []
    for model in options.models.split(","):
        spec = spec_of(model, options.iterations, 0)
        record = runs.run(f"{model}-{options.iterations}", spec, FIFO, CORES)
        if record is None:
            continue
        lived: list[Lived] = []
        for number in range(options.orders):
            order = ordered(record, number)
            for label, contender in policies(turn_of(record)).items():
                if options.quick and label not in QUICK:
                    continue
                name = f"{model}-{options.iterations}-{number}-{label.replace(', ', '-')}"
                part = spec_of(model, options.iterations, number)
                run = runs.run(name.replace(" ", "-"), part, contender, SLOTS)
                if run is not None:
                    group = results.setdefault(model, {})
                    group.setdefault(label, {})[number] = measured(order, contender, run)
                    lived.append(run)
        seen += kinds(model, record, lived)
    return results, seen


def kinds(model: str, record: Lived, lived: Iterable[Lived]) -> list[list[str | float]]:
    """The share of each kind of device, and how fast trials were there beside a whole core."""
    alone = {trial.spec.parameters: trial.step_seconds["cpu"] for trial in record.exported.trials}
    found: dict[str, list[float]] = {}
    for run in lived:
        for trial in run.exported.trials:
            for kind, seconds in trial.step_seconds.items():
                found.setdefault(kind, []).append(alone[trial.spec.parameters] / seconds)
    return [
        [f"{model}, {kind}", share / 100, median(found[kind]), min(found[kind]), max(found[kind])]
        for share in SHARES
        if (kind := f"cpu-{share}%") in found
    ]


def change(name: str, mine: Orders, others: Orders, which: str) -> float:
    """By how many percent the mean over the orders of both is above the others'."""
    both = mine.keys() & others.keys()
    upper = mean(getattr(getattr(mine[number], which), name) for number in both)
    lower = mean(getattr(getattr(others[number], which), name) for number in both)
    return 100 * (float(upper / lower) - 1)


def rows(results: Results) -> list[list[str | float]]:
    """The seconds that each policy took."""
    return [
        [
            f"{model}, {label}", len(mine),
            *(mean(getattr(each.real, name) for each in mine.values()) for name in SHOWN),
            mean(each.run.outcome.switches for each in mine.values()),
            mean(each.run.overhead for each in mine.values()),
            max(each.run.load for each in mine.values()),
        ]
        for model, group in results.items()
        for label, mine in group.items()
    ]  # fmt: skip


def beside_hermes(results: Results) -> list[list[str | float]]:
    """Each policy against Hermes: for real, simulated, and in the paper."""
    return [
        [
            f"{model}, {label}, {name}",
            *(change(name, mine, group[HERMES], which) for which in ("real", "simulated")),
            PAPER.get(name, "") if label == SWAP else "",
        ]
        for model, group in results.items()
        if HERMES in group
        for label, mine in group.items()
        if label != HERMES and mine.keys() & group[HERMES].keys()
        for name in SHOWN
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="incep,res", help="of incep, vgg, res (incep,res)")
    parser.add_argument("--orders", type=int, default=2, help="orders of the trials (2)")
    parser.add_argument("--iterations", type=int, default=2_000, help="of a training (2000)")
    parser.add_argument("--runs", type=int, default=1_000_000, help="at most so many runs now")
    parser.add_argument("--quick", action="store_true", help="short trainings, two policies")
    options = parser.parse_args()
    if options.quick:
        options.models, options.orders, options.iterations = "vgg", 1, 100
    name = f"hermes-benchmark-{os.getpid()}"
    try:
        cpu_quotas.detect(name, {SLOTS: min(SHARES)}, cgroups.detect(name))
    except cpu_quotas.NoQuota as refused:
        print(f"not run: {refused}", file=sys.stderr)
        return
    with program() as directory:
        runs = Runs(options.runs, directory, NAME)
        results, seen = results_of(runs, options)
    columns = ["trials", "orders", *(f"{name}_s" for name in SHOWN)]
    publish(NAME, [*columns, "switches", "overhead", "load"], rows(results))
    columns = ["% against Hermes", "live", "simulated", "paper"]
    publish(f"{NAME}_changes", columns, beside_hermes(results))
    publish(f"{NAME}_kinds", ["device", "share", "speed", "lowest", "highest"], seen)
    if runs.missing:
        print(f"{runs.missing} runs are not made yet; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
