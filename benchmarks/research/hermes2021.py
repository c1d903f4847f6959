"""Figures 5 and 6 of the Hermes paper (Electronics 2021, 10(3), 350), live on CPU slots.

48 of the 192 points of the paper's Table 1 are trained once, which says which are good and gives
the simulator its curves. Of these come orders of 16 trials, 4 of them good (bin 1) or 12 (bin 2),
which run for real under each policy. Quanta are the paper's, scaled by how much shorter the
trainings are. `python -m benchmarks.research.hermes2021 [--models LIST] [--slots LIST] [--bins
LIST] [--orders N] [--iterations N] [--runs N]`. Runs that were made before are not made again, so
it may be cut short at any time; those of other models, with the same options, stay in the tables.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.live import Lived, Wanted, folder, kept, live
from benchmarks.report import median, publish
from hermesd.sim.contenders import FIFO, Contender, contenders
from hermesd.sim.drive import Drive
from hermesd.sim.figures import Figures, figures_of
from hermesd.sim.orders import SubmissionOrder, draw, goal_of

PROGRAM = Path(__file__).parent / "networks.py"
OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam")
BATCHES, RATES, DECAYS = (16, 24, 32, 50), (1e-3, 5e-4, 1e-4, 1e-5), (0.1, 0.01, 0.001)
RECORDED, TRIALS, CORES = 48, 16, 2
# The paper's quantum, and the mean seconds of its 1,000 iterations (Table 2).
QUANTUM, TRAINING = 10.0, (30.12 + 94.26 + 110.49 + 66.88) / 4
HERMES = "hermes:placement=homes,g_thres=4,winner_may_stay=false"
BASELINES = ("fifo", "round_robin", "slaq")
# Hermes over FIFO, round-robin and SLAQ with GoogLeNet, VGG16 and ResNet50; and for the top four.
PAPER = {"incep": 2.08, "vgg": 1.92, "res": 3.39}
PAPER_TOP4 = 2.68
SHOWN = ("time_to_good", "top4", "time_to_best")


@dataclass(frozen=True, slots=True)
class Cell:
    """An order of trials on so many slots."""

    model: str
    slots: int
    bin_type: int
    number: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A policy on a cell, for real and simulated."""

    real: Figures
    simulated: Figures
    run: Lived


def points() -> list[str]:
    """The points that are recorded: a fixed choice of the paper's 192."""
    every = list(product(OPTIMIZERS, BATCHES, RATES, DECAYS))
    chosen = np.random.default_rng(0).permutation(len(every))[:RECORDED]
    return [":".join(map(str, every[place])) for place in sorted(chosen.tolist())]


def study(
    model: str, iterations: int, chosen: list[str], **others: Mapping[str, object]
) -> dict[str, object]:
    """A study of these points, in this order, each with all there is of other parameters."""
    return {
        "name": model,
        "program": PROGRAM.name,
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {
            "model": {"value": model},
            "iterations": {"value": iterations},
            "point": {"values": chosen},
            **others,
        },
    }


def turn_of(record: Lived) -> float:
    """The paper's quantum, scaled to the recorded trainings."""
    usual = median([trial.use.busy_seconds for trial in record.exported.trials])
    return max(0.1, round(QUANTUM * usual / TRAINING, 1))


def policies(record: Lived) -> tuple[Contender, ...]:
    """The paper's policies with its quanta, scaled to the recorded trainings, and ours."""
    turn = turn_of(record)
    return contenders(
        f"fifo,round_robin:quantum_seconds={3 * turn:.1f},slaq:quantum_seconds={3 * turn:.1f},"
        f"{HERMES},quantum_seconds={turn},growth_seconds={turn},asha,best_first"
    )


def order_of(record: Lived, cell: Cell) -> SubmissionOrder:
    """The cell's order of recorded trainings. Raises Refused if too few are good, or not."""
    curves = record.exported.curves
    return draw(curves, goal_of(curves), cell.bin_type, TRIALS, cell.number, 0)


def measured(order: SubmissionOrder, cell: Cell, contender: Contender, run: Lived) -> Measured:
    """What a run came to, beside what the simulator makes of the recorded curves.

    Raises:
        ValueError: a training went another way than when it was recorded.
    """
    for job, again in zip(order.jobs, run.exported.curves.jobs, strict=True):
        # Of many fast iterations some are recorded, not the same ones each time; the last always.
        if not np.isclose(job.losses[-1], again.losses[-1], rtol=1e-3):
            raise ValueError(f"{run.export}: {again.parameters} trained otherwise than recorded")
    foretold = Drive(order, cell.slots, contender.policy, contender.placement).run()
    return Measured(figures_of(order, run.outcome), figures_of(order, foretold), run)


class Runs:
    """Makes runs, or finds them made: at most `left` more."""

    def __init__(self, left: int, directory: Path, benchmark: str) -> None:
        self.left = left
        self.missing = 0
        self._directory = directory
        self._where = folder(benchmark)

    def run(
        self,
        name: str,
        spec: dict[str, object],
        contender: Contender,
        slots: int | str,
        is_asked_for: bool = True,
    ) -> Lived | None:
        """The run; None if it is not made yet and no more are wanted, or this one is not."""
        wanted = Wanted(name, spec, self._directory, contender, slots)
        found = kept(wanted, self._where)
        if not is_asked_for:
            return found
        if found is None and self.left > 0:
            self.left -= 1
            found = live(wanted, self._where)
        self.missing += found is None
        return found


@contextmanager
def program() -> Iterator[Path]:
    """A folder that holds the program alone: what is beside it does not travel with a study."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(PROGRAM, name)
        yield Path(name)


# Of each policy by the number of the order.
Orders = dict[int, Measured]
Results = dict[tuple[str, int, int], dict[str, Orders]]


def results_of(runs: Runs, options: argparse.Namespace) -> Results:
    """Every policy on every order; by model, slots and bin. Of models that are not asked for, such
    as those of other nights, what was made before."""
    results: Results = {}
    asked_for = options.models.split(",")
    for model in PAPER:
        is_asked_for = model in asked_for
        spec = study(model, options.iterations, points())
        record = runs.run(f"{model}-{options.iterations}", spec, FIFO, CORES, is_asked_for)
        if record is None:
            continue
        slots, bins = (map(int, words.split(",")) for words in (options.slots, options.bins))
        for cell in (Cell(model, *rest) for rest in product(slots, bins, range(options.orders))):
            order = order_of(record, cell)
            chosen = [str(dict(job.parameters)["point"]) for job in order.jobs]
            for contender in policies(record):
                label = contender.policy.name
                where = f"{model}-{cell.slots}-{cell.bin_type}-{cell.number}-{label}"
                part = study(model, options.iterations, chosen)
                run = runs.run(where, part, contender, cell.slots, is_asked_for)
                if run is not None:
                    group = results.setdefault((model, cell.slots, cell.bin_type), {})
                    found = measured(order, cell, contender, run)
                    group.setdefault(label, {})[cell.number] = found
    return results


def ratio(name: str, ours: Orders, theirs: Orders, kind: str) -> float:
    """How many times as fast as others: the ratio of the means over the orders of both."""
    both = ours.keys() & theirs.keys()
    upper: float = mean(getattr(getattr(theirs[number], kind), name) for number in both)
    lower: float = mean(getattr(getattr(ours[number], kind), name) for number in both)
    return upper / lower


def rows(results: Results) -> list[list[str | float]]:
    """Each policy beside FIFO, where both have an order."""
    return [
        [
            f"{model}, bin {bin_type}, {label}", slots, len(mine),
            mean(each.real.time_to_good for each in mine.values()),
            *(
                ratio(name, mine, group["fifo"], kind)
                for name in SHOWN
                for kind in ("real", "simulated")
            ),
            mean(each.run.outcome.switches for each in mine.values()),
            mean(each.run.overhead for each in mine.values()),
            max(each.run.load for each in mine.values()),
        ]
        for (model, slots, bin_type), group in results.items()
        for label, mine in group.items()
        if mine.keys() & group.get("fifo", {}).keys()
    ]  # fmt: skip


def beside_the_paper(results: Results) -> list[list[str | float]]:
    """Each policy of ours over the mean of the paper's three baselines: Figures 5 and 6."""
    found: list[list[str | float]] = []
    for (model, slots, bin_type), group in results.items():
        if not all(name in group for name in BASELINES):
            continue
        for label in (name for name in group if name not in BASELINES):
            if not all(group[label].keys() & group[each].keys() for each in BASELINES):
                continue
            for figure, name in (("5", "time_to_good"), *([("6", "top4")] * (bin_type == 2))):
                speedups = [
                    mean(ratio(name, group[label], group[each], kind) for each in BASELINES)
                    for kind in ("real", "simulated")
                ]
                where = f"Figure {figure}: {model}, bin {bin_type}, {label}"
                paper = PAPER[model] if figure == "5" else PAPER_TOP4
                found.append([where, slots, *speedups, paper if label == "hermes" else ""])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="vgg", help="of incep, vgg, res (vgg)")
    parser.add_argument("--slots", default="2", help="how many CPU slots, with commas (2)")
    parser.add_argument("--bins", default="1,2", help="1, 2 or both (1,2)")
    parser.add_argument("--orders", type=int, default=1, help="orders of each bin (1)")
    parser.add_argument("--iterations", type=int, default=1_000, help="of a training (1000)")
    parser.add_argument("--runs", type=int, default=1_000_000, help="at most so many runs now")
    options = parser.parse_args()
    if unknown := set(options.models.split(",")) - PAPER.keys():
        parser.error(f"--models: {', '.join(sorted(unknown))}: expected some of {','.join(PAPER)}")
    with program() as directory:
        runs = Runs(options.runs, directory, "hermes2021")
        results = results_of(runs, options)
    columns = ["trials", "slots", "orders", "to_good_s"]
    columns += [f"{name}_{kind}" for name in SHOWN for kind in ("live", "simulated")]
    publish("hermes2021", [*columns, "switches", "overhead", "load"], rows(results))
    columns = ["speed-up over FIFO, RR and SLAQ", "slots", "live", "simulated", "paper"]
    publish("hermes2021_figures", columns, beside_the_paper(results))
    if runs.missing:
        print(f"{runs.missing} runs are not made yet; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
