"""Optimus (EuroSys 2018) for trials of one device: the shortest estimated time left goes first.

Optimus gives workers and servers to the job with the largest marginal gain in Q / f, steps left
by speed; where each trial has exactly one device there is nothing to divide, and what remains of
it is Q / f itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.losses import Chunk
from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import InverseFit, check_length, fit_inverse, own_step_seconds, steps_of

UNEXPLORED, TRAINS, CONVERGED = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class OptimusWidth1:
    """The least Q x seconds per step first; unexplored trials before any other.

    Q is the steps until the loss, fitted by `1 / (b0 k + b1) + b2`, has fallen by less than
    `threshold` (of the largest loss seen) in each of `epochs` epochs in a row, or until the end of
    the planned length, whichever is nearer. `epoch` is a share of the length up to 1, a number of
    steps above 1. A trial past that point has converged: Optimus would end it, here it goes
    behind those that have not.
    """

    name: ClassVar[str] = "optimus_width1"
    threshold: float = 0.001
    epoch: float = 0.01
    epochs: int = 3
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        require(0 < self.threshold < 1, "threshold", self.threshold, "a share between 0 and 1")
        check_length("epoch", self.epoch)
        require(self.epochs >= 1, "epochs", self.epochs, "1 or more")
        require(
            0.1 <= self.quantum_seconds < math.inf,
            "quantum_seconds",
            self.quantum_seconds,
            "0.1 seconds or more",
        )

    def score(self, trial: Trial) -> Score:
        if not trial.explored:
            return (UNEXPLORED, 0.0)
        steps, converged = self._left(trial)
        seconds = own_step_seconds(trial)
        left = math.inf if seconds is None else steps * seconds
        return (CONVERGED if converged else TRAINS, left)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(self.quantum_seconds)

    def words(self, trial: Trial) -> str:
        kind, seconds = self.score(trial)
        if kind == UNEXPLORED:
            return "unexplored"
        left = f"about {seconds:.3g} s left" if seconds < math.inf else "nobody knows how long"
        return f"{'converged' if kind == CONVERGED else 'trains'}, {left}"

    def _left(self, trial: Trial) -> tuple[float, bool]:
        """Steps until convergence or the end, and whether convergence is behind."""
        planned = math.inf if trial.planned_steps is None else trial.planned_steps
        to_end = max(0.0, planned - trial.step)
        fit = fit_inverse(without_outliers(trial.curve), floor_from_zero=True)
        if fit is None:
            return to_end, False
        largest = max(abs(chunk.mean) for chunk in trial.curve if math.isfinite(chunk.mean))
        epoch = steps_of(self.epoch, trial.planned_steps)
        settles = settles_at(fit, self.threshold * largest, epoch) + self.epochs * epoch
        if settles <= trial.step:
            return to_end, True
        return min(settles - trial.step, to_end), False


def settles_at(fit: InverseFit, drop: float, epoch: int) -> float:
    """The step from which on the fitted loss falls by less than `drop` an epoch.

    With x = slope k + offset and e = slope epoch, 1/x - 1/(x + e) = drop is a square equation of
    x; its positive root is where the drop is met.
    """
    if fit.slope == 0:
        return 0.0
    e = fit.slope * epoch
    root = (math.sqrt(e * e + 4 * e / drop) - e) / 2
    return max(0.0, (root - fit.offset) / fit.slope)


def without_outliers(curve: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The curve with each mean outside its neighbours' range replaced by their average.

    Two on either side are its neighbours; the first and the last two are left as they are.
    """
    smooth = list(curve)
    for place in range(2, len(curve) - 2):
        around = [curve[place + by].mean for by in (-2, -1, 1, 2)]
        chunk = curve[place]
        if not min(around) <= chunk.mean <= max(around):
            smooth[place] = chunk._replace(total=sum(around) / 4 * chunk.size)
    return tuple(smooth)
