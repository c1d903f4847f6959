"""The interface of policies: what a policy may read, and the forms in which it answers.

A policy is a frozen dataclass whose fields are its settings. It is pure and stateless: the same
view gives the same answer, so it can be swapped at any time and tested by one call.

- A `Ranking` scores one trial at a time; the scheduler keeps the scores in order and asks again
  only about trials that changed.
- An `Adaptive` policy is a `Ranking` that judges the first few trials of its order again, by what
  is known about their whole study.
- A `Planning` policy sees all trials of its study at once and returns the claims in order.
- A `Following` policy plans as well, but has a `Ledger`, which the scheduler keeps for it and
  tells which trials changed, so that a plan costs as much as what changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import chain
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from hermesd.core.model import Plugin, Quantum, Scalar, Setting, StudyId, Time, TrialId, TrialSpec
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

    Seconds are 0 while unmeasured.
    """

    #: To suspend a trial.
    suspend_seconds: float = 0.0
    #: To resume one that is parked.
    resume_seconds: float = 0.0
    #: Of one iteration.
    step_seconds: float = 0.0
    #: Of the kinds of devices that were measured.
    speeds: dict[str, Speed] = field(default_factory=dict)
    #: To resume one from a checkpoint.
    restore_seconds: float = 0.0
    #: For each byte of a checkpoint that was fetched from another node.
    fetch_seconds_per_byte: float = 0.0
    #: The shortest planned length that one of them told, or length that one came to which told
    #: none; None while neither is known.
    planned_steps: int | None = None
    #: How many times as fast they are on so many devices as on the fewest that they may have.
    gains: dict[int, float] = field(default_factory=dict)

    @property
    def switch_seconds(self) -> float:
        """To suspend one and resume another."""
        return self.suspend_seconds + self.resume_seconds


@dataclass(frozen=True, slots=True)
class View:
    """A study at one moment."""

    #: The scheduler's clock, in seconds.
    now: Time
    #: All that are neither final nor paused, by number.
    trials: Sequence[Trial]
    #: Those that are final.
    finished: Sequence[Trial]
    #: How many devices the study may use.
    devices: int
    facts: Facts


@dataclass(frozen=True, slots=True)
class Field:
    """What is known of a study beside the trial that is judged."""

    #: The trial of the least `level`, whatever its phase: it may run or be finished.
    leader: Trial
    #: Some of the trials that have shown a loss, whatever their phase, spread evenly over all: few
    #: enough to be looked at each time.
    sample: Sequence[Trial]
    #: Whether as many trials have a level as is enough for one more to train on: 32 for each that
    #: trains on or has ended.
    enough: bool = False


# The setting by which a policy makes use of earlier studies, and its value that shares them.
HISTORY, SHARED = "history", "shared"


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """A study that was submitted before, whose trials have the same parameters."""

    study: StudyId
    #: Those that have come to an end of their own, by number.
    trials: Sequence[Trial]


# Of a study with fewer such trials nothing is remembered.
FEWEST_EARLIER = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial that deserves a device, and for how long."""

    trial: TrialId
    quantum: Quantum
    #: Why, in the policy's own words.
    reason: str
    #: Only for devices that would stand idle: a policy that gives trials up would have ended it.
    held_back: bool = False
    #: On how many devices, of as many as its study allows; 0: that is decided for all together.
    width: int = 0


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """A trial that may run on several numbers of devices."""

    trial: TrialId
    #: Until its end, or until it converges; infinite where nothing is known: it stays at `min`.
    remaining_steps: float
    #: Steps a second at a width; 0 at one that it cannot have.
    speed: Callable[[int], float]
    #: The fewest devices that it may have.
    min: int
    #: The most.
    max: int
    #: Hardly begun, so that its steps left are a guess.
    young: bool = False


@runtime_checkable
class Ranking(Protocol):
    """A policy whose order follows from each trial alone."""

    name: ClassVar[str]

    def score(self, trial: Trial) -> Score:
        """The trial's place in the order: the smallest goes first, ties go to the earlier trial.

        Args:
            trial: one that waits or runs.

        Returns:
            Numbers, none of them NaN; always as many.
        """
        ...

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        """How long the trial may run if it is chosen now.

        Args:
            trial: one that waits.
            facts: what is typical of its study, for what was not measured of the trial itself.

        Returns:
            A quantum of at least `plugin.MIN_QUANTUM_SECONDS`, or up to a step after the trial's.
        """
        ...

    def words(self, trial: Trial) -> str:
        """The score, for people."""
        ...


@runtime_checkable
class Adaptive(Ranking, Protocol):
    """A ranking that is adapted to its study before each decision.

    Its own scores say which trials come into question: as many as can be served, from the first
    of the order on, and some more from each of the adapted ranking's `fronts` on. The adapted
    scores say who of them goes first.
    """

    def suited(self, sample: Sequence[Trial]) -> Adaptive:
        """This policy with the settings that a study needs.

        Asked when a trial of the sample changed; for another answer than the last, all trials are
        scored anew, those of a large study some at each decision: the answer before holds until
        that is done.

        Args:
            sample: as of `Field`.

        Returns:
            A policy of the same class; usually itself.
        """
        ...

    def level(self, trial: Trial) -> float:
        """How good a trial with a loss is by now.

        Returns:
            A number; the least leads. Infinite for a trial that cannot lead.
        """
        ...

    def adapted(self, field: Field) -> Adapted | None:
        """The order that holds in this field.

        Returns:
            Its part that is the same for all decisions; None for the policy's own order.
        """
        ...


@runtime_checkable
class Foreseeing(Adaptive, Protocol):
    """An adaptive ranking that is asked while its first candidate has no level yet, too."""

    foresees: ClassVar[bool]


@runtime_checkable
class Remembering(Protocol):
    """A policy that makes use of what earlier studies came to."""

    def remembering(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> Policy:
        """The policy that knows them; itself where they say nothing.

        Asked once for a study, and again when that has grown.

        Args:
            earlier: those that its owner may use, the latest first.
            specs: all trials of the study, by number.
        """
        ...

    def remembered(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> str:
        """Which earlier studies it goes by and how, or why by none, for people.

        Args:
            earlier: those that `remembering` was given when it made this policy.
            specs: as there.
        """
        ...


@runtime_checkable
class Widening(Protocol):
    """A policy that says how many devices each trial is to have, where its study leaves that open.

    Without one, what nobody waits for goes to the first of its order that becomes faster by it.
    """

    def widths(
        self, trials: Sequence[Trial], jobs: Sequence[ElasticJob], devices: int
    ) -> Mapping[TrialId, int]:
        """Divide the devices.

        Args:
            trials: those that run, or may, and could have more devices or fewer, the most deserving
                first.
            jobs: what is known of each of them, as long: its steps ahead are to the planned end,
                its speed is as measured or as foreseen from that.
            devices: theirs in all.

        Returns:
            A width from `min` to `max` of each; one that is left out stays as it is.
        """
        ...


@runtime_checkable
class Adapted(Protocol):
    """The order that holds as long as the field of its study is the same."""

    @property
    def fronts(self) -> Sequence[Score | None]:
        """From each of these scores of the `Adaptive` on, trials come into question; None: from
        the first."""
        ...

    def facing(self, first: Trial) -> Ranking:
        """The ranking for one decision: `first` is the candidate of the policy's least score."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A policy that must see its whole study; a trial left out of the plan is held back."""

    name: ClassVar[str]

    def plan(self, view: View) -> Iterable[Claim]:
        """Which trials deserve a device.

        Args:
            view: the whole study.

        Returns:
            Claims, most deserving first, each of another trial of the view. Of an iterator no more
            are taken than are needed.
        """
        ...

    def words(self, trial: Trial) -> str:
        """What the policy sees in a trial, for people."""
        ...


class Exploration(NamedTuple):
    """How a fork explores the parameters of its parent."""

    #: Of the parameters; none: all that are searched, but for sequences and lengths.
    names: tuple[str, ...]
    #: A parameter that is not drawn anew is multiplied by one of these.
    factors: tuple[float, ...]
    #: The probability that a parameter is drawn anew.
    resample: float


class Exploit(NamedTuple):
    """A trial of a population, and the one from whose checkpoint another goes on in its place."""

    loser: TrialId
    winner: TrialId


@runtime_checkable
class Breeding(Planning, Protocol):
    """A planning policy of a population, whose worst trials are replaced by forks of its best."""

    def exploits(self, view: View) -> Sequence[Exploit]:
        """Who is to be replaced now: all of one round at once.

        A fork has the policy's name as its `TrialSpec.proposal`.

        Args:
            view: the whole study.

        Returns:
            Each loser once, an unfinished trial or one that failed or diverged; each winner has a
            checkpoint that others can go on from.
        """
        ...

    @property
    def exploration(self) -> Exploration:
        """How the parameters of a fork differ from its parent's."""
        ...


class Ledger(Protocol):
    """What a planning policy keeps of one study's trials from plan to plan.

    What it says follows from the trials as they were last noted. Neither the order in which
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


# A planning policy's answer, of which no more is worked out than somebody asks for.


class Plan:
    """The claims of a planning policy, taken from it as far as they were asked for."""

    def __init__(self, claims: Iterable[Claim], devices: int) -> None:
        self.devices = devices
        self._rest = iter(claims)
        self._known: dict[TrialId, Claim] = {}
        self._order: list[TrialId] = []

    def __iter__(self) -> Iterator[TrialId]:
        """The trials, most deserving first."""
        return chain(self._order, self._more())

    def among(self, trials: Collection[TrialId]) -> list[TrialId]:
        """Those of the trials that are in the plan, in its order."""
        found: list[TrialId] = []
        for trial in self if trials else ():
            if trial in trials:
                found.append(trial)
                if len(found) == len(trials):
                    break
        return found

    def get(self, trial: TrialId) -> Claim | None:
        """A trial's claim; None if it is left out."""
        if trial not in self._known:
            next((other for other in self._more() if other == trial), None)
        return self._known.get(trial)

    def _more(self) -> Iterator[TrialId]:
        for claim in self._rest:
            if claim.trial not in self._known:
                self._known[claim.trial] = claim
                self._order.append(claim.trial)
                yield claim.trial


class LedgerPlan:
    """The same of a ledger as it is: void when a trial was noted since."""

    def __init__(self, ledger: Ledger, now: Time, facts: Facts, devices: int) -> None:
        self.devices = devices
        self._ledger = ledger
        self._now = now
        self._facts = facts

    def __iter__(self) -> Iterator[TrialId]:
        """The trials, most deserving first."""
        return self._ledger.order(self._now)

    def among(self, trials: Collection[TrialId]) -> list[TrialId]:
        """Those of the trials that are in the plan, in its order."""
        places = [(self._ledger.place(trial, self._now), trial) for trial in trials]
        return [trial for _, trial in sorted((p, trial) for p, trial in places if p is not None)]

    def get(self, trial: TrialId) -> Claim | None:
        """A trial's claim; None if it is left out."""
        if self._ledger.place(trial, self._now) is None:
            return None
        return self._ledger.claim(trial, self._now, self._facts)


def first_of(
    plan: Plan | LedgerPlan,
    count: int,
    occupants: Collection[TrialId],
    waits: Callable[[TrialId], bool],
) -> list[TrialId]:
    """Of a plan, the first `count` trials that wait for a device, and the occupants, in order."""
    found: list[TrialId] = []
    left = dict.fromkeys(occupants)
    for trial in plan if count > 0 else ():
        if trial in left:
            del left[trial]
            found.append(trial)
        elif waits(trial):
            found.append(trial)
            count -= 1
            if count <= 0:
                break
    return found + plan.among(left)


# From a plug-in's name and settings to the plug-in itself, with errors that say what would
# do.
#
# A plug-in is a frozen dataclass whose fields are its settings. Fields may be bool, int, float,
# str, a `Literal` of strings, or a tuple of one of these; ranges are checked in `__post_init__`.
# A number may be written as a fraction (`1/27`), and a list with colons (`25:50:75`), wherever
# settings are written: no YAML, JSON or TOML has another meaning for these.

T = TypeVar("T")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def build(noun: str, known: Mapping[str, type[T]], plugin: Plugin) -> T:
    """The plug-in that `plugin` describes; `noun` says what it is ("policy", "placement").

    Raises `BadSetting` for a name, a setting, a type or a value that is not one of ours.
    """
    if plugin.name not in known:
        raise BadSetting(noun, plugin.name, one_of(known), nearest(plugin.name, known))
    chosen = known[plugin.name]
    types = get_type_hints(chosen)
    names = [field.name for field in fields(chosen)]  # type: ignore[arg-type]
    settings: dict[str, Setting] = {}
    for name, value in plugin.settings:
        if name not in names:
            field = f"{noun}.{plugin.name}"
            raise BadSetting(field, name, one_of(names), nearest(name, names))
        settings[name] = typed(name, value, types[name])
    return chosen(**settings)


def require(holds: bool, field: str, value: Setting, expected: str) -> None:
    """Raises `BadSetting` unless a setting's value is within its range."""
    if not holds:
        raise BadSetting(field, value, expected)


def check_quantum_seconds(seconds: float) -> None:
    """Raises `BadSetting` for a length that no quantum has."""
    require(0.1 <= seconds < math.inf, "quantum_seconds", seconds, "0.1 seconds or more")


def typed(field: str, value: Setting, wanted: Any) -> Setting:
    """The value in the type that a setting has; a whole number will do where a number may."""
    if get_origin(wanted) is Literal:
        if value is False and "off" in get_args(wanted):
            return "off"  # as YAML has it
        choices = [str(choice) for choice in get_args(wanted)]
        if value not in choices:
            raise BadSetting(field, value, one_of(choices), nearest(str(value), choices))
        return value
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)[0]
        if isinstance(value, str) and ":" in value:
            value = read(value)
        if not isinstance(value, tuple):
            raise BadSetting(field, value, f"a list, each {WORDS[inner]}")
        return tuple(scalar(field, item, inner) for item in value)
    return scalar(field, value, wanted)


def scalar(field: str, value: Setting, wanted: type) -> Scalar:
    """A single value in its type; True and 1 are not the same here."""
    if isinstance(value, tuple):
        raise BadSetting(field, value, WORDS[wanted])
    meant = read_word(value) if isinstance(value, str) and "/" in value else value
    if wanted is float and isinstance(meant, int | float) and not isinstance(meant, bool):
        return float(meant)
    if type(value) is not wanted:
        raise BadSetting(field, value, WORDS[wanted])
    return value


def read(text: str) -> Setting:
    """What the text of a setting means: a word, or a list with colons between its items.

    A list of one item ends in a colon.
    """
    if ":" in text:
        return tuple(read_word(item) for item in filter(None, text.split(":")))
    return read_word(text)


def read_word(text: str) -> Scalar:
    """What a word means: true or false, a number, a fraction, or itself."""
    if text in ("true", "false"):
        return text == "true"
    upper, slash, lower = text.partition("/")
    try:
        if slash:
            return float(upper) / float(lower)
        return int(text)
    except (ValueError, ZeroDivisionError):
        pass
    try:
        return float(text)
    except ValueError:
        return text


def raised(error: BaseException) -> str:
    """What a plug-in raised, in one line however many its text has."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def raised_where(error: BaseException) -> str:
    """The same, and the file and line of the plug-in that raised; none if it was no plug-in's."""
    at, where = error.__traceback__, ""
    while at is not None:
        if not at.tb_frame.f_globals.get("__name__", "").startswith("hermesd."):
            where = f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})"
        at = at.tb_next
    return raised(error) + where


def one_of(choices: Iterable[str]) -> str:
    """The choices, for a message."""
    listed = ", ".join(sorted(choices))
    return f"one of {listed}" if listed else "no settings at all"


def nearest(word: str, choices: Iterable[str], likeness: float = 0.5) -> str:
    """The choice that a misspelled word most likely means, "" if none is near."""
    return next(iter(get_close_matches(word, sorted(choices), 1, likeness)), "")
