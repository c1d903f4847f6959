"""Trials of somebody's own loop: proposed when they are asked for, over once they are told."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import grpc

from hermesd.config.schema import UserTerms
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
SPACE = {"lr": {"min": 0.0, "max": 1.0}}


def own(method: str = "random_walk", **fields: Any) -> types.StudySpec:
    number = types.SearchMethod.Value(f"SEARCH_METHOD_{method.upper()}")
    search = types.Search(asked=True)
    return spec(
        SPACE, **{"method": number, "run_cap": 3, "search": search, "program": "", **fields}
    )


async def ask(head: World, study: str = "digits") -> pb.Trial:
    request = pb.AskTrialRequest(request_id=request_id(), study=study)
    trial: pb.Trial = (await head.control.AskTrial(request)).trial
    return trial


def told(trial: str, failure: str = "", **metrics: float) -> pb.TellTrialRequest:
    numbers = [pb.NamedNumber(name=name, value=value) for name, value in metrics.items()]
    return pb.TellTrialRequest(
        request_id=request_id(), trial=trial, metrics=numbers, failure=failure
    )


async def test_a_loop_asks_and_tells_until_all_are_over(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(own())
        request = pb.AskTrialRequest(request_id="mine", study="digits")
        first = (await head.control.AskTrial(request)).trial
        again = (await head.control.AskTrial(request)).trial
        assert (first.id, again.id) == ("digits/1", "digits/1"), "a retry takes no second trial"
        tell = told("digits/1", loss=0.5, accuracy=0.25)
        answer = (await head.control.TellTrial(tell)).trial
        assert (answer.rank, answer.metric) == (1, 0.5)
        assert answer.state == types.TRIAL_STATE_COMPLETED
        assert (await head.control.TellTrial(tell)).trial.id == "digits/1"
        second = await ask(head)
        known = head.state.trials[second.id].spec.parameters
        assert known != head.state.trials["digits/1"].spec.parameters
    async with world(tmp_path) as head:
        await head.control.TellTrial(told("digits/2", failure="out of memory"))
        await ask(head)
        await head.control.TellTrial(told("digits/3", loss=math.nan))
        seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
        kinds = [(each.trial, each.kind) for each in seen if each.trial]
        assert kinds == [
            ("digits/1", pb.PUBLIC_EVENT_KIND_ASKED),
            ("digits/1", pb.PUBLIC_EVENT_KIND_COMPLETED),
            ("digits/2", pb.PUBLIC_EVENT_KIND_ASKED),
            ("digits/2", pb.PUBLIC_EVENT_KIND_FAILED),
            ("digits/3", pb.PUBLIC_EVENT_KIND_ASKED),
            ("digits/3", pb.PUBLIC_EVENT_KIND_COMPLETED),
        ]
        assert [head.state.trials[f"digits/{n}"].attempt for n in (1, 2, 3)] == [0, 0, 0]
        refused, words = await status(ask(head))
        assert refused is CODE.FAILED_PRECONDITION
        assert "all 3 trials of digits have been asked for" in words


async def test_askers_at_the_same_time_get_trials_of_their_own(head: World) -> None:
    await head.submit(own("genetic", run_cap=12))
    trials = await asyncio.gather(*(ask(head) for _ in range(12)))
    assert {trial.id for trial in trials} == {f"digits/{n}" for n in range(1, 13)}


async def test_nobody_is_told_that_a_person_holds_back_what_a_loop_trains(head: World) -> None:
    await head.submit(own("random", run_cap=2))
    await ask(head)
    answer = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert not answer.study.paused
    assert [(each.paused, each.reason) for each in answer.trials] == [
        (False, "in the hands of its author's own loop"),
        (False, "not asked for yet"),
    ]


async def test_a_trial_whose_loop_died_is_given_out_again(head: World) -> None:
    await head.submit(own("random", run_cap=1))
    assert (await ask(head)).id == "digits/1"
    selection = pb.Selection(trials=["digits/1"])
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=selection)
    await head.control.StopTrials(stop)
    retry = pb.RetryTrialsRequest(request_id=request_id(), selection=selection)
    await head.control.RetryTrials(retry)
    assert (await ask(head)).id == "digits/1"
    await head.control.TellTrial(told("digits/1", loss=1.0))


async def test_what_cannot_be_asked_or_told_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, users={"root": UserTerms(max_unfinished_trials=5)}) as head:
        await head.submit(own("random", run_cap=2))
        await head.submit(spec({"lr": {"value": 1.0}}, name="ours"))
        await ask(head)
        for call, words in (
            (ask(head, "ours"), "Hermes runs the trials of ours itself"),
            (head.control.TellTrial(told("ours/1", loss=1.0)), "you can report only results of"),
            (head.control.TellTrial(told("digits/1")), "at least one, such as loss=0.31"),
            (head.control.TellTrial(told("digits/1", **{"a\n": 1.0})), "printable characters"),
            (head.control.TellTrial(told("digits/7", loss=1.0)), "no trial digits/7"),
        ):
            assert words in (await status(call))[1]
        resume = pb.ResumeTrialsRequest(
            request_id=request_id(), selection=pb.Selection(study="digits")
        )
        assert "loop of its author" in (await status(head.control.ResumeTrials(resume)))[1]
        await head.control.TellTrial(told("digits/1", loss=1.0))
        assert (
            "completed already"
            in (await status(head.control.TellTrial(told("digits/1", loss=2.0))))[1]
        )
