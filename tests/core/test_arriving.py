"""Very many trials at once: made ahead, and decided about some at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.commands import Launch, Release
from hermesd.core.events import (
    Added,
    Cancelled,
    Extended,
    Marked,
    Paused,
    Removed,
    SignalChosen,
    Unpaused,
)
from hermesd.core.model import Goal, Phase, Plugin, Share, StopRule
from hermesd.core.state import PART, State
from hermesd.head.reader import still
from hermesd.pieces import whole
from tests.core.playbook import (
    Playbook,
    ahead,
    checkpoint,
    completed,
    joined,
    parked,
    started,
    submitted,
    tables,
    trial_spec,
)

AT_ONCE = 3


def arriving(trials: int, devices: int, **changes: object) -> Playbook:
    """A study of more trials than a decision takes."""
    return Playbook(AT_ONCE).tell(joined(devices)).tell(submitted(trials, **changes))


def launched(book: Playbook) -> list[str]:
    return [each.run.trial for each, _ in book.entries if isinstance(each, Launch)]


@pytest.mark.parametrize("policy", ["best_first", "fifo", "hermes", "asha", "guided", "hyperband"])
def test_each_decision_takes_some_of_many_new_trials_and_in_the_end_all_have_come(
    policy: str,
) -> None:
    book = arriving(8, 8, policy=Plugin(policy))
    assert 1 <= len(launched(book)) <= 8
    for left in (2, 0):
        book.tell()
        assert len(book.scheduler.arriving) == left
    assert sorted(launched(book)) == [f"s/{number}" for number in range(8)]
    assert book.scheduler.decide(book.now) == []


def test_the_first_trials_come_first() -> None:
    book = arriving(8, 2)
    assert launched(book) == ["s/0", "s/1"]
    assert list(book.scheduler.arriving) == [f"s/{number}" for number in range(3, 8)]


def test_what_happens_to_a_trial_before_it_has_come_holds() -> None:
    book = arriving(8, 8)
    book.tell(Paused(("s/6",), "r1"), Cancelled(("s/7",), "r2"))
    book.tell().tell()
    assert not book.scheduler.arriving
    assert sorted(launched(book)) == [f"s/{number}" for number in range(6)]
    assert book.state.trials["s/7"].phase is Phase.CANCELLED
    book.tell(Unpaused(("s/6",), "r3"))
    assert launched(book)[-1] == "s/6"


def test_a_study_is_removed_before_its_trials_have_come() -> None:
    ids = tuple(f"s/{number}" for number in range(8))
    book = Playbook(AT_ONCE).tell(submitted(8)).tell(Cancelled(ids, "r1"), Removed("s", "r2"))
    for _ in range(3):
        book.tell()
    assert not book.state.trials
    assert not book.scheduler.arriving


def test_trials_that_are_added_come_behind_those_that_are_there() -> None:
    book = arriving(2, 16, policy=Plugin("fifo"))
    added = tuple(trial_spec(f"s/{number}") for number in range(2, 9))
    book.tell(Added("s", added, "more"))
    while book.scheduler.arriving:
        book.tell()
    assert launched(book) == [f"s/{number}" for number in range(9)]


@pytest.mark.parametrize("changes", [{}, {"share": Share.TREE}, {"outside": True}])
def test_a_study_found_ahead_comes_to_the_same_as_when_it_is_folded_from_the_journal(
    changes: dict[str, object],
) -> None:
    event = submitted(2 * PART + 1, **changes)
    taken, plain = State(), State()
    taken.apply(event, 7.0, taken.holding(whole(State().found_ahead(event, 7.0))))
    plain.apply(event, 7.0)
    assert tables(taken) == tables(plain)
    assert taken.dirty | taken.taken == plain.dirty
    taken.check()


def test_a_trial_that_changes_before_what_was_found_of_it_is_folded_keeps_that_change() -> None:
    book = Playbook().tell(submitted(4)).tell(joined(1))
    others = tuple(replace(trial_spec(f"s/{n}"), argv=("new",)) for n in (1, 2))
    event = Extended("s", (), StopRule(max_steps=9), (), (), "longer", redrawn=others)
    event = replace(event, ended=(("s/3", "too many"),))
    found = whole(still(book.state).found_ahead(event, book.now))
    book.tell(Marked(("s/2", "s/3"), ("mine",), (), None, "mark"))
    plain = still(book.state)
    plain.apply(event, book.now)
    book.state.apply(event, book.now, book.state.holding(found))
    assert tables(book.state) == tables(plain)
    assert [book.trial(f"s/{n}").spec.argv for n in (1, 2)] == [("new",)] * 2
    assert [book.trial(f"s/{n}").tags for n in (2, 3)] == [("mine",)] * 2
    assert book.trial("s/3").phase is Phase.STOPPED


def test_very_many_trials_that_end_are_looked_at_some_at_a_time_and_none_of_them_is_launched() -> (
    None
):
    book = arriving(8, 1)
    while book.scheduler.arriving:
        book.tell()
    ids = tuple(f"s/{number}" for number in range(1, 8))
    book.tell(Cancelled(ids, "r1"))
    assert book.scheduler.arriving
    book.tell(completed("s/0#1", 3))
    assert launched(book) == ["s/0"]
    while book.scheduler.arriving:
        book.tell()
    assert launched(book) == ["s/0"]


def test_nodes_are_told_to_forget_some_trials_at_a_time_and_only_those_that_were_anywhere() -> None:
    book = Playbook(AT_ONCE).tell(submitted(7), Cancelled(("s/5", "s/6"), "r1"))
    while book.scheduler.arriving:
        book.tell()
    ran = [f"s/{number}" for number in range(5)]
    book.tell(joined(5)).tell(*(completed(f"{trial}#1", 1) for trial in ran))
    book.tell(Removed("s", "r2"))
    forgotten = [each.trial for each, _ in book.entries if isinstance(each, Release)]
    assert (forgotten, book.scheduler.is_behind) == (ran[-AT_ONCE:], True)
    book.tell()
    forgotten = [each.trial for each, _ in book.entries if isinstance(each, Release)]
    assert (sorted(forgotten), book.scheduler.is_behind) == (ran, False)


def test_trials_that_go_on_and_new_ones_are_in_the_same_order_found_ahead_or_not() -> None:
    book = Playbook().tell(submitted(3))
    cut = Extended("s", (), StopRule(), (), (), "fewer", ended=(("s/1", "cut"), ("s/2", "cut")))
    book.tell(cut).tell(joined(1)).tell(completed("s/0#1", 1))
    longer = Extended("s", ("s/0",), StopRule(max_steps=9), (), (("x",),), "longer")
    again = replace(longer, resumed=("s/2", "s/1"), redrawn=(trial_spec("s/1"),))
    event = replace(again, added=(trial_spec("s/3"), trial_spec("s/4")))
    found = whole(still(book.state).found_ahead(event, book.now))
    book.tell(Marked(("s/2",), ("mine",), (), None, "mark"))
    plain = still(book.state)
    plain.apply(event, book.now)
    book.state.apply(event, book.now, book.state.holding(found))
    assert tables(book.state) == tables(plain)
    assert list(book.state.active["s"]) == ["s/0", "s/2", "s/1", "s/3", "s/4"]


def test_what_is_parked_of_a_trial_that_ends_does_not_wait_until_a_large_study_is_forgotten() -> (
    None
):
    book = Playbook(AT_ONCE).tell(submitted(7)).tell(submitted(1, name="t"))
    while book.scheduler.is_behind:
        book.tell()
    book.tell(joined(8)).tell(*(completed(f"s/{number}#1", 1) for number in range(7)))
    book.tell(Paused(("t/0",), "r1")).tell(parked("t/0#1", 1))
    book.tell(Removed("s", "r2"), Cancelled(("t/0",), "r3"))
    assert ("t/0", False) in [
        (each.trial, each.forget) for each, _ in book.entries if isinstance(each, Release)
    ]
    assert book.scheduler.is_behind


@pytest.mark.parametrize(
    "event",
    [
        Extended("s", (), StopRule(max_steps=9), (), (), "r", ended=(("s/1", "x"), ("s/2", "x"))),
        Extended("s", (), StopRule(), (), (), "r", redrawn=(trial_spec("s/2"),)),
        Added("s", (trial_spec("s/3"), trial_spec("s/4")), "r"),
        SignalChosen("s", "accuracy", Goal.MAXIMIZE, (), "r"),
    ],
)
def test_what_was_found_of_trials_is_taken_over_without_looking_at_each(
    event: Extended | Added | SignalChosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Playbook().tell(submitted(3))
    found = whole(still(book.state).found_ahead(event, book.now))
    monkeypatch.setattr(State, "put", None)
    book.state.apply(event, book.now, book.state.holding(found))
    assert found.trials
    assert {**book.state.trials, **found.trials} == book.state.trials


@pytest.mark.parametrize("at_once", [AT_ONCE, None])
def test_trials_that_were_taken_over_are_looked_at_by_the_next_decisions(
    at_once: int | None,
) -> None:
    book = Playbook(at_once)
    event = submitted(2 * AT_ONCE)
    book.scheduler.observe(event, book.now, whole(State().found_ahead(event, book.now)))
    book.entries.append((event, book.now))
    book.tell(joined(2 * AT_ONCE)).tell()
    assert sorted(launched(book)) == [f"s/{number}" for number in range(2 * AT_ONCE)]


def test_nothing_is_found_of_trials_that_may_ride_on_others() -> None:
    """What becomes of them depends on all that are alike."""
    event = submitted(3, share=Share.TREE)
    event = replace(event, trials=tuple(replace(each, root="r") for each in event.trials))
    assert not whole(State().found_ahead(event, 0.0)).trials


def test_trials_at_rest_that_forks_replace_are_held_back_though_the_forks_are_not_found() -> None:
    book = Playbook().tell(submitted(2))
    event = Added("s", (trial_spec("s/2"),), "r", (checkpoint("s/0#1", 3),))
    taken = ahead(book.state, replace(event, instead=("s/1",)), book.now)
    assert taken is not None
    assert taken.trials["s/1"].replaced_by == "s/2"


def test_trials_that_run_are_folded_beside_what_was_found_of_those_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = Playbook().tell(submitted(4)).tell(joined(1)).tell(started("s/0#1"))
    ended = tuple((f"s/{number}", "too many") for number in range(4))
    event = Extended("s", (), StopRule(max_steps=9), (), (), "r", ended=ended)
    found = whole(still(book.state).found_ahead(event, book.now))
    plain, put = still(book.state), list[str]()
    plain.apply(event, book.now)
    monkeypatch.setattr(State, "put", lambda state, trial: put.append(trial.id))
    book.state.apply(event, book.now, book.state.holding(found))
    assert put == ["s/0"]
    assert [book.trial(f"s/{number}").phase for number in (1, 2, 3)] == [Phase.STOPPED] * 3
    assert book.state.requests == plain.requests
