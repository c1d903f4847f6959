"""One study's waiting trials in its policy's order, kept so that a change costs little.

A `Ranking` policy is asked only about trials that changed; there is one line of waiting trials, or
one for each home where the placement binds. An `Adaptive` one is asked again about the first of
the line, a bounded number. A `Planning` policy is asked for its whole plan when something is to be
decided; one that follows its study is told what changed instead of being shown all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from hermesd.core.line import Entry, Line
from hermesd.core.model import DeviceId, Phase, Quantum, StudyId, TrialId
from hermesd.core.placement import Placement
from hermesd.core.plan import LedgerPlan, Plan, first_of
from hermesd.core.policy import Adaptive, Following, Planning, Policy, Ranking, Score, View
from hermesd.core.scouting import Scouting
from hermesd.core.state import State
from hermesd.core.trial import Trial

MIN_QUANTUM_SECONDS = 0.1
# How many more than can be served come into question for an adapted ranking, from its front on.
IN_QUESTION = 32
# Devices that are equally fast: those of a kind, and by itself each that differs from its kind.
Sort: TypeAlias = tuple[str, DeviceId]


class Choice(NamedTuple):
    """A candidate with what its policy would give it."""

    trial: Trial
    quantum: Quantum
    words: str


class Standing(NamedTuple):
    """An unfinished trial in its policy's words; `left_out` if it waits and no plan claims it."""

    trial: Trial
    words: str
    left_out: bool = False


class StudyQueue:
    """The candidates of one study, most deserving first."""

    def __init__(self, state: State, study: StudyId, policy: Policy, placement: Placement):
        self.state = state
        self.study = study
        self.policy = policy
        self.placement = placement
        # Looked at once: whether a protocol is kept takes longer to see than most answers do.
        self._planner = policy if isinstance(policy, Planning) else None
        self._ledger = policy.ledger() if isinstance(policy, Following) else None
        self._adaptive = policy if isinstance(policy, Adaptive) else None
        self._suited_to: Sequence[Trial] | None = None
        self._follow(None if isinstance(policy, Planning) else policy)

    @property
    def plans(self) -> bool:
        """Whether trials get only what a plan claims for them."""
        return self._planner is not None

    def _follow(self, ranker: Ranking | None) -> None:
        """Have every trial ranked by this policy from now on; None: by a plan."""
        state, study = self.state, self.study
        self._ranker = self._current = ranker
        self._scouting = Scouting(state, study, ranker) if isinstance(ranker, Adaptive) else None
        self._lines: dict[DeviceId | None, Line] = {}
        # Running trials by the sort of their device, from when it first mattered.
        self._staying: dict[Sort, Line] | None = None
        self._line_of: dict[TrialId, Line] = {}
        members = state.members[study]
        self._noted = {trial_id: state.versions[trial_id] for trial_id in members}
        self._note([state.trials[trial_id] for trial_id in members])

    def refresh(self, trials: Iterable[Trial]) -> None:
        """Take note of trials that changed."""
        noted, versions = self._noted, self.state.versions
        changed = [each for each in trials if noted[each.spec.id] != versions[each.spec.id]]
        for trial in changed:
            noted[trial.spec.id] = versions[trial.spec.id]
        if changed:
            self._note(changed)

    def _note(self, trials: Sequence[Trial]) -> None:
        """Take in trials as they are."""
        self._plan: Plan | LedgerPlan | None = None
        if self._ranker is not None:
            self._rank(self._ranker, trials)
        if self._ledger is not None:
            self._ledger.note(trials)

    def _rank(self, ranker: Ranking, trials: Iterable[Trial]) -> None:
        """Put trials where they belong now."""
        scouting, lines, line_of = self._scouting, self._lines, self._line_of
        for trial in trials:
            trial_id = trial.spec.id
            if scouting is not None:
                scouting.note(trial)
            if (line := line_of.pop(trial_id, None)) is not None:
                line.drop(trial_id)
            if trial.phase is Phase.WAITING and trial.candidate:
                home = trial.home if self.placement.binds else None
                if (line := lines.get(home)) is None:
                    line = lines[home] = Line()
                line_of[trial_id] = line
                line.put(self._entry(ranker, trial))
            elif self._staying is not None and trial.phase is Phase.RUNNING:
                self._stay(self._staying, ranker, trial)

    def _suit(self) -> None:
        """Follow the adaptive policy as it suits its study now."""
        if self._adaptive is None or self._scouting is None:
            return
        sample = self._scouting.sample()
        if sample is not self._suited_to:
            suited = self._adaptive.suited(sample)
            if suited != self._ranker:
                self._follow(suited)
            self._suited_to = self._scouting.sample()

    def _stay(self, lines: dict[Sort, Line], ranker: Ranking, trial: Trial) -> None:
        """Put a trial that runs, its quantum not over, into the line of its device's sort."""
        run = trial.run
        if run is not None and not run.expired and run.asked is None and not trial.ending:
            device = self.state.slots[run.devices[0]].device
            sort = (device.kind, device.id if device.id in self.state.corrections else "")
            line = self._line_of[trial.id] = lines.setdefault(sort, Line())
            line.put(self._entry(ranker, trial))

    def staying(self, sorts: Iterable[Sort], count: int) -> list[TrialId]:
        """The `count` most deserving running trials on each sort of device, by the plain ranking.

        None under a policy that plans: it does not say what running trials deserve.
        """
        if self._ranker is None:
            return []
        if self._staying is None:
            self._staying = {}
            for trial_id in self.state.members[self.study]:
                trial = self.state.trials[trial_id]
                if trial.phase is Phase.RUNNING:
                    self._stay(self._staying, self._ranker, trial)
        lines = [self._staying[sort] for sort in sorts if sort in self._staying]
        return [
            entry.trial
            for line in lines
            for entry in islice(self._able(line, None, lambda trial: not trial.paused), count)
        ]

    def _entry(self, policy: Ranking, trial: Trial) -> Entry:
        spec = trial.spec
        return Entry(policy.score(trial), spec.number, spec.id)

    def order(
        self,
        count: int,
        occupants: Iterable[Trial],
        eligible: Callable[[Trial], bool],
        now: float,
    ) -> list[TrialId]:
        """The `count` most deserving eligible waiting trials (of each home) and the occupants."""
        self._suit()
        if self._ranker is None:
            trials = self.state.trials

            def waits(trial_id: TrialId) -> bool:
                trial = trials[trial_id]
                return trial.phase is Phase.WAITING and eligible(trial)

            return first_of(self._planned(now), count, [each.id for each in occupants], waits)
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
        trials, versions, noted = self.state.trials, self.state.versions, self._noted
        for entry in line.after(front):
            trial = trials.get(entry.trial)
            current = versions.get(entry.trial) == noted[entry.trial]
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
        first = self.state.trials[min(few).trial]
        adapted = scouting.adapted(first)
        if adapted is None:
            self._current = self._ranker
            return few
        ranking = self._current = adapted.facing(first)
        for line in lines:
            few += islice(self._able(line, adapted.front, eligible), count + IN_QUESTION)
        trials = {entry.trial: self.state.trials[entry.trial] for entry in few}
        return [self._entry(ranking, trial) for trial in trials.values()]

    def _planned(self, now: float) -> Plan | LedgerPlan:
        """The plan as things are: a new one if a trial or the number of devices changed."""
        assert self._planner is not None
        devices = self._devices()
        if self._plan is None or self._plan.devices != devices:
            if self._ledger is not None:
                facts = self.state.facts[self.study]
                self._plan = LedgerPlan(self._ledger, now, facts, devices)
            else:
                self._plan = Plan(self._planner.plan(self.view(now)), devices)
        return self._plan

    def _devices(self) -> int:
        """How many devices of the study's pool run something or could."""
        state, study = self.state, self.state.studies[self.study]
        slots = (slot for slot in state.slots.values() if state.serves(slot.device, study))
        return sum(slot.run is not None or state.usable(slot) for slot in slots)

    def view(self, now: float) -> View:
        trials = [self.state.trials[trial_id] for trial_id in self.state.members[self.study]]
        going = [trial for trial in trials if not (trial.phase.final or trial.paused)]
        finished = [trial for trial in trials if trial.phase.final]
        return View(now, going, finished, self._devices(), self.state.facts[self.study])

    def choice(self, trial: Trial, now: float) -> Choice | None:
        """What the policy would give the trial now; None if its plan leaves the trial out.

        Raises:
            ValueError: its quantum is shorter than 0.1 s.
        """
        if self._current is None:
            claim = (self._plan or self._planned(now)).get(trial.id)
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

    def ranking(self, now: float) -> Iterator[Standing]:
        """Every unfinished trial in the policy's order, with its words; for people."""
        self._suit()
        trials, ranking = self.view(now).trials, self._ranker
        if ranking is None:
            yield from self._plan_in_words(now, trials)
            return
        ordered = sorted(trials, key=lambda t: (ranking.score(t), t.spec.number))
        words = ranking.words
        first = ordered[0] if ordered else None
        if self._scouting and first and (adapted := self._scouting.adapted(first)):
            facing = adapted.facing(first)
            ordered.sort(key=lambda t: (facing.score(t), t.spec.number))
            words = facing.words
        for trial in ordered:
            yield Standing(trial, words(trial))

    def _plan_in_words(self, now: float, trials: Sequence[Trial]) -> Iterator[Standing]:
        """The plan with its reasons. Who keeps a device for now is in none and comes first; who
        gives one back or was left out comes last."""
        plan = self._planned(now)
        planned = dict.fromkeys(plan)
        others = [trial for trial in trials if trial.id not in planned]
        keeping = [trial for trial in others if trial.phase in (Phase.STARTING, Phase.RUNNING)]
        kept = {trial.id for trial in keeping}
        for trial in keeping:
            yield Standing(trial, self.policy.words(trial))
        for trial_id in planned:
            claim = plan.get(trial_id)
            assert claim is not None
            yield Standing(self.state.trials[trial_id], claim.reason)
        for trial in others:
            if trial.id not in kept:
                yield Standing(trial, self.policy.words(trial), trial.candidate)
