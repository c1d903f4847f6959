"""One study's waiting trials in its policy's order, kept so that a change costs a heap's push.

A `Ranking` policy is asked only about trials that changed; the heaps (one for each home where the
placement binds) hold stale entries, which are thrown away when they come up. A `Planning` policy
is asked for its whole plan when something is to be decided.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hermesd.core.model import DeviceId, Phase, Quantum, StudyId, TrialId
from hermesd.core.placement import Placement
from hermesd.core.policy import Claim, Planning, Policy, Score, View
from hermesd.core.state import State
from hermesd.core.trial import Trial

MIN_QUANTUM_SECONDS = 0.1


class Entry(NamedTuple):
    """A candidate in its policy's order; the smallest `key` deserves a device most."""

    key: Score
    number: int
    version: int
    trial: TrialId


class Choice(NamedTuple):
    """A candidate with what its policy would give it."""

    trial: Trial
    quantum: Quantum
    words: str


class StudyQueue:
    """The candidates of one study, most deserving first."""

    def __init__(self, state: State, study: StudyId, policy: Policy, placement: Placement):
        self.state = state
        self.study = study
        self.policy = policy
        self.placement = placement
        self._heaps: dict[DeviceId | None, list[Entry]] = {}
        self._claims: dict[TrialId, Claim] | None = None
        self._planned_for = 0
        for trial_id in state.active[study]:
            self.refresh(state.trials[trial_id])

    def refresh(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        self._claims = None
        if isinstance(self.policy, Planning) or not trial.candidate:
            return
        if trial.phase is Phase.WAITING:
            heap = self._heaps.setdefault(self._bucket(trial), [])
            heapq.heappush(heap, self._entry(trial))

    def _bucket(self, trial: Trial) -> DeviceId | None:
        return trial.home if self.placement.binds else None

    def _entry(self, trial: Trial) -> Entry:
        assert not isinstance(self.policy, Planning)
        version = self.state.versions.get(trial.id, 0)
        return Entry(self.policy.score(trial), trial.spec.number, version, trial.id)

    def order(
        self,
        count: int,
        occupants: Iterable[Trial],
        eligible: Callable[[Trial], bool],
        now: float,
    ) -> list[TrialId]:
        """The `count` most deserving eligible waiting trials (of each home) and the occupants."""
        if isinstance(self.policy, Planning):
            if self._planned_for != self._devices():
                self._claims = None
            plan = self._plan(self.policy, now)
            return [trial_id for trial_id in plan if self.state.trials[trial_id].candidate]
        entries = [self._entry(trial) for trial in occupants]
        for home, heap in self._heaps.items():
            if not (self.placement.binds and home is None):
                entries += self._top(heap, count, eligible)
        return [entry.trial for entry in sorted(entries)]

    def _plan(self, policy: Planning, now: float) -> dict[TrialId, Claim]:
        if self._claims is None:
            view = self.view(now)
            self._claims = {claim.trial: claim for claim in policy.plan(view)}
            self._planned_for = view.devices
        return self._claims

    def _devices(self) -> int:
        """How many devices run something or could."""
        slots = self.state.slots.values()
        return sum(slot.run is not None or self.state.usable(slot) for slot in slots)

    def _top(self, heap: list[Entry], count: int, eligible: Callable[[Trial], bool]) -> list[Entry]:
        found: list[Entry] = []
        passed_over: list[Entry] = []
        last: Entry | None = None
        while heap and len(found) < count:
            entry, before = heapq.heappop(heap), last
            last = entry
            trial = self.state.trials.get(entry.trial)
            version = self.state.versions.get(entry.trial, 0)
            if trial is not None and version == entry.version and entry != before:
                (found if eligible(trial) else passed_over).append(entry)
        for entry in (*found, *passed_over):
            heapq.heappush(heap, entry)
        return found

    def view(self, now: float) -> View:
        state = self.state
        members = [state.trials[trial_id] for trial_id in state.members[self.study]]
        return View(
            now,
            [trial for trial in members if not trial.phase.final and not trial.paused],
            [trial for trial in members if trial.phase.final],
            self._devices(),
            state.facts[self.study],
        )

    def choice(self, trial: Trial, now: float) -> Choice | None:
        """What the policy would give the trial now; None if its plan leaves the trial out.

        Raises:
            ValueError: its quantum is shorter than 0.1 s.
        """
        if isinstance(self.policy, Planning):
            claim = self._plan(self.policy, now).get(trial.id)
            if claim is None:
                return None
            quantum, words = claim.quantum, claim.reason
        else:
            facts = self.state.facts[self.study]
            quantum, words = self.policy.quantum(trial, facts), self.policy.words(trial)
        if quantum.seconds is not None and not quantum.seconds >= MIN_QUANTUM_SECONDS:
            raise ValueError(f"a quantum of {quantum.seconds} s for {trial.id} is below 0.1 s")
        return Choice(trial, quantum, words)

    def ranking(self, now: float) -> Iterator[tuple[Trial, str]]:
        """Every unfinished trial in the policy's order, with its words; for people."""
        policy, trials = self.policy, self.view(now).trials
        if isinstance(policy, Planning):
            plan = self._plan(policy, now)
            ordered = [self.state.trials[trial_id] for trial_id in plan]
            ordered += [trial for trial in trials if trial.id not in plan]
        else:
            ordered = sorted(trials, key=lambda t: (policy.score(t), t.spec.number))
        for trial in ordered:
            yield trial, policy.words(trial)
