"""What an adaptive ranking is told of its study, kept up as trials change.

The leader is the least entry of a heap, where stale entries are thrown away as they come up, and
all at once when they are the most; the sample is a fixed part of the study. What the policy makes
of both is kept until one of them changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from hermesd.core.line import Entry
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
        members = state.members[study]
        self._sampled = dict.fromkeys(members[:: -(-len(members) // SAMPLED)])
        self._sample: list[Trial] | None = None
        self._levels: list[Entry] = []
        self._most = 2 * len(members) + SAMPLED
        self._field: Field | None = None
        self._adapted: Adapted | None = None

    def note(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        if trial.id in self._sampled:
            self._sample = None
        if not trial.curve or (level := self._policy.level(trial)) == math.inf:
            return
        version = self._state.versions.get(trial.id, 0)
        heapq.heappush(self._levels, Entry((level,), trial.spec.number, version, trial.id))
        if len(self._levels) > self._most:
            self._levels = [entry for entry in self._levels if self._holds(entry)]
            heapq.heapify(self._levels)

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
        while self._levels and not self._holds(self._levels[0]):
            heapq.heappop(self._levels)
        if not self._levels:
            return None
        field = Field(self._state.trials[self._levels[0].trial], self.sample())
        known = self._field
        if known is None or known.leader is not field.leader or known.sample is not field.sample:
            self._field, self._adapted = field, self._policy.adapted(field)
        return self._adapted

    def _holds(self, entry: Entry) -> bool:
        """Whether the trial is as it was when the entry was made."""
        return self._state.versions.get(entry.trial, 0) == entry.version
