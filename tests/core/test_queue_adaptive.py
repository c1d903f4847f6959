"""An adaptive ranking is told of its study, and is asked about a bounded number of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import pytest

from hermesd.core.decide import queue as queues
from hermesd.core.decide.queue import FEW, LEVELS_EACH, SAMPLED, PolicySample, StudyQueue
from hermesd.core.losses import Chunk
from hermesd.core.model import Phase, Quantum
from hermesd.core.placement import Free
from hermesd.core.policy import Facts, Field, Score
from hermesd.core.trial import Trial
from tests.core.playbook import Playbook, play
from tests.policy.trials import on_device


@dataclass
class Heard:
    """What a policy was told and asked."""

    fields: list[Field] = field(default_factory=list)
    firsts: list[str] = field(default_factory=list)
    scored: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Turned:
    """The order of its policy backwards."""

    heard: Heard
    front: Score | None
    name: ClassVar[str] = "turned"

    @property
    def fronts(self) -> tuple[Score | None]:
        return (self.front,)

    def facing(self, first: Trial) -> Turned:
        self.heard.firsts.append(first.id)
        return self

    def score(self, trial: Trial) -> Score:
        self.heard.scored.append(trial.id)
        return (-float(trial.step),)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(2.0)

    def words(self, trial: Trial) -> str:
        return "turned"


@dataclass(frozen=True)
class BySteps:
    """The fewest steps first; it leads who has the most; adapted, all is turned."""

    heard: Heard
    front: Score | None = None
    by_number: bool = False
    name: ClassVar[str] = "by_steps"

    def suited(self, sample: Sequence[Trial]) -> BySteps:
        return replace(self, by_number=any(trial.not_finite for trial in sample))

    def score(self, trial: Trial) -> Score:
        return (float(trial.spec.number if self.by_number else trial.step),)

    def level(self, trial: Trial) -> float:
        return -float(trial.step) if trial.step > 1 else float("inf")

    def adapted(self, field: Field) -> Turned:
        self.heard.fields.append(field)
        return Turned(self.heard, self.front)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(1.0)

    def words(self, trial: Trial) -> str:
        return "straight"


def stepped(book: Playbook, steps: Sequence[int]) -> None:
    """The trials as if they had trained so far."""
    for number, step in enumerate(steps):
        curve = (Chunk(1, step, step, 1.0, 1.0, 1.0),) if step else ()
        book.state.put(replace(book.trial(f"s/{number}"), step=step, curve=curve))


def order(queue: StudyQueue, count: int, occupants: Sequence[Trial] = ()) -> list[str]:
    return queue.order(count, occupants, lambda trial: True, 0.0)


def test_it_is_told_who_leads_who_is_first_and_of_a_sample() -> None:
    book, heard = play(trials=5, devices=None), Heard()
    stepped(book, [3, 9, 2, 7, 5])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    assert order(queue, 2)[:2] == ["s/1", "s/3"]
    told = heard.fields[-1]
    assert (heard.firsts[-1], told.leader.id) == ("s/2", "s/1")
    assert [trial.id for trial in told.sample] == [f"s/{n}" for n in range(5)]
    assert queue.words(book.trial("s/0")) == "turned"
    choice = queue.choice(book.trial("s/0"), 0.0)
    assert choice is not None
    assert choice.quantum == Quantum(2.0)


def test_the_leader_may_be_over_and_may_fall_back() -> None:
    book, heard = play(trials=3, devices=None), Heard()
    stepped(book, [3, 9, 5])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    for changed, leader in (
        ({"phase": Phase.COMPLETED, "step": 10}, "s/1"),
        ({"step": 4, "curve": (Chunk(1, 4, 4, 1.0, 1.0, 1.0),)}, "s/2"),
        ({"step": 6}, "s/1"),
        ({"curve": ()}, "s/2"),
    ):
        book.state.put(replace(book.trial("s/1"), **changed))
        queue.refresh([book.trial("s/1")])
        order(queue, 1)
        assert heard.fields[-1].leader.id == leader


def test_the_leader_is_found_among_many_that_changed_at_once_and_often() -> None:
    count = 3 * FEW
    book, heard = play(trials=count, devices=None), Heard()
    stepped(book, [2 + number * 7 % count for number in range(count)])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    for lead in range(8):
        # All change, those that led before fall back: more is forgotten than is there.
        for trial in [book.trial(f"s/{number}") for number in range(count)]:
            first = trial.spec.number == 5 * lead
            book.state.put(replace(trial, step=1000 if first else trial.step % count + 2))
        queue.refresh(book.trial(f"s/{number}") for number in range(count))
        order(queue, 1)
        assert heard.fields[-1].leader.id == f"s/{5 * lead}"


def test_only_the_first_of_the_order_and_of_the_front_come_into_question() -> None:
    count = 4 * queues.IN_QUESTION
    book, heard = play(trials=count, devices=None), Heard()
    stepped(book, list(range(2, count + 2)))
    queue = StudyQueue(book.state, "s", BySteps(heard, (81.0,)), Free())
    # Turned, the best is the last of those that the front adds.
    found = order(queue, 1)
    asked = queues.IN_QUESTION + 1
    assert found[0] == f"s/{79 + asked - 1}"
    assert sorted(set(heard.scored), key=lambda name: int(name[2:])) == [
        "s/0",
        *(f"s/{n}" for n in range(79, 79 + asked)),
    ]
    assert len(heard.scored) == 1 + asked
    assert len(heard.fields[-1].sample) <= SAMPLED


def test_it_is_told_when_enough_have_a_level_for_one_more_to_train_on() -> None:
    """While one that has no level is first, it is asked only then."""
    book, heard = play(trials=2 * LEVELS_EACH + 1), Heard()
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())

    def asked_with(levels: int) -> list[bool]:
        """What it was told of that when it was asked at last."""
        stepped(book, [0] * (2 * LEVELS_EACH + 1 - levels) + [2] * levels)
        queue.refresh(book.state.trials.values())
        heard.fields.clear()
        order(queue, 1)
        return [each.enough for each in heard.fields]

    assert asked_with(LEVELS_EACH - 1) == []
    assert asked_with(LEVELS_EACH) == [True]
    last = f"s/{2 * LEVELS_EACH}"
    book.state.put(replace(book.trial(last), phase=Phase.COMPLETED))
    assert asked_with(2 * LEVELS_EACH - 1) == []
    assert asked_with(2 * LEVELS_EACH) == [True]


@pytest.mark.parametrize("expired", [False, True])
def test_one_that_trains_on_counts_as_long_as_its_quantum(expired: bool) -> None:
    book, heard = play(trials=LEVELS_EACH, devices=None), Heard()
    stepped(book, [2] * LEVELS_EACH)
    book.state.put(on_device(book.trial("s/0"), expired))
    order(StudyQueue(book.state, "s", BySteps(heard), Free()), 1)
    assert heard.fields[-1].enough is expired


def test_an_occupant_is_always_in_question() -> None:
    count = 2 * queues.IN_QUESTION
    book, heard = play(trials=count, devices=None), Heard()
    stepped(book, list(range(2, count + 2)))
    last = book.trial(f"s/{count - 1}")
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    assert order(queue, 1, [last])[0] == last.id


def test_people_are_shown_the_order_that_holds() -> None:
    book, heard = play(trials=4, devices=None), Heard()
    stepped(book, [3, 9, 2, 7])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    shown = [(each.trial.id, each.words) for each in queue.ranking(0.0)]
    assert shown == [(f"s/{n}", "turned") for n in (1, 3, 0, 2)]


def test_nothing_is_adapted_while_the_first_of_the_order_has_no_level() -> None:
    book, heard = play(trials=3, devices=None), Heard()
    stepped(book, [3, 0, 5])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    assert order(queue, 3) == ["s/1", "s/0", "s/2"]
    assert heard.fields == []
    assert queue.words(book.trial("s/0")) == "straight"


def test_it_is_asked_again_only_when_its_leader_or_its_sample_changed() -> None:
    count = 2 * SAMPLED
    book, heard = play(trials=count, devices=None), Heard()
    stepped(book, [*range(2, count + 1), 2 * count])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    order(queue, 1)
    order(queue, 1)
    assert len(heard.fields) == 1
    sampled = {trial.id for trial in heard.fields[-1].sample}
    within, without = (
        next(f"s/{n}" for n in range(count) if (f"s/{n}" in sampled) is chosen)
        for chosen in (True, False)
    )
    # The last one leads.
    for changed, asked in ((without, 1), (within, 2), (f"s/{count - 1}", 3)):
        book.state.put(replace(book.trial(changed), preemptions=1))
        queue.refresh([book.trial(changed)])
        order(queue, 1)
        assert len(heard.fields) == asked
    assert len(heard.firsts) == 5


def test_the_sample_is_spread_evenly_and_is_seldom_another_after_one_more_loss() -> None:
    count = 16 * SAMPLED
    book = play(trials=count, devices=None)
    members = book.state.members["s"]
    places = {name: place for place, name in enumerate(members)}
    scouting = PolicySample(book.state, members, places, BySteps(Heard()))
    stepped(book, [2] * count)
    samples = set()
    for shown, name in enumerate(members, 1):
        scouting.note(book.trial(name))
        numbers = [trial.spec.number for trial in scouting.sample()]
        samples.add(tuple(numbers))
        assert len(numbers) == min(shown, SAMPLED)
        assert numbers == sorted(numbers)
    assert len(samples) < count / 3
    assert max(b - a for a, b in pairwise((0, *numbers, count))) <= 2 * count / SAMPLED


def test_another_takes_the_place_in_the_sample_of_one_that_starts_from_the_beginning() -> None:
    count = 2 * SAMPLED
    book = play(trials=count, devices=None)
    members = book.state.members["s"]
    places = {name: place for place, name in enumerate(members)}
    scouting = PolicySample(book.state, members, places, BySteps(Heard()))
    stepped(book, [2] * count)
    for name in members:
        scouting.note(book.trial(name))
    before = [trial.id for trial in scouting.sample()]
    book.state.put(replace(book.trial(before[0]), curve=()))
    scouting.note(book.trial(before[0]))
    after = [trial.id for trial in scouting.sample()]
    assert len(after) == SAMPLED
    assert {*before} - {*after} == {before[0]}


def test_what_suits_the_study_otherwise_has_all_trials_scored_anew() -> None:
    book, heard = play(trials=4, devices=None), Heard()
    stepped(book, [1, 1, 1, 0])
    queue = StudyQueue(book.state, "s", BySteps(heard), Free())
    assert order(queue, 2) == ["s/3", "s/0"]
    book.state.put(replace(book.trial("s/2"), not_finite=True))
    queue.refresh([book.trial("s/2")])
    assert order(queue, 2) == ["s/0", "s/1"]
    book.state.put(replace(book.trial("s/2"), not_finite=False))
    queue.refresh([book.trial("s/2")])
    assert order(queue, 2) == ["s/3", "s/0"]


def _large(monkeypatch: pytest.MonkeyPatch) -> tuple[Playbook, StudyQueue]:
    """Ten trials, which are more than are ranked at once; the last has not begun."""
    monkeypatch.setattr(queues, "AT_ONCE", 9)
    monkeypatch.setattr(queues, "SLICE", 4)
    book = play(trials=10, devices=None)
    stepped(book, [1] * 9 + [0])
    return book, StudyQueue(book.state, "s", BySteps(Heard()), Free())


def test_a_large_study_is_ranked_anew_in_slices_while_the_order_before_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book, queue = _large(monkeypatch)
    assert order(queue, 2) == ["s/9", "s/0"]

    def changed(number: int, **values: object) -> None:
        book.state.put(replace(book.trial(f"s/{number}"), **values))
        queue.refresh([book.trial(f"s/{number}")])

    changed(2, not_finite=True)
    assert order(queue, 2) == ["s/9", "s/0"]
    people = [each.trial.id for each in queue.ranking(0.0)]
    assert people[0] == "s/9", "who asks moves nothing on"
    # One that was taken and one that was not; neither is lost.
    changed(0, phase=Phase.COMPLETED)
    changed(9, step=1)
    assert order(queue, 2) == ["s/1", "s/2"], "by steps, of which all have as many"
    changed(9, step=0)
    assert order(queue, 2) == ["s/1", "s/2"], "by number, as the last slice is taken"
    assert order(queue, 9) == [f"s/{n}" for n in range(1, 10)]


def test_a_ranking_that_suits_no_more_before_all_is_ranked_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book, queue = _large(monkeypatch)
    for not_finite in (True, False):
        book.state.put(replace(book.trial("s/2"), not_finite=not_finite))
        queue.refresh([book.trial("s/2")])
        for _ in range(2 if not_finite else 4):
            assert order(queue, 2) == ["s/9", "s/0"]
