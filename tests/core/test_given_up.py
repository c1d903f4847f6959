"""Nodes that the head gives up, and those that it does not: when, and what of them still counts."""

from __future__ import annotations

from hermesd.core.events import NodeSilent
from tests.core.playbook import LEASE, checkpointed, joined, live, play, reported, started

FOREVER = LEASE.silence_seconds


def test_a_head_that_hears_nobody_is_cut_off_itself() -> None:
    book = play().tell(joined(1, node="m"), joined(1, node="k"), started("s/0#1"))

    def lost() -> list[str]:
        return [node.id for node in book.state.nodes.values() if node.lost]

    book.tell(*(NodeSilent(node, "cut") for node in "nmk")).at(2 * FOREVER)
    assert lost() == []
    book.tell(joined(1, node="m")).at(3 * FOREVER - 1)
    assert lost() == [], "the others are on their way"
    book.tell(joined(1, live=[live("s/0#1")])).at(3 * FOREVER)
    assert lost() == ["k"]
    book.expect("launch s/0#1 on n/0")


def test_the_only_node_is_lost_like_any_other() -> None:
    book = play().tell(started("s/0#1")).tell(NodeSilent("n", "cut")).at(FOREVER)
    book.tell(joined(1, node="m")).expect("launch s/0#1 on n/0", "launch s/0#2 on m/0")


def test_a_checkpoint_beyond_what_was_heard_of_a_node_that_was_given_up_is_not_used() -> None:
    book = play().tell(joined(1, node="m")).tell(started("s/0#1"), reported("s/0#1", 9, [0.5] * 9))
    book.tell(NodeSilent("n", "cut")).at(FOREVER)
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on m/0")
    book.tell(joined(1)).refuses(reported("s/0#1", 20, [0.4] * 11), "present run")
    book.tell(checkpointed("s/0#1", 20))
    assert book.trial().checkpoint is None, "of steps 10 to 20 there are no losses"
    book.tell(checkpointed("s/0#1", 8))
    assert book.trial().checkpoint.step == 8
