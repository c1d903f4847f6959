"""Best first: probe every trial once, briefly, then always run the one whose loss is lowest.

Quanta grow with the service received and with the measured cost of a switch, so that switching
stays a small share; nothing is pinned and nothing is given up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.plugins import require
from hermesd.core.policy import Facts, Score
from hermesd.core.trial import Trial
from hermesd.policy.curve import (
    attained_seconds,
    loss_or_inf,
    probe_steps,
    step_seconds,
    switch_seconds,
)

UNPROBED, PROBED = 0.0, 1.0


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The lowest mean of the last max(3, 10 %) losses first, unprobed trials before any other.

    With c the measured seconds of a suspend and a resume, a first quantum is the largest of
    `probe_switches` x c, `probe_share` of the trial's planned length (20 steps while that is
    unknown) and `probe_seconds`; a later one the largest of `switches` x c, `growth` x the
    seconds served so far and the first. A probe cut short, because the length or the speed was
    not known yet, is finished before the trial counts as probed.
    """

    name: ClassVar[str] = "best_first"
    probe_share: float = 0.02
    probe_seconds: float = 0.5
    probe_switches: float = 2.0
    switches: float = 5.0
    growth: float = 0.3

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

    def score(self, trial: Trial) -> Score:
        return (PROBED, loss_or_inf(trial)) if self._probed(trial) else (UNPROBED, 0.0)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        switch, step = switch_seconds(trial, facts), step_seconds(trial, facts)
        steps = probe_steps(trial, self.probe_share)
        first = max(self.probe_switches * switch, steps * step, self.probe_seconds)
        if not trial.explored:
            return Quantum(first)
        if not self._probed(trial):
            return Quantum(max((steps - trial.step) * step, self.probe_seconds))
        served = attained_seconds(trial)
        return Quantum(max(self.switches * switch, self.growth * served, first))

    def words(self, trial: Trial) -> str:
        return f"loss {loss_or_inf(trial):.4g}" if self._probed(trial) else "not probed yet"

    def _probed(self, trial: Trial) -> bool:
        """Whether the probe is over; a trial that ran without any loss has nothing to show."""
        if not trial.explored:
            return False
        return trial.latest is None or trial.step >= probe_steps(trial, self.probe_share)
