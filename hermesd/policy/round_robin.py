"""Round-robin time-sharing, as in Gandiva: the trial that has waited longest goes next, in equal
turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score, check_quantum_seconds
from hermesd.core.trial import Trial


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Equal turns; the trial that just ran goes behind all that wait."""

    name: ClassVar[str] = "round_robin"
    #: The length of a turn.
    quantum_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_quantum_seconds(self.quantum_seconds)

    def score(self, trial: Trial) -> Score:
        return (1.0, 0.0) if trial.phase.on_device else (0.0, trial.rested)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(self.quantum_seconds)

    def words(self, trial: Trial) -> str:
        return f"turns so far: {trial.quanta}" if trial.explored else "has not run yet"
