"""The judges of the cluster's tests see what they are there to see: a double run, a lost copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.core.commands import Launch
from hermesd.core.events import (
    Checkpointed,
    Copied,
    NodeJoined,
    NodeLost,
    ParkLost,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Checkpoint, Quantum, RunId, Tier
from hermesd.record import Entry
from tests.cluster.book import Book
from tests.cluster.ledger import Ledger


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book")


def sign(book: Book, *steps: tuple[str, int]) -> None:
    lines = "".join(f"{process} {step} {at}\n" for at, (process, step) in enumerate(steps))
    (book.folder / "0.01.steps").write_text(lines)


def test_a_trial_that_moved_and_repeated_steps_is_no_double_run(book: Book) -> None:
    sign(book, ("one", 1), ("one", 2), ("one", 3), ("two", 2), ("two", 3), ("two", 4), ("x", 5))
    book.check()
    assert book.lost() == [2]


def test_one_that_trains_while_another_does_is_seen(book: Book) -> None:
    sign(book, ("one", 1), ("one", 2), ("two", 2), ("one", 3))
    with pytest.raises(AssertionError, match="one went on after another"):
        book.check()


def test_two_that_take_a_step_at_the_same_moment_are_seen(book: Book) -> None:
    sign(book, ("one", 1), ("one", 2))
    (book.folder / "0.01.twice").touch()
    with pytest.raises(AssertionError, match="twice at once"):
        book.check()


def test_one_that_trains_on_when_its_lease_is_over_is_seen_though_no_other_has_begun(
    book: Book,
) -> None:
    sign(book, ("one", 1), ("one", 2), ("one", 3))
    assert (book.writer(0.01), book.writer(0.02)) == ("one", "")
    book.check_ended({"one"}, 2.0)
    book.check_ended({"two"}, 1.0)
    with pytest.raises(AssertionError, match="step 3 came after the end of its lease"):
        book.check_ended({"one"}, 1.0)


def test_a_step_that_is_left_out_is_seen(book: Book) -> None:
    sign(book, ("one", 1), ("one", 3))
    with pytest.raises(AssertionError, match="left out"):
        book.check()


def launch(attempt: int, node: str, parked: int | None = None) -> Launch:
    kept = None if parked is None else RunId("s/1", parked)
    return Launch(RunId("s/1", attempt), (f"{node}/cpu0",), Quantum(), "", kept)


def started(attempt: int, step: int) -> RunStarted:
    return RunStarted(RunId("s/1", attempt), step, 0.0)


def saved(attempt: int, step: int, node: str) -> Checkpointed:
    run = RunId("s/1", attempt)
    return Checkpointed(run, Checkpoint(f"s/1@{step}", "s/1", attempt, step, "", 1, (node,)))


def parked(attempt: int, step: int) -> RunSuspended:
    return RunSuspended(RunId("s/1", attempt), Tier.PARK, step, None, 0.0)


# A run on node a with checkpoints of steps 20 and 40, the first of which b has as well.
RAN: list[Entry] = [
    launch(1, "a"), started(1, 0),
    saved(1, 20, "a"), Copied("b", "s/1", "s/1@20"), saved(1, 40, "a"),
]  # fmt: skip
FAILED = RunFailed(RunId("s/1", 1), "lost", "", "", 40)
LOST = NodeLost("a")
BACK = NodeJoined("a", "boot", (), ())


@pytest.mark.parametrize(
    ("then", "safe"),
    [
        pytest.param([LOST, launch(2, "b")], 20, id="its node is lost, and the copy is left"),
        pytest.param([FAILED, launch(2, "a")], 40, id="its host dies, and the disk is left"),
        pytest.param([FAILED, launch(2, "b")], 40, id="it goes to another node all the same"),
        pytest.param([LOST, BACK, launch(2, "b")], 40, id="the node is back before it goes on"),
        pytest.param([LOST, saved(1, 60, "a"), launch(2, "b")], 20, id="what comes too late"),
        pytest.param([parked(1, 50), launch(2, "a", parked=1)], 50, id="it was parked"),
        pytest.param(
            [parked(1, 50), ParkLost(RunId("s/1", 1), ""), launch(2, "a")], 40, id="no more"
        ),
        pytest.param([LOST, NodeLost("b"), launch(2, "c")], 0, id="nobody has anything"),
    ],
)
def test_a_trial_that_goes_on_from_less_than_is_safe_is_seen(then: list[Entry], safe: int) -> None:
    assert Ledger([*RAN, *then, started(2, safe)]).complaints == []
    if safe:
        assert Ledger([*RAN, *then, started(2, safe - 1)]).complaints == [
            f"s/1#2 began at {safe - 1}, {safe} was safe"
        ]


def test_who_goes_on_from_a_copy_is_counted() -> None:
    assert Ledger([*RAN, LOST, launch(2, "b"), started(2, 20)]).rescued == [RunId("s/1", 2)]
    assert Ledger([*RAN, FAILED, launch(2, "b"), started(2, 40)]).rescued == []
    assert Ledger([*RAN, LOST, launch(2, "b"), started(2, 0)]).rescued == []


def test_what_was_trained_between_checkpoints_is_counted() -> None:
    assert Ledger(RAN).trained == [20]
