"""SLAQ (SoCC 2017): device time goes where it buys most quality, in either of two readings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score, check_quantum_seconds
from hermesd.core.trial import Trial
from hermesd.policy.curve import fit_inverse, loss_or_inf, told

UNEXPLORED, EXPLORED = 0.0, 1.0


@dataclass(frozen=True, slots=True)
class Slaq:
    """`high_loss` is SLAQ as the Hermes paper describes it: the highest loss first.

    `predicted_reduction` is SLAQ's own: the largest drop of the loss that a fit of the curve
    predicts over a quantum as long as the latest one, divided by the largest drop the trial has
    shown, so that losses of different scales compare. A trial that never ran goes before any
    other; one without a curve to fit goes behind.
    """

    name: ClassVar[str] = "slaq"
    reading: Literal["high_loss", "predicted_reduction"] = "high_loss"
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_quantum_seconds(self.quantum_seconds)

    def score(self, trial: Trial) -> Score:
        if not trial.explored:
            return (UNEXPLORED, 0.0)
        return (EXPLORED, -self._worth(trial))

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(self.quantum_seconds)

    def words(self, trial: Trial) -> str:
        if not trial.explored:
            return "unexplored"
        if self.reading == "high_loss":
            return told(trial, loss_or_inf(trial))
        return f"predicted share of its drop {self._worth(trial):.3g}"

    def _worth(self, trial: Trial) -> float:
        """How much a quantum is worth to this trial; less than anything if nothing is known."""
        if self.reading == "predicted_reduction":
            return predicted_reduction(trial)
        loss = loss_or_inf(trial)
        return loss if math.isfinite(loss) else -math.inf


def predicted_reduction(trial: Trial) -> float:
    """The share of the largest drop so far that the next quantum is predicted to add.

    At least 0: a fit never rises. Without a fit there is no drop to hope for either.
    """
    fit = fit_inverse(trial.curve)
    if fit is None or trial.latest is None:
        return 0.0
    means = [chunk.mean for chunk in trial.curve if math.isfinite(chunk.mean)]
    drop = fit.at(trial.step) - fit.at(trial.step + trial.latest.count)
    return drop / (max(means) - min(means))
