"""A planning policy's answer, of which no more is worked out than somebody asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from hermesd.core.model import TrialId
from hermesd.core.policy import Claim


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
