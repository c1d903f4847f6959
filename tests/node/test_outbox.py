"""What is numbered comes in order and again after a reconnect; what waits is bounded."""

import asyncio

from hermesd.core.events import ParkLost
from hermesd.core.model import RunId
from hermesd.node.outbox import BULK, ROOM, Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb

EVENT = ParkLost(RunId("t/1", 1), "")


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


async def test_an_acknowledgement_of_what_was_sent_before_the_cut() -> None:
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
    outbox.urge(pb.AttachRequest(heartbeat=pb.Heartbeat()))
    kinds = [(await outbox.take()).WhichOneof("message") for _ in range(3)]
    assert kinds == ["heartbeat", "park_lost", "file_chunk"]
    outbox.urge(pb.AttachRequest(heartbeat=pb.Heartbeat()))
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
