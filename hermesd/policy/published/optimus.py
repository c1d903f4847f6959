"""Optimus (EuroSys 2018): the shortest estimated time left goes first, and spare devices go to the
trials that gain most by them.

Optimus gives workers and servers to the job with the largest marginal gain in Q / f, the steps left
divided by the speed. If each trial has exactly one device, there is nothing to divide, and what
remains is Q / f itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hermesd.core.model import Quantum, TrialId
from hermesd.core.policy import ElasticJob, Facts, Score, check_quantum_seconds, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_length, own_step_seconds
from hermesd.policy.elastic.gain import Split, widths
from hermesd.policy.elastic.loss import steps_left
from hermesd.policy.elastic.speed import Exchange, Observed, fit_speed

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
        check_quantum_seconds(self.quantum_seconds)

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


@dataclass(frozen=True, slots=True)
class Optimus(OptimusWidth1):
    """The same order; devices that trials may have or not go where their marginal gain is largest.

    The speed by width is that of an all-reduce, fitted to what the trial has shown.
    """

    name: ClassVar[str] = "optimus"

    def widths(
        self, trials: Sequence[Trial], jobs: Sequence[ElasticJob], devices: int
    ) -> Mapping[TrialId, int]:
        known = []
        for trial, job in zip(trials, jobs, strict=True):
            left = steps_left(trial, self.threshold, self.epoch, self.epochs)
            steps = left.steps if left.steps < math.inf else job.remaining_steps
            young = left.young(trial.step)
            known.append(
                replace(job, remaining_steps=steps, speed=_speed(trial) or job.speed, young=young)
            )
        return widths(known, devices)


def _speed(trial: Trial) -> Callable[[int], float] | None:
    """Steps a second by width, as far as it was measured on several."""
    seen = [Observed(Split(w, 0), 1.0 / s) for w, s in sorted(trial.width_seconds.items())]
    model = fit_speed(Exchange.ALL_REDUCE, seen) if len(seen) > 1 else None
    return None if model is None else lambda width: model(width)
