"""While the head is away the log says why, and does not say it each second; while it is there, it
hears of the node as often as it wants."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.node import head_link
from hermesd.node.head_link import FIRST_SECONDS, LONGEST_SECONDS, Link, Outage
from hermesd.node.outbox import Outbox


class Log:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[float, str, object]] = []

    def __call__(self, event: str, **known: object) -> None:
        self.lines.append((self.now, event, known.get("tries", 1)))


def test_the_same_is_said_at_once_and_then_ever_more_seldom() -> None:
    log = Log()
    outage = Outage(lambda: log.now)
    for second in range(2 * 3600):
        log.now = float(second)
        outage.tell(log, "no stream", reason="refused")
    at = [when for when, _, _ in log.lines]
    pauses = [after - before for before, after in pairwise(at)]
    assert at[0] == 0.0
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_SECONDS
    assert [tries for _, _, tries in log.lines][:2] == [1, 11]


def test_another_reason_is_said_at_once_and_so_is_the_same_after_the_head_was_there() -> None:
    log = Log()
    outage = Outage(lambda: log.now)
    for reason in ("refused", "refused", "timed out", "refused"):
        outage.tell(log, "no stream", reason=reason)
    assert len(log.lines) == 2
    outage.end()
    outage.tell(log, "no stream", reason="refused")
    assert len(log.lines) == 3


async def test_a_node_that_is_to_beat_more_often_does_not_wait_for_the_beat_that_was_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_link, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(head_link, "HEARTBEAT_SECONDS", 0.0)
    outbox = Outbox()
    outbox.report_seconds = 3600.0
    link = Link(NodeConfig(state_dir=tmp_path, cpu_slots=()), outbox)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(link._beat(None))  # type: ignore[arg-type]
        assert (await outbox.take()).HasField("heartbeat")
        outbox.report_seconds = 0.01
        assert (await outbox.take()).HasField("heartbeat")
        beating.cancel()
    await link.close()
