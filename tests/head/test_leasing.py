"""Leases of a chosen length, and what a head knows of those that its predecessors gave."""

from __future__ import annotations

import errno
import time
from functools import partial
from pathlib import Path

import pytest

from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.core.events import NodeLost
from hermesd.head import server
from hermesd.head.clock import Clock
from hermesd.head.fleet import sessions
from hermesd.head.fleet.sessions import Leasing, terms
from tests.head.heads import Node, world


def test_the_usual_terms_are_those_of_the_usual_lease() -> None:
    assert terms(600.0) == LeaseTerms()
    assert terms(10.0).silence_seconds == pytest.approx(13.0)


async def test_the_settings_say_how_long_a_lease_is(tmp_path: Path) -> None:
    async with world(tmp_path, lease_seconds=30) as head:
        node = Node(head)
        welcome = await node.hello()
        assert (welcome.lease_seconds, welcome.lease_grace_seconds) == (30.0, 6.0)
        await node.beat(42.5)
        assert (await node.lease()).lease_seconds == 30.0
        node.call.cancel()


async def silent_node(folder: Path, **settings: float) -> None:
    """A head that knows a node, which is silent when the head ends."""
    async with world(folder, **settings) as head:
        node = Node(head)
        await node.hello()
        node.call.cancel()
        await head.running.head.beyond(head.running.head.committed)
        assert not head.state.nodes["box"].connected


@pytest.mark.parametrize(("before", "least"), [(600.0, 780.0), (20.0, 26.0), (10.0, 13.0)])
async def test_what_a_head_before_allowed_still_holds(
    tmp_path: Path, before: float, least: float
) -> None:
    await silent_node(tmp_path, lease_seconds=before)
    async with world(tmp_path, lease_seconds=10) as head:
        scheduler, now = head.running.head.scheduler, head.running.head.clock()
        assert scheduler.due(now + least - 1) == []
        assert scheduler.due(now + least) == [NodeLost("box")]
        assert scheduler.deadline is not None


async def test_a_head_that_ends_early_leaves_the_longer_lease_to_the_next(tmp_path: Path) -> None:
    await silent_node(tmp_path, lease_seconds=600)
    for _ in range(2):
        async with world(tmp_path, lease_seconds=10) as head:
            running = head.running.head
            assert running.scheduler.due(running.clock() + 779) == []


async def test_a_wall_clock_that_was_set_while_no_head_ran_loses_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await silent_node(tmp_path, lease_seconds=10)
    later = partial(Clock, wall=lambda: time.time() + 86_400)  # noqa: TID251 - a day of it
    monkeypatch.setattr(server, "Clock", later)
    async with world(tmp_path, lease_seconds=10) as head:
        scheduler, now = head.running.head.scheduler, head.running.head.clock()
        assert now > time.time() + 86_000  # noqa: TID251
        assert scheduler.due(now + 12) == []
        assert scheduler.due(now + 14) == [NodeLost("box")]


def test_heads_without_the_setting_allowed_the_usual_time(tmp_path: Path) -> None:
    path = tmp_path / "longest-silence"
    assert Leasing(path, terms(10), known=True).patience_seconds == 780.0
    assert Leasing(path, terms(10), known=False).patience_seconds == 0.0


async def test_a_disk_that_is_full_for_a_moment_ends_no_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is just patient for longer than it need be."""
    path, contents = tmp_path / "longest-silence", list[bytes]()
    path.write_text("0.05")

    def fill(path: Path, content: bytes) -> None:
        contents.append(content)
        if len(contents) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sessions, "write_private", fill)
    lease = terms(0.01)
    await Leasing(path, lease, known=True).keep()
    assert contents == [b"0.05", str(lease.silence_seconds).encode()]
