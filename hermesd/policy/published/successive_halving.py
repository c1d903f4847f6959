"""Successive halving (Jamieson and Talwalkar, AISTATS 2016), by holding trials back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.policy import Claim, View, planned
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_ladder
from hermesd.policy.published.rungs import Halving, Ladder, describe


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """All trials train to the first rung; then the best 1/eta of them to the next, and so on.

    A rung is a share of a trial's planned length up to 1, a number of steps above 1. A round ends
    when all its trials have reached the rung; until then, and after they lost, the others get short
    turns on devices that would stand idle. The last round's best train to their end.
    """

    name: ClassVar[str] = "successive_halving"
    #: Each rung is so many times as far as the one before.
    eta: int = 3
    #: The first rung.
    min_rung: float = 1 / 27
    #: All rungs are below this.
    max_rung: float = 1.0

    def __post_init__(self) -> None:
        check_ladder(self.eta, self.min_rung, self.max_rung)

    def plan(self, view: View) -> Iterator[Claim]:
        """Those that may go on, then those held back."""
        return planned(self.ledger(), view)

    def ledger(self) -> Halving:
        return Halving((self._ladder,), lambda trial: 0, lambda bracket: "")

    def words(self, trial: Trial) -> str:
        return describe(self._ladder, trial)

    @property
    def _ladder(self) -> Ladder:
        return Ladder(self.eta, self.min_rung, self.max_rung)
