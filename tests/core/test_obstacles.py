"""What is said of trials that cannot go on: devices that there are none of, nodes not heard of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.events import FidelityKnown, NodeSilent, PoolsConfigured
from hermesd.core.model import Fidelity, Plugin, Pool
from tests.core.playbook import (
    LEASE,
    Playbook,
    joined,
    live,
    parked,
    play,
    quantum_ended,
    run,
    started,
    submitted,
)

TURNS = Plugin("round_robin", (("quantum_seconds", 5.0),))


def summary(book: Playbook, trial: str = "s/0") -> str:
    return book.scheduler.explain(trial, book.now).summary


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"device_kind": "h100"}, "no device of kind h100 (there: a100, cpu) in its pool default"),
        (
            {"memory_bytes": 5 << 30},
            "no device with 5.0 GiB of memory (the largest has 1.0 GiB) in its pool default",
        ),
        (
            {"device_kind": "a100", "memory_bytes": 3 << 29},
            "no device of kind a100 with 1.5 GiB of memory (the largest has 1.0 GiB)",
        ),
    ],
)
def test_a_trial_that_asks_for_what_there_is_not_says_so(asked: dict[str, Any], said: str) -> None:
    book = Playbook().tell(joined(2, kinds=("cpu", "a100")), submitted(1, **asked)).expect()
    assert f"there is {said}" in summary(book)
    assert "there is no device" not in summary(play(trials=2), "s/1"), "it waits for its turn"


def test_devices_of_another_pool_do_not_count() -> None:
    book = Playbook().tell(PoolsConfigured((Pool("gold", ("m",)),)))
    book.tell(joined(1, node="m", kinds=("a100",)), joined(1)).tell(submitted(device_kind="a100"))
    assert "no device of kind a100 (there: cpu) in its pool default" in summary(book.expect())


def test_where_the_one_node_that_would_do_is_away_it_is_named_alone() -> None:
    book = Playbook().tell(joined(1, node="m", kinds=("a100",)), joined(1), NodeSilent("m", ""))
    book.tell(submitted(device_kind="a100")).expect()
    assert "no suitable device of its pool default can be used now (m is silent)" in summary(book)


def test_a_trial_on_a_node_that_is_silent_says_since_when_and_until_when_it_waits() -> None:
    book = play(trials=1).tell(joined(1, node="m"), started("s/0#1"))
    book.tell(FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "keras")).expect(
        "launch s/0#1 on n/0"
    )
    assert "heard" not in summary(book)
    book.at(10).tell(NodeSilent("n", "the stream ended")).at(28)
    left = round((LEASE.silence_seconds - 18) / 60)
    assert summary(book).endswith(
        f"; node n has not been heard from for 18 s and counts as lost in {left} min: then it goes"
        " on elsewhere"
    )
    book.at(10 + LEASE.silence_seconds - 7)
    assert "counts as lost in 7 s" in summary(book)


def test_so_does_one_that_is_parked_there() -> None:
    book = play(trials=2, policy=TURNS).tell(started("s/0#1")).at(5).tell(quantum_ended("s/0#1"))
    book.tell(parked("s/0#1", 9)).tell(started("s/1#1")).tell(NodeSilent("n", ""))
    book.tell(joined(1, node="m"))
    assert book.busy("m/0") is None, "what is parked waits for its node"
    assert "; it is parked on n, which has not been heard from for 0 s and counts" in summary(book)
    assert "; node n has not been heard" in summary(book, "s/1")
    assert "then it goes on elsewhere, from the beginning" in summary(book, "s/1"), "so far"


def test_nothing_is_foretold_while_no_node_is_heard_at_all() -> None:
    book = play(trials=1).tell(joined(1, node="m"), started("s/0#1"))
    book.tell(NodeSilent("n", ""), NodeSilent("m", "")).expect("launch s/0#1 on n/0").at(9)
    assert summary(book).endswith(
        "; node n has not been heard from for 9 s; no node is heard from, which may be the head"
        "'s own fault, so none counts as lost until one is back (if it is off: `hermesctl node"
        " lost n`)"
    )


def test_what_can_only_be_parked_says_so_when_it_exceeds_the_memory_for_it() -> None:
    """Trials that can be written down make room: they are none of those."""
    book = play(trials=4, devices=None, policy=TURNS)
    book.tell(replace(joined(1), parked_memory_bytes=3 << 29))
    kinds = (Fidelity.PARK_ONLY, Fidelity.EXACT, Fidelity.PARK_ONLY)
    for number, kind in enumerate(kinds):
        name = f"s/{number}#1"
        book.tell(started(name), FidelityKnown(run(name), kind, "", "torch"))
        assert "can only be parked" not in summary(book), "the budget is kept"
        book.at(book.now + 5).tell(quantum_ended(name))
        book.tell(replace(parked(name, 9), memory_bytes=1 << 30))
    words = (
        "; trials on n that can only be parked, this one among them, hold 2.0 GiB of its memory;"
        " parked trials may hold 1.5 GiB there"
    )
    assert [summary(book, f"s/{number}").endswith(words) for number in range(4)] == [
        True,
        False,
        True,
        False,
    ]
    known = [live(f"s/{number}#1", "parked") for number in range(3)]
    book.tell(replace(joined(1, live=known), parked_memory_bytes=2 << 30))
    assert book.trial().kept is not None
    assert "can only be parked" not in summary(book)
