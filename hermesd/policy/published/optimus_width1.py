"""Optimus (EuroSys 2018) for trials of one device: the shortest estimated time left goes first.

Optimus gives workers and servers to the job with the largest marginal gain in Q / f, steps left
by speed; where each trial has exactly one device there is nothing to divide, and what remains of
it is Q / f itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_length, own_step_seconds
from hermesd.policy.elastic.loss import steps_left

UNEXPLORED, TRAINS, CONVERGED = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class OptimusWidth1:
    """The least Q x seconds per step first; unexplored trials before any other.

    Q is the steps until a trial has converged, by a loss fitted by `1 / (b0 k + b1) + b2`, or until
    the end of the planned length, whichever is nearer. Optimus would end a trial past that point;
    here it goes behind those that have not converged.
    """

    name: ClassVar[str] = "optimus_width1"
    #: It has converged once the loss falls by less than this, as a share of the largest loss seen,
    #: in an epoch.
    threshold: float = 0.001
    #: An epoch: a share of the length up to 1, a number of steps above 1.
    epoch: float = 0.01
    #: So many epochs in a row.
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
        steps, converged = steps_left(trial, self.threshold, self.epoch, self.epochs)
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
