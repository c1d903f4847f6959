"""FlowCon (ICPP 2019): shares of a device by growth efficiency, with a floor for the converged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.decide.queue import QueueEntry, SortedCandidates
from hermesd.core.model import Quantum, Time, TrialId
from hermesd.core.policy import Claim, Facts, Score, View, check_quantum_seconds, planned, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import convergence, own_step_seconds

LEAST_TURN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FlowCon:
    """Turns in rotation, each as long as its trial's growth efficiency G deserves.

    FlowCon sets how much of a machine each of several containers gets at the same time. Here one
    trial has a device at a time, so its share is the length of its turn, in proportion to G. A
    trial whose G is not known yet gets an average turn.
    """

    name: ClassVar[str] = "flowcon"
    #: The turn for an average G.
    quantum_seconds: float = 30.0
    #: No turn is shorter than this share of an average one.
    floor: float = 0.5

    def __post_init__(self) -> None:
        check_quantum_seconds(self.quantum_seconds)
        require(0 < self.floor <= 1, "floor", self.floor, "a share of a turn, above 0 and up to 1")

    def plan(self, view: View) -> Iterator[Claim]:
        """Every candidate: who has waited longest first, who just ran last."""
        return planned(self.ledger(), view)

    def ledger(self) -> Rotation:
        return Rotation(self)

    def words(self, trial: Trial) -> str:
        growth = efficiency(trial)
        return "not measured yet" if growth is None else f"growth efficiency {growth:.3g}"


class Rotation:
    """The turns of one study: its candidates by how long they wait, and every trial's G."""

    def __init__(self, policy: FlowCon) -> None:
        self._policy = policy
        self._trials: dict[TrialId, Trial] = {}
        self._line = SortedCandidates()
        # By number; 0 where there is none, which adds nothing to the sum.
        self._growth: list[float] = []
        self._measured: set[TrialId] = set()
        self._average: float | None = None

    def note(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._average = None
            self._trials[trial.id] = trial
            growth = None if trial.shelved or trial.phase.final else efficiency(trial)
            number = trial.spec.number
            self._growth += [0.0] * (number + 1 - len(self._growth))
            self._growth[number] = growth or 0.0
            (self._measured.discard if growth is None else self._measured.add)(trial.id)
            if trial.candidate and not trial.shelved:
                key = (float(trial.phase.on_device), trial.rested)
                self._line.put(QueueEntry(key, number, trial.id))
            else:
                self._line.drop(trial.id)

    def order(self, now: Time) -> Iterator[TrialId]:
        return self._line.trials()

    def place(self, trial: TrialId, now: Time) -> Score | None:
        return self._line.place(trial)

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        if self._average is None:
            self._average = sum(self._growth) / len(self._measured) if self._measured else 0.0
        policy, known = self._policy, self._trials[trial]
        growth = efficiency(known)
        share = 1.0 if growth is None or not self._average else growth / self._average
        seconds = max(share, policy.floor) * policy.quantum_seconds
        return Claim(trial, Quantum(max(seconds, LEAST_TURN_SECONDS)), policy.words(known))


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
