"""A study that grows: its new trials are like those that it was submitted with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import Added, Extended, Removed, Retried
from hermesd.core.fast_replace import replace
from hermesd.core.model import Phase, Plugin, StopRule
from hermesd.core.placement import make_placement
from hermesd.core.tables import Members
from hermesd.policy import SHIPPED, make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    completed,
    joined,
    play,
    quantum_ended,
    reported,
    started,
    submitted,
    trial_spec,
    written,
)


def added(*numbers: int, request: str = "more", study: str = "s") -> Added:
    return Added(study, tuple(trial_spec(f"s/{number}") for number in numbers), request)


def test_a_finished_study_goes_on_with_its_new_trials() -> None:
    book = play().tell(started("s/0#1"), completed("s/0#1", 3))
    assert not book.state.active["s"]
    book.tell(added(1, 2)).expect("launch s/0#1 on n/0", "launch s/1#1 on n/0")
    assert list(book.state.members["s"]) == ["s/0", "s/1", "s/2"]
    assert set(book.state.active["s"]) == {"s/1", "s/2"}
    assert book.state.requests["more"] == ("s/1", "s/2")
    assert book.trial("s/1").submitted == book.now
    book.refuses(Removed("s", "away"), "unfinished")


def test_what_cannot_be_added_changes_nothing() -> None:
    book = play(2)
    before = dict(book.state.trials)
    book.refuses(added(1, 2), "exist")
    book.refuses(added(2, 2), "exist")
    book.refuses(added(2, study="t"), "no study")
    book.refuses(Added("s", (trial_spec("t/9"),), "other"), "another study")
    assert book.state.trials == before
    book.tell(added(2))
    book.refuses(added(3), "before")
    book.refuses(Retried(("s/2",), "again"), "not finished")


def changed(stop: StopRule | None = None, **changes: Any) -> Extended:
    """A study that runs is changed."""
    return Extended("s", (), stop or StopRule(), (), (), "change", **changes)


def test_a_running_study_goes_by_its_new_rule() -> None:
    book = play(3, stop=StopRule(max_steps=100)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [1.0])).heard()
    lower = changed(StopRule(max_steps=9), ended=(("s/2", "too many"),), source=b"new")
    book.tell(lower).expect()
    assert book.state.studies["s"].stop == StopRule(max_steps=9)
    assert book.state.studies["s"].source == b"new"
    assert (book.trial("s/2").phase, book.trial("s/2").reason) == (Phase.STOPPED, "too many")
    book.tell(reported("s/0#1", 9, [0.9])).expect("stop s/0#1")


def test_a_trial_that_is_past_the_new_rule_gives_its_device_back() -> None:
    book = play(2, stop=StopRule(max_steps=100)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 50, [1.0])).heard()
    reason = "stop.max_steps = 9 is reached"
    book.tell(changed(StopRule(max_steps=9), ended=(("s/0", reason),))).expect("stop s/0#1")
    book.tell(written("s/0#1", 50)).expect("launch s/1#1 on n/0")
    assert (book.trial().phase, book.trial().reason) == (Phase.STOPPED, reason)


def test_a_trial_that_has_not_begun_is_drawn_again_and_no_other() -> None:
    book = play(2)
    other = replace(trial_spec("s/1"), argv=("other",))
    book.tell(changed(redrawn=(other,)))
    assert book.trial("s/1").spec == other
    begun = replace(trial_spec("s/0"), argv=("other",))
    for event, words in (
        (replace(changed(redrawn=(begun,)), request_id="r1"), "s/0 has begun"),
        (replace(changed(ended=(("t/0", ""),)), request_id="r2"), "no trial 't/0'"),
        (replace(changed(added=(other,)), request_id="r3"), "exist"),
        (changed(), "before"),
    ):
        book.refuses(event, words)


def order(book: Playbook, scheduler: Scheduler) -> Sequence[str]:
    return scheduler.next_up("s", 100, book.now)


@pytest.mark.parametrize("policy", sorted(each.name for each in SHIPPED))
@given(
    losses=st.lists(st.floats(0.01, 10.0), min_size=1, max_size=4),
    begin=st.sampled_from([1, 2, 35]),
    more=st.lists(st.sampled_from([1, 30]), min_size=1, max_size=2),
)
@settings(max_examples=25)
def test_a_policy_sees_a_grown_study_as_one_that_was_always_so(
    policy: str, losses: list[float], begin: int, more: list[int]
) -> None:
    """Whatever a policy keeps of its study, it ranks as one that sees all for the first time."""
    book = play(begin, policy=Plugin(policy))
    book.tell(started("s/0#1"))
    for step, loss in enumerate(losses, 1):
        book.tell(reported("s/0#1", step, [loss]))
    known = begin
    for count in more:
        book.tell(added(*range(known, known + count), request=f"to {known}"))
        known += count
    fresh = Scheduler(book.state, make_policy, make_placement, LEASE)
    assert order(book, book.scheduler) == order(book, fresh)
    assert len(book.state.members["s"]) == known


def test_a_study_that_grows_by_one_trial_at_a_time_keeps_its_policy() -> None:
    """Also where its trials report between two additions: what is looked at by blocks is looked at
    by larger ones from the seventeenth trial on."""
    book = Playbook().tell(joined(12)).tell(submitted(1, policy=Plugin("best_first")))
    for number in range(1, 16):
        book.tell(added(number, request=f"r{number}"))
    for number in range(12):
        book.tell(started(f"s/{number}#1"))
    for number in range(12):
        book.tell(reported(f"s/{number}#1", 20, [2.0 + number / 10 - 0.01 * i for i in range(20)]))
    book.tell(added(16, request="r16"))
    for number in range(12):
        book.at(100 + number).tell(quantum_ended(f"s/{number}#1", 0, 20))
    assert not book.state.fallen


def test_what_was_known_of_a_studys_trials_stays_as_it_was_when_there_are_more() -> None:
    few = Members(["s/0", "s/1"])
    more = few.with_more(["s/2"])
    others = few.with_more(["s/3", "s/4"])
    assert [list(each) for each in (few, more, others)] == [
        ["s/0", "s/1"], ["s/0", "s/1", "s/2"], ["s/0", "s/1", "s/3", "s/4"],
    ]  # fmt: skip
    assert (len(few), few[-1], few[1:], few[:1]) == (2, "s/1", ("s/1",), ("s/0",))
    assert few == Members(["s/0", "s/1"]) != more
    with pytest.raises(IndexError):
        few[2]
