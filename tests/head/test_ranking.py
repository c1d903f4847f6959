"""The leaderboard: what it ranks by, who has a rank, which value of a metric is its best."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.core.events import Reported
from hermesd.core.model import Goal, MetricMode, Phase, StopRule
from hermesd.head.api.ranking import SMOOTHED, leaderboard, measure
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import whole
from tests.core.playbook import completed, play, reported, run, started, written
from tests.core.playbook import study as plain
from tests.head.heads import Node, World, request_id, world
from tests.study_specs import spec


@pytest.fixture
async def node(head: World) -> AsyncIterator[Node]:
    """A box on which all four trials of the study run at once."""
    node = Node(head, slots=4)
    await node.hello()
    yield node
    node.call.cancel()


async def launched(node: Node) -> dict[int, node_pb2.Launch]:
    """The launches by the trials' numbers."""
    found = [await node.start() for _ in range(4)]
    return {int(launch.trial.rpartition("/")[2]): launch for launch in found}


async def best(head: World, count: int = 0) -> pb.BestTrialsResponse:
    answer = await head.control.BestTrials(pb.BestTrialsRequest(study="digits", count=count))
    assert isinstance(answer, pb.BestTrialsResponse)
    return answer


async def study(head: World) -> pb.Study:
    return (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study


def order(answer: pb.BestTrialsResponse) -> list[tuple[int, int]]:
    return [(trial.number, trial.rank) for trial in answer.trials]


async def test_nan_and_silence_come_last_and_have_no_rank(head: World, node: Node) -> None:
    await head.submit()
    losses = {1: [0.3], 2: [math.nan], 3: [0.1]}
    for number, launch in (await launched(node)).items():
        if number in losses:
            await node.report(launch, 1, losses[number])
        await node.complete(launch, 1)
    await node.settle()
    answer = await best(head)
    assert order(answer) == [(3, 1), (1, 2), (2, 0), (4, 0)]
    assert answer.trials[3].reason == "no metric seen"
    assert not answer.trials[3].HasField("metric")
    assert len((await best(head, 1)).trials) == 1


async def test_a_failed_trial_has_no_rank_and_is_not_the_best(head: World, node: Node) -> None:
    await head.submit(spec(retry=types.Retry(max_failures=1)))
    for number, launch in (await launched(node)).items():
        await node.report(launch, 1, [number / 10])
        if number == 1:
            failed = {"error_kind": "exception", "detail": "it broke", "step": 1}
            run = {"trial": launch.trial, "attempt": launch.attempt}
            await node.say(run_failed=node_pb2.RunFailed(**run, **failed))
    await node.settle()
    assert order(await best(head)) == [(2, 1), (3, 2), (4, 3), (1, 0)]
    assert (await study(head)).best_trial == "digits/2"
    shown = await head.control.GetTrial(pb.GetTrialRequest(trial="digits/1"))
    assert (shown.trial.rank, shown.trial.metric) == (0, 0.1)


async def test_while_nothing_was_measured_nothing_is_best(head: World, node: Node) -> None:
    await head.submit()
    assert order(await best(head)) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    shown = await study(head)
    assert (shown.best_trial, shown.HasField("best_metric")) == ("", False)


@pytest.mark.parametrize(("on_nan", "ranks"), [(True, [0, 1, 2]), (False, [1, 2, 3])])
def test_a_trial_that_diverged_has_no_rank_however_good_it_was(
    on_nan: bool, ranks: list[int]
) -> None:
    book = play(trials=3, devices=3, metric="val_loss", stop=StopRule(on_nan=on_nan))
    for trial, value in enumerate((0.1, 0.3, 0.5)):
        run = f"s/{trial}#1"
        book.tell(started(run), reported(run, 5, [0.5], metrics=(("val_loss", value),)))
    book.tell(reported("s/0#1", 6, [math.nan], not_finite=True))
    book.tell(written("s/0#1", 6) if on_nan else completed("s/0#1", 6))
    assert book.trial("s/0").phase is (Phase.STOPPED if on_nan else Phase.COMPLETED)
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    assert [board.ranks[f"s/{trial}"] for trial in range(3)] == ranks
    assert [trial.spec.number for trial in board.trials] == ([1, 2, 0] if on_nan else [0, 1, 2])
    assert board.best is board.trials[0]


async def test_the_best_value_is_found_within_one_report(head: World, node: Node) -> None:
    goal, mode = types.GOAL_MAXIMIZE, types.METRIC_MODE_BEST
    await head.submit(spec(metric=types.Metric(name="loss", goal=goal, mode=mode)))
    values = {1: [0.1, 0.9, 0.2], 2: [0.5, math.nan], 3: [0.7], 4: [0.6]}
    for number, launch in (await launched(node)).items():
        await node.report(launch, 1, values[number])
    await node.settle()
    answer = await best(head)
    assert [(t.number, t.metric) for t in answer.trials] == [(1, 0.9), (3, 0.7), (4, 0.6), (2, 0.5)]
    (value,) = answer.trials[0].metrics
    assert (value.last, value.low, value.high, value.best) == (0.2, 0.1, 0.9, 0.9)


async def test_which_end_is_best_is_not_guessed_for_other_metrics(head: World, node: Node) -> None:
    await head.submit(spec(metric=types.Metric(name="val_loss")))
    for launch in (await launched(node)).values():
        await node.report(launch, 1, [0.3, 0.2], accuracy=0.7, val_loss=0.5, odd=math.nan)
        await node.report(launch, 3, [0.4], accuracy=0.6, val_loss=0.4)
    await node.settle()
    metrics = {value.name: value for value in (await head.trial("digits/1")).metrics}
    accuracy, loss, odd = metrics["accuracy"], metrics["val_loss"], metrics["odd"]
    assert (accuracy.last, accuracy.low, accuracy.high) == (0.6, 0.6, 0.7)
    assert not accuracy.HasField("best")
    assert (loss.best, loss.low, loss.high) == (0.4, 0.4, 0.5)
    assert (metrics["loss"].low, metrics["loss"].high) == (0.2, 0.4)
    assert not odd.HasField("low")


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["test_loss", "val_loss"], "val_loss"),
        (["train_loss", "test_loss"], "test_loss"),
        (["Training_Loss", "Validation_Loss", "Best_Validation_Loss"], "Validation_Loss"),
        (["loss", "dev_loss", "test_loss"], "loss"),
        (["loss", "val_kl_loss"], "loss"),
        (["epoch_loss", "test_acc"], "epoch_loss"),
    ],
)
def test_the_validation_loss_that_ranks_is_told_by_its_name(names: list[str], ranks: str) -> None:
    assert measure(plain(), names).metric == ranks


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["Val_Acc"], "Val_Acc"),
        (["val-acc"], "val-acc"),
        (["Val Acc", "val_acc"], "val_acc"),
        (["val/acc", "acc"], "val_acc"),
    ],
)
def test_the_metric_that_the_study_names_is_known_however_it_is_written(
    names: list[str], ranks: str
) -> None:
    named = plain(metric="val_acc", goal=Goal.MAXIMIZE)
    assert measure(named, names)[:2] == (ranks, Goal.MAXIMIZE)


async def test_a_study_without_a_metric_is_ranked_by_the_most_telling_loss(
    head: World, node: Node
) -> None:
    await head.submit(spec())
    launches = await launched(node)

    async def ranked_by() -> tuple[str, str]:
        answer = await best(head)
        assert answer.ranking == (await study(head)).ranking
        return answer.ranking.metric.name, answer.ranking.reason

    for number, launch in launches.items():
        await node.report(launch, 1, [number / 10])
    await node.settle()
    name, why = await ranked_by()
    assert (name, "names no metric" in why) == ("loss", True)
    assert order(await best(head))[0] == (1, 1)
    for number, launch in launches.items():
        await node.report(launch, 2, [0.5], epoch_loss=1 - number / 10)
    await node.settle()
    name, why = await ranked_by()
    assert (name, "mean loss of an epoch" in why) == ("epoch_loss", True)
    assert order(await best(head))[0] == (4, 1)
    # One trial is ahead of the others: those without a value have no rank yet.
    await node.report(launches[2], 3, [0.5], val_loss=0.25)
    await node.settle()
    name, why = await ranked_by()
    assert (name, "validation" in why) == ("val_loss", True)
    assert order(await best(head)) == [(2, 1), (1, 0), (3, 0), (4, 0)]
    assert (await study(head)).best_metric == 0.25


async def test_a_metric_that_is_named_is_the_one(head: World, node: Node) -> None:
    await head.submit(spec(metric=types.Metric(name="loss")))
    for launch in (await launched(node)).values():
        await node.report(launch, 1, [0.5], val_loss=0.25)
    await node.settle()
    ranking = (await best(head)).ranking
    assert (ranking.metric.name, ranking.reason) == ("loss", "")
    assert (ranking.metric.goal, ranking.metric.mode) == (
        types.GOAL_MINIMIZE,
        types.METRIC_MODE_LAST,
    )


def test_the_default_is_ranked_by_what_policies_read_and_not_by_the_last_mini_batch() -> None:
    book = play(trials=2, devices=2)
    steady, lucky = [0.5] * 40, [0.9] * 39 + [0.1]
    for trial, losses in enumerate((steady, lucky)):
        run = f"s/{trial}#1"
        book.tell(started(run), reported(run, 40, losses, metrics=(("loss", losses[-1]),)))
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    assert [trial.id for trial in board.trials] == ["s/0", "s/1"]
    assert (board.measure.mode, board.measure.reason) == (MetricMode.SMOOTHED, SMOOTHED)
    assert [board.measure.value(trial) for trial in board.trials] == [
        trial.loss for trial in board.trials
    ]


@pytest.mark.parametrize("apiece", [1, 7, 40, 400])
def test_the_smoothed_loss_hardly_depends_on_how_it_was_reported(apiece: int) -> None:
    losses = [1 / (1 + step / 50) for step in range(400)]
    book = play(trials=1, devices=1).tell(started("s/0#1"))
    for end in [*range(apiece, 400, apiece), 400]:
        start = end - apiece if end % apiece == 0 else end - 400 % apiece
        some = losses[start:end]
        book.tell(reported("s/0#1", end, some, metrics=(("loss", some[-1]),)))
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    exact = sum(losses[-40:]) / 40
    assert board.measure.value(book.trial()) == pytest.approx(exact, rel=0.02)


def test_a_diverged_trial_is_not_ranked_by_what_it_was_before() -> None:
    book = play(trials=1, devices=1, stop=StopRule(on_nan=False)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [0.5] * 5, metrics=(("loss", 0.5),)))
    book.tell(Reported(run("s/0#1"), 6, (), (("loss", math.nan),)))
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    assert board.ranks == {"s/0": 0}


async def choose(head: World, name: str, **fields: Any) -> pb.SetMetricResponse:
    request = pb.SetMetricRequest(study="digits", metric=types.Metric(name=name, **fields))
    request.request_id = request_id()
    answer = await head.control.SetMetric(request)
    assert isinstance(answer, pb.SetMetricResponse)
    return answer


async def test_a_study_is_ranked_by_a_metric_that_is_chosen_while_it_runs(
    head: World, node: Node
) -> None:
    await head.submit()
    for number, launch in (await launched(node)).items():
        await node.report(launch, 1, [number / 10], val_acc=number / 100)
    await node.settle()
    assert order(await best(head)) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    answer = await choose(head, "val_acc", goal=types.GOAL_MAXIMIZE)
    last = types.METRIC_MODE_LAST
    chosen = types.Metric(name="val_acc", goal=types.GOAL_MAXIMIZE, mode=last)
    assert (answer.ranking.metric, answer.ranking.reason) == (chosen, "")
    assert order(await best(head)) == [(4, 1), (3, 2), (2, 3), (1, 4)]
    shown = await study(head)
    assert (shown.best_trial, shown.best_metric) == ("digits/4", 0.04)
    assert shown.spec.metric == chosen, "a clone ranks by it, too"
    assert head.state.studies["digits"].signal == "loss", "what policies read is the study's own"
    again = await choose(head, "loss")
    assert again.ranking.metric.mode == types.METRIC_MODE_SMOOTHED
    assert order(await best(head)) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    lines = [event async for each in events(head) for event in each.events]
    told = [e.reason for e in lines if e.kind == pb.PUBLIC_EVENT_KIND_METRIC_CHOSEN]
    first = "ranked by val_acc: maximize, last"
    assert told == [first, "ranked by loss: minimize, smoothed"]


def events(head: World) -> Any:
    return head.control.WatchJournal(pb.WatchJournalRequest(study="digits", once=True))


async def test_a_metric_is_chosen_once_for_each_request(head: World, node: Node) -> None:
    await head.submit()
    launch = (await launched(node))[1]
    await node.report(launch, 1, [0.5], acc=0.1)
    await node.settle()
    request = pb.SetMetricRequest(
        request_id="once", study="digits", metric=types.Metric(name="acc")
    )
    first = await head.control.SetMetric(request)
    assert await head.control.SetMetric(request) == first
    lines = [event async for each in events(head) for event in each.events]
    assert [e.kind for e in lines].count(pb.PUBLIC_EVENT_KIND_METRIC_CHOSEN) == 1


async def test_a_metric_that_nobody_reported_is_refused_with_those_that_were(
    head: World, node: Node
) -> None:
    await head.submit()
    launch = (await launched(node))[1]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await choose(head, "val_acc")
    assert "no trial of digits has reported a metric yet" in str(refused.value.details())
    await node.report(launch, 1, [0.5], val_accuracy=0.1)
    await node.settle()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await choose(head, "val_acuracy")
    words = "one of those that its trials have reported: loss, val_accuracy"
    assert words in str(refused.value.details())
    assert "did you mean val_accuracy?" in str(refused.value.details())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await choose(head, "val_accuracy", mode=types.METRIC_MODE_SMOOTHED)
    assert "only the signal (loss) is smoothed" in str(refused.value.details())


async def test_another_metric_is_looked_at_without_a_change_of_the_study(
    head: World, node: Node
) -> None:
    await head.submit()
    for number, launch in (await launched(node)).items():
        await node.report(launch, 1, [number / 10], acc=number / 100)
    await node.settle()
    asked = types.Metric(name="acc", goal=types.GOAL_MAXIMIZE)
    request = pb.BestTrialsRequest(study="digits", count=2, metric=asked)
    answer = await head.control.BestTrials(request)
    assert [(t.number, t.rank, t.metric) for t in answer.trials] == [(4, 1, 0.04), (3, 2, 0.03)]
    assert (answer.ranking.metric.name, (await study(head)).ranking.metric.name) == ("acc", "loss")


async def test_a_chosen_metric_survives_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit()
        await node.report(await node.start(), 1, [0.5], acc=0.1)
        await node.settle()
        await choose(head, "acc", goal=types.GOAL_MAXIMIZE, mode=types.METRIC_MODE_BEST)
        before = (await study(head)).ranking
        node.call.cancel()
    async with world(tmp_path) as head:
        assert (await study(head)).ranking == before
