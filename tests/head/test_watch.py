"""Following the journal: complete, in order, resumable, and at the reader's own pace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import get_args

import grpc
import pytest

from hermesd import record
from hermesd.core.commands import Command
from hermesd.core.events import Event
from hermesd.core.trial import Trial
from hermesd.head.api import watch
from hermesd.head.api.watch import WatchService
from hermesd.head.journal.schema import JournalLine
from hermesd.head.security.access import Asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, events, request_id, status
from tests.node.test_wire_whole import Filler
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}
KIND = pb.PublicEventKind


def kinds(seen: list[pb.PublicEvent]) -> list[str]:
    return [KIND.Name(event.kind).removeprefix("PUBLIC_EVENT_KIND_").lower() for event in seen]


async def one_trial(head: World) -> Node:
    """A study of one trial from submission to its end."""
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.report(launch, 1, [0.5, 0.25])
    await node.say(quantum_ended=node_pb2.QuantumEnded(**run, grant=0, step=2))
    await node.expect("renew")
    await node.say(
        milestone_passed=node_pb2.MilestonePassed(**run, percent=50.0, loss=0.25, step=2)
    )
    await node.complete(launch, 2)
    await node.settle()
    return node


async def test_a_lost_park_is_told_with_its_reason(head: World) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_PARK, step=2))
    await node.say(park_lost=node_pb2.ParkLost(**run, reason="killed by SIGKILL"))
    told = (await events(head, pb.PUBLIC_EVENT_KIND_PARK_LOST))[-1]
    assert (told.trial, told.attempt, told.reason) == (launch.trial, 1, "killed by SIGKILL")


async def test_the_whole_story_of_a_trial_is_told_in_order(head: World) -> None:
    node = await one_trial(head)
    seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED, reports=True)
    told = kinds(seen)
    assert told == [
        "node_joined",
        "submitted",
        "launched",
        "started",
        "reported",
        "quantum_ended",
        "renewed",
        "milestone_passed",
        "completed",
        "study_finished",
    ]
    by_kind = dict(zip(told, seen, strict=True))
    assert by_kind["launched"].device == "box/cpu:0"
    assert by_kind["launched"].reason
    assert by_kind["reported"].loss == pytest.approx(0.375)
    assert by_kind["milestone_passed"].percent == 50.0
    assert {event.study for event in seen[1:]} == {"digits"}
    assert by_kind["completed"].sequence == by_kind["study_finished"].sequence
    node.call.cancel()


async def test_reports_are_told_only_if_wanted(head: World) -> None:
    node = await one_trial(head)
    assert "reported" not in kinds(await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED))
    node.call.cancel()


async def test_a_reader_goes_on_exactly_where_it_stopped(head: World) -> None:
    node = await one_trial(head)
    everything = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED, reports=True)
    for at in range(len(everything)):
        after = everything[at].sequence
        rest = [event for event in everything if event.sequence > after]
        if rest:
            again = await events(
                head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED, after=after, reports=True
            )
            assert again == rest
    node.call.cancel()


async def test_once_ends_at_what_is_there(head: World) -> None:
    request = pb.WatchJournalRequest(once=True)
    assert [r async for r in head.control.WatchJournal(request)] == []
    await head.submit()
    seen = [e async for r in head.control.WatchJournal(request) for e in r.events]
    assert kinds(seen) == ["submitted"]
    past = pb.WatchJournalRequest(once=True, after_sequence=10**9)
    assert [r async for r in head.control.WatchJournal(past)] == []


async def test_a_live_reader_hears_of_what_happens_later(head: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(events(head, pb.PUBLIC_EVENT_KIND_CANCELLED))
        await head.submit(spec(ONE))
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
        await head.control.StopTrials(stop)
    assert kinds(watching.result()) == ["submitted", "cancelled"]
    assert watching.result()[-1].reason == "stopped by a person"


async def test_one_study_is_followed_alone(head: World) -> None:
    await head.submit()
    await head.submit(again=True)
    request = pb.WatchJournalRequest(study="digits-2", once=True)
    seen = [e async for r in head.control.WatchJournal(request) for e in r.events]
    assert [event.study for event in seen] == ["digits-2"]
    assert await head.running.head.journal.before("digits-2") == seen[0].sequence - 1, (
        "read from there"
    )
    assert await head.running.head.journal.before("none") == 0


async def test_a_study_hears_of_a_node_only_what_meets_its_trials(head: World) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    await head.submit(spec(ONE, name="other"))
    launch = await node.start()
    await node.settle()
    run = node_pb2.LiveRun(
        trial=launch.trial,
        attempt=1,
        condition=node_pb2.RUN_CONDITION_RUNNING,
        devices=["box/cpu:0"],
    )
    node.call.cancel()
    await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    other = Node(head, "spare", slots=0)
    await other.hello()
    back = Node(head)
    await back.hello(runs=[run])
    await back.say(device_failed=node_pb2.DeviceFailed(device="box/cpu:0", reason="hot"))
    await back.settle()

    async def told(study: str) -> list[str]:
        request = pb.WatchJournalRequest(study=study, once=True)
        return kinds([e async for r in head.control.WatchJournal(request) for e in r.events])

    story = ["submitted", "launched", "started", "node_silent", "node_joined", "device_failed"]
    assert await told("digits") == story
    assert await told("other") == ["submitted"]
    assert (await told("")).count("node_joined") == 3
    call = head.control.ExportStudy(pb.ExportStudyRequest(study="other"))
    text = b"".join([response.data async for response in call]).decode()
    assert [json.loads(line)["type"] for line in text.splitlines()] == ["study", "trial"]
    other.call.cancel()
    back.call.cancel()


async def test_a_slow_reader_holds_up_nobody_and_misses_nothing(head: World) -> None:
    await head.submit(spec(ONE))
    slow = head.control.WatchJournal(pb.WatchJournalRequest(study="digits"))
    first = await slow.read()
    assert kinds(list(first.events)) == ["submitted"]
    for _ in range(300):
        for call, request in (
            (head.control.PauseTrials, pb.PauseTrialsRequest),
            (head.control.ResumeTrials, pb.ResumeTrialsRequest),
        ):
            chosen = pb.Selection(study="digits")
            await call(request(request_id=request_id(), selection=chosen))
    told: list[str] = []
    while len(told) < 600:
        told += kinds(list((await slow.read()).events))
    assert told == ["paused", "resumed"] * 300
    slow.cancel()


async def test_a_failure_is_told_each_time_and_the_last_says_so(head: World, node: Node) -> None:
    await head.submit(spec(ONE, retry=types.Retry(max_failures=2)))
    for attempt in (1, 2):
        launch = await node.start()
        failed = node_pb2.RunFailed(
            trial=launch.trial, attempt=attempt, error_kind="exit", detail=f"code {attempt}"
        )
        await node.say(run_failed=failed)
    seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
    failures = [event for event in seen if event.kind == pb.PUBLIC_EVENT_KIND_FAILED]
    assert [event.reason for event in failures] == ["code 1", "code 2 (no tries left)"]


async def test_a_maximized_signal_is_told_in_its_own_direction(head: World, node: Node) -> None:
    accuracy = types.Signal(name="acc", goal=types.GOAL_MAXIMIZE)
    median = types.Schedule(policy=types.Plugin(name="median"))
    await head.submit(spec(ONE, signal=accuracy, schedule=median))
    launch = await node.start()
    await node.report(launch, 1, [-0.75] * 20)
    seen = await events(head, pb.PUBLIC_EVENT_KIND_REPORTED, reports=True)
    assert seen[-1].loss == 0.75
    told = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=launch.trial))
    assert told.summary.endswith(": highest signal 0.75 by step 20")


async def test_a_number_that_is_none_is_refused(head: World) -> None:
    call = head.control.WatchJournal(pb.WatchJournalRequest(after_sequence=-1))
    assert (await status(call.read()))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_export_holds_the_study_its_entries_and_its_points(
    head: World, node: Node
) -> None:
    secret = types.NamedValue(name="TOKEN", value=types.Value(string_value="s3cret"))
    await head.submit(spec(ONE), environment=[secret])
    await head.submit(spec(ONE, name="other"))
    launch = await node.start()
    await node.report(launch, 1, [0.5, float("nan")])
    await node.complete(launch, 2)
    await node.settle()
    call = head.control.ExportStudy(pb.ExportStudyRequest(study="digits"))
    text = b"".join([response.data async for response in call]).decode()
    assert "s3cret" not in text
    assert "other" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["type"] for line in lines[:2]] == ["study", "trial"]
    form: record.Form[Trial] = record.Form(Trial)
    again = form.read(json.dumps(lines[1]["trial"]))
    assert repr(again) == repr(head.state.trials["digits/1"])
    entries = [line for line in lines if line["type"] == "entry"]
    kinds = [entry["kind"] for entry in entries]
    assert kinds == ["Launch", "RunStarted", "Reported", "RunCompleted"]
    devices = [line["device"] for line in lines if line["type"] == "device"]
    assert [(device["id"], device["kind"]) for device in devices] == [("box/cpu:0", "cpu")]
    for entry in entries:
        record.decode(entry["kind"], json.dumps(entry["body"]))
    points = {line["metric"]: line for line in lines if line["type"] == "points"}
    assert points["loss"]["steps"] == [1, 2]
    assert points["loss"]["values"] == [0.5, "nan"]


async def test_of_many_new_trials_the_ends_are_told_and_all_are_exported(head: World) -> None:
    between = {"lr": {"min": 0.0, "max": 1.0}}
    await head.submit(spec(between, method="SEARCH_METHOD_RANDOM", run_cap=500))
    added = pb.AddTrialsRequest(request_id=request_id(), study="digits", count=500)
    await head.control.AddTrials(added)
    asked = pb.WatchJournalRequest(once=True)
    seen = [event async for part in head.control.WatchJournal(asked) for event in part.events]
    assert [event.reason for event in seen] == ["", "digits/501 to digits/1000"]
    lines = [json.loads(line) async for line in exporting(head)]
    (entry,) = [line for line in lines if line["type"] == "entry" and line["kind"] == "Added"]
    numbers = [trial["number"] for trial in entry["body"]["trials"]]
    assert numbers == list(range(501, 1001))


async def test_a_study_that_is_removed_while_it_is_exported_is_exported_as_it_was(
    head: World,
) -> None:
    await head.submit(spec({"lr": {"values": [0.1, 0.2, 0.3]}}))
    whole = [line async for line in exporting(head) if json.loads(line)["type"] == "trial"]
    lines = exporting(head)
    assert json.loads(await anext(lines))["type"] == "study"
    assert await anext(lines) == whole[0]
    selection = pb.Selection(study="digits")
    await head.control.StopTrials(
        pb.StopTrialsRequest(request_id=request_id(), selection=selection)
    )
    await head.control.RemoveStudy(pb.RemoveStudyRequest(request_id=request_id(), study="digits"))
    assert [line async for line in lines if json.loads(line)["type"] == "trial"] == whole[1:]


async def exporting(head: World) -> AsyncIterator[str]:
    """The lines of an export, as a reader takes them who is slow."""
    reader = WatchService(head.running.head, {})
    async for data in reader._export("digits", Asker("root", everything=True)):
        for line in data.decode().splitlines():
            yield line


async def failed(node: Node) -> None:
    """Take the next launch and fail."""
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    words = f"ECC error {launch.trial}"
    await node.say(
        run_failed=node_pb2.RunFailed(
            **run, error_kind="exception", detail=words, error_signature=words, step=1
        )
    )
    await node.settle()


async def test_a_quarantine_is_told_to_the_studies_that_it_keeps_waiting(head: World) -> None:
    node, spare = Node(head), Node(head, "spare")
    await node.hello()
    await head.submit(spec(ONE, name="before"))
    await node.complete(await node.start())
    await node.settle()
    for study in ("during", "beside", "with"):
        await head.submit(spec(ONE, name=study))
    await spare.hello()
    await spare.start()
    await failed(node)
    await failed(node)
    release = pb.ReleaseNodeRequest(request_id=request_id(), node="box", device="cpu:0")
    await head.control.ReleaseNode(release)
    await head.submit(spec(ONE, name="after"))

    async def told(study: str) -> list[str]:
        request = pb.WatchJournalRequest(study=study, once=True)
        seen = [event async for part in head.control.WatchJournal(request) for event in part.events]
        return [kind for kind in kinds(seen) if kind in ("quarantined", "trusted")]

    assert await told("during") == ["quarantined", "trusted"]
    assert await told("before") == await told("after") == []


@pytest.mark.parametrize(
    "kind", [*get_args(Event), *get_args(Command)], ids=lambda kind: kind.__name__
)
def test_of_every_entry_it_is_known_whether_a_study_is_concerned(kind: type) -> None:
    line = JournalLine(1, 0.0, Filler().whole(kind), "")
    assert watch.concerns(line, "no such study") is False
