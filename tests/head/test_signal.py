"""Policies read another metric from the moment that a person chooses it, or the head."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from hermesd import wire
from hermesd.core.events import Event, Reported, SignalChosen
from hermesd.core.losses import chunked
from hermesd.core.model import Goal, MetricMode, Plugin, Pool, StopRule
from hermesd.head.api import signals as choosing
from hermesd.head.api.notices import meant
from hermesd.head.api.ranking import leaderboard
from hermesd.head.api.signals import MOST_TRIALS, Signals, unasked
from hermesd.head.journal import schema
from hermesd.head.journal.points import Piece
from hermesd.head.loop import Head
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pb.hermes.v1.node_pb2 import Launch
from hermesd.pieces import whole
from hermesd.wire import Series
from tests.core.playbook import (
    Playbook,
    completed,
    joined,
    parked,
    play,
    quantum_ended,
    reported,
    started,
    submitted,
)
from tests.core.playbook import study as plain
from tests.head.heads import Node, World, request_id, world
from tests.study_specs import spec

SMALLER, LARGER = Goal.MINIMIZE, Goal.MAXIMIZE


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


# Where nobody has chosen: which metric, and when.


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["val_loss"], "val_loss"),
        (["train_loss", "acc", "f1"], "train_loss"),
        (["Avg Loss", "f1"], "Avg Loss"),
        (["val_loss", "hermes/cpu_use"], "val_loss"),
        (["train_loss", "val_acc", "val_loss"], "train_loss"),
        (["test/loss", "train/loss", "val/loss"], "train/loss"),
        (["Training_Loss", "Validation_Loss"], "Training_Loss"),
        (["test_loss", "val_loss"], ""),
        (["epoch_loss", "train_loss", "val_loss"], ""),
        (["d_loss", "g_loss"], ""),
        (["d_loss", "g_loss", "train_loss"], ""),
        (["val_loss", "loss_d"], ""),
        (["policy_loss"], ""),
        (["kl_loss", "elbo"], ""),
        (["accuracy"], ""),
        (["brier_score"], ""),
        (["mse"], ""),
        (["loss", "val_loss"], ""),
    ],
)
def test_of_a_study_that_names_no_metric_the_training_loss_is_read_or_else_the_only_loss(
    names: list[str], wanted: str
) -> None:
    assert meant(Playbook().state, plain(), names) == ((wanted, SMALLER) if wanted else None)


def test_a_metric_that_the_study_names_is_read_with_its_goal_and_no_other() -> None:
    named, state = plain(metric="acc", goal=LARGER), Playbook().state
    assert meant(state, named, ["acc", "d_loss", "g_loss", "val_loss"]) == ("acc", LARGER)
    assert meant(state, named, ["Acc", "val_loss"]) == ("Acc", LARGER)
    assert meant(state, named, ["val_loss"]) is None, "it may come yet"


@pytest.mark.parametrize(
    "changes",
    [
        {"signal_chosen": True},
        {"source": types.StudySpec(signal=types.Signal(name="loss")).SerializeToString()},
        {"stop": StopRule(target=0.1)},
        {"policy": Plugin("best_first", (("target", 0.1),))},
        {"pool": "gold"},
    ],
)
def test_what_somebody_has_said_stands_and_a_target_means_nothing_for_another_metric(
    changes: dict[str, Any],
) -> None:
    state = Playbook().state
    state.pools["gold"] = Pool("gold", ("n",), Plugin("best_first", (("target", 0.1),)))
    assert meant(state, plain(**changes), ["val_loss"]) is None


def silently(trial: int, step: int, **metrics: float) -> Reported:
    """A report of these metrics, and no loss."""
    return reported(f"s/{trial}#1", step, [], metrics=tuple(metrics.items()))


def chosen(book: Playbook, name: str = "s") -> object:
    return unasked(book.state, book.state.studies[name])


def trying(**changes: Any) -> Playbook:
    """Four trials, of which two run."""
    book = play(4, 2, policy=Plugin("round_robin"), **changes)
    return book.tell(started("s/0#1"), started("s/1#1"))


VAL_LOSS = ("val_loss", SMALLER)


def test_nothing_is_chosen_until_a_trial_has_had_a_whole_quantum() -> None:
    book = trying().tell(silently(0, 1, val_loss=0.5), silently(0, 2, val_loss=0.4))
    assert chosen(book) is None
    book.tell(quantum_ended("s/0#1", 0, 3))
    assert chosen(book) == VAL_LOSS
    book.tell(silently(1, 4, other_loss=0.5))
    assert chosen(book) is None, "what any of them reports counts, though it did not vary"


@pytest.mark.parametrize("became", [(), (parked,), (completed,)])
def test_nothing_is_chosen_once_any_trial_in_whatever_state_has_reported_a_loss(
    became: Sequence[Callable[[str, int], Event]],
) -> None:
    loss = reported("s/0#1", 2, [0.5, 0.4], metrics=(("loss", 0.4),))
    book = trying().tell(loss, *(each("s/0#1", 2) for each in became))
    book.tell(silently(1, 1, val_loss=0.5), completed("s/1#1", 1))
    assert chosen(book) is None


def test_a_trial_that_ended_tells_what_the_others_will_report() -> None:
    book = trying().tell(completed("s/0#1", 3), silently(1, 1, val_loss=0.5))
    assert chosen(book) is None, "it reported nothing"
    book.tell(silently(1, 2, val_loss=0.4), completed("s/1#1", 2))
    assert chosen(book) == VAL_LOSS


def test_trials_that_are_alike_in_two_studies_go_on_being_read_alike() -> None:
    book = Playbook().tell(joined(2))
    for name in ("s", "t"):
        event = submitted(1, name)
        rooted = tuple(replace(each, root="root") for each in event.trials)
        if name == "t":
            assert chosen(book) == VAL_LOSS, "all that are alike are of one study"
        book.tell(replace(event, trials=rooted))
        if name == "s":
            book.tell(started("s/0#1"), silently(0, 1, val_loss=0.5))
            book.tell(quantum_ended("s/0#1", 0, 1))
    assert book.trial("t/0").carrier == "s/0"
    assert chosen(book) is None
    assert chosen(book, "t") is None


def test_a_study_of_very_many_trials_is_not_read_anew_unasked() -> None:
    book = trying().tell(silently(0, 1, val_loss=0.5), quantum_ended("s/0#1", 0, 1))
    book.state.members["s"] = book.state.members["s"].with_more(["s/0"] * MOST_TRIALS)
    assert chosen(book) is None


@pytest.mark.parametrize("mode", [MetricMode.LAST, MetricMode.BEST])
def test_where_no_metric_is_named_trials_are_ranked_by_what_policies_read(mode: MetricMode) -> None:
    book = trying(mode=mode).tell(silently(0, 1, acc=0.1), silently(1, 1, acc=0.2))
    curves = tuple((f"s/{trial}", chunked(1, [-0.1 - trial / 10])) for trial in (0, 1))
    book.tell(SignalChosen("s", "acc", LARGER, curves, "now"))
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    assert board.measure.metric == "acc"
    assert [board.ranks[f"s/{trial}"] for trial in (0, 1)] == [2, 1]


# How that is done, beside a head at work.


async def report(node: Node, launch: Launch, step: int, **metrics: float) -> None:
    """These metrics of a step, none of which is the loss."""
    points = wire.points_to_proto(Series(name, [step], [x]) for name, x in metrics.items())
    await node.say(report=node_pb2.Report(**run_of(launch), step=step, points=points))


def run_of(launch: Launch) -> dict[str, Any]:
    return {"trial": launch.trial, "attempt": launch.attempt}


async def at_work(head: World, node: Node, name: str = "digits", **fields: Any) -> Launch:
    """A study of one trial, which has reported twice and had a quantum."""
    await head.submit(spec({"lr": {"value": 0.1}}, name=name, **fields))
    launch = await node.start()
    await report(node, launch, 1, val_loss=0.5, val_acc=0.1)
    await report(node, launch, 2, val_loss=0.25, val_acc=0.2)
    await node.say(quantum_ended=node_pb2.QuantumEnded(**run_of(launch), step=2))
    await node.settle()
    return launch


def signal_of(head: World, name: str = "digits") -> str:
    found: str = head.state.studies[name].signal
    return found


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head looks when the test says so."""
    monkeypatch.setattr(choosing, "LOOK_SECONDS", 1_000.0)


@pytest.fixture
async def looking(head: World) -> Signals:
    return Signals(head.running.head)


async def test_the_sole_loss_is_read_by_itself_and_a_person_s_choice_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "LOOK_SECONDS", 0.01)
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        launch = await at_work(head, node)
        told = head.control.WatchJournal(pb.WatchJournalRequest(study="digits"))
        async for answer in told:
            lines = [e for e in answer.events if e.kind == pb.PUBLIC_EVENT_KIND_SIGNAL_CHOSEN]
            if lines:
                break
        told.cancel()
        assert lines[0].reason == "policies read val_loss: minimize · no trial has reported loss"
        found = await study(head)
        assert found.study.spec.signal == types.Signal(name="val_loss", goal=types.GOAL_MINIMIZE)
        assert found.study.notices == []
        assert found.trials[0].signal == pytest.approx(0.375), "what it has reported so far counts"
        await choose(head, "val_acc", types.GOAL_MAXIMIZE)
        await report(node, launch, 3, val_loss=0.1, val_acc=0.3)
        await node.settle()
        assert signal_of(head) == "val_acc"
        node.call.cancel()


async def test_the_metric_that_a_study_file_names_is_read_with_its_goal(
    head: World, node: Node, looking: Signals
) -> None:
    metric = types.Metric(name="val_acc", goal=types.GOAL_MAXIMIZE)
    await at_work(head, node, metric=metric)
    await looking.look()
    assert signal_of(head) == "val_acc"
    assert head.state.trials["digits/1"].loss == pytest.approx(-0.15)


@asynccontextmanager
async def while_reading(head: World, deed: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """What happens once, when the first points were read and nothing is made of them yet."""
    journal = head.running.head.journal
    read, still = journal.pieces, [deed]

    async def pieces(trial: str, metric: str) -> list[Piece]:
        found = await read(trial, metric)
        while still:
            await still.pop()()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "pieces", pieces)
        yield


async def test_a_signal_that_a_study_file_names_ranks_where_no_metric_is_named(
    head: World, node: Node
) -> None:
    """Else who has policies read the only loss from the first step would have no ranks."""
    signal = types.Signal(name="acc", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec({"lr": {"value": 0.1}}, signal=signal))

    async def shown() -> pb.Study:
        await node.settle()
        return (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study

    launch = await node.start()
    await report(node, launch, 1, acc=0.5)
    study = await shown()
    assert (study.ranking.metric.name, study.ranking.metric.goal) == ("acc", signal.goal)
    assert (study.best_trial, study.notices) == (launch.trial, [])
    await report(node, launch, 2, loss=0.25)
    assert (await shown()).ranking.metric.name == "loss"


async def test_what_is_reported_while_the_curves_are_read_is_in_them(
    head: World, node: Node, looking: Signals
) -> None:
    launch = await at_work(head, node)

    async def more() -> None:
        await report(node, launch, 3, val_loss=0.125)
        await node.settle()

    async with while_reading(head, more):
        await looking.look()
    assert signal_of(head) == "val_loss"
    assert [each.last_step for each in head.state.trials["digits/1"].curve] == [1, 2, 3]


async def test_a_loss_that_comes_while_the_curves_are_read_is_read_after_all(
    head: World, node: Node, looking: Signals
) -> None:
    launch = await at_work(head, node)

    async def loss() -> None:
        await node.report(launch, 3, [0.5])
        await node.settle()

    async with while_reading(head, loss):
        await looking.look()
    assert signal_of(head) == "loss"


async def test_a_loss_of_a_trial_that_has_begun_anew_counts(
    head: World, node: Node, looking: Signals
) -> None:
    await head.submit(spec({"lr": {"value": 0.1}}))
    launch = await node.start()
    await node.report(launch, 1, [0.5])
    failure: dict[str, Any] = {"error_kind": "exception", "detail": "it broke", "step": 1}
    await node.say(run_failed=node_pb2.RunFailed(**run_of(launch), **failure))
    again = await node.start()
    await report(node, again, 1, val_loss=0.5)
    await node.say(quantum_ended=node_pb2.QuantumEnded(**run_of(again), step=1))
    await node.settle()
    assert unasked(head.state, head.state.studies["digits"]) == VAL_LOSS
    await looking.look()
    assert signal_of(head) == "loss"
    await node.complete(again, 1)
    await node.settle()
    removing = pb.RemoveStudyRequest(request_id=request_id(), study="digits")
    await head.control.RemoveStudy(removing)
    await looking.look()
    assert not looking._settled, "nothing is remembered of what is gone"


async def test_a_study_that_is_removed_while_its_curves_are_read_is_no_error(
    head: World, node: Node, looking: Signals
) -> None:
    launch = await at_work(head, node)

    async def remove() -> None:
        await node.complete(launch, 2)
        await node.settle()
        removing = pb.RemoveStudyRequest(request_id=request_id(), study="digits")
        await head.control.RemoveStudy(removing)

    async with while_reading(head, remove):
        with capture_logs() as lines:
            await looking.look()
    assert "digits" not in head.state.studies
    assert not [line for line in lines if line["log_level"] == "error"]


async def test_a_damaged_row_costs_its_study_the_choice_and_nobody_anything_else(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as head:
        looking = Signals(head.running.head)
        node = Node(head, slots=2)
        await node.hello()
        await head.submit(spec({"lr": {"values": [0.1, 0.2]}}, name="damaged"))
        ended, other = await node.start(), await node.start()
        for launch in (ended, other):
            await report(node, launch, 1, val_loss=0.5)
        await node.complete(ended, 1)
        await node.settle()
        await at_work(head, node)
        with closing(sqlite3.connect(tmp_path / schema.NAME)) as rows, rows:
            assert rows.execute("UPDATE points SET steps = x'01'").rowcount
        with capture_logs() as lines:
            await looking.look()
            await looking.look()
        assert signal_of(head) == "val_loss"
        assert signal_of(head, "damaged") == "loss"
        errors = [line["study"] for line in lines if line["log_level"] == "error"]
        assert errors == ["damaged"], "told once"
        node.call.cancel()


async def test_what_is_reported_while_the_event_is_prepared_is_in_the_curves_and_in_the_journal(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, prepare, steps = await at_work(head, node), Head.prepare, [2]

    async def and_report(*arguments: Any) -> Any:
        made = await prepare(*arguments)
        steps.append(steps[-1] + 1)
        await report(node, launch, steps[-1], val_acc=0.5)
        await node.settle()
        return made

    monkeypatch.setattr(Head, "prepare", and_report)
    monkeypatch.setattr(choosing, "SMALL", 0)
    await choose(head, "val_acc", types.GOAL_MAXIMIZE)
    assert steps == [2, 3], "it is prepared once"
    curve = head.state.trials["digits/1"].curve
    assert [each.last_step for each in curve] == [1, 2, 3]
    lines = await head.running.head.journal.read(0)
    (told,) = [each.entry for each in lines if isinstance(each.entry, SignalChosen)]
    assert dict(told.curves)["digits/1"] == curve


async def test_what_a_trial_reports_before_it_rests_and_the_event_is_prepared_is_in_its_curve(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = await at_work(head, node)

    async def and_end() -> None:
        await report(node, launch, 3, val_acc=0.5)
        await node.complete(launch, 3)
        await node.settle()

    monkeypatch.setattr(choosing, "SMALL", 0)
    async with while_reading(head, and_end):
        await choose(head, "val_acc", types.GOAL_MAXIMIZE)
    trial = head.state.trials["digits/1"]
    assert trial.is_at_rest
    assert [each.last_step for each in trial.curve] == [1, 2, 3]


async def test_another_signal_of_few_trials_is_not_prepared_beside_the_loop(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_work(head, node)
    monkeypatch.setattr(Head, "prepare", pytest.fail)
    await choose(head, "val_acc", types.GOAL_MAXIMIZE)
    assert signal_of(head) == "val_acc"
