"""Whose turn it is: the studies' orders as one, fair to users, then to their studies.

The user goes first who has used the least for their weight lately; of those who have used alike,
the one who has fewer devices, or was given fewer in this decision. Of one user's studies those of
the highest priority go first, of equals the one with the fewest devices, and of equals again the
one whose last turn is longest ago: studies that share a device have it in turn. With one user alone
no use is looked at.

While devices come free, nobody waits longer than the half-life times the binary logarithm of all
weights over one's own: one's use and that of those who are served instead, each of whom had less,
fade alike meanwhile, and what is used is theirs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from hermesd.core.model import StudyId, Time, TrialId, UserId
from hermesd.core.tables import Tables

# A device in hand counts as if it had been used for this part of the half-life: little beside what
# was used, and enough to tell who has more of them.
IN_HAND = 0.01


def merged(
    state: Tables, orders: Mapping[StudyId, list[TrialId]], open_to: Collection[TrialId], now: float
) -> list[TrialId]:
    """The trials in turn. `orders` has each study's, the most deserving first; whom a device is
    open to that they have already, `open_to`, counts when the turn comes."""
    if len(orders) <= 1:
        return [trial_id for order in orders.values() for trial_id in order]
    shares: Counter[StudyId] = Counter()
    for slot in state.slots.values():
        if slot.run is not None and slot.run.trial not in open_to:
            shares[state.trials[slot.run.trial].spec.study] += 1
    left: dict[UserId, dict[StudyId, list[TrialId]]] = {}
    for study_id, order in orders.items():
        left.setdefault(state.studies[study_id].owner, {})[study_id] = order[::-1]
    burdens = {user: _Burden(state, user, shares, now) for user in left} if len(left) > 1 else {}
    turns: list[TrialId] = []

    def served(study_id: StudyId) -> Time:
        return state.served.get(study_id, -math.inf)

    while left:
        user = min(left, key=lambda u: burdens[u].now) if burdens else next(iter(left))
        theirs = left[user]
        study_id = min(theirs, key=lambda s: (-state.studies[s].priority, shares[s], served(s)))
        turns.append(theirs[study_id].pop())
        shares[study_id] += 1
        if burdens:
            burdens[user].add()
        if not theirs[study_id]:
            del theirs[study_id]
            if not theirs:
                del left[user]
    return turns


class _Burden:
    """A user's use for their weight, as it grows while devices are given out."""

    def __init__(
        self, state: Tables, user: UserId, shares: Mapping[StudyId, int], now: float
    ) -> None:
        weight = state.terms_of(user).weight
        self._step = IN_HAND * state.half_life_seconds / weight
        held = sum(count for study, count in shares.items() if state.studies[study].owner == user)
        self.now = state.used_by(user, now) / weight + held * self._step

    def add(self) -> None:
        """The user is given a device."""
        self.now += self._step
