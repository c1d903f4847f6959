"""The plug-in surface: what a policy may read, and the two forms in which it answers.

A policy is a frozen dataclass whose fields are its settings. It is pure and stateless: the same
view gives the same answer, so that it can be swapped at any time and tested by one call.

- A `Ranking` scores one trial at a time; the scheduler keeps the scores in order and asks again
  only for trials that changed.
- An `Adaptive` one is a `Ranking` that has a few trials at the head of its order judged anew, by
  what is known of their whole study.
- A `Planning` policy sees all trials of its study at once and returns the claims in order.
- A `Following` one plans as well, and has a `Ledger` that the scheduler keeps for it: it is told
  of the trials that changed, so that a plan costs what changed and not what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from hermesd.core.model import Quantum, Setting, Time, TrialId
from hermesd.core.speeds import Speed
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

    Seconds to suspend one, to resume one, of one iteration, to resume one from a checkpoint, and
    for each byte of a checkpoint that was fetched from another node; 0 while unmeasured. `speeds`
    are those of the kinds of devices that were measured.
    """

    suspend_seconds: float = 0.0
    resume_seconds: float = 0.0
    step_seconds: float = 0.0
    speeds: dict[str, Speed] = field(default_factory=dict)
    restore_seconds: float = 0.0
    fetch_seconds_per_byte: float = 0.0

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
class Field:
    """What is known of a study beside the trial that is judged.

    `leader` is the trial of the least `level`, whatever its phase: it may run or be finished.
    `sample` are some of the study's trials that have shown a loss, whatever their phase, spread
    evenly over all: few enough to be looked at each time.
    """

    leader: Trial
    sample: Sequence[Trial]


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial that deserves a device, for how long, and why in the policy's own words.

    One that is `held_back` is claimed for devices that would stand idle and for no other reason:
    a policy that gives trials up would have ended it.
    """

    trial: TrialId
    quantum: Quantum
    reason: str
    held_back: bool = False


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
class Adaptive(Ranking, Protocol):
    """A ranking that is adapted to its study before each decision.

    Its own scores say which trials come into question: as many as can be served, from the first
    of the order on, and some more from the adapted ranking's `front` on. The adapted scores say
    who of them goes first.
    """

    def suited(self, sample: Sequence[Trial]) -> Adaptive:
        """This policy with the settings that a study needs of which this is a sample.

        Usually itself. Asked when one of the sample changed; for another answer than the last all
        trials are scored anew.
        """
        ...

    def level(self, trial: Trial) -> float:
        """How good a trial with a loss is by now: the least leads; infinite if it cannot lead."""
        ...

    def adapted(self, field: Field) -> Adapted | None:
        """The order that holds in this field, in its general part; None: the policy's own."""
        ...


@runtime_checkable
class Adapted(Protocol):
    """The order that holds as long as the field of its study is the same."""

    @property
    def front(self) -> Score | None:
        """From this score of the `Adaptive` on, trials come into question; None: from the first."""
        ...

    def facing(self, first: Trial) -> Ranking:
        """The ranking for one decision: `first` is the candidate of the policy's least score."""
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


class Ledger(Protocol):
    """What a planning policy keeps of one study's trials from plan to plan.

    Rule: what it says follows from the trials as they were last noted. Neither the order in which
    they came nor what they were before may show.
    """

    def note(self, trials: Iterable[Trial]) -> None:
        """Take in trials as they are now; the study is without those that are shelved."""
        ...

    def order(self, now: Time) -> Iterator[TrialId]:
        """The trials that have a claim, most deserving first; void once anything is noted."""
        ...

    def place(self, trial: TrialId, now: Time) -> Score | None:
        """What that order goes by, the least first, no two alike; None for a trial not in it."""
        ...

    def claim(self, trial: TrialId, now: Time, facts: Facts) -> Claim:
        """The claim of a trial in the order."""
        ...


@runtime_checkable
class Following(Planning, Protocol):
    """A planning policy whose plan is that of a ledger to which the whole view was noted."""

    def ledger(self) -> Ledger:
        """One that has seen no trial yet."""
        ...


def planned(ledger: Ledger, view: View) -> Iterator[Claim]:
    """What a ledger that has seen nothing yet plans for a view."""
    ledger.note(view.trials)
    ledger.note(view.finished)
    for trial in ledger.order(view.now):
        yield ledger.claim(trial, view.now, view.facts)


Policy: TypeAlias = Ranking | Planning
