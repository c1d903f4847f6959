"""Policies read another metric from the moment that a person chooses it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, request_id, world
from tests.study_specs import spec


async def choose(head: World, name: str, goal: types.Goal = types.GOAL_UNSPECIFIED) -> pb.Study:
    request = pb.SetSignalRequest(study="digits", signal=types.Signal(name=name, goal=goal))
    request.request_id = request_id()
    await head.control.SetSignal(request)
    return (await study(head)).study


async def study(head: World) -> pb.GetStudyResponse:
    answer = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert isinstance(answer, pb.GetStudyResponse)
    return answer


async def signals(head: World) -> list[float]:
    return [trial.signal for trial in (await study(head)).trials]


async def test_what_was_and_will_be_reported_is_read_anew_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as head:
        node = Node(head, slots=4)
        await node.hello()
        await head.submit()
        launches = [await node.start() for _ in range(4)]
        numbers = {int(one.trial.rpartition("/")[2]): one for one in launches}
        for number, launch in numbers.items():
            await node.report(launch, 1, [number / 10] * 4, val_acc=number / 100)
        await node.settle()
        shown = await choose(head, "val_acc", types.GOAL_MAXIMIZE)
        assert shown.spec.signal == types.Signal(name="val_acc", goal=types.GOAL_MAXIMIZE)
        assert await signals(head) == pytest.approx([0.01, 0.02, 0.03, 0.04])
        # Its node still tells of the loss as the signal.
        await node.report(numbers[1], 5, [9.0] * 4, val_acc=0.91)
        await node.settle()
        assert (await signals(head))[0] == pytest.approx(0.91)
        assert head.state.trials["digits/1"].loss == pytest.approx(-0.91), "lower is better"
        await node.report(numbers[2], 5, [0.1], not_finite=True, val_acc=0.5)
        await node.settle()
        assert not head.state.trials["digits/2"].not_finite, "only the loss is no number"
        known = await signals(head)
        told = head.control.WatchJournal(pb.WatchJournalRequest(study="digits", once=True))
        lines = [event async for each in told for event in each.events]
        (line,) = [e for e in lines if e.kind == pb.PUBLIC_EVENT_KIND_SIGNAL_CHOSEN]
        assert line.reason == "policies read val_acc: maximize"
        node.call.cancel()
    async with world(tmp_path) as head:
        assert await signals(head) == known
        assert (await choose(head, "loss")).spec.signal.goal == types.GOAL_MINIMIZE
        assert (await signals(head))[0] == pytest.approx(9.0)


async def test_a_signal_that_means_nothing_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        node = Node(head, slots=4)
        await node.hello()
        await head.submit(spec(stop=types.Stop(target=0.1)))
        launch = await node.start()
        await node.report(launch, 1, [0.5], val_acc=0.1)
        await node.settle()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await choose(head, "val_acc")
        assert "stop.target" in str(refused.value.details())
        node.call.cancel()
