"""What an adaptive ranking is told of its study, kept up as trials change.

The leader is the least entry of a heap, where stale entries are thrown away as they come up, and
all at once when they are the most; the sample is a fixed part of the study.
"""

from __future__ import annotations

import heapq

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
        self._sampled = members[:: -(-len(members) // SAMPLED)]
        self._levels: list[Entry] = []
        self._most = 2 * len(members) + SAMPLED

    def note(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        level = self._policy.level(trial)
        if level == float("inf"):
            return
        version = self._state.versions.get(trial.id, 0)
        heapq.heappush(self._levels, Entry((level,), trial.spec.number, version, trial.id))
        if len(self._levels) > self._most:
            self._levels = [entry for entry in self._levels if self._holds(entry)]
            heapq.heapify(self._levels)

    def adapt(self, first: Trial) -> Adapted:
        """The policy's ranking for a decision now; `first` is the candidate of the least score."""
        trials = self._state.trials
        while self._levels and not self._holds(self._levels[0]):
            heapq.heappop(self._levels)
        leader = trials[self._levels[0].trial] if self._levels else None
        sample = [trials[trial_id] for trial_id in self._sampled if trials[trial_id].curve]
        return self._policy.adapted(Field(first, leader, sample))

    def _holds(self, entry: Entry) -> bool:
        """Whether the trial is as it was when the entry was made."""
        return self._state.versions.get(entry.trial, 0) == entry.version
