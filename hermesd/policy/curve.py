"""What policies share for reading a trial: convergence, milestones, probes, the fit of a curve.

Nothing here returns NaN: a loss that is not a finite number counts as infinite, and so ranks last.
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
from hermesd.core.policy import Facts, require
from hermesd.core.trial import Trial

Floats: TypeAlias = NDArray[np.float64]

# What a probe is while a trial's planned length is unknown.
PROBE_STEPS = 20
# Shares of a trial's length and numbers of steps that lengths may be set to.
LEAST_SHARE, MOST_STEPS = 1e-9, 1e15
MOST_ETA = 1000
# Floors that a fit's asymptote is tried at, evenly from none to the lowest loss.
FLOORS = 20


def loss_or_inf(trial: Trial) -> float:
    """The trial's present loss; infinite without one."""
    return finite_or_inf(trial.loss)


def start_loss(trial: Trial) -> float:
    """The loss that a trial began with; infinite without one."""
    return finite_or_inf(trial.curve[0].mean if trial.curve else None)


def finite_or_inf(loss: float | None) -> float:
    """The loss; infinite if it is missing or no finite number."""
    return loss if loss is not None and math.isfinite(loss) else math.inf


def told(trial: Trial, loss: float) -> str:
    """A loss of the trial for people: of a maximized signal the value that it stands for."""
    if not math.isfinite(loss):
        return f"no {'signal' if trial.maximized else 'loss'} by then"
    return f"signal {0.0 - loss:.4g}" if trial.maximized else f"loss {loss:.4g}"


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
    """How many iterations a probe of this share of a trial's planned or likely length has."""
    length = trial.planned_steps or trial.likely_steps
    return PROBE_STEPS if length is None else math.ceil(share * length) or 1


def switch_seconds(trial: Trial, facts: Facts) -> float:
    """Seconds that suspending and resuming this trial cost, as far as is known."""
    cost = trial.switch_cost
    return cost.seconds if cost else facts.switch_seconds


def step_seconds(trial: Trial, facts: Facts) -> float:
    """Seconds of an iteration, as far as is known."""
    measured = trial.seconds_per_step
    return facts.step_seconds if measured is None else measured


def own_step_seconds(trial: Trial) -> float | None:
    """Seconds of an iteration as this trial showed them; None while it has shown none."""
    if trial.seconds_per_step is not None:
        return trial.seconds_per_step
    busy = trial.use.busy_seconds
    return busy / trial.step if trial.step and busy > 0 else None


def attained_seconds(trial: Trial) -> float:
    """Device seconds that a trial has had; of the stay that is going on what it has trained, as
    far as all that it ever trained is more than its earlier stays, with their switches."""
    return max(trial.served_seconds, trial.use.busy_seconds)


def filler_seconds(trial: Trial, facts: Facts) -> float:
    """The turn of a trial that is held back and runs only because nothing better waits.

    Short, so that it makes way soon; long enough for switches to stay a small share of it.
    """
    return max(5.0, 10 * switch_seconds(trial, facts))


def check_length(name: str, value: float) -> None:
    """Raises `BadSetting` for a setting that is no length; see `steps_of`."""
    expected = (
        "a share of the length up to 1, or a number of steps above 1, "
        f"neither below {LEAST_SHARE:g} nor above {MOST_STEPS:g}"
    )
    require(LEAST_SHARE <= value <= MOST_STEPS, name, value, expected)


def check_ladder(eta: int, min_rung: float, max_rung: float) -> None:
    """Raises `BadSetting` for settings that make no ladder of rungs."""
    require(2 <= eta <= MOST_ETA, "eta", eta, f"2 or more, up to {MOST_ETA}")
    check_length("min_rung", min_rung)
    check_length("max_rung", max_rung)
    # What a share comes to beside a number of steps is known once a trial has told its length.
    alike = (min_rung > 1) == (max_rung > 1)
    expected = f"at most max_rung ({max_rung:g})"
    require(not alike or min_rung <= max_rung, "min_rung", min_rung, expected)


def steps_of(setting: float, planned_steps: int | None, times: float = 1) -> int:
    """`times` a setting that is a share of the length up to 1 and a number of steps above.

    At least 1. While the length is unknown a share is taken to be `PROBE_STEPS`.
    """
    if setting > 1:
        steps = setting * times
    elif planned_steps is None:
        steps = PROBE_STEPS * times
    else:
        steps = setting * times * planned_steps
    # A third times three is a whole, whatever its last binary digit says.
    return max(1, math.ceil(steps - 1e-9 * steps))


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


def fit_inverse(curve: Sequence[Chunk], floor_from_zero: bool = False) -> InverseFit | None:
    """The best fit to a curve's means in least squares; None below three different points.

    For a fixed floor the model is linear in slope and offset, both at least 0 (NNLS). Floors are
    tried evenly below the lowest mean: down to one range of the losses below it, so that a signal
    below zero fits as well, or with `floor_from_zero` down to zero, as Optimus prints it (where
    no loss is below zero). A chunk stands at its middle.
    """
    means = [chunk for chunk in curve if math.isfinite(chunk.mean)]
    if len(means) < 3:
        return None
    steps = np.array([(chunk.first_step + chunk.last_step) / 2 for chunk in means])
    losses = np.array([chunk.mean for chunk in means])
    lowest, span = float(losses.min()), float(np.ptp(losses))
    if span == 0:
        return None
    depth = lowest if floor_from_zero and lowest > 0 else span
    floors = lowest - depth * np.arange(1, FLOORS + 1) / FLOORS
    # A floor that rounding puts on the lowest mean, or losses far apart, make a fit of nothing.
    with np.errstate(all="ignore"):
        slopes, offsets = _nonnegative_lines(steps, 1 / (losses - floors[:, None]))
        fitted = 1 / (slopes[:, None] * steps + offsets[:, None]) + floors[:, None]
        errors = np.nan_to_num(((fitted - losses) ** 2).sum(axis=1), nan=math.inf, posinf=math.inf)
    best = int(errors.argmin())
    if not math.isfinite(errors[best]):
        return None
    return InverseFit(float(slopes[best]), float(offsets[best]), float(floors[best]))


def _nonnegative_lines(x: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Slopes and offsets, none below 0, of the lines nearest to each row; no value is below 0.

    Two unknowns have four active sets. Where the free line breaks one bound, that bound is active
    in the answer; it cannot break both.
    """
    center, level = x.mean(), rows.mean(axis=1)
    away = x - center
    spread = float((away * away).sum())
    slopes = (rows - level[:, None]) @ away / spread if spread else np.zeros(len(rows))
    offsets = level - slopes * center
    through_zero = rows @ x / max(float((x * x).sum()), np.finfo(float).tiny)
    falls, negative = slopes <= 0, offsets < 0
    slopes = np.where(falls, 0.0, np.where(negative, through_zero, slopes))
    return slopes, np.where(falls, level, np.where(negative, 0.0, offsets))
