"""A node that says too much is read more slowly: nothing is lost, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from hermesd.head.fleet import rate_limit, session
from hermesd.head.fleet.rate_limit import RateLimit
from tests.head.heads import Node, World, world
from tests.study_specs import spec

Answer = TypeVar("Answer")
ONE = {"lr": {"value": 1.0}}


def test_what_a_node_kept_comes_at_once_and_more_than_that_at_its_pace() -> None:
    now = [100.0]
    account = RateLimit("box", lambda: now[0])
    account.devices = 2
    assert account.per_second == 96
    with capture_logs() as said:
        waits = [account.charge(100) for _ in range(int(96 * rate_limit.BURST_SECONDS))]
        assert max(waits) == pytest.approx(0.0, abs=1e-6)
        assert account.charge(100) == pytest.approx(1 / 96)
        assert account.charge(64 * 1024) == pytest.approx(18 / 96), "bytes count, too"
        assert account.late
        now[0] += rate_limit.BURST_SECONDS / 2 + 1
        assert account.charge(100) == 0.0
        assert not account.late
    assert [each["log_level"] for each in said] == ["warning", "info"]


def test_a_node_that_claims_many_devices_may_say_no_more_than_a_large_one() -> None:
    account = RateLimit("box")
    account.devices = rate_limit.DEVICES_COUNTED
    most = account.per_second
    account.devices = 1_000_000
    assert account.per_second == most


async def heard(node: Node, what: Coroutine[Any, Any, Answer]) -> Answer:
    """What this comes to, while the node says now and then that it is there."""
    async with asyncio.TaskGroup() as tasks:
        coming = tasks.create_task(what)
        while not coming.done():
            await node.beat()
            await asyncio.wait({coming}, timeout=0.2)
    return coming.result()


async def test_who_says_too_much_is_heard_later_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it silent: it was not read."""
    monkeypatch.setattr(session, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(rate_limit, "_STEP_SECONDS", 0.1)
    monkeypatch.setattr(rate_limit, "BURST_SECONDS", 0.5)
    monkeypatch.setattr(rate_limit, "PER_SECOND", 20.0)
    monkeypatch.setattr(rate_limit, "PER_DEVICE_AND_SECOND", 0.0)
    async with world(tmp_path, silence_seconds=1.0) as head:
        node = Node(head)
        with capture_logs() as said:
            await node.hello()
            await heard(node, head.submit(spec(ONE)))
            node.unread.append(await heard(node, node.expect("launch")))
            launch = await node.start()
            for step in range(1, 61):
                await node.report(launch, step, [1 / step])
            while node.acknowledged < node.sequence:
                await heard(node, node.next())
        assert head.state.trials["digits/1"].step == 60
        assert head.state.nodes["box"].connected
        assert head.running.sessions.slowed_nodes() == ["box"]
        assert "a node says more than it may: it is read more slowly" in [
            each["event"] for each in said
        ]
        node.call.cancel()


async def test_nobody_waits_for_who_is_held_up_and_a_new_stream_does_not_free_it(
    head: World,
) -> None:
    node, other = Node(head), Node(head, "other")
    await node.hello()
    head.running.sessions.rate_limit("box").charge(10**9)
    await node.beat()
    node.call.cancel()
    again = Node(head)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await again.hello()
    await other.hello()
    await head.submit(spec(ONE))
    await other.complete(await other.start())
    await other.settle()
    assert head.state.trials["digits/1"].phase.final
    for each in (again, other):
        each.call.cancel()
