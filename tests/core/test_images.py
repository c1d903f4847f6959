"""A trial whose checkpoint is an image of processes goes on where that can be brought back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.bounds import implausible
from hermesd.core.commands import Quarantine
from hermesd.core.events import (
    FidelityKnown,
    NodeDrained,
    NodeJoined,
    NodeSilent,
    NodeUndrained,
    Paused,
    RunFailed,
    RunSuspended,
    Unpaused,
)
from hermesd.core.fold.checkpoints import loadable
from hermesd.core.model import Fidelity, OnThirdFailure, Phase, RetryAction, RetryRule
from hermesd.core.resume_points import hopeless_image, image_patience_seconds
from tests.core.playbook import (
    LEASE,
    Playbook,
    checkpointed,
    completed,
    joined,
    play,
    run,
    started,
    submitted,
    written,
)

FEATURES = ("x86_64", "libc", "avx")


def having(node: str, *features: str) -> NodeJoined:
    return replace(joined(1, node=node), image_features=features)


def _suspended() -> RunSuspended:
    event = written("s/0#1", 5)
    assert event.checkpoint is not None
    return replace(event, checkpoint=replace(event.checkpoint, image_of="n", why="it is park-only"))


def _why(book: Playbook) -> str:
    answer = book.scheduler.explain("s/0", book.now)
    return f"{answer.summary} {answer.last_decision}"


@pytest.fixture
def book() -> Playbook:
    """Its node, which is drained, has written an image."""
    book = play(1, None).tell(having("n", *FEATURES)).expect("launch s/0#1 on n/0")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, NodeDrained("n", "r1")).expect("suspend s/0#1 by checkpoint")
    return book.tell(_suspended()).expect()


def test_it_goes_on_where_all_is_that_its_node_had(book: Playbook) -> None:
    book.tell(having("m", *FEATURES[:-1])).expect()
    book.tell(having("o", *FEATURES, "avx512")).expect("launch s/0#2 on o/0 from s/0#1@5")


def test_it_waits_for_its_node_where_no_other_makes_images(book: Playbook) -> None:
    book.tell(joined(1, node="m")).expect()
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#2 on n/0 from s/0#1@5")


def test_why_says_what_is_lacking_and_in_which_form_it_is_kept(book: Playbook) -> None:
    book.tell(having("m", *FEATURES[:-1]), joined(1, node="o"))
    answer = book.scheduler.explain("s/0", 0.0)
    assert "it is kept as an image of its processes: it is park-only" in answer.summary
    assert {each.place: each.reason for each in answer.left_out} == {
        "m": "its checkpoint is an image of its processes on n, and the node lacks avx",
        "o": "its checkpoint is an image of its processes, and the node makes none",
    }


# An image that no node fits.


@pytest.fixture
def older(book: Playbook) -> Playbook:
    """Its node, which is drained, has written an image after a checkpoint of the framework."""
    book = play(1, None).tell(having("n", *FEATURES)).expect("launch s/0#1 on n/0")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, checkpointed("s/0#1", 2)).expect()
    book.tell(NodeDrained("n", "r1")).expect("suspend s/0#1 by checkpoint")
    return book.tell(_suspended()).expect()


def test_it_goes_on_from_the_checkpoint_before_once_no_node_fits_for_long(older: Playbook) -> None:
    older.tell(joined(1, node="m")).expect()
    expected = "if its image fits no node in 60 s, it goes on from its checkpoint of step 2"
    assert expected in _why(older)
    older.at(59).expect().at(60).expect("launch s/0#2 on m/0 from s/0#1@2")
    assert "back at step 2: no node can bring back the image of its processes" in _why(older)
    assert older.trial().step == 2
    older.tell(started("s/0#2", 2), checkpointed("s/0#2", 4)).expect()
    checkpoint = older.trial().checkpoint
    assert checkpoint is not None
    assert checkpoint.step == 4


def test_it_waits_as_long_as_what_is_lost_takes_to_be_trained_again(older: Playbook) -> None:
    trial = older.trial()
    slow = replace(trial, step_seconds={"cpu": 30.0})
    assert image_patience_seconds(trial) == 60.0
    assert image_patience_seconds(slow) == 90.0


def test_one_that_a_busy_node_fits_waits_for_it() -> None:
    book = play(2, None).tell(having("n", *FEATURES), having("o", *FEATURES))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on o/0")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, started("s/1#1"), checkpointed("s/0#1", 2)).expect()
    book.tell(NodeDrained("n", "r1")).expect("suspend s/0#1 by checkpoint")
    book.tell(_suspended(), joined(1, node="m")).expect().at(1000).expect()


def test_what_is_due_is_not_refused_as_a_node_is_lost_that_ends_the_study_with_it() -> None:
    rules = (RetryRule("node o was lost", RetryAction.NO_RETRY),)
    book = play(2, None, retry_rules=rules, on_third_failure=OnThirdFailure.STUDY)
    book.tell(having("n", *FEATURES), joined(1, node="o"))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on o/0")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, started("s/1#1"), checkpointed("s/0#1", 2))
    book.tell(NodeDrained("n", "r1"), _suspended(), NodeSilent("o", "cut"))
    book.at(LEASE.silence_seconds)
    assert (book.trial().phase, book.trial("s/1").phase) == (Phase.STOPPED, Phase.FAILED)


@pytest.mark.parametrize("place", ["o", "o/0"])
def test_one_that_only_a_busy_node_in_quarantine_fits_waits_no_longer(place: str) -> None:
    book = play(2, None).tell(having("n", *FEATURES), having("o", *FEATURES))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on o/0")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, started("s/1#1"), checkpointed("s/0#1", 2)).expect()
    book.tell(NodeDrained("n", "r1")).expect("suspend s/0#1 by checkpoint")
    quarantine = Quarantine(place, 1e6, "it broke")
    book.state.apply(quarantine, book.now)
    book.entries.append((quarantine, book.now))
    book.tell(_suspended(), joined(1, node="m")).expect()
    book.at(59).expect().at(60).expect("launch s/0#2 on m/0 from s/0#1@2")


def test_a_node_that_fits_is_waited_for_as_long_as_it_is_not_lost(older: Playbook) -> None:
    older.tell(NodeUndrained("n", "r2")).expect("launch s/0#2 on n/0 from s/0#1@5")
    known = older.trial()
    assert known.checkpoint is not None
    assert known.checkpoint.image_of == "n"
    assert known.before_image is not None


def test_a_node_that_could_not_bring_it_back_is_asked_no_more(book: Playbook) -> None:
    book.tell(having("m", *FEATURES)).expect("launch s/0#2 on m/0 from s/0#1@5")
    why = "its image cannot be brought back: this machine lacks /usr/bin/python3 of 9 bytes"
    book.tell(RunFailed(run("s/0#2"), "unfit", why, "", 5)).expect()
    assert {each.place: each.reason for each in book.scheduler.explain("s/0", 0.0).left_out} == {
        "m": why
    }
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#3 on n/0 from s/0#1@5")


def test_one_without_a_checkpoint_before_begins_anew_once_no_node_fits_for_long(
    book: Playbook,
) -> None:
    book.tell(joined(1, node="m")).expect()
    assert "if its image fits no node in 60 s, it goes on from the beginning" in _why(book)
    book.at(59).expect().at(60).expect("launch s/0#2 on m/0", "drop s/0 on n")
    trial = book.trial()
    assert (trial.step, trial.checkpoint) == (0, None)
    assert "from the beginning: no node can bring back the image of its processes" in _why(book)
    book.tell(started("s/0#2"), checkpointed("s/0#2", 1)).expect()
    known = book.trial().checkpoint
    assert known is not None
    assert (known.step, known.image_of) == (1, "")


def test_one_without_a_checkpoint_before_waits_as_long_as_it_has_trained(book: Playbook) -> None:
    trial = book.trial()
    longer = replace(trial, use=replace(trial.use, busy_seconds=7_200.0))
    assert image_patience_seconds(longer) == 7_200.0


def test_an_image_is_not_given_up_while_no_node_could_take_the_trial(older: Playbook) -> None:
    older.at(10_000).expect()
    older.tell(NodeUndrained("n", "r2")).expect("launch s/0#2 on n/0 from s/0#1@5")


def test_an_image_is_not_given_up_for_a_node_that_could_not_take_the_trial_either() -> None:
    book = play(1, None, memory_bytes=1 << 30).tell(having("n", *FEATURES))
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, NodeDrained("n", "r1")).tell(_suspended())
    book.tell(joined(1, node="m", memory=[1 << 29])).heard()
    book.at(10_000).expect()
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#2 on n/0 from s/0#1@5")


def test_it_is_waited_for_from_when_no_node_fits_and_not_from_when_it_was_written(
    book: Playbook,
) -> None:
    book.tell(joined(1, node="o"), submitted(1, "t")).expect("launch t/0#1 on o/0")
    book.tell(NodeUndrained("n", "r2"), Paused(("s/0",), "r3")).expect().at(5_000).expect()
    book.tell(NodeDrained("n", "r4"), Unpaused(("s/0",), "r5"), completed("t/0#1")).expect()
    book.at(5_059).expect().at(5_060).expect("launch s/0#2 on o/0", "drop s/0 on n")


def test_what_began_from_a_checkpoint_of_another_waits_for_a_node_that_its_image_fits(
    book: Playbook,
) -> None:
    book.tell(joined(1, node="m"))
    trial = book.trial()
    assert hopeless_image(book.state, trial)
    assert not hopeless_image(book.state, replace(trial, forked=trial.checkpoint))


def test_people_are_given_what_they_can_load(book: Playbook) -> None:
    image = book.trial().checkpoint
    assert image is not None
    assert loadable(book.trial()) == image
    before = replace(image, id="s/0@a1-s3", step=3, image_of="")
    assert loadable(replace(book.trial(), copied=before)) == before
    after = replace(before, step=9)
    assert loadable(replace(book.trial(), checkpoint=after, copied=image)) == after


def test_a_node_speaks_only_of_its_own_images() -> None:
    event = _suspended()
    assert event.checkpoint is not None
    foreign = replace(event, checkpoint=replace(event.checkpoint, image_of="m"))
    assert implausible("n", event) == ""
    assert implausible("n", foreign) == "RunSuspended.checkpoint.image_of: 'm', expected n"


def test_what_was_on_a_gpu_goes_back_to_that_one_alone() -> None:
    two = replace(joined(2, node="n"), image_features=FEATURES)
    book = play(2, None).tell(two).expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    known = FidelityKnown(run("s/0#1"), Fidelity.EXACT, "images", "none")
    book.tell(started("s/0#1"), known, started("s/1#1"), NodeDrained("n", "r1"))
    event = _suspended()
    assert event.checkpoint is not None
    saved = replace(event.checkpoint, image_device="n/0")
    book.tell(replace(event, checkpoint=saved), having("m", *FEATURES))
    assert {each.place: each.reason for each in book.scheduler.explain("s/0", 0.0).left_out} == {
        "m": "its checkpoint is an image of its processes, with what it had on n/0",
        "n/1": "its checkpoint is an image of its processes, which goes back to n/0",
    }


def test_a_node_speaks_only_of_its_own_gpus() -> None:
    event = _suspended()
    assert event.checkpoint is not None
    foreign = replace(event, checkpoint=replace(event.checkpoint, image_device="m/gpu0"))
    assert implausible("n", foreign) == (
        "RunSuspended.checkpoint.image_device: 'm/gpu0', expected one of n, of an image"
    )
