"""A head that was restored from an older copy hears so of its nodes, and waits for their leases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermesd.head.backup import backup
from tests.head.heads import Node, World, world
from tests.head.test_backup import unpacked
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}


async def lease(node: Node) -> Any:
    await node.beat()
    return (await node.expect("lease")).lease


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
