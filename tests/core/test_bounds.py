"""What no node says is told from what any may say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hermesd.core.bounds import LARGEST_ATTEMPT, LARGEST_COUNT, directory_of, implausible
from hermesd.core.events import (
    Checkpointed,
    NodeJoined,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    Spoilt,
)
from hermesd.core.losses import Chunk
from hermesd.core.model import Device, LiveRun, RunId, Tier
from tests.core.playbook import checkpoint, joined, live, reported, run

RUN = run("s/0#1")
SAVED = checkpoint("s/0#1", 5)
PLAUSIBLE = (
    RunStarted(RUN, 5, 0.1, 100),
    reported("s/0#1", 5, [1.0, math.inf], memory_bytes=LARGEST_COUNT, examples=0),
    Checkpointed(RUN, SAVED),
    RunSuspended(RUN, Tier.CHECKPOINT, 5, replace(SAVED, nodes=()), 0.1),
    RunCompleted(RunId("s/0", LARGEST_ATTEMPT), LARGEST_COUNT),
    RunFailed(RUN, "lost", "", "", 0, LARGEST_ATTEMPT),
    Spoilt("n", "s/0", SAVED.id, "torn", SAVED),
    joined(2, live=[live("s/0#1", step=9)]),
)


@pytest.mark.parametrize("event", PLAUSIBLE, ids=lambda event: type(event).__name__)
def test_what_a_node_may_say(event: object) -> None:
    assert implausible("n", event) == ""


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (RunStarted(RUN, -1, 0.1), "RunStarted.step: -1"),
        (RunStarted(RUN, 0, math.nan), "RunStarted.start_seconds: nan"),
        (RunStarted(RUN, 0, 0.1, LARGEST_COUNT + 1), "RunStarted.planned_steps"),
        (RunCompleted(RunId("s/0", LARGEST_ATTEMPT + 1), 0), "RunCompleted.run.attempt"),
        (RunFailed(RUN, "lost", "", "", 0, 2**31 - 1), "RunFailed.newest_attempt: 2147483647"),
        (reported("s/0#1", 5, [1.0], busy_seconds=-math.inf), "Reported.busy_seconds: -inf"),
        (reported("s/0#1", 5, [1.0], examples=2**63 - 1), "Reported.examples"),
        (Reported(RUN, 5, (Chunk(0, 2**62, 1, 0.0, 0.0, 0.0),)), "Reported.chunks: 46116860"),
        (Checkpointed(RUN, replace(SAVED, size_bytes=2**62)), "checkpoint.size_bytes"),
        (Checkpointed(RUN, replace(SAVED, attempt=2**31 - 1)), "checkpoint.attempt"),
        (Checkpointed(RUN, replace(SAVED, id="s/0@../../x")), "s/0@../../x"),
        (Checkpointed(RUN, replace(SAVED, nodes=("n", "ghost"))), "expected n alone"),
        (RunCompleted(RUN, 5, replace(SAVED, step=-9)), "RunCompleted.checkpoint.step: -9"),
        (Spoilt("n", "s/0", "x", "torn", replace(SAVED, id="/etc")), "Spoilt.instead.id"),
        (joined(live=[LiveRun(RunId("s/0", 2**31 - 1), "running", (), 0)]), "run.attempt"),
        (joined(live=[live("s/0#1", step=2**63 - 1)]), "NodeJoined.live.step"),
        (NodeJoined("n", "b", (Device("n/0", "n", "cpu", -1),), ()), "devices.memory_bytes: -1"),
    ],
    ids=str,
)
def test_what_no_node_says(event: object, why: str) -> None:
    assert why in implausible("n", event)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/a", "a\0", "a\n", ".hidden", "a" * 129])
def test_a_checkpoint_is_named_like_a_directory(name: str) -> None:
    assert directory_of(f"s/0@{name}") is None
    assert directory_of("s/0@a3-t4711") == "a3-t4711"
    assert directory_of("end-s10") == "end-s10"
