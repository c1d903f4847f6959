"""AddTrials over a real socket: a study grows, once for each request, within its quota."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.config.schema import UserTerms
from hermesd.core.state import State
from hermesd.head.api import studies as services
from hermesd.head.reader import Reader
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import parameter, spec

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}


@pytest.fixture(params=["few", "very many"], autouse=True)
def how_many(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is true of few trials is of very many, of which more is done beside the loop."""
    if request.param == "very many":
        monkeypatch.setattr(services, "SMALL", 0)


def more(name: str = "lr", study: str = "digits", **axis: Any) -> pb.AddTrialsRequest:
    axes = [parameter(name, axis)]
    return pb.AddTrialsRequest(request_id=request_id(), study=study, parameters=axes)


async def test_a_finished_study_grows_and_survives_the_head(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE))
        await node.complete(await node.start())
        await node.settle()
        request = more(values=[1.0, 2.0, 3.0])
        first = await head.control.AddTrials(request)
        assert [trial.id for trial in first.trials] == ["digits/2", "digits/3"]
        assert [trial.argv[-1] for trial in first.trials] == ["--lr=2.0", "--lr=3.0"]
        assert list(first.notes) == ["1 more of these points are trials of the study already"]
        again = await head.control.AddTrials(request)
        assert [trial.id for trial in again.trials] == ["digits/2", "digits/3"]
        assert (await node.expect("launch")).launch.trial == "digits/2"
        assert not (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study.finished
        event = (await events(head, pb.PUBLIC_EVENT_KIND_ADDED))[-1]
        node.call.cancel()
        assert (event.study, event.reason) == ("digits", "digits/2 to digits/3")
    async with world(tmp_path) as head:
        assert list(head.state.members["digits"]) == ["digits/1", "digits/2", "digits/3"]
        assert [trial.id for trial in (await head.control.AddTrials(request)).trials] == [
            "digits/2",
            "digits/3",
        ]


async def test_what_will_not_do_is_refused_whole(head: World) -> None:
    await head.submit(spec(ONE))
    for request, code, words in (
        (more("lrr", value=2.0), CODE.INVALID_ARGUMENT, "did you mean lr?"),
        (more(value=1.0), CODE.INVALID_ARGUMENT, "digits/1 is there already"),
        (more(study="digist", value=2.0), CODE.NOT_FOUND, "did you mean digits?"),
    ):
        refused, said = await status(head.control.AddTrials(request))
        assert (refused, words in said) == (code, True), said
    assert list(head.state.members["digits"]) == ["digits/1"]


async def test_requests_at_the_same_time_give_no_number_twice(head: World) -> None:
    await head.submit(spec(ONE))
    requests = [more(value=float(number)) for number in range(2, 12)]
    answers = await asyncio.gather(*map(head.control.AddTrials, requests))
    ids = [trial.id for answer in answers for trial in answer.trials]
    assert sorted(ids) == sorted(f"digits/{number}" for number in range(2, 12))
    rates = [dict(head.state.trials[each].spec.parameters)["lr"] for each in ids]
    assert rates == [float(number) for number in range(2, 12)]


async def test_more_trials_than_the_quota_has_are_refused_whole(tmp_path: Path) -> None:
    quota = {getpass.getuser(): UserTerms(max_unfinished_trials=3)}
    async with world(tmp_path, users=quota) as head:
        await head.submit(spec(ONE))
        refused, words = await status(head.control.AddTrials(more(values=[2.0, 3.0, 4.0])))
        assert refused is CODE.RESOURCE_EXHAUSTED
        assert "your quota is 3 unfinished trials: you have 1, and this would be 3 more" in words
        assert len((await head.control.AddTrials(more(values=[2.0, 3.0]))).trials) == 2


async def test_points_are_drawn_again_within_bounds_that_were_narrowed_meanwhile(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = spec({"lr": {"min": 0.0, "max": 1.0}}, method=types.SEARCH_METHOD_RANDOM, run_cap=3)
    await head.submit(drawn)
    narrower = pb.ExtendStudyRequest(request_id=request_id())
    narrower.selection.study = "digits"
    narrower.axes.append(parameter("lr", {"max": 0.001}))
    do, extensions = Reader.do, [narrower]

    async def and_narrow(reader: Reader, *arguments: Any) -> Any:
        made = await do(reader, *arguments)
        while extensions:
            await head.control.ExtendStudy(extensions.pop())
        return made

    monkeypatch.setattr(Reader, "do", and_narrow)
    request = pb.AddTrialsRequest(request_id=request_id(), study="digits", count=4)
    await head.control.AddTrials(request)
    trials = head.state.trials.values()
    assert len(trials) == 7
    assert max(dict(trial.spec.parameters)["lr"] for trial in trials) <= 0.001


async def test_trials_are_added_to_a_study_that_grows_faster_than_they_are_drawn(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await head.submit(spec(ONE))
    monkeypatch.setattr(State, "is_still", lambda *arguments: False)
    answer = await head.control.AddTrials(more(values=[2.0, 3.0]))
    assert [trial.id for trial in answer.trials] == ["digits/2", "digits/3"]
