"""A trial that says much keeps nobody else from being heard, and nonsense has an end."""

from __future__ import annotations

import asyncio

from hermesd.core.events import ParkLost
from hermesd.core.model import RunId
from hermesd.node.outbox import ROOM, Outbox
from hermesd.node.runner.host_events import (
    A_SECOND,
    ALWAYS,
    AT_ONCE,
    NONSENSE_LIMIT,
    NONSENSE_LOGGED,
    TRIAL_ROOM,
    Backpressure,
)
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.clock import Clock


class Host:
    """Says one thing after another, each of which is told the head."""

    def __init__(self, outbox: Outbox, number: int) -> None:
        self._outbox = outbox
        self._event = ParkLost(RunId(f"t/{number}", 1), "")
        self.clock = Clock(0.0)
        self.backpressure = Backpressure(outbox.room, self.clock, self.clock.rest)
        self.said = 0

    async def says(self, count: int) -> None:
        for _ in range(count):
            await self.backpressure.room()
            self._outbox.put(self._event, pb.AttachRequest(park_lost=pb.ParkLost()))
            self.said += 1
            self.backpressure.heard(self._outbox.last, self.said)


async def turns() -> None:
    """Let everybody do what they can without anything happening."""
    for _ in range(2):
        await asyncio.sleep(0)


async def test_a_trial_that_says_much_leaves_room_for_others() -> None:
    outbox = Outbox()
    loud, other, third = (Host(outbox, number) for number in (1, 2, 3))
    async with asyncio.TaskGroup() as tasks:
        talking = [tasks.create_task(loud.says(10 * ROOM))]
        await turns()
        assert loud.said == TRIAL_ROOM < ROOM
        talking += [tasks.create_task(host.says(ROOM)) for host in (other, third)]
        await turns()
        assert other.said == ROOM - TRIAL_ROOM
        assert third.said == ALWAYS, "whatever waits of others"
        assert loud.backpressure.acknowledged(100) == 100
        await turns()
        assert loud.said == TRIAL_ROOM, "there is room of its own, and none of all trials"
        outbox.acknowledge(100)
        await turns()
        assert min(loud.said - TRIAL_ROOM, third.said - ALWAYS) > 0
        for each in talking:
            each.cancel()


async def test_what_leads_to_nothing_takes_no_room() -> None:
    host = Host(Outbox(), 1)
    await host.says(3)
    for sequence in range(4, 10 * TRIAL_ROOM):
        host.backpressure.heard(0, sequence)
    await asyncio.wait_for(host.backpressure.room(), 1)
    assert host.backpressure.acknowledged(2) == 2
    assert host.backpressure.acknowledged(3) == 10 * TRIAL_ROOM - 1


async def test_a_host_is_heard_at_a_pace() -> None:
    host = Host(Outbox(), 1)
    for _ in range(int(AT_ONCE)):
        await host.backpressure.room()
    assert host.clock.now == 0.0, "what was kept while nobody listened"
    for _ in range(500):
        await host.backpressure.room()
    assert host.clock.now >= 499 / A_SECOND


async def test_nonsense_is_logged_now_and_then_and_has_an_end() -> None:
    backpressure = Host(Outbox(), 1).backpressure
    heard = [backpressure.hears_nonsense() for _ in range(NONSENSE_LIMIT - 1)]
    assert (sum(heard), backpressure.is_over) == (NONSENSE_LOGGED, False)
    backpressure.hears_nonsense()
    assert backpressure.is_over
