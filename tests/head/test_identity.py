"""What a node says of another study that had the name of one of ours is dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermesd.core.model import Phase
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from tests.head.heads import Node, World, world
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}


async def test_an_outcome_of_another_study_of_that_name_changes_nothing(head: World) -> None:
    await head.submit(spec(ONE))
    node = Node(head)
    await node.hello()
    launch = await node.start()
    assert launch.identity
    done = node_pb2.RunCompleted(trial=launch.trial, attempt=launch.attempt, step=100)
    await node.say(run_completed=done, identity="theirs")
    await node.settle()
    assert head.state.trials[launch.trial].phase is Phase.RUNNING
    await node.say(run_completed=done, identity=launch.identity)
    await node.settle()
    assert head.state.trials[launch.trial].phase is Phase.COMPLETED
    node.call.cancel()


async def test_no_two_studies_are_one(tmp_path: Path) -> None:
    said = set()
    for name in ("a", "b"):
        async with world(tmp_path / name) as head:
            await head.submit(spec(ONE))
            said.add(head.state.studies["digits"].identity)
    assert len(said) == 2


async def gone(head: World) -> str:
    """The identity of a study `digits` that was submitted and removed."""
    await head.submit(spec(ONE))
    identity = head.state.studies["digits"].identity
    trials = pb.StopTrialsRequest(request_id="s", selection=pb.Selection(study="digits"))
    await head.control.StopTrials(trials)
    await head.control.RemoveStudy(pb.RemoveStudyRequest(request_id="r", study="digits"))
    return str(identity)


def held(*trials: tuple[str, str]) -> node_pb2.AttachRequest:
    named = [node_pb2.Holding(trial=trial, identity=identity) for trial, identity in trials]
    return node_pb2.AttachRequest(holdings=node_pb2.Holdings(trials=named))


async def test_a_node_forgets_what_was_removed_whenever_it_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        identity = await gone(head)
        await head.submit(spec(ONE, name="other"))
        there = head.state.studies["other"].identity
    # The head that removed it is gone, and with it what it may not have said.
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await node.call.write(
            held(
                ("digits/1", identity),
                ("digits/2", "of another head"),
                ("unknown/1", identity),
                ("other/1", there),
                ("other/2", "of another head"),
            )
        )
        assert list((await node.expect("forget")).forget.trials) == ["digits/1"]
        node.call.cancel()


async def test_nothing_is_forgotten_before_its_removal_is_on_the_disk(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await head.submit(spec(ONE))
    identity = head.state.studies["digits"].identity
    trials = pb.StopTrialsRequest(request_id="s", selection=pb.Selection(study="digits"))
    await head.control.StopTrials(trials)
    node = Node(head)
    await node.hello()
    journal, gate, written = head.running.head.journal, asyncio.Event(), asyncio.Event()
    append = journal.append

    async def slow(*arguments: Any) -> int:
        if "digits" in head.state.studies:
            return await append(*arguments)
        seq = await append(*arguments)
        written.set()
        await gate.wait()
        return seq

    monkeypatch.setattr(journal, "append", slow)
    async with asyncio.TaskGroup() as tasks:
        removal = pb.RemoveStudyRequest(request_id="r", study="digits")
        tasks.create_task(_removed(head, removal))
        await written.wait()
        await node.call.write(held(("digits/1", identity)))
        await node.beat()
        # The lease is answered at once; what wants the disk is not.
        await node.lease()
        assert not [each for each in node.unread if each.HasField("forget")]
        gate.set()
        assert list((await node.expect("forget")).forget.trials) == ["digits/1"]
    node.call.cancel()


async def _removed(head: World, request: pb.RemoveStudyRequest) -> None:
    await head.control.RemoveStudy(request)
