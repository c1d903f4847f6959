"""Policies by name: those that ship with Hermes, and those that installed packages bring.

A package offers a policy as an entry point of the group `hermes.policies`. It is imported when its
name is first asked for, and each of its answers is checked. Whatever it does wrong becomes one
error about that policy, and the study goes on under `fifo`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeAlias

from hermesd.core.model import Milestone, Quantum
from hermesd.core.policy import (
    Adaptive,
    BadSetting,
    Claim,
    Facts,
    Field,
    Policy,
    Score,
    View,
    nearest,
    one_of,
    raised,
)
from hermesd.core.trial import Trial

# What every policy promises: its class, and each of its answers.
#
# The checks of an answer are made of every answer that a policy from another package gives (see
# `installed`), so that the scheduler, the journal and the wire are only ever handed what they can
# take; `trying` makes them for its author.

MIN_QUANTUM_SECONDS = 0.1
RANKING = ("score", "quantum", "words")
PLANNING = ("plan", "words")


class BrokenPromise(ValueError):
    """An answer that no policy may give; says which and why.

    Those of one `kind` break the same promise, by whatever value for whatever trial.
    """

    def __init__(self, words: str, kind: str = "") -> None:
        super().__init__(words)
        self.kind = kind or words


# What one call of a plug-in answers.


def checked_score(score: Any) -> Score:
    """The score, if it is a tuple of numbers without NaN; a bool is one, as everywhere in Python.

    Raises `BrokenPromise`.
    """
    fits = isinstance(score, tuple) and all(isinstance(each, int | float) for each in score)
    _promise(fits, "score", score, "a tuple of numbers")
    _promise(not any(map(math.isnan, score)), "score", score, "no NaN: it has no place in an order")
    return tuple(map(float, score))


def checked_level(level: Any) -> float:
    """The level, if it is a number. Raises `BrokenPromise`."""
    _promise(_number(level) and not math.isnan(level), "level", level, "a number, not NaN")
    return float(level)


def checked_words(words: Any) -> str:
    """The words, if people can read them. Raises `BrokenPromise`."""
    _promise(isinstance(words, str) and bool(words.strip()), "words", words, "some text")
    return str(words)


def checked_suited(suited: Any, policy: Adaptive) -> Adaptive:
    """The policy with other settings, if it is of the same class. Raises `BrokenPromise`."""
    same = isinstance(suited, type(policy))
    _promise(same, "suited", suited, f"a {type(policy).__name__}, with settings of its own")
    return policy if not isinstance(suited, type(policy)) else suited


def checked_quantum(quantum: Any, asked: Trial) -> Quantum:
    """The quantum, if it can be granted to the trial. Raises `BrokenPromise`."""
    if not isinstance(quantum, Quantum):
        raise broken("quantum", quantum, "a Quantum")
    seconds, until = quantum.seconds, quantum.until_step
    enough = seconds is None or (_number(seconds) and MIN_QUANTUM_SECONDS <= seconds < math.inf)
    _promise(enough, "quantum.seconds", seconds, f"None or at least {MIN_QUANTUM_SECONDS}")
    ahead = until is None or (type(until) is int and until > asked.step)
    expected, where = "None or a step after the trial's own", f", which is {asked.step}"
    _promise(ahead, "quantum.until_step", until, expected, where)
    reachable = quantum.loss is None or (_number(quantum.loss) and math.isfinite(quantum.loss))
    _promise(reachable, "quantum.loss", quantum.loss, "None or a finite number")
    _promise(type(quantum.exact) is bool, "quantum.exact", quantum.exact, "true or false")
    milestones: Any = quantum.milestones
    real = isinstance(milestones, tuple) and all(
        isinstance(each, Milestone) and math.isfinite(each.loss) and math.isfinite(each.percent)
        for each in milestones
    )
    _promise(real, "quantum.milestones", milestones, "a tuple of finite Milestones")
    return quantum


def checked_plan(claims: Iterable[Any], study: View) -> list[Claim]:
    """The claims, if each is of another candidate of the study. Raises `BrokenPromise`."""
    candidates = {each.id: each for each in study.trials if each.candidate}
    plan = list(claims)
    for claim in plan:
        if not isinstance(claim, Claim):
            raise broken("plan", claim, "Claims")
        known = candidates.pop(claim.trial, None)
        if known is None:
            raise broken("plan", claim.trial, "candidates of the view, each once")
        checked_quantum(claim.quantum, known)
        checked_words(claim.reason)
    return plan


def _promise(kept: bool, what: str, value: object, expected: str, where: str = "") -> None:
    if not kept:
        raise broken(what, value, expected, where)


def broken(what: str, value: object, expected: str, where: str = "") -> BrokenPromise:
    """The error that an answer is which will not do; `where` is no part of its kind."""
    words = f"{what} is {value!r:.80}: expected {expected}{where}"
    return BrokenPromise(words, f"{what}: expected {expected}")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# The plug-in's class.


def misshapen(kind: Any, name: str) -> str:
    """Why a class cannot be the policy of this name, "" if it can."""
    if not isinstance(kind, type):
        return f"it is {type(kind).__name__}, not a class"
    if not is_dataclass(kind) or not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009
        return "it is not a frozen dataclass"
    if getattr(kind, "name", None) != name:
        return f"its `name` is {getattr(kind, 'name', None)!r}, not {name!r}"
    if name in {field.name for field in fields(kind)}:
        return "its `name` must be a ClassVar, not a setting"
    forms = [f for f in (RANKING, PLANNING) if all(callable(getattr(kind, m, None)) for m in f)]
    if len(forms) != 1:
        return "it must have either score, quantum and words, or plan and words"
    return ""


GROUP = "hermes.policies"
Offers: TypeAlias = Callable[[], Iterable[EntryPoint]]


def offered_now() -> tuple[EntryPoint, ...]:
    """The policies that packages of this environment offer."""
    return tuple(entry_points(group=GROUP))


@cache
def offered() -> tuple[EntryPoint, ...]:
    """The policies that packages offered when a process first looked: it goes on with these."""
    return offered_now()


class Registry(Mapping[str, type[Policy]]):
    """Policies by name; a policy that ships keeps its name whoever else offers it.

    Asking for a policy that cannot be used raises `BadSetting` with the reason.
    """

    def __init__(
        self,
        shipped: Iterable[type[Policy]],
        offers: Offers = offered,
        offers_now: Offers = offered_now,
    ) -> None:
        self._known = {policy.name: policy for policy in shipped}
        self._offers = offers
        self._offers_now = offers_now

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        yield from sorted({each.name for each in self._offers()} - self._known.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._known or any(each.name == name for each in self._offers())

    def __getitem__(self, name: str) -> type[Policy]:
        if name in self._known:
            return self._known[name]
        offers = [each for each in self._offers() if each.name == name]
        if not offers:
            raise KeyError(name)
        return _loaded(name, offers)

    def unknown(self, name: str) -> BadSetting:
        """The error that a name is which nothing has: says who works, and who does not."""
        for offer in self._offers_now():
            if offer.name == name:
                package = _package(offer)
                expected = f"a daemon started since {package}, which has it, was installed: restart"
                return BadSetting("policy", name, f"{expected} hermesd")
        working, broken = [], []
        for each in self:
            try:
                self[each]
            except BadSetting:
                broken.append(f"; {each} cannot be used: `hermesd policy check {each}` says why")
            else:
                working.append(each)
        return BadSetting("policy", name, one_of(working) + "".join(broken), nearest(name, working))


def _loaded(name: str, offers: list[EntryPoint]) -> type[Policy]:
    """The class that a package offers, its answers checked."""
    if len(offers) > 1:
        packages = ", ".join(sorted(_package(each) for each in offers))
        raise BadSetting("policy", name, f"one package that offers it, not {packages}")
    try:
        kind = offers[0].load()
        wrong = misshapen(kind, name)
    except (Exception, SystemExit) as error:  # whatever a plug-in raises: its user is told
        wrong = f"it cannot be imported: {raised(error)}"
    if wrong:
        raise BadSetting("policy", name, f"a policy from {_package(offers[0])} that works: {wrong}")
    return guarded(kind)


def _package(offer: EntryPoint) -> str:
    return offer.dist.name if offer.dist else offer.value


@cache
def guarded(kind: type[Policy]) -> type[Policy]:
    """The same policy, its answers checked and its exits caught.

    Its methods raise `BrokenPromise` for an answer that breaks the contract.
    """
    inner: Any = kind

    def score(self: Any, trial: Trial) -> Score:
        return checked_score(_caught(inner.score, self, trial))

    def quantum(self: Any, trial: Trial, facts: Facts) -> Quantum:
        return checked_quantum(_caught(inner.quantum, self, trial, facts), trial)

    def words(self: Any, trial: Trial) -> str:
        return checked_words(_caught(inner.words, self, trial))

    def plan(self: Any, view: View) -> list[Claim]:
        return checked_plan(_caught(inner.plan, self, view), view)

    def level(self: Any, trial: Trial) -> float:
        return checked_level(_caught(inner.level, self, trial))

    def suited(self: Any, sample: Sequence[Trial]) -> Any:
        return checked_suited(_caught(inner.suited, self, sample), self)

    def adapted(self: Any, field: Field) -> CheckedOrder | None:
        found = _caught(inner.adapted, self, field)
        return None if found is None else CheckedOrder(found)

    checks: dict[str, Any] = {"words": words}
    if hasattr(kind, "adapted"):
        checks |= {"suited": suited, "level": level, "adapted": adapted}
    # Its plans are checked whole, so it is never asked for a ledger.
    checks |= {"ledger": None} if hasattr(kind, "ledger") else {}
    checks |= {"plan": plan} if hasattr(kind, "plan") else {"score": score, "quantum": quantum}
    body = {**checks, "__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), body)


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """What an adaptive policy of a package adapted, its answers checked."""

    adapted: Any

    @property
    def fronts(self) -> list[Score | None]:
        fronts = _caught(lambda: [*self.adapted.fronts])
        return [None if front is None else checked_score(front) for front in fronts]

    def facing(self, first: Trial) -> Checked:
        return Checked(_caught(self.adapted.facing, first))


@dataclass(frozen=True, slots=True)
class Checked:
    """The ranking of one decision of such a policy, its answers checked."""

    name: ClassVar[str] = "checked"
    ranking: Any

    def score(self, trial: Trial) -> Score:
        return checked_score(_caught(self.ranking.score, trial))

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return checked_quantum(_caught(self.ranking.quantum, trial, facts), trial)

    def words(self, trial: Trial) -> str:
        return checked_words(_caught(self.ranking.words, trial))


def _caught(method: Callable[..., Any], *arguments: Any) -> Any:
    """A method's answer; an attempt to end the process is a broken promise."""
    try:
        return method(*arguments)
    except SystemExit as error:
        raise BrokenPromise("it tried to end the process") from error
