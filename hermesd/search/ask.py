"""What the head asks a searcher, and what that answers: one line of JSON each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermesd.core.model import Goal
from hermesd.record import Form
from hermesd.study.space import Point


class Standing(StrEnum):
    """What is known of a trial."""

    #: It has a value: that of its end, or for now.
    VALUED = "valued"
    #: It has not reported the metric yet.
    OPEN = "open"
    #: It came to a loss that is no number: as bad as the worst.
    DIVERGED = "diverged"
    #: It failed, or ended without a value: it says nothing of its point.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Known:
    """A trial as its searcher knows it."""

    point: Point
    standing: Standing
    #: What it is worth by each of the goals, if it is valued.
    values: tuple[float, ...] = ()
    #: By how much it breaks each constraint of the study: 0 or less if it does not.
    breaches: tuple[float, ...] = ()
    #: What the searcher wrote of it.
    note: str = ""

    @property
    def breaks(self) -> bool:
        """Whether it breaks a constraint."""
        return any(breach > 0 for breach in self.breaches)


@dataclass(frozen=True, slots=True)
class Ask:
    """Further points are wanted of a study."""

    #: The study, as it is described to a searcher.
    source: bytes
    goals: tuple[Goal, ...]
    #: The trial that the first of them is for.
    number: int
    #: How many points are wanted.
    count: int
    known: tuple[Known, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A point, and what its searcher wants to know of it later."""

    point: Point
    note: str = ""


@dataclass(frozen=True, slots=True)
class SearchReply:
    """The points; or, with none, what went wrong."""

    proposals: tuple[Proposal, ...]
    error: str = ""


ASK: Form[Ask] = Form(Ask)
REPLY: Form[SearchReply] = Form(SearchReply)
