"""A head that was restored from an older copy hears so of its nodes, and waits for their leases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermesd.head.journal.backup import backup
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from tests.head.heads import Node, World, world
from tests.head.test_backup import unpacked
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}


async def lease(node: Node) -> Any:
    await node.beat()
    return await node.lease()


async def restored(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The state of a head before it launched a trial, and what the trial's node heard later."""
    directory = tmp_path / "head"
    async with world(directory) as head:
        await head.submit(spec(ONE))
        await asyncio.to_thread(backup, directory, tmp_path / "saved.tar")
        node = Node(head)
        await node.hello()
        await node.start()
        await node.settle()
        heard = await lease(node)
        assert heard.journal_sequence == head.running.head.committed
        node.call.cancel()
    said = {"heard_head": heard.head, "heard_journal_sequence": heard.journal_sequence}
    return unpacked(tmp_path / "saved.tar", tmp_path / "elsewhere"), said


async def launched_first(head: World, node: Node, name: str = "fresh") -> str:
    """The trial of the first launch, of what was there before and of a study that comes now."""
    await head.submit(spec(ONE, name=name))
    launch = (await node.expect("launch")).launch
    node.call.cancel()
    return str(launch.trial)


async def test_what_may_run_elsewhere_waits_until_no_lease_holds(tmp_path: Path) -> None:
    directory, heard = await restored(tmp_path)
    async with world(directory) as head:
        other = Node(head, "other")
        await other.hello(**heard)
        assert await launched_first(head, other) == "fresh/1"
        deadline = head.running.head.scheduler.deadline
        assert deadline is not None
        assert 700 < deadline - head.running.head.clock() < 800
    async with world(directory) as head:  # a restart does not cut that short
        other = Node(head, "other")
        await other.hello()
        assert await launched_first(head, other, "later") == "later/1"


@pytest.mark.parametrize("said", ["nothing", "less", "of this head"])
async def test_no_head_waits_without_need(tmp_path: Path, said: str) -> None:
    directory, heard = await restored(tmp_path)
    async with world(directory) as head:
        node = Node(head)
        match said:
            case "nothing":
                heard = {}
            case "less":
                heard["heard_journal_sequence"] = 1
            case "of this head":
                first = Node(head, "first", slots=0)
                await first.hello()
                now = await lease(first)
                first.call.cancel()
                heard = {"heard_head": now.head, "heard_journal_sequence": 10**6}
        await node.hello(**heard)
        assert await launched_first(head, node) == "digits/1"


# Checkpoints that the head never heard of.


def holds(step: int, identity: str, attempt: int = 1, trial: str = "digits/1") -> Any:
    held = node_pb2.Holding(
        trial=trial, identity=identity, checkpoint_step=step, checkpoint_attempt=attempt
    )
    return node_pb2.AttachRequest(holdings=node_pb2.Holdings(trials=[held]))


async def told(head: World, node: Node, *said: Any) -> tuple[list[str], str]:
    """What is said of the study and of its trial once the node has said all that."""
    for each in said:
        await node.call.write(each)
    await lease(node)
    (study,) = (await head.control.ListStudies(pb.ListStudiesRequest())).studies
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
    assert list(why.notices) == list(study.notices)
    return list(study.notices), why.summary


async def test_a_checkpoint_that_is_not_in_the_journal_is_named(tmp_path: Path) -> None:
    directory, heard = await restored(tmp_path)
    async with world(directory) as head:
        identity = head.state.studies["digits"].identity
        node = Node(head, "other")
        await node.hello(**heard)
        notices, summary = await told(head, node, holds(40, identity), holds(30, identity))
        assert notices == [
            "the head's state is an older copy, and checkpoints that it does not know are not used"
            " (digits/1 at step 40 on other): what was reported up to them is lost"
        ]
        assert summary.endswith(
            "a checkpoint of step 40 on other is not used, since what was reported up to it is lost"
        )
        node.call.cancel()


@pytest.mark.parametrize("case", ["another study", "no checkpoint", "not restored", "unknown"])
async def test_nothing_is_said_where_nothing_is_lost(tmp_path: Path, case: str) -> None:
    directory, heard = await restored(tmp_path)
    async with world(directory) as head:
        identity = head.state.studies["digits"].identity
        node = Node(head, "other", slots=0)
        await node.hello(**({} if case == "not restored" else heard))
        match case:
            case "another study":
                said = holds(40, "theirs")
            case "no checkpoint":
                said = holds(0, identity, 0)
            case "unknown":
                said = holds(40, identity, trial="digits/99")
            case _:
                said = holds(40, identity)
        notices, summary = await told(head, node, said)
        assert notices == []
        assert "older copy: a checkpoint" not in summary
        node.call.cancel()


async def test_a_run_that_goes_on_loses_nothing(tmp_path: Path) -> None:
    """It was launched before the backup was made, and the head hears of it again."""
    directory = tmp_path / "head"
    async with world(directory) as head:
        await head.submit(spec(ONE))
        node = Node(head)
        await node.hello()
        launch = await node.start()
        await node.settle()
        await asyncio.to_thread(backup, directory, tmp_path / "saved.tar")
        await node.report(launch, 1, [1.0] * 40)
        await node.settle()
        heard = await lease(node)
        node.call.cancel()
    said = {"heard_head": heard.head, "heard_journal_sequence": heard.journal_sequence}
    async with world(unpacked(tmp_path / "saved.tar", tmp_path / "elsewhere")) as head:
        node = Node(head)
        running = node_pb2.LiveRun(
            trial=launch.trial,
            attempt=launch.attempt,
            condition=node_pb2.RUN_CONDITION_RUNNING,
            devices=[node.device().id],
            step=40,
            identity=launch.identity,
        )
        await node.hello(runs=[running], **said)
        notices, _ = await told(head, node, holds(40, launch.identity))
        assert notices == []
        node.call.cancel()
