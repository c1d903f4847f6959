"""What an adaptive ranking is told of its study, kept up as trials change.

The leader has the least of the trials' levels, which are kept in blocks of about as many as there
are blocks: of a change only its own block is looked at again. The sample is a fixed part of the
study. What the policy makes of both is kept until one of them changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hermesd.core.model import StudyId
from hermesd.core.policy import Adapted, Adaptive, Field
from hermesd.core.state import State
from hermesd.core.trial import Trial

SAMPLED = 32


class Scouting:
    """One study's leader and sample."""

    def __init__(self, state: State, study: StudyId, policy: Adaptive) -> None:
        self._state = state
        self._policy = policy
        self._members = members = state.members[study]
        self._place = {trial_id: place for place, trial_id in enumerate(members)}
        self._stride = -(-len(members) // SAMPLED)
        self._sample: list[Trial] | None = None
        # The trials' levels, infinite without one; the least of each block, and which to look at.
        self._levels = [math.inf] * len(members)
        self._block = math.isqrt(len(members)) + 1
        self._least = [math.inf] * -(-len(members) // self._block)
        self._changed: set[int] = set()
        self._field: Field | None = None
        self._adapted: Adapted | None = None

    def note(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        place = self._place[trial.spec.id]
        if not place % self._stride:
            self._sample = None
        level = self._policy.level(trial) if trial.curve else math.inf
        if level != self._levels[place]:
            self._levels[place] = level
            self._changed.add(place // self._block)

    def sample(self) -> Sequence[Trial]:
        """The trials of the sample that have shown a loss; the same list while none changed."""
        if self._sample is None:
            trials = [self._state.trials[each] for each in self._members[:: self._stride]]
            self._sample = [trial for trial in trials if trial.curve]
        return self._sample

    def adapted(self, first: Trial) -> Adapted | None:
        """What holds now, `first` being the candidate of the least score; None: the policy's own.

        While that one has no level the policy is not asked.
        """
        if not first.curve or self._policy.level(first) == math.inf:
            return None
        leader = self._leader()
        if leader is None:
            return None
        field = Field(leader, self.sample())
        known = self._field
        if known is None or known.leader is not field.leader or known.sample is not field.sample:
            self._field, self._adapted = field, self._policy.adapted(field)
        return self._adapted

    def _leader(self) -> Trial | None:
        """The trial of the least level, the earlier one of equals."""
        for block in self._changed:
            begin = block * self._block
            self._least[block] = min(self._levels[begin : begin + self._block])
        self._changed.clear()
        least = min(self._least)
        if least == math.inf:
            return None
        place = self._levels.index(least, self._least.index(least) * self._block)
        return self._state.trials[self._members[place]]
