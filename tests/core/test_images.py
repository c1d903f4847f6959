"""A trial whose checkpoint is an image of processes goes on where that can be brought back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.bounds import implausible
from hermesd.core.events import FidelityKnown, NodeDrained, NodeJoined, NodeUndrained, RunSuspended
from hermesd.core.fold.checkpoints import loadable
from hermesd.core.model import Fidelity
from tests.core.playbook import Playbook, joined, play, run, started, written

FEATURES = ("x86_64", "libc", "avx")


def having(node: str, *features: str) -> NodeJoined:
    return replace(joined(1, node=node), image_features=features)


def _suspended() -> RunSuspended:
    event = written("s/0#1", 5)
    assert event.checkpoint is not None
    return replace(event, checkpoint=replace(event.checkpoint, image_of="n", why="it is park-only"))


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
