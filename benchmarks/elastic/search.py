"""Does a search end sooner if its trials may have several devices? On recorded curves.

Sixteen trials of a file under the production scheduler and `best_first`, on 16 and on 8 devices:
one device for each trial; two or four for each (which are then as many times as fast as `SPEEDUP`
has it, and as many times fewer); 1 to 8, what nobody waits for given to the first in the order; and
1 to 8 by marginal gain. On w devices a training is f(w) times as fast as on one, with f planted:
an all-reduce that scales well, and one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from hermesd.core.model import Plugin, TrialId
from hermesd.core.policy import ElasticJob
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.elastic.gain import widths
from hermesd.policy.elastic.speed import Exchange, SpeedModel
from hermesd.sim.compare import read
from hermesd.sim.contenders import ANYWHERE
from hermesd.sim.drive import Drive
from hermesd.sim.figures import effort_of, figures_of
from hermesd.sim.orders import SubmissionOrder, draw, goal_of

TRIALS, WIDEST, DEVICES = 16, 8, (16, 8)
POLICY = Plugin("best_first")
LAWS = {
    "well": SpeedModel(Exchange.ALL_REDUCE, (0.95, 0.02, 0.01, 0.005)),
    "poorly": SpeedModel(Exchange.ALL_REDUCE, (0.85, 0.1, 0.03, 0.02)),
}
FIGURES = ("time_to_good", "time_to_best", "makespan", "jct")
COLUMNS = ["scales", "f(2), f(4), f(8)", "devices", "widths", *FIGURES, "overhead_%", "orders"]


@dataclass(frozen=True, slots=True)
class ByGain(BestFirst):
    """The order of `best_first`; devices by marginal gain."""

    name: ClassVar[str] = "by_gain"

    def widths(
        self, trials: Sequence[Trial], jobs: Sequence[ElasticJob], devices: int
    ) -> Mapping[TrialId, int]:
        return widths(jobs, devices)


def arms(
    order: SubmissionOrder, devices: int, gain: Callable[[int], float]
) -> Iterator[tuple[str, Drive]]:
    """The ways to use the devices, each ready to be simulated."""
    yield "1", Drive(order, devices, POLICY, ANYWHERE)
    for width in (2, 4):
        sets = devices // width
        yield str(width), Drive(order, sets, POLICY, ANYWHERE, (gain(width),) * sets)
    yield "1 to 8", Drive(order, devices, POLICY, ANYWHERE, widest=WIDEST, gain=gain)
    yield (
        "1 to 8 by gain",
        Drive(order, devices, POLICY, ANYWHERE, make=lambda _: ByGain(), widest=WIDEST, gain=gain),
    )


def compared(files: Sequence[Path], orders: int) -> list[list[str | float]]:
    """How many times as long as at width 1 each figure is: of the means over the orders, and of
    those the geometric mean over the files. Less is better."""
    rows: list[list[str | float]] = []
    stocks = [read(path) for path in files]
    for law, model in LAWS.items():

        def gain(width: int, model: SpeedModel = model) -> float:
            return model(width) / model(1)

        gains = ", ".join(f"{gain(width):.2f}" for width in (2, 4, 8))
        for devices in DEVICES:
            found: dict[str, list[list[list[float]]]] = {}
            for stock in stocks:
                here: dict[str, list[list[float]]] = {}
                for number in range(orders):
                    order = draw(stock, goal_of(stock), 1, TRIALS, number, 0)
                    for name, drive in arms(order, devices, gain):
                        outcome = drive.run()
                        figures = figures_of(order, outcome)
                        told = [getattr(figures, figure) for figure in FIGURES]
                        here.setdefault(name, []).append([*told, effort_of(outcome).overhead])
                for name, of in here.items():
                    found.setdefault(name, []).append(of)
            means = {name: np.array(of).mean(axis=1) for name, of in found.items()}
            for name, of_files in means.items():
                ratios = np.exp(np.log(of_files[:, :-1] / means["1"][:, :-1]).mean(axis=0))
                overhead = 100 * float(of_files[:, -1].mean())
                rows.append([law, gains, devices, name, *map(float, ratios), overhead, orders])
    return rows
