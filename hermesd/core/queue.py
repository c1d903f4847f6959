"""One study's waiting trials in its policy's order, kept so that a change costs little.

A `Ranking` policy is asked only about trials that changed; there is one line of waiting trials, or
one for each home where the placement binds. An `Adaptive` one is asked again about the first of
the line, a bounded number. A `Planning` policy is asked for its whole plan when something is to be
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from hermesd.core.line import Entry, Line
from hermesd.core.model import DeviceId, Phase, Quantum, StudyId, TrialId
from hermesd.core.placement import Placement
from hermesd.core.policy import Adaptive, Claim, Planning, Policy, Ranking, Score, View
from hermesd.core.scouting import Scouting
from hermesd.core.state import State
from hermesd.core.trial import Trial

MIN_QUANTUM_SECONDS = 0.1
# How many more than can be served come into question for an adapted ranking, from its front on.
IN_QUESTION = 32


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
        self._scouting = Scouting(state, study, policy) if isinstance(policy, Adaptive) else None
        self._current = self._ranker
        self.placement = placement
        self._lines: dict[DeviceId | None, Line] = {}
        self._line_of: dict[TrialId, Line] = {}
        # Running trials by the kind of their device, from when it first mattered.
        self._staying: dict[str, Line] | None = None
        self._versions: dict[TrialId, int] = {}
        self._plan: Plan | None = None
        self._place = {trial_id: place for place, trial_id in enumerate(state.members[study])}
        self._going: list[Trial | None] = [None] * len(self._place)
        self._finished: list[Trial | None] = [None] * len(self._place)
        for trial_id in state.members[study]:
            self.refresh(state.trials[trial_id])

    def refresh(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        version = self.state.versions.get(trial.id, 0)
        if self._versions.get(trial.id) == version:
            return
        self._versions[trial.id] = version
        self._plan = None
        place, final = self._place[trial.id], trial.phase.final
        self._going[place] = None if final or trial.paused else trial
        self._finished[place] = trial if final else None
        if self._ranker is None:
            return
        if self._scouting is not None:
            self._scouting.note(trial)
        if (line := self._line_of.pop(trial.id, None)) is not None:
            line.drop(trial.id)
        if trial.candidate and trial.phase is Phase.WAITING:
            home = trial.home if self.placement.binds else None
            line = self._line_of[trial.id] = self._lines.setdefault(home, Line())
            line.put(self._entry(self._ranker, trial))
        elif self._staying is not None and trial.phase is Phase.RUNNING:
            self._stay(self._staying, self._ranker, trial)

    def _stay(self, lines: dict[str, Line], ranker: Ranking, trial: Trial) -> None:
        """Put a trial that runs, its quantum not over, into the line of its device's kind."""
        run = trial.run
        if run is not None and not run.expired and run.asked is None and not trial.ending:
            kind = self.state.slots[run.devices[0]].device.kind
            line = self._line_of[trial.id] = lines.setdefault(kind, Line())
            line.put(self._entry(ranker, trial))

    def staying(self, kinds: Iterable[str], count: int) -> list[TrialId]:
        """The `count` most deserving running trials on each kind of device, by the plain ranking.

        None under a policy that plans: it does not say what running trials deserve.
        """
        if self._ranker is None:
            return []
        if self._staying is None:
            self._staying = {}
            for trial in filter(None, self._going):
                if trial.phase is Phase.RUNNING:
                    self._stay(self._staying, self._ranker, trial)
        lines = [self._staying[kind] for kind in kinds if kind in self._staying]
        return [
            entry.trial
            for line in lines
            for entry in islice(self._able(line, None, lambda trial: not trial.paused), count)
        ]

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
        lines = [line for home, line in self._lines.items() if not self._unbound(home)]
        if self._scouting is not None:
            entries = self._judged(self._scouting, lines, entries, count, eligible)
        else:
            for line in lines:
                entries += islice(self._able(line, None, eligible), count)
        return [entry.trial for entry in sorted(entries)]

    def _unbound(self, home: DeviceId | None) -> bool:
        return self.placement.binds and home is None

    def _able(
        self, line: Line, front: Score | None, eligible: Callable[[Trial], bool]
    ) -> Iterator[Entry]:
        """The eligible trials of a line from `front` on, in order."""
        for entry in line.after(front):
            trial = self.state.trials.get(entry.trial)
            current = self.state.versions.get(entry.trial, 0) == entry.version
            if trial is not None and current and eligible(trial):
                yield entry

    def _judged(
        self,
        scouting: Scouting,
        lines: list[Line],
        occupants: list[Entry],
        count: int,
        eligible: Callable[[Trial], bool],
    ) -> list[Entry]:
        """Who comes into question, scored by the ranking that is adapted to the study as it is."""
        few = list(occupants)
        for line in lines:
            few += islice(self._able(line, None, eligible), count)
        if not few:
            return []
        ranking = self._current = scouting.adapt(self.state.trials[min(few).trial])
        if ranking is self._ranker:
            return few
        for line in lines:
            few += islice(self._able(line, ranking.front, eligible), count + IN_QUESTION)
        trials = {entry.trial: self.state.trials[entry.trial] for entry in few}
        return [self._entry(ranking, trial) for trial in trials.values()]

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

    def view(self, now: float) -> View:
        going = [trial for trial in self._going if trial is not None]
        finished = [trial for trial in self._finished if trial is not None]
        return View(now, going, finished, self._devices(), self.state.facts[self.study])

    def choice(self, trial: Trial, now: float) -> Choice | None:
        """What the policy would give the trial now; None if its plan leaves the trial out.

        Raises:
            ValueError: its quantum is shorter than 0.1 s.
        """
        if self._current is None:
            claim = self._planned(now).get(trial.id)
            if claim is None:
                return None
            quantum, words = claim.quantum, claim.reason
        else:
            facts = self.state.facts[self.study]
            quantum, words = self._current.quantum(trial, facts), self._current.words(trial)
        if quantum.seconds is not None and not quantum.seconds >= MIN_QUANTUM_SECONDS:
            raise ValueError(f"a quantum of {quantum.seconds} s for {trial.id} is below 0.1 s")
        return Choice(trial, quantum, words)

    def words(self, trial: Trial) -> str:
        """What the policy sees in a trial, as it was at the last decision."""
        return (self._current or self.policy).words(trial)

    def ranking(self, now: float) -> Iterator[tuple[Trial, str]]:
        """Every unfinished trial in the policy's order, with its words; for people."""
        trials, ranking = self.view(now).trials, self._ranker
        if ranking is None:
            yield from self._plan_in_words(now, trials)
            return
        words = self.policy.words
        ordered = sorted(trials, key=lambda t: (ranking.score(t), t.spec.number))
        if self._scouting is not None and ordered:
            adapted = self._scouting.adapt(ordered[0])
            ordered.sort(key=lambda t: (adapted.score(t), t.spec.number))
            words = adapted.words
        for trial in ordered:
            yield trial, words(trial)

    def _plan_in_words(self, now: float, trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
        """The plan with its reasons. Who keeps a device for now is in none and comes first; who
        gives one back or was left out comes last."""
        plan = self._planned(now)
        planned = dict.fromkeys(plan)
        others = [trial for trial in trials if trial.id not in planned]
        keeping = [trial for trial in others if trial.phase in (Phase.STARTING, Phase.RUNNING)]
        kept = {trial.id for trial in keeping}
        for trial in keeping:
            yield trial, self.policy.words(trial)
        for trial_id in planned:
            claim = plan.get(trial_id)
            assert claim is not None
            yield self.state.trials[trial_id], claim.reason
        for trial in others:
            if trial.id not in kept:
                yield trial, self.policy.words(trial)
