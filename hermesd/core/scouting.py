"""What an adaptive ranking is told of its study, kept up as trials change.

The leader is the least entry of a heap, where stale entries are thrown away as they come up, and
all at once when they are the most; the sample is a fixed part of the study. What the policy makes
of both is kept until one of them changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import TypeAlias

from hermesd.core.model import StudyId, TrialId
from hermesd.core.policy import Adapted, Adaptive, Field
from hermesd.core.state import State
from hermesd.core.trial import Trial

SAMPLED = 32
# Up to so many entries are put into the heap one by one.
FEW = 32
# A level with its trial's number, version and id: the least leads, the earlier one of equals.
Level: TypeAlias = tuple[float, int, int, TrialId]


class Scouting:
    """One study's leader and sample."""

    def __init__(self, state: State, study: StudyId, policy: Adaptive) -> None:
        self._state = state
        self._policy = policy
        members = state.members[study]
        self._sampled = dict.fromkeys(members[:: -(-len(members) // SAMPLED)])
        self._sample: list[Trial] | None = None
        self._levels: list[Level] = []
        self._most = 2 * len(members) + SAMPLED
        self._added: list[Level] = []
        self._field: Field | None = None
        self._adapted: Adapted | None = None

    def note(self, trial: Trial, version: int) -> None:
        """Take note of a trial that changed."""
        spec = trial.spec
        if spec.id in self._sampled:
            self._sample = None
        if trial.curve and (level := self._policy.level(trial)) < math.inf:
            self._added.append((level, spec.number, version, spec.id))
            if len(self._added) > self._most:
                self._settle()

    def sample(self) -> Sequence[Trial]:
        """The trials of the sample that have shown a loss; the same list while none changed."""
        if self._sample is None:
            trials = [self._state.trials[trial_id] for trial_id in self._sampled]
            self._sample = [trial for trial in trials if trial.curve]
        return self._sample

    def adapted(self, first: Trial) -> Adapted | None:
        """What holds now, `first` being the candidate of the least score; None: the policy's own.

        While that one has no level the policy is not asked.
        """
        if not first.curve or self._policy.level(first) == math.inf:
            return None
        self._settle()
        while self._levels and not self._holds(self._levels[0]):
            heapq.heappop(self._levels)
        if not self._levels:
            return None
        field = Field(self._state.trials[self._levels[0][-1]], self.sample())
        known = self._field
        if known is None or known.leader is not field.leader or known.sample is not field.sample:
            self._field, self._adapted = field, self._policy.adapted(field)
        return self._adapted

    def _settle(self) -> None:
        """Put what was noted since into the heap: few one by one, many at once."""
        if len(self._added) <= FEW:
            for entry in self._added:
                heapq.heappush(self._levels, entry)
        else:
            self._levels += self._added
            heapq.heapify(self._levels)
        self._added.clear()
        if len(self._levels) > self._most:
            self._levels = [entry for entry in self._levels if self._holds(entry)]
            heapq.heapify(self._levels)

    def _holds(self, entry: Level) -> bool:
        """Whether the trial is as it was when the entry was made."""
        return self._state.versions.get(entry[-1], 0) == entry[-2]
