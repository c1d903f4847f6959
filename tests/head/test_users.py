"""What the head's settings make of its users: quotas, weights, and what people see of them."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.config.schema import FairShare, UserTerms
from hermesd.core.commands import Launch
from hermesd.core.events import Removed, RunCompleted, TermsSet
from hermesd.core.model import Quantum, RunId
from hermesd.core.sharing import Terms, settled
from hermesd.core.state import State
from hermesd.head.api import users
from hermesd.head.api.users import user_views
from hermesd.head.journal import replay
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.study import space
from tests.core.playbook import joined, submitted
from tests.forked import Forked
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
ME = getpass.getuser()


def terms(**mine: Any) -> dict[str, Any]:
    return {"users": {ME: UserTerms(**mine)}}


async def kinds(up: World) -> list[type]:
    return [type(line.entry) for line in await up.running.head.journal.read(0, 1000)]


async def test_a_study_over_the_quota_is_refused_whole(tmp_path: Path) -> None:
    async with world(tmp_path, **terms(max_unfinished_trials=6)) as up:
        await up.submit()
        code, words = await status(up.submit(spec(name="more")))
        assert code is CODE.RESOURCE_EXHAUSTED
        assert words.startswith(
            "your quota is 6 unfinished trials: you have 4, and this would be 4 more"
        )
        assert up.state.studies.keys() == {"digits"}
        # The preview says so, too.
        assert (await status(up.submit(spec(name="more"), validate_only=True)))[0] is code
        # What fits is taken: up to the quota, and no further.
        await up.submit(spec({"lr": {"values": [1.0, 2.0]}}, name="two"))
        assert (await status(up.submit(spec({"lr": {"value": 1.0}}, name="one"))))[0] is code


async def test_a_quota_is_looked_at_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, **terms(max_unfinished_trials=6)) as up:
        axes = {"lr": {"min": 0.0, "max": 1.0}}
        first = {"method": types.SEARCH_METHOD_RANDOM, "run_cap": 6}
        same = request_id()
        await up.submit(spec(axes, **first), request_id=same)

        def drawn(*_: Any) -> Any:
            raise AssertionError("something was drawn")

        with monkeypatch.context() as patched:
            patched.setattr(space, "drawn", drawn)
            for validate_only in (True, False):
                many = spec(axes, name="more", **{**first, "run_cap": 7})
                code, words = await status(up.submit(many, validate_only=validate_only))
                assert code is CODE.RESOURCE_EXHAUSTED
                assert words.startswith("your quota is 6 unfinished trials")
            asked = pb.AddTrialsRequest(request_id=request_id(), study="digits", count=7)
            assert (await status(up.control.AddTrials(asked)))[0] is CODE.RESOURCE_EXHAUSTED
        # What was carried out before is answered as then, and what is there is found.
        assert (await up.submit(spec(axes, **first), request_id=same)).study == "digits"
        assert (await up.submit(spec(axes, **first))).identical_to == "digits"


async def test_who_has_no_quota_has_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "MOST_UNFINISHED_TRIALS", 6)
    async with world(tmp_path) as up:
        await up.submit()
        code, words = await status(up.submit(spec(name="more")))
        assert (code, words[:33]) == (CODE.RESOURCE_EXHAUSTED, "your quota is 6 unfinished trials")


async def test_a_study_beyond_the_quota_of_studies_is_refused_until_one_is_removed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, **terms(max_studies=1)) as up:
        await up.submit()
        more = spec({"lr": {"value": 1.0}}, name="more")
        for only_preview in (False, True):
            code, words = await status(up.submit(more, validate_only=only_preview))
            assert code is CODE.RESOURCE_EXHAUSTED
            assert words.startswith("your quota is 1 study, finished ones included")
        everything = pb.Selection(study="digits")
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=everything)
        await up.control.StopTrials(stop)
        assert (await status(up.submit(more)))[0] is code
        (me,) = (await up.control.ListUsers(pb.ListUsersRequest())).users
        assert (me.studies, me.max_studies) == (1, 1)
        await up.control.RemoveStudy(pb.RemoveStudyRequest(request_id=request_id(), study="digits"))
        assert (await up.submit(more)).study == "more"


async def test_a_trial_that_is_to_go_on_counts_as_one_more(tmp_path: Path) -> None:
    async with world(tmp_path, **terms(max_unfinished_trials=4)) as up:
        await up.submit()
        everything = pb.Selection(study="digits")
        await up.control.StopTrials(
            pb.StopTrialsRequest(request_id=request_id(), selection=everything)
        )
        await up.submit(spec({"lr": {"values": [1.0, 2.0]}}, name="two"))
        retry = pb.RetryTrialsRequest(request_id=request_id(), selection=everything)
        code, words = await status(up.control.RetryTrials(retry))
        assert code is CODE.RESOURCE_EXHAUSTED
        assert "you have 2, and this would be 4 more" in words
        some = pb.Selection(trials=["digits/1", "digits/2"])
        retry = pb.RetryTrialsRequest(request_id=request_id(), selection=some)
        assert len((await up.control.RetryTrials(retry)).trials) == 2


async def test_a_request_that_is_said_again_is_not_refused_for_itself(tmp_path: Path) -> None:
    async with world(tmp_path, **terms(max_unfinished_trials=4)) as up:
        first = await up.submit(request_id="once")
        assert (await up.submit(request_id="once")).study == first.study


async def test_trials_over_the_quota_of_devices_wait_and_why_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, **terms(max_devices=1)) as up:
        node = Node(up, slots=3)
        await node.hello()
        await up.submit()
        launch = await node.start()
        await node.settle()
        assert [trial.id for trial in up.state.trials.values() if trial.run] == [launch.trial]
        why = await up.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/2"))
        assert "it waits: your quota of 1 device is in use" in why.summary
        await node.complete(launch)
        assert (await node.start()).trial == "digits/2"
        node.call.cancel()


async def test_terms_are_written_when_they_change_and_only_then(tmp_path: Path) -> None:
    async with world(tmp_path) as up:
        assert await kinds(up) == []
    for count, settings in enumerate(
        [
            terms(weight=2.0),
            terms(weight=2.0),
            {**terms(weight=2.0), "fair_share": FairShare(half_life_hours=1.0)},
            {},
        ]
    ):
        async with world(tmp_path, **settings) as up:
            assert (await kinds(up)).count(TermsSet) == [1, 1, 2, 3][count]
            expected = settings.get("users", {})
            assert up.state.terms.keys() == expected.keys()
            assert up.state.half_life_seconds == (3600.0 if count == 2 else 4 * 3600.0)


def test_a_snapshot_keeps_terms_and_use() -> None:
    state = State()
    state.apply(TermsSet(60.0, (("ann", Terms(2.0, 3, 4)),)), 0.0)
    state.apply(submitted(1), 0.0)
    state.apply(joined(1), 0.0)
    state.apply(Launch(RunId("s/0", 1), ("n/0",), Quantum(), "first"), 5.0)
    again = replay.read(tuple(replay.write(replay.taken(state))))
    assert vars(again) == vars(state)
    assert again.used_by("ann", 65.0) == pytest.approx(settled(1, 60.0) / 2)


async def test_users_are_told_what_they_have_used_and_may_have(tmp_path: Path) -> None:
    async with world(tmp_path, **terms(weight=3.0, max_devices=2)) as up:
        node = Node(up)
        await node.hello()
        await up.submit()
        launch = await node.start()
        await node.complete(launch)
        await node.settle()
        (me,) = (await up.control.ListUsers(pb.ListUsersRequest())).users
        assert (me.name, me.weight, me.max_devices) == (ME, 3.0, 2)
        assert not me.HasField("max_unfinished_trials")
        assert (me.unfinished_trials, me.studies, me.devices) == (3, 1, 1)
        assert me.decayed_device_seconds > 0
        assert (me.share, me.fair_share) == (1.0, 1.0)
        node.call.cancel()


async def test_shares_are_of_those_who_have_something_to_do(tmp_path: Path) -> None:
    settings = {"users": {"alice": UserTerms(weight=3.0), ME: UserTerms(weight=1.0)}}
    async with world(tmp_path, **settings) as up:
        await up.submit()
        views = {view.name: view for view in user_views(up.state, up.state.now)}
        # Alice has nothing that runs: all is ours, and three quarters would be hers.
        assert views[ME].fair_share == 1.0
        assert views["alice"].fair_share == 0.75
        assert (views[ME].share, views["alice"].share) == (0.0, 0.0)


def test_who_left_is_listed_until_their_use_has_faded() -> None:
    state = State()
    state.apply(TermsSet(60.0, ()), 0.0)
    for event in (submitted(1, owner="ann"), joined(1)):
        state.apply(event, 0.0)
    state.apply(Launch(RunId("s/0", 1), ("n/0",), Quantum(), "first"), 0.0)
    state.apply(RunCompleted(RunId("s/0", 1), 1), 60.0)
    state.apply(Removed("s", "gone"), 60.0)
    assert [view.name for view in user_views(state, 120.0)] == ["ann"]
    assert user_views(state, 120.0)[0].studies == 0
    assert user_views(state, 1000.0) == []


@pytest.mark.parametrize("verb", ["ls", "show"])
async def test_the_command_line_tells_of_users(tmp_path: Path, verb: str) -> None:
    async with world(tmp_path, **terms(weight=3.0, max_devices=2)) as up:
        await up.submit()
        head = ("--head", f"unix:{tmp_path}/head.sock")

        async def said(*words: str) -> str:
            environment = {**os.environ, "HERMES_STATE": str(tmp_path)}
            run = Forked("hermesctl", "user", verb, *head, *words, environment=environment)
            code, printed, _ = await asyncio.to_thread(run.communicate)
            assert code == 0
            return printed

        shown = json.loads(await said("-o", "json"))
        mine = shown["user"] if verb == "show" else shown["users"][0]
        assert (mine["name"], mine["weight"], mine["max_devices"]) == (ME, 3.0, 2)
        words = await said()
        assert ME in words
        assert ("0/2" if verb == "ls" else "0 devices, at most 2") in words
