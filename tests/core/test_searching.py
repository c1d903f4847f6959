"""When a searcher is asked for trials, and when a study with one is over."""

from __future__ import annotations

from typing import Any

import pytest

from hermesd.core.decide.searches import proposals_wanted, proposing
from hermesd.core.events import (
    Added,
    Cancelled,
    NodeDrained,
    Paused,
    Removed,
    RunFailed,
    SearchFailed,
    SearchLimited,
)
from hermesd.core.model import OnSameFailure, OnThirdFailure, Searcher
from hermesd.head.journal import replay
from tests.core.playbook import Playbook, completed, joined, play, started, submitted, trial_spec


def searched(trials: int = 1, of: int = 4, ahead: int = 1, **changes: Any) -> Playbook:
    book = play(0)
    return book.tell(submitted(trials, "t", searcher=Searcher("tpe", of, ahead), **changes))


def proposed(number: int) -> Added:
    return Added("t", (trial_spec(f"t/{number}"),), f"search {number}", searcher="tpe")


def wanted(book: Playbook) -> int:
    return proposals_wanted(book.state, "t")


def test_one_trial_is_always_there_for_the_policy_to_choose() -> None:
    book = searched(2)
    assert book.busy() == "t/0#1"
    assert wanted(book) == 0, "t/1 has not begun"
    book.tell(started("t/0#1"), completed("t/0#1", 3))
    assert book.busy() == "t/1#1"
    assert wanted(book) == 1
    book.tell(proposed(2))
    assert wanted(book) == 0


def test_without_any_ahead_a_trial_is_proposed_when_a_device_would_be_idle() -> None:
    book = searched(1, ahead=0)
    assert wanted(book) == 0
    book.tell(started("t/0#1"), completed("t/0#1", 3))
    assert wanted(book) == 1
    book.tell(joined(2, node="m"))
    assert wanted(book) == 3
    book.tell(NodeDrained("m", "away"))
    assert wanted(book) == 1, "what is not open is not idle"


def test_a_study_is_over_when_its_searcher_has_no_more_and_all_have_ended() -> None:
    book = searched(1, of=2)
    assert proposing(book.state, "t").startswith("tpe: 1 of 2 trials so far")
    book.tell(started("t/0#1"), completed("t/0#1", 3))
    assert not book.state.is_over("t")
    book.refuses(Removed("t", "rm"), "unfinished")
    book.tell(proposed(1))
    assert (wanted(book), proposing(book.state, "t")) == (0, "")
    book.tell(started("t/1#1"), completed("t/1#1", 3))
    assert book.state.is_over("t")
    book.tell(SearchLimited("t", 3, "more"))
    assert wanted(book) == 1
    book.tell(SearchLimited("t", None, "stop"))
    assert book.state.is_over("t")
    book.tell(Removed("t", "rm"))
    assert not {*book.state.searching, *book.state.unsearched}


def test_nothing_is_proposed_while_a_person_holds_all_trials_back() -> None:
    book = searched(1).tell(Paused(("t/0",), "hold"))
    assert wanted(book) == 0
    book = searched(2).tell(Cancelled(("t/1",), "one"))
    assert wanted(book) == 1, "that one trial ended ends no search"


def test_a_failed_searcher_leaves_the_study_going() -> None:
    book = searched().tell(SearchFailed("t", "no memory"))
    assert "random draws" in proposing(book.state, "t")
    book.tell(started("t/0#1"), completed("t/0#1", 3))
    assert wanted(book) == 1
    book.refuses(SearchFailed("u", "?"), "no study")
    book.tell(SearchLimited("t", 9, "again"))
    assert "tpe" in proposing(book.state, "t"), "a person has it tried again"


@pytest.mark.parametrize(
    ("rule", "failures"),
    [
        ({"on_third_failure": OnThirdFailure.STUDY}, 1),
        ({"on_same_failure": OnSameFailure.STUDY}, 3),
    ],
)
def test_what_stops_a_study_ends_its_search(rule: dict[str, Any], failures: int) -> None:
    book = searched(failures, of=9, max_failures=1, **rule)
    for number in range(failures):
        assert "t" in book.state.searching
        run = book.trial(f"t/{number}").run
        assert run is not None
        book.tell(RunFailed(run.id, "exception", "ValueError: no such layer", "x", 0))
    assert book.state.is_over("t")


def test_searches_are_in_the_snapshot() -> None:
    book = searched().tell(SearchFailed("t", "no memory"))
    read = replay.read(tuple(replay.write(replay.taken(book.state))))
    assert (read.searching, read.unsearched) == ({"t": 4}, {"t": "no memory"})
    assert read.studies["t"].searcher == Searcher("tpe", 4, 1)
