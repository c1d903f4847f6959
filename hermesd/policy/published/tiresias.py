"""Tiresias (NSDI 2019): the trial that was served least goes first, in steps, so that few are
preempted.

Service is counted as devices x seconds; since a trial has one device, that is its seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score, check_quantum_seconds, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import attained_seconds

# A turn that ends at a threshold is no shorter than this, however near the threshold is.
LEAST_TURN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Queues by attained service, first in, first out inside a queue; the first queue goes first.

    Where it is known how long such trials take, the Gittins index of the attained service orders
    them instead: the chance to end within a further service, per second of it, at its best.
    """

    name: ClassVar[str] = "tiresias"
    #: A trial is in the queue after each of these seconds that its service has reached; a turn ends
    #: where it leaves its queue.
    thresholds: tuple[float, ...] = (30.0, 120.0, 480.0)
    #: The seconds that trials like these are known to need in all.
    durations: tuple[float, ...] = ()
    #: The longest turn.
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False))
        for name, values, fits, expected in (
            ("thresholds", self.thresholds, rising, "rising seconds above 0"),
            ("durations", self.durations, True, "seconds above 0"),
        ):
            above = all(0 < each < math.inf for each in values)
            require(fits and above, name, values, expected)
        check_quantum_seconds(self.quantum_seconds)

    def score(self, trial: Trial) -> Score:
        service = attained_seconds(trial)
        if self.durations:
            return (-gittins(service, self.durations), trial.submitted)
        return (float(bisect_right(self.thresholds, service)), trial.submitted)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        service = attained_seconds(trial)
        left = [each - service for each in self.thresholds if each > service]
        if self.durations or not left:
            return Quantum(self.quantum_seconds)
        least = min(LEAST_TURN_SECONDS, self.quantum_seconds)
        return Quantum(min(self.quantum_seconds, max(least, left[0])))

    def words(self, trial: Trial) -> str:
        service = attained_seconds(trial)
        if self.durations:
            return f"Gittins index {gittins(service, self.durations):.3g} after {service:.1f} s"
        queue = bisect_right(self.thresholds, service)
        return f"queue {queue} of {len(self.thresholds)}, served {service:.1f} s"


def gittins(service: float, durations: Sequence[float]) -> float:
    """max over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a], for a = `service` seconds.

    S is one of `durations`, each as likely as another. Between two of them a larger d only costs,
    so the best d ends at one. 0 where every duration is behind.
    """
    left = sorted(each - service for each in durations if each > service)
    ended = zip(left, accumulate(left), strict=True)
    return max(
        (count / (total + (len(left) - count) * d) for count, (d, total) in enumerate(ended, 1)),
        default=0.0,
    )
