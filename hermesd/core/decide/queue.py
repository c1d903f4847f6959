"""One study's waiting trials in the order of its policy, kept so that a change costs little.

- A `Ranking` policy is asked only about trials that have changed. There is one list of waiting
  trials, or one for each home if the placement binds trials to devices.
- An `Adaptive` policy is asked again about the first few trials of the list.
- A `Planning` policy is asked for its whole plan whenever something is to be decided. One that
  follows its study is told what has changed instead of being shown everything.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import filterfalse, islice, product
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias, TypeVar

from hermesd.core.events import PolicyFailed
from hermesd.core.model import (
    Device,
    DeviceId,
    NodeId,
    Phase,
    Plugin,
    Quantum,
    StudyId,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.placement import (
    Placement,
    are_enough,
    asked_for,
    avoided,
    fits,
    needs_more_memory,
    takes_one,
)
from hermesd.core.policy import (
    Adapted,
    Adaptive,
    Breeding,
    Earlier,
    ElasticJob,
    Exploit,
    Field,
    Following,
    Foreseeing,
    LedgerPlan,
    Plan,
    Planning,
    Policy,
    Ranking,
    Remembering,
    Score,
    View,
    Widening,
    first_of,
    raised_where,
)
from hermesd.core.requirements import lacking
from hermesd.core.state import State
from hermesd.core.tables import Members
from hermesd.core.trial import Trial

# Trials in order, cheap to change one by one and cheap to fill at once.
#
# A sorted list in blocks: a few changes are made by bisection, each inside of its block, many by
# sorting anew, and a reader may begin anywhere in the order.

# A block that comes to have twice as many entries becomes two.
BLOCK = 512
# Up to so many changes are made one by one.
FEW = 32


class QueueEntry(NamedTuple):
    """A candidate in its policy's order."""

    #: The smallest deserves a device most.
    key: Score
    number: int
    trial: TrialId


_KEY, _NUMBER = map(itemgetter, map(QueueEntry._fields.index, ("key", "number")))

# A place between entries: one of them, or a score that it begins with.
Bound: TypeAlias = QueueEntry | tuple[Score] | tuple[()]


class SortedCandidates:
    """Entries, the smallest first; each trial has one at most."""

    def __init__(self) -> None:
        # None is empty; and the last entry of each.
        self._blocks: list[list[QueueEntry]] = []
        self._lasts: list[QueueEntry] = []
        self._known: dict[TrialId, QueueEntry] = {}
        self._added: dict[TrialId, QueueEntry] = {}
        self._dropped: list[QueueEntry] = []

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, place: int) -> QueueEntry:
        """The entry at this place of the order."""
        self._settle()
        for block in self._blocks:
            if place < len(block):
                return block[place]
            place -= len(block)
        raise IndexError(place)

    def rank(self, bound: Bound) -> int:
        """How many entries are before a bound."""
        self._settle()
        block, place = self._find(bound)
        return sum(map(len, self._blocks[:block])) + place

    def get(self, trial: TrialId) -> QueueEntry | None:
        """A trial's entry; None if it is not in."""
        return self._known.get(trial)

    def place(self, trial: TrialId) -> Score | None:
        """What the order goes by, of one trial; None if it is not in."""
        entry = self._known.get(trial)
        return (*entry.key, entry.number) if entry else None

    def trials(self) -> Iterator[TrialId]:
        """All of them, in order."""
        return (entry.trial for entry in self.after())

    def put(self, entry: QueueEntry) -> None:
        """Add an entry, in place of the trial's present one."""
        trial = entry.trial
        known = self._known.get(trial)
        if known is not None:
            if known == entry:
                return
            self.drop(trial)
        self._known[trial] = self._added[trial] = entry

    def drop(self, trial: TrialId) -> None:
        """Take a trial out, if it is in."""
        entry = self._known.pop(trial, None)
        if entry is not None and self._added.pop(trial, None) is None:
            self._dropped.append(entry)

    def after(self, key: Score | None = None) -> Iterator[QueueEntry]:
        """The entries from `key` on, in order; all without one."""
        return self.between(() if key is None else (key,))

    def between(self, first: Bound = (), end: Bound | None = None) -> Iterator[QueueEntry]:
        """The entries from `first` on and before `end`, in order; all without them."""
        self._settle()
        block, place = self._find(first)
        until, stop = (len(self._blocks), 0) if end is None else self._find(end)
        while block < until:
            yield from self._blocks[block][place:]
            block, place = block + 1, 0
        if block == until and place < stop:
            yield from self._blocks[block][place:stop]

    def _find(self, bound: Bound) -> tuple[int, int]:
        """The block of the first entry that is not before a bound, and its place there."""
        block = bisect_left(self._lasts, bound)
        return block, bisect_left(self._blocks[block], bound) if block < len(self._blocks) else 0

    def _settle(self) -> None:
        """Bring the order up to date."""
        changes = len(self._added) + len(self._dropped)
        if not changes:
            return
        if changes > max(FEW, len(self._known) // 256) or not self._blocks:
            # As entries compare, but of two plain keys, which sort three times as fast.
            entries = sorted(self._known.values(), key=_NUMBER)
            entries.sort(key=_KEY)
            self._blocks = [entries[at : at + BLOCK] for at in range(0, len(entries), BLOCK)]
            self._lasts = [block[-1] for block in self._blocks]
        else:
            for entry in self._added.values():
                number = min(bisect_left(self._lasts, entry), len(self._blocks) - 1)
                insort(self._blocks[number], entry)
                self._divide(number)
            for entry in self._dropped:
                number, place = self._find(entry)
                del self._blocks[number][place]
                self._divide(number)
        self._added.clear()
        self._dropped.clear()

    def _divide(self, number: int) -> None:
        """Remove a block that has come to be empty, and halve one that has grown too large."""
        block = self._blocks[number]
        if block and len(block) < 2 * BLOCK:
            self._lasts[number] = block[-1]
            return
        halves = [half for half in (block[:BLOCK], block[BLOCK:]) if half]
        self._blocks[number : number + 1] = halves
        self._lasts[number : number + 1] = [half[-1] for half in halves]


# What an adaptive ranking is told of its study, kept up as trials change.
#
# The leader has the least of the trials' levels, which are kept in blocks of about as many as
# there are blocks: of a change only its own block is looked at again. The sample is a fixed part
# of the study: those that are first by multiples of the golden ratio, which are spread evenly over
# any number of trials, and seldom others when one more has shown a loss. What the policy makes of
# both is kept until one of them changes.

SAMPLED, GOLDEN = 32, 2_654_435_769  # of 2**32
# So many trials have a level for each that trains on or has ended: where probes take 2.5 % of a
# training, they take 4 of 9 parts of the time of both.
LEVELS_EACH = 32


def _turn(place: int) -> tuple[int, int]:
    """When a trial of this place comes into a sample, and the place."""
    return place * GOLDEN % 2**32, place


class PolicySample:
    """One study's leader and sample."""

    def __init__(
        self,
        state: State,
        members: Sequence[TrialId],
        places: Mapping[TrialId, int],
        policy: Adaptive,
    ) -> None:
        self._state = state
        self._policy = policy
        self._foresees = isinstance(policy, Foreseeing)
        self._members = members
        self._place = places
        # The turns and places of those in the sample, in order of their turns.
        self._chosen: list[tuple[int, int]] = []
        self._sample: list[Trial] | None = None
        # The trials' levels, infinite without one; the least of each block, and which to look at.
        self._levels = [math.inf] * len(members)
        self._block = math.isqrt(len(members)) + 1
        self._least = [math.inf] * -(-len(members) // self._block)
        self._changed: set[int] = set()
        # How many have a level, and which of them train on or have ended.
        self._leveled = 0
        self._ahead: set[int] = set()
        self._field: Field | None = None
        self._adapted: Adapted | None = None

    def grow(self, members: Sequence[TrialId]) -> None:
        """The study has further trials, which have shown nothing so far."""
        self._members = members
        self._levels += [math.inf] * (len(members) - len(self._levels))
        if len(members) > 4 * self._block**2:
            self._block = math.isqrt(len(members)) + 1
            self._least = []
            self._changed.clear()  # those were blocks of another size
        blocks = -(-len(members) // self._block)
        self._changed.update(range(len(self._least), blocks))
        self._least += [math.inf] * (blocks - len(self._least))

    def note(self, trial: Trial) -> None:
        """Take note of a trial that changed."""
        place, chosen = self._place[trial.spec.id], self._chosen
        turn = _turn(place)
        if trial.curve and (len(chosen) < SAMPLED or turn <= chosen[-1]):
            if turn not in chosen:
                insort(chosen, turn)
                del chosen[SAMPLED:]
            self._sample = None
        elif turn in chosen:  # It starts from the beginning, and another takes its place.
            trials = (self._state.trials[name] for name in self._members)
            shown = (_turn(each) for each, other in enumerate(trials) if other.curve)
            self._chosen, self._sample = nsmallest(SAMPLED, shown), None
        level = self._policy.level(trial) if trial.curve else math.inf
        if level != self._levels[place]:
            self._leveled += (level < math.inf) - (self._levels[place] < math.inf)
            self._levels[place] = level
            self._changed.add(place // self._block)
        trains = trial.run is not None and not trial.run.expired
        if level < math.inf and (trains or trial.phase.final):
            self._ahead.add(place)
        else:
            self._ahead.discard(place)

    def sample(self) -> Sequence[Trial]:
        """Evenly some of the trials that have shown a loss; the same list while none changed."""
        if self._sample is None:
            places = sorted(place for _, place in self._chosen)
            self._sample = [self._state.trials[self._members[place]] for place in places]
        return self._sample

    def adapted(self, first: Trial) -> Adapted | None:
        """What holds now, `first` being the candidate of the least score; None: the policy's own.

        While that one has no level, and no more than enough others have, only a policy that
        foresees is asked.
        """
        enough = self._leveled >= LEVELS_EACH * (len(self._ahead) + 1)
        asked = self._foresees or enough
        if not (asked or (first.curve and self._policy.level(first) < math.inf)):
            return None
        leader = self._leader()
        if leader is None:
            return None
        field = Field(leader, self.sample(), enough)
        known = self._field
        if (
            known is None
            or known.leader is not field.leader
            or known.sample is not field.sample
            or known.enough is not enough
        ):
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


MIN_QUANTUM_SECONDS = 0.1
# More than a study has trials.
_NUMBERS = 1_000_000
# A study of more trials than these is ranked anew in slices of so many.
AT_ONCE, SLICE = 1_000, 8
# How many more than can be served come into question from each front of an adapted ranking on.
IN_QUESTION = 32
# Devices that are equally fast: those of a kind, and by itself each that differs from its kind.
Sort: TypeAlias = tuple[str, DeviceId]


class Choice(NamedTuple):
    """A candidate with what its policy would give it."""

    trial: Trial
    quantum: Quantum
    words: str
    #: See `Claim`.
    width: int = 0


class PolicyStanding(NamedTuple):
    """An unfinished trial in its policy's words."""

    trial: Trial
    words: str
    #: It waits, and no plan claims it.
    left_out: bool = False


class RankedStudy:
    """The trials of one study as one ranking has them: those that wait in lines, and those that
    run."""

    def __init__(
        self,
        state: State,
        placement: Placement,
        ranker: Ranking,
        scouting: PolicySample | None,
    ) -> None:
        self._state = state
        self._placement = placement
        self.ranker = ranker
        self.scouting = scouting
        #: The trials that wait, by the home that the placement binds them to.
        self.lines: dict[DeviceId | None, SortedCandidates] = {}
        #: Running trials by the sort of their device, from when it first mattered.
        self.staying: dict[Sort, SortedCandidates] | None = None
        self._line_of: dict[TrialId, SortedCandidates] = {}

    def take(self, trials: Iterable[Trial]) -> None:
        """Put trials where they belong now."""
        scouting, lines, line_of = self.scouting, self.lines, self._line_of
        for trial in trials:
            trial_id = trial.spec.id
            if scouting is not None:
                scouting.note(trial)
            if (line := line_of.pop(trial_id, None)) is not None:
                line.drop(trial_id)
            if trial.phase is Phase.WAITING and trial.candidate:
                home = trial.home if self._placement.binds else None
                if (line := lines.get(home)) is None:
                    line = lines[home] = SortedCandidates()
                line_of[trial_id] = line
                line.put(entry_of(self.ranker, trial))
            elif self.staying is not None and trial.phase is Phase.RUNNING:
                self._stay(self.staying, trial)

    def _stay(self, lines: dict[Sort, SortedCandidates], trial: Trial) -> None:
        """Put a trial that runs, its quantum not over, into the line of its device's sort."""
        run = trial.run
        if run is not None and not run.expired and run.asked is None and not trial.ending:
            device = self._state.place(run)
            sort = (device.kind, device.id if device.id in self._state.corrections else "")
            line = self._line_of[trial.id] = lines.setdefault(sort, SortedCandidates())
            line.put(entry_of(self.ranker, trial))

    def runners(self, members: Iterable[TrialId]) -> Mapping[Sort, SortedCandidates]:
        """The running trials of the study by the sort of their device."""
        if self.staying is None:
            self.staying = {}
            for trial_id in members:
                trial = self._state.trials[trial_id]
                if trial.phase is Phase.RUNNING:
                    self._stay(self.staying, trial)
        return self.staying

    def settle(self) -> None:
        """Bring all lines up to date, so that no later reader finds much to do."""
        for line in (*self.lines.values(), *(self.staying or {}).values()):
            line.rank(())


def entry_of(policy: Ranking, trial: Trial) -> QueueEntry:
    """A trial's entry in the order of a policy."""
    spec = trial.spec
    # Of the trials of a tree that the policy has as equal, the one with the longest way to go.
    done = trial.step * _NUMBERS if spec.root else 0
    return QueueEntry(policy.score(trial), done + spec.number, spec.id)


class StudyQueue:
    """The candidates of one study, most deserving first."""

    def __init__(
        self,
        state: State,
        study: StudyId,
        policy: Policy,
        placement: Placement,
        arriving: Container[TrialId] = (),
        recalls: bool = False,
    ):
        self.state = state
        # Its policy may have learned from earlier studies what to expect of these trials.
        self._recalls = recalls
        # Trials that come later, though the study has them.
        self._arriving = arriving
        self.study = study
        self.policy = policy
        self.placement = placement
        # Looked at once: whether a protocol is kept takes longer to see than most answers do.
        self._planner = policy if isinstance(policy, Planning) else None
        self._ledger = policy.ledger() if isinstance(policy, Following) else None
        self.breeder = policy if isinstance(policy, Breeding) else None
        self._adaptive = policy if isinstance(policy, Adaptive) else None
        self._suited_to: Sequence[Trial] | None = None
        self.members = members = state.members[study]
        self._places = dict(zip(members, range(len(members)), strict=True))
        # As it has taken them in.
        self._noted: dict[TrialId, Trial] = {}
        self._ranked = None if isinstance(policy, Planning) else self._under(policy)
        self._current: Ranking | None = None if self._ranked is None else self._ranked.ranker
        # The ranking that follows, and the place of the first trial that it has not taken.
        self._next: RankedStudy | None = None
        self._taken = 0
        self._arrive(members)

    @property
    def plans(self) -> bool:
        """Whether trials get only what a plan claims for them."""
        return self._planner is not None

    def _under(self, ranker: Ranking) -> RankedStudy:
        """No trial yet, to be ranked by this policy."""
        scouting = (
            PolicySample(self.state, self.members, self._places, ranker)
            if isinstance(ranker, Adaptive)
            else None
        )
        return RankedStudy(self.state, self.placement, ranker, scouting)

    def refresh(self, trials: Iterable[Trial]) -> None:
        """Take note of trials that changed."""
        noted = self._noted
        changed = [each for each in trials if noted.get(each.spec.id) is not each]
        for trial in changed:
            noted[trial.spec.id] = trial
        if changed:
            self._note(changed)

    def grown(self, members: Members) -> bool:
        """Take in the trials that its study has in addition, or with other points, which have
        changed; False if the queue has to be made anew: a policy that plans, or foretells, has
        looked at all of the study."""
        had = len(self.members)
        begun = had > 0 and members.continues(self.members)
        if not begun or self._recalls or self._planner is not None:
            return False
        self.members = members
        self._places.update(zip(members[had:], range(had, len(members)), strict=True))
        for ranked in (self._ranked, self._next):
            if ranked is not None and ranked.scouting is not None:
                ranked.scouting.grow(members)
        self._arrive(members[had:])
        return True

    def _arrive(self, members: Sequence[TrialId]) -> None:
        """Take in those of the study's trials that are there for decisions."""
        there = list(filterfalse(self._arriving.__contains__, members))
        trials = list(map(self.state.trials.__getitem__, there))
        self._noted.update(zip(there, trials, strict=True))
        self._note(trials)

    def _note(self, trials: Sequence[Trial]) -> None:
        """Take in trials as they are."""
        self._plan: Plan | LedgerPlan | None = None
        for ranked in (self._ranked, self._next):
            if ranked is not None:
                ranked.take(trials)
        if self._ledger is not None:
            self._ledger.note(trials)

    def _suit(self) -> None:
        """Follow the adaptive policy as it suits its study now.

        A study of many trials is ranked anew in slices, a decision after the other; until that is
        done, the ranking before it holds.
        """
        ranked = self._ranked
        if self._adaptive is None or ranked is None or ranked.scouting is None:
            return
        sample = ranked.scouting.sample()
        if sample is not self._suited_to:
            self._suited_to = sample
            suited = self._adaptive.suited(sample)
            if suited == ranked.ranker:
                self._next = None
            elif self._next is None or suited != self._next.ranker:
                self._next, self._taken = self._under(suited), 0
                self._next.staying = None if ranked.staying is None else {}
        if self._next is not None:
            self._take_more(self._next)

    def _take_more(self, following: RankedStudy) -> None:
        """Have the ranking that follows take a slice; after the last one it holds."""
        count = len(self.members)
        begin, self._taken = self._taken, count if count <= AT_ONCE else self._taken + SLICE
        members = self.members[begin : self._taken]
        following.take([self.state.trials[trial_id] for trial_id in members])
        if count > AT_ONCE:
            following.settle()
        if self._taken >= count:
            self._ranked, self._next = following, None
            self._current = following.ranker
            self._suited_to = None if following.scouting is None else following.scouting.sample()

    def staying(self, sorts: Iterable[Sort], count: int) -> list[TrialId]:
        """The `count` most deserving running trials on each sort of device, by the plain ranking.

        None under a policy that plans: it does not say what running trials deserve.
        """
        if self._ranked is None:
            return []
        runners = self._ranked.runners(self.members)
        lines = [runners[sort] for sort in sorts if sort in runners]
        return [
            entry.trial
            for line in lines
            for entry in islice(self._able(line, None, lambda trial: not trial.paused), count)
        ]

    def order(
        self,
        count: int,
        occupants: Iterable[Trial],
        eligible: Callable[[Trial], bool],
        now: float,
    ) -> list[TrialId]:
        """The `count` most deserving eligible waiting trials (of each home) and the occupants."""
        self._suit()
        ranked = self._ranked
        if ranked is None:
            trials = self.state.trials

            def waits(trial_id: TrialId) -> bool:
                trial = trials[trial_id]
                return trial.phase is Phase.WAITING and eligible(trial)

            return first_of(self._planned(now), count, [each.id for each in occupants], waits)
        entries = [entry_of(ranked.ranker, trial) for trial in occupants]
        lines = [line for home, line in ranked.lines.items() if not self._unbound(home)]
        if ranked.scouting is not None:
            entries = self._judged(ranked.scouting, lines, entries, count, eligible)
        else:
            for line in lines:
                entries += islice(self._able(line, None, eligible), count)
        return [entry.trial for entry in sorted(entries)]

    def _unbound(self, home: DeviceId | None) -> bool:
        return self.placement.binds and home is None

    def _able(
        self, line: SortedCandidates, front: Score | None, eligible: Callable[[Trial], bool]
    ) -> Iterator[QueueEntry]:
        """The eligible trials of a line from `front` on, in order."""
        trials, noted = self.state.trials, self._noted
        for entry in line.after(front):
            trial = trials.get(entry.trial)
            if trial is not None and noted.get(entry.trial) is trial and eligible(trial):
                yield entry

    def _judged(
        self,
        scouting: PolicySample,
        lines: list[SortedCandidates],
        occupants: list[QueueEntry],
        count: int,
        eligible: Callable[[Trial], bool],
    ) -> list[QueueEntry]:
        """Who comes into question, scored by the ranking that is adapted to the study as it is."""
        few = list(occupants)
        for line in lines:
            few += islice(self._able(line, None, eligible), count)
        if not few:
            return []
        first = self.state.trials[min(few).trial]
        adapted = scouting.adapted(first)
        if adapted is None:
            self._current = None if self._ranked is None else self._ranked.ranker
            return few
        ranking = self._current = adapted.facing(first)
        for line, front in product(lines, adapted.fronts):
            few += islice(self._able(line, front, eligible), count + IN_QUESTION)
        trials = {entry.trial: self.state.trials[entry.trial] for entry in few}
        return [entry_of(ranking, trial) for trial in trials.values()]

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
        """How many trials the devices of the study's pool have place for: those that run something
        or could."""
        state, study = self.state, self.state.studies[self.study]
        return sum(
            count // study.devices
            for node, count in state.in_service.items()
            if state.nodes[node].pool == study.pool
        )

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
            quantum, words, width = claim.quantum, claim.reason, claim.width
        else:
            facts = self.state.facts[self.study]
            quantum, words = self._current.quantum(trial, facts), self._current.words(trial)
            width = 0
        if quantum.seconds is not None and not quantum.seconds >= MIN_QUANTUM_SECONDS:
            raise ValueError(f"a quantum of {quantum.seconds} s for {trial.id} is below 0.1 s")
        return Choice(trial, quantum, words, width)

    def exploits(self, now: float) -> Sequence[Exploit]:
        """Which trials of a population are to be replaced now."""
        return () if self.breeder is None else self.breeder.exploits(self.view(now))

    def widths(
        self, trials: Sequence[Trial], jobs: Sequence[ElasticJob], devices: int
    ) -> Mapping[TrialId, int] | None:
        """How many devices each trial is to have; None if the policy has no rule of its own."""
        policy = self.policy
        return policy.widths(trials, jobs, devices) if isinstance(policy, Widening) else None

    def words(self, trial: Trial) -> str:
        """What the policy sees in a trial, as it was at the last decision."""
        return (self._current or self.policy).words(trial)

    def ranking(self, now: float) -> Iterator[PolicyStanding]:
        """Every unfinished trial in the policy's order, with its words; for people."""
        if len(self.members) <= AT_ONCE:  # What is done in slices only decisions move on.
            self._suit()
        trials, ranked = self.view(now).trials, self._ranked
        if ranked is None:
            yield from self._plan_in_words(now, trials)
            return
        ordered = sorted(trials, key=lambda t: entry_of(ranked.ranker, t))
        words = ranked.ranker.words
        first = ordered[0] if ordered else None
        if ranked.scouting and first and (adapted := ranked.scouting.adapted(first)):
            facing = adapted.facing(first)
            ordered.sort(key=lambda t: entry_of(facing, t))
            words = facing.words
        for trial in ordered:
            yield PolicyStanding(trial, words(trial))

    def _plan_in_words(self, now: float, trials: Sequence[Trial]) -> Iterator[PolicyStanding]:
        """The plan with its reasons. Who keeps a device for now is in none and comes first; who
        gives one back or was left out comes last."""
        plan = self._planned(now)
        planned = dict.fromkeys(plan)
        others = [trial for trial in trials if trial.id not in planned]
        keeping = [trial for trial in others if trial.phase in (Phase.STARTING, Phase.RUNNING)]
        kept = {trial.id for trial in keeping}
        for trial in keeping:
            yield PolicyStanding(trial, self.policy.words(trial))
        for trial_id in planned:
            claim = plan.get(trial_id)
            assert claim is not None
            yield PolicyStanding(self.state.trials[trial_id], claim.reason)
        for trial in others:
            if trial.id not in kept:
                yield PolicyStanding(trial, self.policy.words(trial), trial.candidate)


# Every study's queue, and the border to policies: one that raises gives way to fifo.

Answer = TypeVar("Answer")


class Unanswered(Exception):
    """A policy raised when people asked; says what."""


class PolicyError(NamedTuple):
    """A policy that raised: what is journaled of it, and the error itself for its author."""

    event: PolicyFailed
    error: Exception


class Queues:
    """What the studies' policies and placements say, asked in one place."""

    def __init__(
        self,
        state: State,
        make_policy: Callable[[Plugin], Policy],
        make_placement: Callable[[Plugin], Placement],
        arriving: Container[TrialId],
    ) -> None:
        self.state = state
        self._arriving = arriving
        self._make_policy = make_policy
        self._make_placement = make_placement
        self._queues: dict[StudyId, StudyQueue] = {}
        self._placements: dict[StudyId, Placement] = {}
        # As they were when the study was first looked at: its order does not change with others.
        self._earlier: dict[StudyId, tuple[Earlier, ...]] = {}
        self._failures: list[PolicyError] = []
        self._pools: object = state.pools

    def take_failures(self) -> list[PolicyError]:
        """The policies that raised since the last call: folded in, and to be journaled."""
        taken, self._failures = self._failures, []
        return taken

    def forget_removed(self) -> None:
        """Drop the queues of studies that are gone; all if the pools are others now."""
        if self._pools is not self.state.pools:
            self._pools = self.state.pools
            self._queues.clear()
            self._placements.clear()
        for study_id in [study for study in self._queues if study not in self.state.studies]:
            del self._queues[study_id]
        for study_id in [study for study in self._placements if study not in self.state.studies]:
            del self._placements[study_id]
        for study_id in [study for study in self._earlier if study not in self.state.studies]:
            del self._earlier[study_id]

    def _queue(self, study_id: StudyId) -> StudyQueue:
        queue, members = self._queues.get(study_id), self.state.members[study_id]
        if queue is None or not (queue.members is members or queue.grown(members)):
            policy = self._policy(study_id)
            placement = self.placement(study_id)
            queue = self._queues[study_id] = StudyQueue(
                self.state,
                study_id,
                policy,
                placement,
                self._arriving,
                recalls=bool(self._earlier.get(study_id)),
            )
        return queue

    def _policy(self, study_id: StudyId) -> Policy:
        """The study's policy, with what it may know of earlier studies."""
        state = self.state
        policy = self._make_policy(state.policy_of(study_id))
        if not isinstance(policy, Remembering):
            return policy
        if study_id not in self._earlier:
            self._earlier[study_id] = state.earlier(study_id)
        return policy.remembering(self._earlier[study_id], self._specs(study_id))

    def _specs(self, study_id: StudyId) -> list[TrialSpec]:
        trials = map(self.state.trials.__getitem__, self.state.members[study_id])
        return list(map(attrgetter("spec"), trials))

    def remembered(self, study_id: StudyId) -> str:
        """Which earlier studies its policy goes by, or why by none, for people; empty for a policy
        that never goes by any. Raises Unanswered."""

        def said(queue: StudyQueue) -> str:
            if not isinstance(queue.policy, Remembering):
                return ""
            return queue.policy.remembered(self._earlier[study_id], self._specs(study_id))

        return self.peek(study_id, said)

    def ask(self, study_id: StudyId, question: Callable[[StudyQueue], Answer]) -> Answer:
        """Put a question to a study's policy; one that raises gives way to first in, first out."""
        try:
            return question(self._queue(study_id))
        except Exception as error:  # whatever a plug-in raises: its study goes on without it
            if study_id in self.state.fallen:
                raise
            event = PolicyFailed(study_id, raised_where(error))
            self.state.apply(event, self.state.now)
            self._failures.append(PolicyError(event, error))
            self._queues.pop(study_id, None)
            return question(self._queue(study_id))

    def peek(self, study_id: StudyId, question: Callable[[StudyQueue], Answer]) -> Answer:
        """Like `ask`, for people: a policy that raises changes nothing. Raises Unanswered."""
        try:
            return question(self._queue(study_id))
        except Exception as error:  # whatever a plug-in raises: who asked is told of it
            raise Unanswered(raised_where(error)) from error

    def order(
        self,
        study_id: StudyId,
        count: int,
        occupants: tuple[Trial, ...],
        eligible: Callable[[Trial], bool],
        now: Time,
    ) -> list[TrialId]:
        """See `StudyQueue.order`."""
        return self.ask(study_id, lambda queue: queue.order(count, occupants, eligible, now))

    def staying(self, study_id: StudyId, sorts: Iterable[Sort], count: int) -> list[TrialId]:
        """See `StudyQueue.staying`."""
        return self.ask(study_id, lambda queue: queue.staying(sorts, count))

    def note(self, trials: Iterable[Trial]) -> None:
        """Take note of trials that changed."""
        changed: defaultdict[StudyId, list[Trial]] = defaultdict(list)
        for trial in trials:
            changed[trial.spec.study].append(trial)
        for study_id, theirs in changed.items():
            # A queue that is made only now has seen them all.
            seen = [] if study_id not in self._queues else theirs
            self.ask(study_id, lambda queue, seen=seen: queue.refresh(seen))  # type: ignore[misc]

    def choice(self, trial: Trial, now: Time) -> Choice | None:
        """What the trial would get now; None if its policy leaves it out."""
        return self.ask(trial.spec.study, lambda queue: queue.choice(trial, now))

    def widths(
        self, study_id: StudyId, jobs: Sequence[ElasticJob], devices: int
    ) -> Mapping[TrialId, int] | None:
        """See `StudyQueue.widths`."""
        trials = [self.state.trials[job.trial] for job in jobs]
        return self.ask(study_id, lambda queue: queue.widths(trials, jobs, devices))

    def widens(self, study_id: StudyId) -> bool:
        """Whether the study's policy has a rule of its own for them."""
        return self.ask(study_id, lambda queue: isinstance(queue.policy, Widening))

    def words(self, trial: Trial) -> str:
        """What its policy sees in the trial."""
        return self.ask(trial.spec.study, lambda queue: queue.words(trial))

    def placement(self, study_id: StudyId) -> Placement:
        """The study's placement."""
        placement = self._placements.get(study_id)
        if placement is None:
            placement = self._make_placement(self.state.placement_of(study_id))
            self._placements[study_id] = placement
        return placement

    def bars(self, study_id: StudyId, device: DeviceId) -> bool:
        """Whether the device can take no trial of the study, wherever it is: none need be asked,
        and they may be many."""
        state, study = self.state, self.state.studies[study_id]
        there = state.slots[device].device
        if not (state.serves(there, study) and asked_for(study, there)):
            return True
        places = {(study_id, device), (study_id, there.node)}
        if places.isdisjoint(state.excluded) and not lacking(state, study, there.node):
            return False
        parked = (trial for t in state.parked if (trial := state.trials[t]).spec.study == study_id)
        return not any(state.parked_on(trial) == there.node for trial in parked)

    def fits(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the trial may be put on the device as far as its study is concerned."""
        study = self.state.studies[trial.spec.study]
        if self.placement(study.id).binds and trial.home != device:
            return False
        return self.takes(trial, device)

    def takes(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the device can take the trial, whatever its home."""
        return self._takes(trial, device, self.state.parked_on(trial))

    def is_confined(self, trial: Trial) -> bool:
        """Whether the trial may be of use on fewer devices than others of its study."""
        state = self.state
        if self.placement(trial.spec.study).binds or trial.warnings or self._stays(trial):
            return True
        return bool(state.quarantined) or trial.id in state.demanding

    def could_reach(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the trial could come to run on the device, if need be by a checkpoint, and with
        as many others as it needs."""
        state = self.state
        if trial.run is not None and device in trial.run.devices:
            return True
        may = self.could_take
        if self.placement(trial.spec.study).binds or self._stays(trial):
            may = self.fits
        if takes_one(state, trial) or not may(trial, device):
            return may(trial, device)
        there = state.slots[device].device
        slots = map(state.slots.__getitem__, state.nodes[there.node].devices)
        alike = (slot.device.id for slot in slots if slot.sound and slot.device.kind == there.kind)
        return are_enough(state, trial, (each for each in alike if may(trial, each)))

    def _stays(self, trial: Trial) -> bool:
        """Whether the trial is parked and goes on nowhere but on its node."""
        kept = trial.kept
        is_parked = kept is not None and kept.tier.in_process
        return is_parked and not (trial.fidelity.restorable and self.state.made_for(trial) <= 1)

    def could_take(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the device could take the trial if that was parked nowhere."""
        return self._takes(trial, device, None)

    def _wakes_on(self, trial: Trial, there: Device) -> bool:
        """Whether what is parked can go on there: a GPU's program on no slot of cores, nor the
        other way round."""
        kept = trial.kept
        before = self.state.slots.get(kept.device) if kept is not None else None
        return before is None or before.device.owns_memory == there.owns_memory

    def _takes(self, trial: Trial, device: DeviceId, node: NodeId | None) -> bool:
        """`node` is where the trial has to stay, if it has to."""
        study = self.state.studies[trial.spec.study]
        there = self.state.slots[device].device
        if not self.state.serves(there, study) or not fits(trial, study, there, node):
            return False
        if node is not None and not self._wakes_on(trial, there):
            return False
        if (
            self.is_plain(trial)
            and not needs_more_memory(trial, study, there)
            and not lacking(self.state, study, there.node)
        ):
            return True
        return not avoided(self.state, trial, device)

    def is_plain(self, trial: Trial) -> bool:
        """Whether which devices can take the trial follows from its study, its home and where it is
        parked, and from what memory it uses: nothing was learned from failures, its own or others'.
        """
        saved = trial.checkpoint
        is_image = saved is not None and saved.image_of
        learned = trial.failures or trial.lent or self.state.quarantined or self.state.excluded
        return not (is_image or learned)
