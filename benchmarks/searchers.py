"""Searchers at equal trials, one at a time: the best loss found, by each method and problem.

Analytic functions: Branin, Hartmann's of six parameters, and one of mixed parameters, one of which
is there only sometimes. Recorded trainings: an archive of `hermesd simulate` whose trials are a
whole grid is a table that answers at once. Each proposal is asked for as a head asks for it.
`python -m benchmarks.searchers [archive.npz ...] [--trials 40] [--seeds 20] [--methods tpe ...]`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import publish, quantile
from hermesd.core.model import Goal
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.search.__main__ import answer
from hermesd.search.ask import Ask, Known, Standing
from hermesd.study import space
from hermesd.study.searchers import METHODS, startup
from hermesd.study.spec import read

LAST_ITERATIONS = 20
ITERATIONS = 1_000
OPTIMIZERS = ("SGD", "Momentum", "RMSProp", "Adam")


@dataclass(frozen=True, slots=True)
class Problem:
    """A space, as a study has it, and the loss at each of its points."""

    name: str
    parameters: tuple[pb.Parameter, ...]
    loss: Callable[[Mapping[str, Any]], float]


def _number(name: str, low: float, high: float, logarithmic: bool = False) -> pb.Parameter:
    kind = "LOG_UNIFORM_VALUES" if logarithmic else "UNIFORM"
    return pb.Parameter(
        name=name,
        distribution=f"DISTRIBUTION_{kind}",
        min=pb.Value(double_value=low),
        max=pb.Value(double_value=high),
    )


def _choice(name: str, *values: float | str) -> pb.Parameter:
    given = [
        pb.Value(string_value=v) if isinstance(v, str) else pb.Value(double_value=v) for v in values
    ]
    return pb.Parameter(name=name, values=given)


def branin(at: Mapping[str, float]) -> float:
    """Least at three points, where it is 0.398."""
    x, y = at["x"], at["y"]
    inner = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return inner**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(at: Mapping[str, float]) -> float:
    """Least at one point, where it is -3.322."""
    x = np.array([at[f"x{n}"] for n in range(6)])
    inner = (HARTMANN_A * (x - HARTMANN_P) ** 2).sum(axis=1)
    return float(-(np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-inner)).sum())


def mixed(at: Mapping[str, Any]) -> float:
    """Least, 0, for sgd with a momentum of 0.9 at a rate of 0.01."""
    rate = (math.log10(at["rate"]) + 2) ** 2
    if at["optimizer"] == "sgd":
        return float(rate + 2 * abs(at["momentum"] - 0.9) + abs(at["width"] - 64) / 64)
    return float(rate + 0.4 + abs(at["width"] - 64) / 64 + 0.3 * (at["optimizer"] == "rms"))


def analytic() -> list[Problem]:
    momentum = _number("momentum", 0.0, 0.99)
    momentum.when.add(name="optimizer", values=[pb.Value(string_value="sgd")])
    kinds = _choice("optimizer", "adam", "rms", "sgd")
    width = _choice("width", 16.0, 32.0, 64.0, 128.0, 256.0)
    return [
        Problem("branin", (_number("x", -5, 10), _number("y", 0, 15)), branin),
        Problem("hartmann6", tuple(_number(f"x{n}", 0, 1) for n in range(6)), hartmann),
        Problem("mixed", (kinds, momentum, _number("rate", 1e-5, 1, True), width), mixed),
    ]


def recorded(path: Path) -> Problem:
    """The trainings of an archive: at each point the mean of the last losses, and its rank among
    all, from 1, as what is to be made small."""
    with np.load(path) as archive:
        table, losses = archive["cfg"], archive["base"][:, :ITERATIONS]
    ends = losses[:, -LAST_ITERATIONS:].mean(axis=1)
    ends = np.where(np.isfinite(ends), ends, np.inf)
    ranks = ends.argsort(kind="stable").argsort(kind="stable") + 1
    names = ("optimizer", "batch", "rate", "decay")
    rows = [(OPTIMIZERS[int(row[0])], *map(float, row[1:])) for row in table]
    found = {row: float(rank) for row, rank in zip(rows, ranks, strict=True)}
    axes = tuple(
        _choice(name, *sorted({row[n] for row in rows}, key=str if n == 0 else float))  # type: ignore[arg-type]
        for n, name in enumerate(names)
    )
    return Problem(f"{path.stem} (rank)", axes, lambda at: found[tuple(at[n] for n in names)])


def searched(problem: Problem, method: str, trials: int, seed: int) -> list[float]:
    """The best loss after each trial."""
    spec = pb.StudySpec(
        program="train.py",
        method=f"SEARCH_METHOD_{method.upper()}",
        parameters=problem.parameters,
        run_cap=trials,
        seed=seed,
    )
    section = read(spec)
    axes, source = space.axes(section.parameters), spec.SerializeToString()
    drawn = startup(section) if method in METHODS else trials
    known: list[Known] = []
    best: list[float] = []
    for n in range(1, trials + 1):
        point, note = space.drawn(axes, seed, n), ""
        if n > drawn:
            told = answer(Ask(source, (Goal.MINIMIZE,), n, 1, tuple(known)))
            if told.error:
                raise SystemExit(f"{method}: {told.error}")
            point, note = told.proposals[0].point, told.proposals[0].note
        loss = problem.loss(dict(point))
        known.append(Known(point, Standing.VALUED, (loss,), note=note))
        best.append(min(loss, best[-1] if best else math.inf))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searchers", description=__doc__)
    parser.add_argument("archives", nargs="*", type=Path)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=20)
    known = ["random", *(name for name in METHODS if name != "gp")]
    parser.add_argument("--methods", nargs="*", default=known)
    arguments = parser.parse_args()
    problems = [*analytic(), *map(recorded, arguments.archives)]
    rows: list[list[str | float]] = []
    half = arguments.trials // 2
    for problem in problems:
        for method in arguments.methods:
            begun = time.process_time()
            runs = [
                searched(problem, method, arguments.trials, seed) for seed in range(arguments.seeds)
            ]
            taken = (time.process_time() - begun) / arguments.seeds / arguments.trials
            ends = [run[-1] for run in runs]
            rows.append(
                [
                    problem.name, method, statistics.median(run[half - 1] for run in runs),
                    statistics.median(ends), quantile(ends, 0.25), quantile(ends, 0.75),
                    taken * 1e3,
                ]
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    columns = [
        "problem",
        "method",
        f"best_{half}",
        f"best_{arguments.trials}",
        "q25",
        "q75",
        "cpu_ms",
    ]
    publish("searchers", columns, rows)


if __name__ == "__main__":
    main()
