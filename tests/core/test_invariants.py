"""A state that contradicts itself is noticed in the very batch that touches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.invariants import InvariantBroken
from hermesd.core.model import RunId
from tests.core.playbook import Playbook, completed, play, started


def decided(book: Playbook) -> None:
    book.scheduler.observe(started("s/0#1"), 1.0)
    book.scheduler.decide(1.0)


def test_what_a_batch_changed_is_checked_before_it_is_said() -> None:
    book = play()
    book.state.slots["n/0"] = replace(book.state.slots["n/0"], run=RunId("s/1", 1))
    with pytest.raises(InvariantBroken, match="s/0#1 does not hold its device n/0"):
        decided(book)


def test_the_devices_of_what_changed_are_checked() -> None:
    book = play()
    book.state.free["n/0"] = None
    with pytest.raises(InvariantBroken, match="n/0: index of free slots"):
        decided(book)


def test_the_index_of_active_trials_is_checked() -> None:
    book = play()
    del book.state.active["s"]["s/0"]
    book.state.dirty["s/0"] = None
    with pytest.raises(InvariantBroken, match="s/0: index of active trials"):
        book.scheduler.decide(1.0)


def test_what_no_batch_touches_waits_for_the_full_check() -> None:
    book = play(trials=2, devices=2).tell(started("s/0#1"))
    book.state.slots["n/1"] = replace(book.state.slots["n/1"], run=None)
    book.scheduler.observe(completed("s/0#1"), 1.0)
    book.scheduler.decide(1.0)
    with pytest.raises(InvariantBroken, match="s/1#1 does not hold its device n/1"):
        book.state.check()


def test_the_index_of_slots_in_service_is_checked() -> None:
    book = play(trials=2, devices=3)
    assert book.state.in_service == {"n": 3}
    book.state.in_service["n"] = 2
    with pytest.raises(InvariantBroken, match=r"slots in service: \{'n': 3\}"):
        book.state.check()
