"""First in, first out: each trial runs from its start to its end, in order of submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Score
from hermesd.core.trial import Trial


@dataclass(frozen=True, slots=True)
class Fifo:
    """Never preempts: whoever has a device keeps it, also one that another policy launched."""

    name: ClassVar[str] = "fifo"

    def score(self, trial: Trial) -> Score:
        return (0.0 if trial.phase.on_device else 1.0, trial.submitted)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum()

    def words(self, trial: Trial) -> str:
        return f"number {trial.spec.number} in its study"
