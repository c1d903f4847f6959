"""Best first: probe every trial once, briefly, then always run the one whose loss is lowest.

Quanta grow with the service received and with the measured cost of a switch, so that switching
stays a small share; nothing is pinned and nothing is given up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from hermesd.core.model import Quantum
from hermesd.core.plugins import require
from hermesd.core.policy import Facts, Score
from hermesd.core.trial import Trial
from hermesd.policy.curve import (
    attained_seconds,
    loss_or_inf,
    probe_steps,
    start_loss,
    step_seconds,
    steps_of,
    switch_seconds,
)

UNPROBED, PROBED, REACHED = 0.0, 1.0, 2.0
# With a target, no later quantum is longer than this share of a trial's planned length.
TARGET_QUANTUM_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The lowest mean of the last max(3, 10 %) losses first, unprobed trials before any other.

    With c the measured seconds of a suspend and a resume, a first quantum is the largest of
    `probe_switches` x c, `probe_share` of the trial's planned length (20 steps while that is
    unknown) and `probe_seconds`; a later one the largest of `switches` x c, `growth` x the
    seconds served so far and the first. A probe cut short, because the length or the speed was
    not known yet, is finished before the trial counts as probed.

    With a `target` the question is which trials reach that loss soonest: those that have go
    behind the others, and a later quantum is at most a tenth of the planned length. It is a loss
    as policies see it: lower is better, so for a maximised signal its negative.

    `scale = "relative"` ranks by the loss over the size of the trial's own first loss, for trials
    whose losses are on different scales; `best_first_scaled` finds out which is right.
    """

    name: ClassVar[str] = "best_first"
    probe_share: float = 0.02
    probe_seconds: float = 0.5
    probe_switches: float = 2.0
    switches: float = 5.0
    growth: float = 0.3
    target: float = -math.inf
    scale: Literal["absolute", "relative"] = "absolute"

    def __post_init__(self) -> None:
        require(0 <= self.probe_share <= 1, "probe_share", self.probe_share, "a share from 0 to 1")
        require(
            0.1 <= self.probe_seconds < math.inf,
            "probe_seconds",
            self.probe_seconds,
            "0.1 seconds or more",
        )
        for name in ("probe_switches", "switches", "growth"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, value, "0 or more")
        require(self.target < math.inf, "target", self.target, "a loss, or -inf for none")

    def score(self, trial: Trial) -> Score:
        if not self.probed(trial):
            return (UNPROBED, 0.0)
        loss = loss_or_inf(trial)
        return (REACHED if loss <= self.target else PROBED, self._scaled(loss, trial))

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        switch, step = switch_seconds(trial, facts), step_seconds(trial, facts)
        steps = probe_steps(trial, self.probe_share)
        first = max(self.probe_switches * switch, steps * step, self.probe_seconds)
        if not trial.explored:
            return Quantum(first)
        if not self.probed(trial):
            return Quantum(max((steps - trial.step) * step, self.probe_seconds))
        served = attained_seconds(trial)
        seconds = max(self.switches * switch, self.growth * served, first)
        if self.target == -math.inf or trial.planned_steps is None:
            return Quantum(seconds)
        most = steps_of(TARGET_QUANTUM_SHARE, trial.planned_steps)
        return Quantum(seconds, until_step=trial.step + most)

    def words(self, trial: Trial) -> str:
        kind, value = self.score(trial)
        if kind == UNPROBED:
            return "not probed yet"
        shown = "loss" if self.scale == "absolute" else "loss over its first"
        return f"{shown} {value:.4g}{', target reached' if kind == REACHED else ''}"

    def _scaled(self, loss: float, trial: Trial) -> float:
        if self.scale == "absolute":
            return loss
        size = abs(start_loss(trial))
        return loss / size if 0 < size < math.inf else math.inf

    def probed(self, trial: Trial) -> bool:
        """Whether the probe is over; a trial that ran without any loss has nothing to show."""
        if not trial.explored:
            return False
        return trial.latest is None or trial.step >= probe_steps(trial, self.probe_share)
