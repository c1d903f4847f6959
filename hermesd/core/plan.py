"""A planning policy's answer, of which no more is worked out than somebody asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from hermesd.core.model import Time, TrialId
from hermesd.core.policy import Claim, Facts, Ledger


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
