"""Tags and notes: for people, kept with their trials, and nothing is decided by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
TWO = {"lr": {"values": [1.0, 2.0]}}


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as up:
        await up.submit(spec(TWO))
        yield up


def marks(*trials: str, **fields: Any) -> pb.MarkTrialsRequest:
    where = pb.Selection(trials=trials) if trials else pb.Selection(study="digits")
    return pb.MarkTrialsRequest(request_id=request_id(), selection=where, **fields)


async def test_tags_and_a_note_stay_with_their_trial_through_its_life(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await head.submit(spec(TWO))
        node = Node(head)
        await node.hello()
        launch = await node.start()
        request = marks(launch.trial, add_tags=["good", "keep", "good"], note="see\nfig. 3")
        assert (await head.control.MarkTrials(request)).trials == [launch.trial]
        await node.complete(launch)
        await node.settle()
        await head.control.MarkTrials(marks(add_tags=["both"], remove_tags=["keep"]))
        await head.control.MarkTrials(request)  # a retry
        node.call.cancel()
    async with world(tmp_path) as head:
        done, other = await head.trial("digits/1"), await head.trial("digits/2")
        assert done.state == types.TRIAL_STATE_COMPLETED
        assert (list(done.tags), done.note) == (["good", "both"], "see\nfig. 3")
        assert (list(other.tags), other.note) == (["both"], "")
        await head.control.MarkTrials(marks("digits/1", note=""))
        assert (await head.trial("digits/1")).note == ""


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (marks(), "expected a tag to give or to take, or a note"),
        (marks(add_tags=["a b"]), "add_tags[0] = a b: expected 1 to 64 printable characters"),
        (marks(add_tags=["ok", "-x"]), "add_tags[1] = -x: expected"),
        (marks(add_tags=["a/b"]), "without spaces, commas and slashes"),
        (marks(add_tags=["a\x1b"]), "add_tags[0]"),
        (marks(add_tags=["x" * 65]), "add_tags[0]"),
        (marks(add_tags=[f"t{n}" for n in range(33)]), "at most 32 tags of a trial; digits/1"),
        (marks(note="\x1b[2J"), "note = \\x1b[2J: expected at most 4000 printable"),
        (marks("digits/9", add_tags=["a"]), "digits has trials 1 to 2"),
    ],
)
async def test_what_will_not_do_is_refused_whole(
    head: World, request_: pb.MarkTrialsRequest, words: str
) -> None:
    code, said = await status(head.control.MarkTrials(request_))
    assert code in (CODE.INVALID_ARGUMENT, CODE.NOT_FOUND)
    assert words in said
    assert not any(trial.tags or trial.note for trial in head.state.trials.values())
