"""A machine wants itself or a device back: at once, for as long as it says, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.commands import Suspend
from hermesd.core.events import FidelityKnown, NodeSilent, Paused, Reclaimed, Unpaused, Yielded
from hermesd.core.model import Fidelity, Phase, Plugin
from tests.core.playbook import (
    Playbook,
    joined,
    live,
    parked,
    play,
    run,
    started,
    submitted,
    written,
)

DAY = Yielded("n", "serves Sat-Sun only")
FOREIGN = Yielded("n/0", "process 7 (python) of bob uses it")


def running(trials: int = 1, devices: int = 1, **changes: object) -> Playbook:
    """s/0 runs on n/0 and can be restored."""
    book = play(trials, devices, **changes)
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "keras"))
    book.heard()
    return book


def summary(book: Playbook, trial: str = "s/0") -> str:
    return book.scheduler.explain(trial, book.now).summary


def asked(book: Playbook) -> Suspend:
    order = book.trial().run.asked
    assert isinstance(order, Suspend)
    return order


def test_a_node_that_rests_gives_back_what_runs_whatever_its_quantum() -> None:
    book = running(policy=Plugin("round_robin")).tell(DAY).expect("suspend s/0#1 by checkpoint")
    assert asked(book).reason == "node n rests: serves Sat-Sun only"
    book.tell(written("s/0#1", 9)).expect()
    assert "no device of its pool default can be used now (n rests: serves Sat" in summary(book)
    book.tell(Reclaimed("n")).expect("launch s/0#2 on n/0 for 30 s from s/0#1@9")


def test_what_is_parked_there_is_written_down_and_goes_on_elsewhere() -> None:
    book = running().tell(Paused(("s/0",), "r0")).tell(parked("s/0#1", 5)).expect("suspend s/0#1")
    book.tell(DAY).expect("write down s/0#1 on n")
    book.tell(written("s/0#1", 5), joined(1, node="m"), Unpaused(("s/0",), "r1"))
    book.expect("launch s/0#2 on m/0 from s/0#1@5")


def test_what_no_checkpoint_brings_back_is_parked_and_waits_for_its_node() -> None:
    book = play(1).tell(started("s/0#1")).tell(joined(1, node="m"), DAY)
    book.expect("launch s/0#1 on n/0", "suspend s/0#1 by park")
    book.tell(parked("s/0#1", 5)).expect()
    assert "waits for node n, which rests: serves Sat-Sun only" in summary(book)
    book.tell(Reclaimed("n")).expect("launch s/0#2 on n/0 from s/0#1")


def test_a_device_that_others_use_is_given_back_within_seconds_and_the_next_one_taken() -> None:
    book = running(devices=2, suspend_deadline_seconds=600.0)
    book.tell(FOREIGN).expect("suspend s/0#1 by checkpoint")
    assert asked(book).deadline_seconds == 15.0
    assert asked(book).reason == "n/0: process 7 (python) of bob uses it"
    book.tell(written("s/0#1", 9)).expect("launch s/0#2 on n/1 from s/0#1@9")
    book.tell(submitted(1, "t")).expect()
    book.tell(Reclaimed("n/0")).expect("launch t/0#1 on n/0")


def test_a_run_that_only_starts_is_asked_once_it_runs() -> None:
    book = play().tell(FOREIGN).expect("launch s/0#1 on n/0")
    book.tell(started("s/0#1")).expect("suspend s/0#1 by park")


def test_why_says_who_uses_the_device() -> None:
    book = play(2).tell(started("s/0#1")).tell(FOREIGN).tell(parked("s/0#1", 3))
    assert "used now (n/0: process 7 (python) of bob uses it)" in summary(book, "s/1")


def test_a_trial_that_gave_back_its_device_waits_while_all_others_are_taken() -> None:
    book = running(2, 1, policy=Plugin("round_robin"))
    book.tell(joined(2, live=[live("s/0#1")])).expect("launch s/1#1 on n/1 for 30 s")
    book.tell(FOREIGN).expect("suspend s/0#1 by checkpoint")
    book.tell(written("s/0#1", 3)).expect()
    assert book.trial().phase is Phase.WAITING


def test_a_node_says_it_again_with_each_hello_and_what_it_does_not_say_is_over() -> None:
    book = running().tell(DAY).expect("suspend s/0#1 by checkpoint").tell(written("s/0#1", 9))
    hello = joined(1)
    book.tell(NodeSilent("n", "cut")).tell(replace(hello, yields=(("n", "it is day"),))).expect()
    assert book.state.nodes["n"].resting == "it is day"
    book.tell(NodeSilent("n", "cut")).tell(hello).expect("launch s/0#2 on n/0 from s/0#1@9")


def test_a_hello_that_yields_what_runs_has_it_given_back() -> None:
    book = running().tell(NodeSilent("n", "cut"))
    back = joined(1, live=[live("s/0#1")])
    book.tell(replace(back, yields=(("n/0", "used by bob"),))).expect("suspend s/0#1 by checkpoint")


def test_the_same_said_twice_and_of_nobody_is_refused() -> None:
    book = running().tell(DAY)
    book.refuses(DAY, "'n' is so already")
    book.refuses(Reclaimed("n/0"), "'n/0' is so already")
    book.refuses(Yielded("x/0", "why"), "no device or node 'x/0'")


def test_homes_on_it_are_given_up() -> None:
    book = running(2, placement=Plugin("homes")).tell(joined(1, node="m")).tell(DAY)
    assert "bind s/1 to m/0" in book.heard()
