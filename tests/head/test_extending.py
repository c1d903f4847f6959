"""ExtendStudy of a study that runs, over a real socket: new rules, more trials, other bounds."""

from __future__ import annotations

import asyncio
import getpass
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd import study as studies
from hermesd.config.schema import UserTerms
from hermesd.core.model import Phase
from hermesd.head import loop
from hermesd.head.api import extending
from hermesd.head.api import studies as services
from hermesd.head.reader import SMALL, Reader
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import parameter, spec, value

CODE = grpc.StatusCode
ALL = pb.Selection(study="digits")
TWO = {"lr": {"values": [1.0, 2.0]}}
DRAWN = {"lr": {"min": 0.0, "max": 1.0}}


@pytest.fixture(params=["few", "very many"], autouse=True)
def how_many(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is true of few trials is of very many, of which more is done beside the loop."""
    if request.param == "very many":
        monkeypatch.setattr(services, "SMALL", 0)


async def changed(head: World, **fields: Any) -> pb.ExtendStudyResponse:
    request = pb.ExtendStudyRequest(request_id=request_id(), selection=ALL, **fields)
    return await head.control.ExtendStudy(request)


def bounds(name: str = "lr", **axis: Any) -> list[types.Parameter]:
    return [parameter(name, axis)]


async def test_a_running_study_goes_by_a_lower_limit_at_once(head: World, node: Node) -> None:
    await head.submit(spec(TWO, stop=types.Stop(max_steps=100)))
    launch = await node.start()
    await node.report(launch, 50, [0.5])
    await node.settle()
    answer = await changed(head, stop=types.Stop(max_steps=20))
    assert list(answer.trials) == ["digits/1"]
    assert list(answer.notes) == [
        "1 trial unfinished: the new rule applies from now on",
        "1 trial ended: stop.max_steps = 20 is reached",
    ]
    assert (await node.expect("stop")).stop.trial == "digits/1"
    study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
    assert study.spec.stop.max_steps == 20
    assert "a limit that differs" in (await status(changed(head, stop=types.Stop(max_steps=20))))[1]


async def test_a_higher_limit_takes_up_what_the_old_one_had_stopped(
    head: World, node: Node
) -> None:
    await head.submit(spec(TWO, stop=types.Stop(max_steps=10)))
    launch = await node.start()
    await node.report(launch, 10, [0.5])
    await node.expect("stop")
    run = {"trial": launch.trial, "attempt": launch.attempt}
    kept = types.Checkpoint(id="digits/1@c10", trial="digits/1", attempt=1, step=10, nodes=["box"])
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            **run, tier=types.TIER_CHECKPOINT, step=10, checkpoint=kept
        )
    )
    await node.settle()
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_STOPPED
    answer = await changed(head, stop=types.Stop(max_steps=30))
    assert list(answer.trials) == ["digits/1"]
    assert answer.notes[0] == "1 trial stopped by the old rule: resumed from its checkpoint"
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_WAITING


async def test_a_random_search_gets_more_trials_between_other_bounds(
    head: World, node: Node, tmp_path: Path
) -> None:
    drawn = spec(DRAWN, method=types.SEARCH_METHOD_RANDOM, run_cap=3)
    before = {trial.id: trial.argv[-1] for trial in (await head.submit(drawn)).trials}
    await node.start()
    request = pb.ExtendStudyRequest(
        request_id=request_id(), selection=ALL, run_cap=5, axes=bounds(max=0.001)
    )
    answer = await head.control.ExtendStudy(request)
    assert sorted(answer.trials) == ["digits/2", "digits/3", "digits/4", "digits/5"]
    assert list(answer.notes) == ["2 trials not started: drawn again", "2 trials added"]
    assert (await head.control.ExtendStudy(request)).trials == answer.trials
    rates = {
        trial.spec.id: dict(trial.spec.parameters)["lr"] for trial in head.state.trials.values()
    }
    assert len(rates) == 5
    assert before["digits/1"] == f"--lr={rates.pop('digits/1')}"
    assert all(rate <= 0.001 for rate in rates.values())
    told = (await events(head, pb.PUBLIC_EVENT_KIND_ADDED))[-1]
    assert told.reason == "digits/4 to digits/5"


async def test_fewer_trials_end_those_that_have_not_begun(head: World, node: Node) -> None:
    await head.submit(spec({"lr": {"values": [1.0, 2.0, 3.0]}}))
    await node.start()
    answer = await changed(head, run_cap=2)
    assert list(answer.notes) == ["1 trial ended: run_cap = 2"]
    assert (await head.trial("digits/3")).state == types.TRIAL_STATE_STOPPED
    stopped = (await events(head, pb.PUBLIC_EVENT_KIND_STOPPED))[-1]
    assert (stopped.trial, stopped.reason) == ("digits/3", "run_cap = 2")


async def test_a_larger_cap_resumes_the_trials_that_a_smaller_one_had_ended(
    head: World, node: Node
) -> None:
    await head.submit(spec(DRAWN, method=types.SEARCH_METHOD_RANDOM, run_cap=4))
    await node.start()
    await changed(head, run_cap=2)
    await changed(head, axes=bounds(max=0.001))
    assert (await head.trial("digits/4")).state == types.TRIAL_STATE_STOPPED
    words = "no trial after the first 2 is still to begin"
    assert words in (await status(changed(head, run_cap=2)))[1]
    answer = await changed(head, run_cap=4)
    assert list(answer.trials) == ["digits/3", "digits/4"]
    assert list(answer.notes) == ["2 trials ended by a smaller run_cap: resumed"]
    for number in (3, 4):
        trial = await head.trial(f"digits/{number}")
        assert (trial.state, trial.reason) == (types.TRIAL_STATE_WAITING, "")
        assert trial.parameters[0].value.double_value <= 0.001, "it has not started: drawn again"
    study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
    assert study.spec.run_cap == 4
    await changed(head, run_cap=3)
    answer = await changed(head, run_cap=5)
    assert list(answer.trials) == ["digits/4", "digits/5"]
    seen = await events(head, pb.PUBLIC_EVENT_KIND_ADDED)
    extended = [each.trial for each in seen if each.kind == pb.PUBLIC_EVENT_KIND_EXTENDED]
    assert extended == ["digits/3", "digits/4", "digits/4"]
    answer = await changed(head, axes=bounds(max=0.001))
    assert list(answer.notes) == ["no trial changes; those drawn from now on follow the new file"]


async def test_what_will_not_do_is_refused_whole(head: World, node: Node) -> None:
    await head.submit(spec(TWO))
    await node.start()
    await node.settle()
    before = dict(head.state.trials)
    named = pb.Selection(trials=["digits/1"])
    epochs = [types.NamedValue(name="epochs", value=value(9))]
    steps = [types.NamedValue(name="max_steps", value=value(9))]
    for fields, code, words in (
        ({"axes": bounds(max=3.0)}, CODE.INVALID_ARGUMENT, "`study add` gives a grid more points"),
        ({"run_cap": 2}, CODE.INVALID_ARGUMENT, "this changes nothing: it has that many"),
        ({"stop": types.Stop(max_steps=0)}, CODE.INVALID_ARGUMENT, "stop.max_steps = 0"),
        ({"new_parameters": epochs}, CODE.FAILED_PRECONDITION, "2 of 2 trials are not finished"),
        ({"parameters": epochs}, CODE.INVALID_ARGUMENT, "any other argument of the program"),
        ({"parameters": steps}, CODE.INVALID_ARGUMENT, "did you mean stop.max_steps?"),
        ({"run_cap": 1, "selection": named}, CODE.INVALID_ARGUMENT, "those of all its trials"),
        ({}, CODE.INVALID_ARGUMENT, "a limit to raise, or a parameter to set"),
    ):
        request = pb.ExtendStudyRequest(
            **{"request_id": request_id(), "selection": ALL, **fields}  # type: ignore[arg-type]
        )
        refused, said = await status(head.control.ExtendStudy(request))
        assert (refused, words in said) == (code, True), said
    assert dict(head.state.trials) == before


async def test_points_are_drawn_beside_the_loop_and_not_for_who_began_meanwhile(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> studies.StudyChange:
        drawing.set()
        assert go_on.wait(20)
        return change(*arguments)

    change = studies.change
    monkeypatch.setattr(extending.studies, "change", slow)
    count = SMALL + 1
    submitted = await head.submit(spec(DRAWN, method=types.SEARCH_METHOD_RANDOM, run_cap=count))
    async with asyncio.TaskGroup() as tasks:
        extension = tasks.create_task(changed(head, axes=bounds(max=0.001)))
        await asyncio.to_thread(drawing.wait, 20)
        began = (await node.start()).trial
        await head.control.ServerInfo(pb.ServerInfoRequest())
        go_on.set()
    answer = extension.result()
    assert began not in answer.trials
    assert len(answer.trials) == count - 1
    kept = next(trial for trial in submitted.trials if trial.id == began)
    assert (await head.trial(began)).parameters == kept.parameters


async def test_a_quota_is_looked_at_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = getpass.getuser()
    terms = {user: UserTerms(max_unfinished_trials=5)}
    async with world(tmp_path, users=terms) as head:
        await head.submit(spec(DRAWN, method=types.SEARCH_METHOD_RANDOM, run_cap=3))
        monkeypatch.setattr(extending.studies, "change", pytest.fail)
        code, words = await status(changed(head, run_cap=100_000))
        assert (code, "your quota is 5" in words) == (CODE.RESOURCE_EXHAUSTED, True)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """What happens once, when an extension was found and is not folded in yet."""
    carry_out = services.carry_out

    def happens(deed: Callable[[], Awaitable[None]]) -> None:
        deeds = [deed]

        async def late(*arguments: Any) -> Any:
            while deeds:
                await deeds.pop()()
            return await carry_out(*arguments)

        monkeypatch.setattr(services, "carry_out", late)

    return happens


async def test_a_trial_that_passes_the_new_limit_meanwhile_ends(
    head: World, node: Node, meanwhile: Any
) -> None:
    await head.submit(spec(TWO, stop=types.Stop(max_steps=100)))
    launch = await node.start()
    await node.report(launch, 15, [0.5])
    await node.settle()

    async def further() -> None:
        await node.report(launch, 30, [0.5])
        await node.settle()

    meanwhile(further)
    assert list((await changed(head, stop=types.Stop(max_steps=20))).trials) == [launch.trial]
    assert (await node.expect("stop")).stop.trial == launch.trial


async def test_a_trial_whose_checkpoint_is_lost_meanwhile_is_not_begun_anew(
    head: World, node: Node, meanwhile: Any
) -> None:
    await head.submit(spec(TWO, stop=types.Stop(max_steps=10)))
    launch = await node.start()
    await node.report(launch, 10, [0.5])
    await node.expect("stop")
    run: dict[str, Any] = {"trial": launch.trial, "attempt": launch.attempt}
    kept = types.Checkpoint(id="digits/1@c10", step=10, nodes=["box"], **run)
    tier: dict[str, Any] = {"tier": types.TIER_CHECKPOINT, "step": 10, "checkpoint": kept}
    await node.say(run_suspended=node_pb2.RunSuspended(**run, **tier))
    await node.settle()

    async def lost() -> None:
        what = {"node": "box", "trial": "digits/1", "checkpoint": "digits/1@c10"}
        await node.say(spoilt=node_pb2.Spoilt(**what, reason="bad"))
        await node.settle()

    meanwhile(lost)
    assert list((await changed(head, stop=types.Stop(max_steps=30))).trials) == []
    trial = head.state.trials["digits/1"]
    assert (trial.phase, trial.step) == (Phase.STOPPED, 10)


async def test_a_trial_that_goes_on_before_the_study_is_looked_at_is_not_resumed(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await head.submit(spec(DRAWN, method=types.SEARCH_METHOD_RANDOM, run_cap=4))
    await node.start()
    await changed(head, run_cap=2)
    retry = pb.RetryTrialsRequest(request_id=request_id())
    retry.selection.trials.append("digits/3")
    do, retries = Reader.do, [retry]

    async def late(reader: Reader, *arguments: Any) -> Any:
        while retries:
            await head.control.RetryTrials(retries.pop())
        return await do(reader, *arguments)

    monkeypatch.setattr(Reader, "do", late)
    monkeypatch.setattr(loop, "SMALL", 0)
    assert list((await changed(head, run_cap=4)).trials) == ["digits/4"]
