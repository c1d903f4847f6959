"""Policies read another metric from the moment that a person chooses it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from hermesd import wire
from hermesd.core.model import Goal, Study
from hermesd.core.trial import MetricSummary
from hermesd.head import signals as choosing
from hermesd.head.signals import Signals, telling
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.wire import Series
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


async def test_a_signal_that_means_nothing_is_refused(head: World) -> None:
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


async def report(node: Node, launch: node_pb2.Launch, step: int, **metrics: float) -> None:
    """These metrics of a step, none of which is the loss."""
    points = wire.points_to_proto(Series(name, [step], [x]) for name, x in metrics.items())
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(report=node_pb2.Report(**run, step=step, points=points))


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is chosen by itself while a test looks."""
    monkeypatch.setattr(choosing, "LOOK_SECONDS", 1_000.0)


async def test_the_sole_loss_is_read_where_none_is_named_and_no_loss_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "LOOK_SECONDS", 0.01)
    async with world(tmp_path) as head:
        node = Node(head, slots=4)
        await node.hello()
        await head.submit()
        launch = await node.start()
        await report(node, launch, 1, val_mse=0.5, val_acc=0.1)
        await report(node, launch, 2, val_mse=0.25, val_acc=0.2)
        told = head.control.WatchJournal(pb.WatchJournalRequest(study="digits"))
        async for answer in told:
            lines = [e for e in answer.events if e.kind == pb.PUBLIC_EVENT_KIND_SIGNAL_CHOSEN]
            if lines:
                break
        told.cancel()
        assert lines[0].reason == "policies read val_mse: minimize · no trial has reported loss"
        found = await study(head)
        assert found.study.spec.signal == types.Signal(name="val_mse", goal=types.GOAL_MINIMIZE)
        assert found.study.notices == []
        mine = next(each for each in found.trials if each.id == launch.trial)
        assert mine.signal == pytest.approx(0.375), "what it has reported by then counts"
        assert found.study.ranking.metric.name == "val_mse", "the board ranks by what there is"
        # What a person chooses stands.
        await choose(head, "val_acc", types.GOAL_MAXIMIZE)
        await report(node, launch, 3, val_mse=0.1, val_acc=0.3)
        await node.settle()
        assert (await study(head)).study.spec.signal.name == "val_acc"
        node.call.cancel()


async def test_a_loss_that_any_trial_reports_is_still_read(head: World) -> None:
    node = Node(head, slots=4)
    await node.hello()
    await head.submit()
    launch, other = await node.start(), await node.start()
    await report(node, launch, 1, val_mse=0.5)
    await report(node, launch, 2, val_mse=0.4)
    await node.settle()
    looking = Signals(head.running.head)
    assert looking.found() == {"digits": ("val_mse", Goal.MINIMIZE)}
    await node.report(other, 1, [0.5, 0.4])
    await node.settle()
    assert looking.found() == {}
    node.call.cancel()


def _seen(*names: str) -> dict[str, MetricSummary]:
    return {name: MetricSummary(2, 0.5, 0.5, 1.0, 2, 1) for name in names}


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["val_loss"], ("val_loss", Goal.MINIMIZE)),
        (["train/loss", "val/loss", "acc"], ("train/loss", Goal.MINIMIZE)),
        (["Test Accuracy"], ("Test Accuracy", Goal.MAXIMIZE)),
        (["rmse", "hermes/cpu_use"], ("rmse", Goal.MINIMIZE)),
        (["val_acc", "val_auc"], None),
        (["loss_a", "loss_b"], None),
        (["val_loss", "test_loss"], None),
        (["temperature"], None),
    ],
)
async def test_only_what_can_hardly_be_meant_otherwise_is_read(
    names: list[str], wanted: tuple[str, Goal] | None, tmp_path: Path
) -> None:
    async with world(tmp_path) as head:
        await head.submit()
        plain = head.state.studies["digits"]
    assert telling(plain, _seen(*names)) == wanted
    once = {name: MetricSummary(1, 0.5, 0.5, 0.5, 1, 1) for name in names}
    assert telling(plain, once) is None, "one value tells nothing"


async def test_a_metric_that_the_study_names_is_read_with_its_goal(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        metric = types.Metric(name="acc", goal=types.GOAL_MAXIMIZE)
        await head.submit(spec(metric=metric))
        named: Study = head.state.studies["digits"]
    assert telling(named, _seen("val_loss", "acc")) == ("acc", Goal.MAXIMIZE)
    assert telling(named, _seen("val_loss")) is None, "it may come yet"
