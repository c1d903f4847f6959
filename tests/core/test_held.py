"""A head that was set back launches nothing that may run where it does not know."""

from __future__ import annotations

from hermesd.core.model import Plugin
from tests.core.playbook import joined, live, play, quantum_ended, started, submitted


def test_what_there_is_waits_until_then_and_what_comes_does_not() -> None:
    book = play(trials=2, devices=None)
    book.scheduler.hold(100.0)
    book.at(5).tell(joined(2)).expect()
    assert book.scheduler.deadline == 100.0
    words = book.scheduler.explain("s/0", 5).summary
    assert words.endswith("older copy, so it may be running somewhere for 95 s more")
    book.tell(submitted(1, "t")).expect("launch t/0#1 on n/0")
    assert "older copy" not in book.scheduler.explain("t/0", 5).summary
    book.at(100).expect("launch s/0#1 on n/1")
    assert book.scheduler.deadline is None
    assert "older copy" not in book.scheduler.explain("s/1", 100).summary


def test_what_runs_goes_on_and_makes_no_room() -> None:
    book = play(trials=2, policy=Plugin("round_robin")).expect("launch s/0#1 on n/0 for 30 s")
    book.tell(started("s/0#1"))
    book.scheduler.hold(100.0)
    book.at(30).tell(quantum_ended("s/0#1")).expect("renew s/0#1.1 for 30 s")
    book.at(101).tell(quantum_ended("s/0#1", 1)).expect("suspend s/0#1 for s/1")


def test_a_stray_is_ended_before_its_trial_is_launched() -> None:
    """The state is older than the run: s/0 runs as #3 on k, and n says Hello first."""
    book = play(trials=1, devices=None)
    book.scheduler.hold(100.0)
    book.at(1).tell(joined(1, "n")).expect()
    there = live("s/0#3", "running", "k/0", 50)
    book.at(2).tell(joined(1, "k", live=[there])).expect("kill s/0#3 on k")
    book.at(100).expect("launch s/0#4 on k/0")
