"""From the outcomes of orders to the rows that people compare, each paired with FIFO's on the same
order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from hermesd.sim.compare import Case, OrderResult, Scene
from hermesd.sim.contenders import FIFO
from hermesd.sim.figures import Figures

FIGURES = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure under a policy, over all orders."""

    #: In seconds.
    mean: float
    #: FIFO's mean over the policy's mean.
    ratio: float
    #: Of the ratios order by order; so are `p10` and `p90`.
    median: float
    p10: float
    p90: float
    #: The share of orders in which the policy was faster than FIFO.
    won: float
    #: The bound's mean over the policy's mean: 1 is the best possible.
    bound_share: float


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy in a scene."""

    scene: Scene
    file: str
    policy: str
    comparisons: Mapping[str, Comparison]
    switches: float
    overhead: float
    #: Measured: the only figure that a rerun changes.
    decision_us: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A policy over all files: the geometric means of its ratios, figure by figure."""

    #: How many.
    files: int
    devices: int
    bin_type: int
    policy: str
    ratios: Mapping[str, float]
    bound_share: float
    overhead: float
    speeds: tuple[float, ...] = ()


def rows_of(
    results: Mapping[Case, Sequence[OrderResult]], names: Mapping[Scene, str]
) -> list[PolicyRow]:
    """A row for each case, in their order; `names` says what each scene's file is called."""
    rows = []
    for case, mine in results.items():
        fifo = results[Case(case.scene, FIFO)]
        efforts = [result.effort for result in mine]
        decisions = sum(effort.decisions for effort in efforts)
        rows.append(
            PolicyRow(
                case.scene,
                names[case.scene],
                case.contender.label,
                {name: compared(name, mine, fifo) for name in FIGURES},
                float(np.mean([effort.switches for effort in efforts])),
                float(np.mean([effort.overhead for effort in efforts])),
                1e6 * sum(effort.decision_seconds for effort in efforts) / decisions,
            )
        )
    return rows


def compared(name: str, mine: Sequence[OrderResult], fifo: Sequence[OrderResult]) -> Comparison:
    """One figure, paired order by order."""
    ours = np.array([getattr(result.figures, name) for result in mine])
    theirs = np.array([getattr(result.figures, name) for result in fifo])
    least = np.array([getattr(result.bound, name) for result in mine])
    ratios = theirs / ours
    low, middle, high = (float(value) for value in np.percentile(ratios, (10, 50, 90)))
    mean = float(ours.mean())
    return Comparison(
        mean,
        float(theirs.mean()) / mean,
        middle,
        low,
        high,
        float((ours < theirs).mean()),
        float(least.mean()) / mean,
    )


def summaries_of(rows: Sequence[PolicyRow]) -> list[Summary]:
    """Over all files, be it only one: for each number of devices, bin and policy."""
    groups: dict[tuple[int, tuple[float, ...], int, str], list[PolicyRow]] = {}
    for row in rows:
        scene = row.scene
        group = (scene.devices, scene.speeds, scene.bin_type, row.policy)
        groups.setdefault(group, []).append(row)
    return [
        Summary(
            len(group),
            devices,
            bin_type,
            policy,
            {name: geometric([row.comparisons[name].ratio for row in group]) for name in FIGURES},
            geometric([row.comparisons["time_to_good"].bound_share for row in group]),
            float(np.mean([row.overhead for row in group])),
            speeds,
        )
        for (devices, speeds, bin_type, policy), group in groups.items()
    ]


def geometric(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))
