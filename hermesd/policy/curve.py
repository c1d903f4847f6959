"""What policies share in reading a trial: convergence, milestones, probes, the fit of a curve.

Nothing here is NaN: a loss that is no finite number counts as infinite, hence ranks last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.losses import Chunk, QuantumLosses, recent, truncate
from hermesd.core.model import Milestone
from hermesd.core.policy import Facts
from hermesd.core.trial import Trial

Floats: TypeAlias = NDArray[np.float64]

# What a probe is while a trial's planned length is unknown.
PROBE_STEPS = 20
# Floors that a fit's asymptote is tried at, evenly from none to the lowest loss.
FLOORS = 20


def loss_or_inf(trial: Trial) -> float:
    """The trial's present loss; infinite without one."""
    return finite_or_inf(trial.loss)


def finite_or_inf(loss: float | None) -> float:
    """The loss; infinite if it is missing or no finite number."""
    return loss if loss is not None and math.isfinite(loss) else math.inf


def convergence(trial: Trial) -> float | None:
    """C_j(i), the drop of the loss per iteration over the latest quantum; None if unexplored.

    H1: `loss_j(i) = (max L_j(i) + min L_j(i)) / 2`, `C_j(i) = (loss_j(i-1) - loss_j(i)) /
    |L_j(i)|`, and `C_j(0) = (max L_j(0) - min L_j(0)) / |L_j(0)|`. A trial that ran without a
    loss has dropped by nothing; one whose losses are not finite converges least.
    """
    if not trial.explored:
        return None
    latest, before = trial.latest, trial.before
    if latest is None:
        return 0.0
    drop = before.middle - latest.middle if before else latest.high - latest.low
    rate = drop / latest.count
    return rate if math.isfinite(rate) else -math.inf


def milestones(first: QuantumLosses | None, percents: Sequence[float]) -> tuple[Milestone, ...]:
    """The losses that mean each percentage decrease from the first quantum's loss."""
    if first is None or not math.isfinite(first.middle):
        return ()
    start = first.middle
    return tuple(Milestone(each, start - abs(start) * each / 100) for each in percents)


def probe_steps(trial: Trial, share: float) -> int:
    """How many iterations a probe of this share of a trial's planned length has."""
    if trial.planned_steps is None:
        return PROBE_STEPS
    return max(1, math.ceil(share * trial.planned_steps))


def switch_seconds(trial: Trial, facts: Facts) -> float:
    """Seconds that suspending and resuming this trial cost, as far as is known."""
    cost = trial.switch_cost
    return cost.seconds if cost else facts.switch_seconds


def step_seconds(trial: Trial, facts: Facts) -> float:
    """Seconds of an iteration, as far as is known."""
    measured = trial.seconds_per_step
    return facts.step_seconds if measured is None else measured


def attained_seconds(trial: Trial) -> float:
    """Device seconds that a trial has had, the stay that is going on included."""
    return max(trial.served_seconds, trial.use.busy_seconds)


def loss_at(trial: Trial, step: int) -> float:
    """The loss that a trial showed when it reached `step`; infinite if it had none by then."""
    return finite_or_inf(recent(truncate(trial.curve, step), step))


@dataclass(frozen=True, slots=True)
class InverseFit:
    """A loss curve as `1 / (slope * step + offset) + floor` (Optimus, EuroSys 2018)."""

    slope: float
    offset: float
    floor: float

    def at(self, step: float) -> float:
        """The loss predicted for a step; infinite where the curve has no value."""
        below = self.slope * step + self.offset
        return 1 / below + self.floor if below > 0 else math.inf


def fit_inverse(curve: Sequence[Chunk]) -> InverseFit | None:
    """The best fit to a curve's means in least squares; None below three finite points.

    For a fixed floor the model is linear in slope and offset, both at least 0 (NNLS); the floor
    is scanned below the lowest mean. Losses are taken relative to their range, so that a signal
    below zero fits as well.
    """
    points = [(chunk.last_step, chunk.mean) for chunk in curve if math.isfinite(chunk.mean)]
    if len(points) < 3:
        return None
    steps = np.array([step for step, _ in points], dtype=float)
    losses = np.array([loss for _, loss in points], dtype=float)
    lowest, span = float(losses.min()), float(np.ptp(losses))
    if span == 0:
        return None
    best: tuple[float, InverseFit] | None = None
    for part in range(FLOORS):
        floor = lowest - span * (part + 1) / FLOORS
        slope, offset = _nonnegative_line(steps, 1 / (losses - floor))
        fit = InverseFit(slope, offset, floor)
        error = float(sum((fit.at(step) - loss) ** 2 for step, loss in points))
        if best is None or error < best[0]:
            best = (error, fit)
    return best[1] if best else None


def _nonnegative_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope and offset, neither below 0, of the line nearest to `y`; x and y are not either."""
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
    if slope <= 0:
        return 0.0, float(y.mean())
    offset = float(y.mean()) - slope * float(x.mean())
    if offset >= 0:
        return slope, offset
    return float((x * y).sum() / (x * x).sum()), 0.0
