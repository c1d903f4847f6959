"""What is numbered comes in order and again after a reconnect; what waits is bounded."""

import asyncio
from typing import Any

import pytest

from hermesd.core.events import ParkLost, QuantumEnded, Reported
from hermesd.core.losses import Chunk
from hermesd.core.model import RunId
from hermesd.core.node.messages import Series
from hermesd.node import outbox as outbox_module
from hermesd.node.outbox import BULK, ROOM, Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.clock import Clock

RUN = RunId("t/1", 1)
EVENT = ParkLost(RUN, "")


def put(outbox: Outbox, count: int) -> None:
    for _ in range(count):
        outbox.put(EVENT, pb.AttachRequest(park_lost=pb.ParkLost(trial="t/1", attempt=1)))


async def taken(outbox: Outbox, count: int) -> list[int]:
    return [(await outbox.take()).sequence for _ in range(count)]


async def test_after_a_reconnect_what_was_not_acknowledged_comes_again() -> None:
    outbox = Outbox()
    put(outbox, 4)
    assert await taken(outbox, 3) == [1, 2, 3]
    assert [entry.sequence for entry in outbox.acknowledge(2)] == [1, 2]
    outbox.rewind()
    put(outbox, 1)
    assert await taken(outbox, 3) == [3, 4, 5]
    assert [entry.sequence for entry in outbox.acknowledge(5)] == [3, 4, 5]
    assert outbox.acknowledge(5) == []


async def test_an_acknowledgment_of_what_was_sent_before_the_cut() -> None:
    outbox = Outbox()
    put(outbox, 3)
    await taken(outbox, 3)
    outbox.rewind()
    outbox.acknowledge(2)
    assert await taken(outbox, 1) == [3]


async def test_urgent_goes_first_and_bulk_last_and_both_die_with_the_stream() -> None:
    outbox = Outbox()
    await outbox.offer(pb.AttachRequest(file_chunk=pb.FileChunk(ticket=1)))
    put(outbox, 1)
    outbox.put_transient(pb.AttachRequest(heartbeat=pb.Heartbeat()))
    kinds = [(await outbox.take()).WhichOneof("message") for _ in range(3)]
    assert kinds == ["heartbeat", "park_lost", "file_chunk"]
    outbox.put_transient(pb.AttachRequest(heartbeat=pb.Heartbeat()))
    outbox.rewind()
    assert (await outbox.take()).WhichOneof("message") == "park_lost"


async def test_whoever_can_wait_waits_for_room() -> None:
    outbox = Outbox()
    put(outbox, ROOM)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(outbox.room())
        await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done()
        outbox.acknowledge(1)


async def test_parts_of_files_wait_for_the_stream() -> None:
    outbox = Outbox()
    part = pb.AttachRequest(file_chunk=pb.FileChunk(ticket=1))
    for _ in range(BULK):
        await outbox.offer(part)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(outbox.offer(part))
        await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done()
        await outbox.take()


async def test_take_waits_for_something_to_send() -> None:
    outbox = Outbox()
    async with asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(outbox.take())
        await asyncio.wait({taking}, timeout=0)
        assert not taking.done()
        put(outbox, 1)
    assert taking.result().sequence == 1


# A head of many nodes asks for fewer reports.


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    """An outbox that has sent a report just now, and the next one is due in an hour."""
    monkeypatch.setattr(outbox_module, "boottime", Clock())
    made = Outbox()
    made.tell(report(1))
    made.report_seconds = 3600.0
    return made


def report(number: int, run: RunId = RUN, **fields: Any) -> Reported:
    chunk = Chunk(number, number, 1, float(number), float(number), float(number))
    return Reported(run, number, (chunk,), busy_seconds=1.0, number=number, **fields)


def loss(step: int) -> list[Series]:
    return [Series("loss", (step,), (float(step),))]


async def waiting(outbox: Outbox) -> list[pb.AttachRequest]:
    """What it sends now, and nothing more later."""
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await outbox.take())
        except TimeoutError:
            return found


async def test_reports_in_between_become_one_and_go_with_the_end_of_a_quantum(
    seldom: Outbox,
) -> None:
    assert [each.sequence for each in await waiting(seldom)] == [1]
    other = RunId("t/2", 1)
    for number in (2, 3, 4):
        seldom.tell(report(number), loss(number))
        seldom.tell(report(number, other), loss(number))
    assert await waiting(seldom) == []
    seldom.tell(QuantumEnded(RUN, 0, 4))
    mine, others, ended = await waiting(seldom)
    assert ended.WhichOneof("message") == "quantum_ended"
    assert (mine.report.trial, others.report.trial) == ("t/1", "t/2")
    assert (mine.report.step, mine.report.number, mine.report.busy_seconds) == (4, 4, 3.0)
    assert [chunk.first_step for chunk in mine.report.chunks] == [2, 3, 4]
    assert list(mine.report.points.steps) == [2, 3, 4]
    assert [each.sequence for each in (mine, others, ended)] == [2, 3, 4]


async def test_a_loss_that_is_no_number_goes_at_once(seldom: Outbox) -> None:
    await waiting(seldom)
    seldom.tell(report(2))
    seldom.tell(report(3, not_finite=True))
    assert [each.report.number for each in await waiting(seldom)] == [2, 3]


async def test_a_report_that_was_sent_is_never_changed(seldom: Outbox) -> None:
    """The head may have it, though it could not say so."""
    seldom.tell(report(2))
    seldom.tell(QuantumEnded(RUN, 0, 2))
    before = [each.SerializeToString() for each in await waiting(seldom)]
    seldom.rewind()
    seldom.tell(report(3))
    assert [each.SerializeToString() for each in await waiting(seldom)] == before
    seldom.tell(report(4))
    seldom.tell(QuantumEnded(RUN, 1, 4))
    assert [each.report.number for each in await waiting(seldom)] == [4, 0]


async def test_a_report_that_no_other_follows_goes_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(outbox_module, "boottime", clock)
    outbox = Outbox()
    outbox.tell(report(1))
    outbox.report_seconds = 4.0
    clock.now += 3.99
    outbox.tell(report(2))
    outbox.tell(report(3))
    assert [(await outbox.take()).report.number for _ in range(2)] == [1, 3]


async def test_what_only_an_earlier_report_has_keeps_its_step(seldom: Outbox) -> None:
    await waiting(seldom)
    seldom.tell(report(2), [*loss(2), Series("val_loss", (2,), (0.5,))])
    seldom.tell(report(3), loss(3))
    seldom.tell(report(4), [*loss(4), Series("val_loss", (4,), (0.4,))])
    seldom.tell(QuantumEnded(RUN, 0, 4))
    assert [each.report.number for each in await waiting(seldom)] == [2, 4, 0]
