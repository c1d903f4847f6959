"""Hyperband (JMLR 2018): successive halving in several brackets, by holding trials back.

A bracket that starts at a low rung compares many trials early; one that starts high compares few
late, and so forgives a slow start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from hermesd.core.policy import Claim, View, planned, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import check_ladder
from hermesd.policy.published.rungs import Halving, Ladder, describe


@dataclass(frozen=True, slots=True)
class Hyperband:
    """Brackets of successive halving; each begins its rungs further than the one before.

    Rungs are shares of a trial's planned length up to 1, numbers of steps above 1. Hyperband draws
    (s_max + 1) / (s + 1) x eta^s trials, rounded up, for its bracket s = s_max ... 0; a study's
    trials are there already, and are dealt to the brackets in that proportion by their numbers.
    Brackets go one after the other; who waits for a round's end leaves the device to the next.
    """

    name: ClassVar[str] = "hyperband"
    #: Each rung, and each bracket's first one, is so many times as far as the one before.
    eta: int = 3
    #: The first bracket's first rung.
    min_rung: float = 1 / 27
    #: All rungs are below this. The last bracket has none: its trials train to their end.
    max_rung: float = 1.0

    def __post_init__(self) -> None:
        check_ladder(self.eta, self.min_rung, self.max_rung)
        require(
            (self.min_rung > 1) == (self.max_rung > 1),
            "min_rung",
            self.min_rung,
            f"at most max_rung ({self.max_rung:g}), both shares up to 1 or both steps above 1",
        )

    def plan(self, view: View) -> Iterator[Claim]:
        """Those that may go on, bracket by bracket, then all that are held back."""
        return planned(self.ledger(), view)

    def ledger(self) -> Halving:
        ladders = [self._ladder(place) for place in range(self._brackets)]
        return Halving(ladders, self.bracket, self._named)

    def bracket(self, trial: Trial) -> int:
        """The bracket that a trial belongs to, 0 for the one whose first rung is lowest."""
        return deal(bracket_sizes(self.eta, self._brackets - 1)).bracket(trial.spec.number)

    def words(self, trial: Trial) -> str:
        place = self.bracket(trial)
        return f"{self._named(place)}{describe(self._ladder(place), trial)}"

    def _named(self, bracket: int) -> str:
        return f"bracket {bracket + 1} of {self._brackets}: "

    def _ladder(self, bracket: int) -> Ladder:
        return Ladder(self.eta, self.min_rung, self.max_rung, bracket)

    @property
    def _brackets(self) -> int:
        """s_max + 1, with s_max = log_eta(R / r) rounded down."""
        return 1 + int(math.log(self.max_rung / self.min_rung, self.eta) + 1e-9)


@cache
def bracket_sizes(eta: int, s_max: int) -> tuple[int, ...]:
    """How many trials each bracket has, s = s_max first: (s_max + 1) / (s + 1) x eta^s, up."""
    return tuple(-(-(s_max + 1) * eta**s // (s + 1)) for s in range(s_max, -1, -1))


class Deal:
    """Which bracket each trial goes to, so that every beginning is in proportion to the sizes.

    No more is dealt than was asked for; after sum(sizes) trials it begins anew.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._total = sum(sizes)
        self._dealt = [0] * len(sizes)
        self._brackets: list[int] = []

    def bracket(self, number: int) -> int:
        """The bracket of the trial of this number."""
        sizes, dealt, total, brackets = self._sizes, self._dealt, self._total, self._brackets
        number %= total
        for count in range(len(brackets) + 1, number + 2):
            place = max(range(len(sizes)), key=lambda b: sizes[b] * count - dealt[b] * total)
            dealt[place] += 1
            brackets.append(place)
        return brackets[number]


@cache
def deal(sizes: tuple[int, ...]) -> Deal:
    """The one deal for brackets of these sizes."""
    return Deal(sizes)
