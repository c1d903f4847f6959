"""What a finished trial has won is there however its extension ends."""

from __future__ import annotations

import pytest

from hermesd.core.events import Cancelled, Event, Extended, Retried
from hermesd.core.model import Phase, StopRule
from hermesd.head.ranking import Leaderboard
from tests.core.playbook import (
    Playbook,
    completed,
    crashed,
    killed,
    play,
    reported,
    started,
    written,
)

LONGER = Extended("s", ("s/0",), StopRule(max_steps=99), (("epochs", 2),), (("x",),), "r1")


def finished(*end: Event, **changes: object) -> Playbook:
    """A trial that ended at step 5 with a checkpoint there and a loss of 0.5."""
    book = play(max_failures=1, **changes).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [0.5], metrics=(("loss", 0.5),)))
    return book.tell(*end)


def rank(book: Playbook) -> int:
    return Leaderboard(book.state, book.state.studies["s"]).ranks["s/0"]


@pytest.mark.parametrize(
    ("book", "phase"),
    [
        (finished(completed("s/0#1", 5)), Phase.COMPLETED),
        (finished(written("s/0#1", 5), stop=StopRule(max_steps=5)), Phase.STOPPED),
    ],
)
def test_a_trial_that_cannot_be_extended_is_as_it_was(book: Playbook, phase: Phase) -> None:
    before = book.trial()
    assert (before.phase, rank(book)) == (phase, 1)
    book.tell(LONGER).tell(started("s/0#2", 5 if before.checkpoint else 0))
    book.tell(reported("s/0#2", 9, [7.0], metrics=(("loss", 7.0),)))
    book.tell(crashed("s/0#2", 9))
    after = book.trial()
    assert after.reason == "not extended: it broke (no tries left)"
    kept = ("phase", "spec", "step", "curve", "metrics", "checkpoint", "finished")
    assert {n: getattr(after, n) for n in kept} == {n: getattr(before, n) for n in kept}
    assert (rank(book), after.result) == (1, None)
    assert [each.detail for each in after.failures] == ["it broke"]


def test_an_extension_that_ends_is_the_new_result() -> None:
    book = finished(completed("s/0#1", 5)).tell(LONGER).tell(started("s/0#2"))
    book.tell(reported("s/0#2", 9, [0.25], metrics=(("loss", 0.25),))).tell(completed("s/0#2", 9))
    trial = book.trial()
    assert (trial.phase, trial.step, trial.result, trial.reason) == (Phase.COMPLETED, 9, None, "")
    assert trial.metrics["loss"].last == 0.25


def test_a_cancelled_extension_that_then_fails_is_as_it_was_before_both() -> None:
    book = finished(completed("s/0#1", 5)).tell(LONGER).tell(Cancelled(("s/0",), "r2"))
    book.tell(killed("s/0#2"))
    assert book.trial().phase is Phase.CANCELLED
    book.tell(Retried(("s/0",), "r3")).tell(started("s/0#3")).tell(crashed("s/0#3"))
    assert (book.trial().phase, rank(book)) == (Phase.COMPLETED, 1)


def test_a_failed_trial_that_fails_again_is_failed() -> None:
    book = finished(crashed("s/0#1", 5)).tell(Retried(("s/0",), "r1")).tell(crashed("s/0#2"))
    assert (book.trial().phase, rank(book)) == (Phase.FAILED, 0)
