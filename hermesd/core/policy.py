"""The plug-in surface: what a policy may read, and the two forms in which it answers.

A policy is a frozen dataclass whose fields are its settings. It is pure and stateless: the same
view gives the same answer, so that it can be swapped at any time and tested by one call.

- A `Ranking` scores one trial at a time; the scheduler keeps the scores in a heap and asks again
  only for trials that changed.
- A `Planning` policy sees all trials of its study at once and returns the claims in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from hermesd.core.model import Quantum, Setting, Time, TrialId
from hermesd.core.trial import Trial

Score: TypeAlias = tuple[float, ...]


class BadSetting(ValueError):
    """A plug-in's name or one of its settings that will not do; `nearest` is "" if nothing is."""

    def __init__(self, field: str, value: Setting, expected: str, nearest: str = "") -> None:
        hint = f"; did you mean {nearest}?" if nearest else ""
        super().__init__(f"{field}: {value!r}: expected {expected}{hint}")
        self.field = field
        self.value = value
        self.expected = expected
        self.nearest = nearest


@dataclass(frozen=True, slots=True)
class Facts:
    """What is typical of a study's trials: used where a trial has no measurement of its own.

    Seconds to suspend one, to resume one and of one iteration; 0 while unmeasured.
    """

    suspend_seconds: float = 0.0
    resume_seconds: float = 0.0
    step_seconds: float = 0.0

    @property
    def switch_seconds(self) -> float:
        return self.suspend_seconds + self.resume_seconds


@dataclass(frozen=True, slots=True)
class View:
    """A study at one moment. `trials` are all that are not final and not paused, by number."""

    now: Time
    trials: Sequence[Trial]
    finished: Sequence[Trial]
    devices: int
    facts: Facts


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial that deserves a device, for how long, and why in the policy's own words."""

    trial: TrialId
    quantum: Quantum
    reason: str


@runtime_checkable
class Ranking(Protocol):
    """A policy whose order follows from each trial alone."""

    name: ClassVar[str]

    def score(self, trial: Trial) -> Score:
        """The smallest goes first; ties go to the earlier trial."""
        ...

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        """How long the trial may run if it is chosen now."""
        ...

    def words(self, trial: Trial) -> str:
        """The score, for people."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A policy that must see its whole study; a trial left out of the plan is held back."""

    name: ClassVar[str]

    def plan(self, view: View) -> Iterable[Claim]:
        """Claims, most deserving first; one that makes them as it goes is asked for few of them."""
        ...

    def words(self, trial: Trial) -> str:
        """What the policy sees in a trial, for people."""
        ...


Policy: TypeAlias = Ranking | Planning
