"""Very many trials at once: made ahead, and decided about some at a time."""

from __future__ import annotations

import pytest

from hermesd.core.commands import Launch
from hermesd.core.events import Added, Cancelled, Paused, Removed, Unpaused
from hermesd.core.fold.studies import submitted_ahead
from hermesd.core.model import Phase, Plugin, Share
from hermesd.core.state import State
from tests.core.playbook import Playbook, joined, submitted, tables, trial_spec

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
def test_a_study_made_ahead_comes_to_the_same_as_when_it_is_folded_from_the_journal(
    changes: dict[str, object],
) -> None:
    event = submitted(5, **changes)
    ahead, plain = State(), State()
    ahead.apply(submitted_ahead(event, 7.0), 7.0)
    plain.apply(event, 7.0)
    assert tables(ahead) == tables(plain)
    assert ahead.dirty == plain.dirty
    ahead.check()
