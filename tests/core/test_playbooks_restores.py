"""The scheduler's conversations about checkpoints that trials cannot go on from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hermesd.core.commands import Launch
from hermesd.core.events import Cancelled, NodeLost, NodeSilent, Retried, RunFailed
from hermesd.core.failures import MOST_RESTORES, kept_parked
from hermesd.core.model import Phase
from hermesd.core.node.messages import assignment
from tests.core.playbook import (
    checkpointed,
    crashed,
    joined,
    killed,
    play,
    reported,
    run,
    started,
)


def unrestored(name: str, signature: str = "OtherProgram") -> RunFailed:
    return RunFailed(run(name), "restore", "other functions are run", signature, 0)


def test_a_checkpoint_that_cannot_be_used_is_followed_by_the_one_before() -> None:
    """The node says where the run began and from which checkpoint; the head takes its word."""
    book = play(devices=2).tell(started("s/0#1"), checkpointed("s/0#1", 40))
    book.tell(checkpointed("s/0#1", 80), reported("s/0#1", 90, [1.0]), killed("s/0#1", 90))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0 from s/0#1@80")
    book.tell(unrestored("s/0#2")).expect("launch s/0#3 on n/0 from s/0#1@80")
    book.tell(unrestored("s/0#3")).expect("launch s/0#4 on n/0 from s/0#1@80")
    assert book.trial().phase is Phase.STARTING, "the same error twice is not the program's"
    book.tell(started("s/0#4", 40), checkpointed("s/0#1", 40))
    assert (book.trial().step, book.trial().checkpoint.step) == (40, 40)
    assert book.trial().failures[-1].detail == (
        "it went on from step 40: its checkpoint of step 80 could not be used"
    )
    book.tell(checkpointed("s/0#4", 60), crashed("s/0#4", 61))
    book.expect("launch s/0#5 on n/1 from s/0#4@60")


def test_a_checkpoint_that_is_heard_of_late_was_not_the_one_launched_from() -> None:
    book = play().tell(started("s/0#1")).tell(killed("s/0#1"))
    book.tell(checkpointed("s/0#1", 8), started("s/0#2"))
    assert book.trial().failures == ()
    assert book.trial().checkpoint.step == 8


def test_a_checkpoint_that_lies_elsewhere_is_not_to_blame() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 8))
    book.tell(NodeSilent("n", "cut"), NodeLost("n"), joined(1, node="m"))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on m/0 from s/0#1@8")
    book.tell(started("s/0#2"))
    assert [failure.error_kind for failure in book.trial().failures] == ["lost"]


def test_without_a_checkpoint_that_can_be_used_a_trial_begins_anew() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 40), crashed("s/0#1", 41))
    book.tell(unrestored("s/0#2")).tell(unrestored("s/0#3")).tell(started("s/0#4"))
    assert (book.trial().step, book.trial().checkpoint) == (0, None)
    assert book.trial().reason == "it began anew: its checkpoint of step 40 could not be used"
    book.tell(crashed("s/0#4", 3)).expect(
        "launch s/0#1 on n/0",
        *(f"launch s/0#{attempt} on n/0 from s/0#1@40" for attempt in (2, 3, 4)),
        "launch s/0#5 on n/0",
    )


def test_a_trial_that_can_never_be_restored_does_not_begin_anew_for_ever() -> None:
    book = play()
    for attempt in range(1, 100):
        if book.trial().phase is not Phase.STARTING:
            break
        name = f"s/0#{attempt}"
        book.tell(started(name))
        if book.trial().phase is Phase.RUNNING:
            book.tell(checkpointed(name, 40))
        book.tell(killed(name))
    assert book.trial().phase is Phase.FAILED
    assert book.trial().reason == (
        "it began anew: its checkpoint of step 40 could not be used (too often)"
    )
    assert attempt == MOST_RESTORES + 2


def test_a_trial_whose_restores_fail_alike_is_kept_parked_from_then_on() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 40), checkpointed("s/0#1", 80))
    book.tell(killed("s/0#1", 80)).tell(unrestored("s/0#2"))
    assert kept_parked(book.trial()) == ""
    book.tell(unrestored("s/0#3"))
    why = "kept parked rather than checkpointed: it failed to restore twice in the same way"
    assert kept_parked(book.trial()) == f"{why}: other functions are run"
    (launch,) = book.scheduler.outstanding("n")
    assert isinstance(launch, Launch)
    told = assignment(launch, book.state.studies["s"], book.trial())
    assert told.kept_parked == kept_parked(book.trial())
    book.tell(started("s/0#4", 0), crashed("s/0#4", 9, "ValueError"))
    assert kept_parked(book.trial()), "whatever else happens to it"
    book.tell(Cancelled(("s/0",), "r1"), killed("s/0#5", 0), Retried(("s/0",), "r2"))
    assert kept_parked(book.trial()) == "", "whoever tries it again may have mended it"


@pytest.mark.parametrize("signatures", [("one", "another"), ("", "")])
def test_restores_that_fail_in_other_ways_say_nothing_of_the_next(
    signatures: Sequence[str],
) -> None:
    """A file that is damaged has no signature: it is no error of the program's own."""
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 80), killed("s/0#1", 80))
    for attempt, signature in enumerate(signatures, 2):
        book.tell(unrestored(f"s/0#{attempt}", signature))
    assert kept_parked(book.trial()) == ""
