"""What is taken from a trial that is alike is what would have been found of the trial itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from hermesd.core.decide.matching import Openings
from hermesd.core.decide.queue import Queues
from hermesd.core.model import Plugin, RunId, Tier
from hermesd.core.placement import make_placement
from hermesd.core.trial import Exclusion, Failure, Kept, Quarantined, Trial, Use
from hermesd.policy import make_policy
from tests.core.playbook import Playbook, checkpoint, joined, submitted

DATA = "/data"
SMALL, LARGE = 1 << 30, 1 << 34
STUDIES = {"s": "free", "t": "homes"}
OPEN = [(), ("n/0",), ("n/1",), ("n/2",), ("m/1",), ("n/0", "m/2"), ("n/1", "n/2")]
PLACES = [None, "n", "n/1"]

KEPT = [
    None,
    Kept(Tier.CHECKPOINT, RunId("s/0", 1), "n/1"),
    *(Kept(Tier.PARK, RunId("s/0", 1), device) for device in ("n/0", "n/1", "m/1")),
]
HOMES = [None, "n/1"]
USES = [Use(), Use(memory_bytes=SMALL + 1), Use(device_memory_bytes=SMALL + 1)]
FAILED = (Failure(1, "n/1", "exception", "", "", 0, 0.0),)
MARKS: list[dict[str, Any]] = [
    {},
    {"failures": FAILED},
    {"lent": (replace(FAILED[0], error_kind="out_of_memory"),)},
    {"checkpoint": checkpoint("s/0#1", 1)},
    {"checkpoint": replace(checkpoint("s/0#1", 1), image_of="m")},
]


def cluster() -> Playbook:
    """Two studies of a trial each, and two nodes, each of a slot of cores and two GPUs."""
    book = Playbook()
    for name, placement in STUDIES.items():
        book.tell(submitted(1, name, placement=Plugin(placement), required_paths=(DATA,)))
    for node in "nm":
        made = joined(3, node, memory=(SMALL, SMALL, LARGE))
        slot, *gpus = made.devices
        book.tell(replace(made, devices=(replace(slot, cores=(0,)), *gpus)))
    return book


def every_sort(trial: Trial) -> Iterator[Trial]:
    """The trial as it may have come to be, in all ways that may decide where it can go on."""
    for kept, home, use, marks in product(KEPT, HOMES, USES, MARKS):
        yield replace(trial, kept=kept, home=home, use=use, **marks)


@pytest.mark.parametrize("lacks", [None, "n", "m"])
@pytest.mark.parametrize("excluded", PLACES)
@pytest.mark.parametrize("suspect", PLACES)
def test_trials_that_are_alike_may_have_the_same_devices(
    suspect: str | None, excluded: str | None, lacks: str | None
) -> None:
    state = cluster().state
    for node in "nm":
        state.sights[node] = {DATA: "no such file" if node == lacks else ""}
    if suspect:
        state.quarantined[suspect] = Quarantined(9.0, "three failed there")
    if excluded:
        state.excluded["s", excluded] = Exclusion("s/0", "it failed")
    queues = Queues(state, make_policy, make_placement, {})
    trials = [each for trial in state.trials.values() for each in every_sort(trial)]
    for devices in OPEN:
        openings = Openings(state, queues, devices)
        found = [openings.suit(trial) for trial in trials]
        assert found == [any(queues.fits(t, device) for device in devices) for t in trials]
