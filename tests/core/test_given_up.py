"""Nodes that the head gives up, and those that it does not: when, and what of them still counts."""

from __future__ import annotations

from hermesd.core.events import NodeSilent
from hermesd.core.model import Phase
from tests.core.playbook import (
    LEASE,
    checkpointed,
    completed,
    joined,
    live,
    play,
    reported,
    started,
)

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


def test_a_node_that_is_back_before_its_trial_goes_on_has_lost_nothing_that_it_tells() -> None:
    book = play().tell(started("s/0#1"))
    book.tell(reported("s/0#1", 9, [0.5] * 8 + [0.1], metrics=(("loss", 0.1),)))
    book.tell(checkpointed("s/0#1", 5), NodeSilent("n", "cut")).at(FOREVER)
    assert (book.trial().step, book.trial().metrics) == (5, {})
    book.tell(joined(0))  # its device is for others now
    book.tell(checkpointed("s/0#1", 15))
    assert book.trial().step == 5, "of steps 10 to 15 there are no losses yet"
    late = reported("s/0#1", 20, [0.2] * 11, metrics=(("loss", 0.2),))
    book.tell(late).refuses(late, "reported before")
    book.tell(checkpointed("s/0#1", 15))
    trial = book.trial()
    assert (trial.step, trial.checkpoint.step, trial.curve[-1].last_step) == (15, 15, 15)
    assert (trial.metrics["loss"].low, trial.metrics["loss"].low_step) == (0.1, 9)
    book.tell(joined(1, node="m")).expect(
        "launch s/0#1 on n/0", "launch s/0#2 on m/0 from s/0#1@15"
    )
    book.tell(checkpointed("s/0#1", 20), started("s/0#2", 15))
    assert book.trial().abandoned is None
    book.refuses(reported("s/0#1", 30, [0.2] * 10), "present run")


def test_a_run_that_was_given_up_and_had_ended_has_completed() -> None:
    book = play().tell(started("s/0#1"), reported("s/0#1", 9, [0.5] * 9))
    book.tell(NodeSilent("n", "cut")).at(FOREVER)
    assert book.trial().step == 0
    book.tell(joined(0)).refuses(completed("s/0#1", 20), "not heard of")
    book.tell(reported("s/0#1", 20, [0.25] * 11, metrics=(("loss", 0.25),)), completed("s/0#1", 20))
    trial = book.trial()
    assert (trial.phase, trial.step, trial.loss) == (Phase.COMPLETED, 20, 0.25)
    book.tell(joined(1, node="m")).expect("launch s/0#1 on n/0")


def test_a_checkpoint_beyond_what_was_heard_of_a_node_that_was_given_up_is_not_used() -> None:
    book = play().tell(joined(1, node="m")).tell(started("s/0#1"), reported("s/0#1", 9, [0.5] * 9))
    book.tell(NodeSilent("n", "cut")).at(FOREVER)
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on m/0")
    book.tell(joined(1)).refuses(reported("s/0#1", 20, [0.4] * 11), "present run")
    book.tell(checkpointed("s/0#1", 20))
    assert book.trial().checkpoint is None, "of steps 10 to 20 there are no losses"
    book.tell(checkpointed("s/0#1", 8))
    assert book.trial().checkpoint.step == 8
