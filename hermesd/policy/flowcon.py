"""FlowCon (ICPP 2019): shares of a device by growth efficiency, with a floor for the converged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.curve import convergence, own_step_seconds

LEAST_TURN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FlowCon:
    """Turns in rotation, each as long as its trial's growth efficiency G deserves.

    FlowCon sets how much of a machine each of several containers gets at the same time; where one
    trial has a device at a time, its share is the length of its turn: `quantum_seconds` for an
    average G, in proportion to G otherwise, and no less than `floor` of it. A trial whose G is not
    known yet gets an average turn.
    """

    name: ClassVar[str] = "flowcon"
    quantum_seconds: float = 30.0
    floor: float = 0.5

    def __post_init__(self) -> None:
        require(
            0.1 <= self.quantum_seconds < math.inf,
            "quantum_seconds",
            self.quantum_seconds,
            "0.1 seconds or more",
        )
        require(0 < self.floor <= 1, "floor", self.floor, "a share of a turn, above 0 and up to 1")

    def plan(self, view: View) -> Sequence[Claim]:
        """Every candidate: who has waited longest first, who just ran last."""
        known = {trial.id: efficiency(trial) for trial in view.trials}
        measured = [each for each in known.values() if each is not None]
        average = sum(measured) / len(measured) if measured else 0.0
        claims = []
        for trial in sorted(
            (trial for trial in view.trials if trial.candidate),
            key=lambda each: (each.phase.on_device, each.rested),
        ):
            growth = known[trial.id]
            share = 1.0 if growth is None or not average else growth / average
            seconds = max(share, self.floor) * self.quantum_seconds
            quantum = Quantum(max(seconds, LEAST_TURN_SECONDS))
            claims.append(Claim(trial.id, quantum, self.words(trial)))
        return claims

    def words(self, trial: Trial) -> str:
        growth = efficiency(trial)
        return "not measured yet" if growth is None else f"growth efficiency {growth:.3g}"


def efficiency(trial: Trial) -> float | None:
    """G = (|dE| / dt) / resource use over the latest quantum; None while unmeasured.

    |dE| / dt is the change of the quantum's loss per second. The use is in cores where the
    program's time on them was measured, else the whole device. A loss that is no finite number
    grows nowhere: 0.
    """
    rate, seconds = convergence(trial), own_step_seconds(trial)
    if rate is None or not seconds:
        return None
    use = trial.use
    cores = use.cpu_seconds / use.busy_seconds if use.busy_seconds > 0 else 0.0
    growth = abs(rate) / seconds / (cores or 1.0)
    return growth if math.isfinite(growth) else 0.0
