"""One study's waiting trials in its policy's order, kept so that a change costs a heap's push.

A `Ranking` policy is asked only about trials that changed; the heaps (one for each home where the
placement binds) hold stale entries, which are thrown away when they come up. A `Planning` policy
is asked for its whole plan when something is to be decided.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from hermesd.core.model import DeviceId, Phase, Quantum, StudyId, TrialId
from hermesd.core.placement import Placement
from hermesd.core.policy import Claim, Planning, Policy, Ranking, Score, View
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


class StudyQueue:
    """The candidates of one study, most deserving first."""

    def __init__(self, state: State, study: StudyId, policy: Policy, placement: Placement):
        self.state = state
        self.study = study
        self.policy = policy
        # Looked at once: whether a protocol is kept takes longer to see than most answers do.
        self._planner = policy if isinstance(policy, Planning) else None
        self._ranker = None if isinstance(policy, Planning) else policy
        self.placement = placement
        self._heaps: dict[DeviceId | None, list[Entry]] = {}
        self._plan: Plan | None = None
        self._place = {trial_id: place for place, trial_id in enumerate(state.members[study])}
        self._going: list[Trial | None] = [None] * len(self._place)
        self._finished: list[Trial | None] = [None] * len(self._place)
        for trial_id in state.members[study]:
            self.refresh(state.trials[trial_id])

    def refresh(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        self._plan = None
        place, final = self._place[trial.id], trial.phase.final
        self._going[place] = None if final or trial.paused else trial
        self._finished[place] = trial if final else None
        if self._ranker is not None and trial.candidate and trial.phase is Phase.WAITING:
            heap = self._heaps.setdefault(self._bucket(trial), [])
            heapq.heappush(heap, self._entry(self._ranker, trial))

    def _bucket(self, trial: Trial) -> DeviceId | None:
        return trial.home if self.placement.binds else None

    def _entry(self, policy: Ranking, trial: Trial) -> Entry:
        version = self.state.versions.get(trial.id, 0)
        return Entry(policy.score(trial), trial.spec.number, version, trial.id)

    def order(
        self,
        count: int,
        occupants: Iterable[Trial],
        eligible: Callable[[Trial], bool],
        now: float,
    ) -> list[TrialId]:
        """The `count` most deserving eligible waiting trials (of each home) and the occupants."""
        if self._ranker is None:
            plan = self._planned(now)
            return self._first(plan, count, {trial.id for trial in occupants}, eligible)
        entries = [self._entry(self._ranker, trial) for trial in occupants]
        for home, heap in self._heaps.items():
            if not (self.placement.binds and home is None):
                entries += self._top(heap, count, eligible)
        return [entry.trial for entry in sorted(entries)]

    def _first(
        self,
        plan: Plan,
        count: int,
        occupants: set[TrialId],
        eligible: Callable[[Trial], bool],
    ) -> list[TrialId]:
        """Of a plan, the first `count` eligible waiting trials and the occupants, in its order."""
        found: list[TrialId] = []
        for trial_id in plan:
            if trial_id in occupants:
                occupants.discard(trial_id)
                found.append(trial_id)
            elif count > 0:
                trial = self.state.trials[trial_id]
                if trial.phase is Phase.WAITING and eligible(trial):
                    found.append(trial_id)
                    count -= 1
            if count <= 0 and not occupants:
                break
        return found

    def _planned(self, now: float) -> Plan:
        """The plan as things are: a new one if a trial or the number of devices changed."""
        assert self._planner is not None
        devices = self._devices()
        if self._plan is None or self._plan.devices != devices:
            self._plan = Plan(self._planner.plan(self.view(now)), devices)
        return self._plan

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
        going = [trial for trial in self._going if trial is not None]
        finished = [trial for trial in self._finished if trial is not None]
        return View(now, going, finished, self._devices(), self.state.facts[self.study])

    def choice(self, trial: Trial, now: float) -> Choice | None:
        """What the policy would give the trial now; None if its plan leaves the trial out.

        Raises:
            ValueError: its quantum is shorter than 0.1 s.
        """
        if self._ranker is None:
            claim = self._planned(now).get(trial.id)
            if claim is None:
                return None
            quantum, words = claim.quantum, claim.reason
        else:
            facts = self.state.facts[self.study]
            quantum, words = self._ranker.quantum(trial, facts), self._ranker.words(trial)
        if quantum.seconds is not None and not quantum.seconds >= MIN_QUANTUM_SECONDS:
            raise ValueError(f"a quantum of {quantum.seconds} s for {trial.id} is below 0.1 s")
        return Choice(trial, quantum, words)

    def ranking(self, now: float) -> Iterator[tuple[Trial, str]]:
        """Every unfinished trial in the policy's order, with its words; for people."""
        trials, ranker = self.view(now).trials, self._ranker
        if ranker is None:
            planned = dict.fromkeys(self._planned(now))
            ordered = [self.state.trials[trial_id] for trial_id in planned]
            ordered += [trial for trial in trials if trial.id not in planned]
        else:
            ordered = sorted(trials, key=lambda t: (ranker.score(t), t.spec.number))
        for trial in ordered:
            yield trial, self.policy.words(trial)
