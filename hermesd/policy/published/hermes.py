"""Hermes as in its paper: the trial whose loss falls fastest goes next, for growing quanta.

Electronics 2021, 10(3), 350, Algorithm 3 and section 3.3; the placement `homes` makes the paper's
queues, one for each device. A trial that never ran has no convergence and is explored before any
other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from hermesd.core.model import Phase, Quantum
from hermesd.core.policy import Facts, Score, check_quantum_seconds, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import convergence, milestones

UNEXPLORED, EXPLORED, OUSTED = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class Hermes:
    """The largest C_j(i) first.

    A quantum grows at once with each milestone, a percentage decrease from the first quantum's loss
    (section 3.3), or with each preemption (section 4.1.2).
    """

    name: ClassVar[str] = "hermes"
    #: A trial's first quantum.
    quantum_seconds: float = 10.0
    #: What quanta grow with.
    growth_on: Literal["milestones", "preemptions"] = "milestones"
    #: By how much they grow each time.
    growth_seconds: float = 10.0
    milestones: tuple[float, ...] = (25.0, 50.0, 75.0, 90.0)
    #: Whether the trial that just ran competes, too, and stays if it wins, which spares switches
    #: that gain nothing. Algorithm 3 compares the *waiting* trials only (False), so another trial
    #: comes on whenever one waits.
    winner_may_stay: bool = True

    def __post_init__(self) -> None:
        check_quantum_seconds(self.quantum_seconds)
        require(
            0 <= self.growth_seconds < math.inf,
            "growth_seconds",
            self.growth_seconds,
            "0 seconds or more",
        )
        rising = all(a < b for a, b in zip(self.milestones, self.milestones[1:], strict=False))
        require(
            rising and all(0 < each <= 100 for each in self.milestones),
            "milestones",
            self.milestones,
            "rising percentages above 0, up to 100",
        )

    def score(self, trial: Trial) -> Score:
        rate = convergence(trial)
        if rate is None:
            return (UNEXPLORED, 0.0)
        ousted = trial.phase is Phase.RUNNING and not self.winner_may_stay
        return (OUSTED if ousted else EXPLORED, -rate)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        if self.growth_on == "preemptions":
            return Quantum(self.quantum_seconds + self.growth_seconds * trial.preemptions)
        ahead = milestones(
            trial.first, [each for each in self.milestones if each > trial.milestone_percent]
        )
        passed = sum(each <= trial.milestone_percent for each in self.milestones)
        return Quantum(self.quantum_seconds + self.growth_seconds * passed, milestones=ahead)

    def words(self, trial: Trial) -> str:
        rate = convergence(trial)
        if rate is None:
            return "unexplored"
        return f"loss {'rises' if rate < 0 else 'falls'} by {abs(rate):.3g} an iteration"
