"""Policies by name: those that ship, and those that installed packages bring.

A package offers one as an entry point of the group `hermes.policies`. It is imported when its
name is first asked for, and every answer it gives is checked: whatever it does wrong is one
error about that policy, and the study goes on under first in, first out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeAlias

from hermesd.core.model import Quantum
from hermesd.core.plugins import nearest, one_of, raised
from hermesd.core.policy import BadSetting, Claim, Facts, Field, Policy, Score, View
from hermesd.core.trial import Trial
from hermesd.policy.contract import (
    BrokenPromise,
    checked_level,
    checked_plan,
    checked_quantum,
    checked_score,
    checked_suited,
    checked_words,
    misshapen,
)

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
    except (Exception, SystemExit) as error:
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
    def front(self) -> Score | None:
        front = self.adapted.front
        return None if front is None else checked_score(front)

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
