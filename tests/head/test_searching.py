"""A head whose studies get their trials while others train."""

from __future__ import annotations

import asyncio
import errno
import itertools
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from hermesd.core.events import Added, SearchFailed
from hermesd.head import searching
from hermesd.head.api import submission_checks
from hermesd.head.searching import Searching
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.search.ask import Proposal
from hermesd.study import space
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import parameter, spec

CODE = grpc.StatusCode
SPACE = {"lr": {"min": 0.0, "max": 1.0}, "units": {"min": 1, "max": 64}}
NAMES = list(SPACE)


def search(method: str = "genetic", **fields: Any) -> types.StudySpec:
    number = types.SearchMethod.Value(f"SEARCH_METHOD_{method.upper()}")
    return spec(SPACE, **{"method": number, "run_cap": 6, **fields})


async def until(head: World, trials: int) -> list[str]:
    """The study has so many trials."""
    seq = 0
    while len(head.state.members["digits"]) < trials:
        seq = await head.running.head.beyond(seq)
    return list(head.state.members["digits"])


async def train(head: World, node: Node) -> None:
    launch = await node.start()
    rate = dict(head.state.trials[launch.trial].spec.parameters)["lr"]
    await node.report(launch, 1, [(rate - 0.3) ** 2])
    await node.complete(launch, 1)


async def test_trials_are_proposed_as_others_end_and_by_a_restarted_head_none_twice(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        submitted = await head.submit(search("tpe", search=types.Search(startup=2)))
        assert "2 trials are drawn at random, 4 more proposed by tpe as results come in" in (
            submitted.notes
        )
        assert len(submitted.trials) == 2
        await train(head, node)
        assert len(await until(head, 3)) == 3
        points = [head.state.trials[f"digits/{n}"].spec.parameters for n in (1, 2, 3)]
        study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        assert "tpe: 3 of 6 trials so far, further ones as results come in" in study.notices
        assert not study.finished
        assert study.trials_wanted == 6
        node.call.cancel()
    async with world(tmp_path) as head:
        again = [head.state.trials[f"digits/{n}"].spec.parameters for n in (1, 2, 3)]
        assert again == points
        node = Node(head)
        await node.hello(boot_id="boot-2")
        for _ in range(5):
            await train(head, node)
        seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
        added = [event.reason for event in seen if event.kind == pb.PUBLIC_EVENT_KIND_ADDED]
        assert added == [f"digits/{n} · proposed by tpe" for n in (3, 4, 5, 6)]
        assert list(head.state.members["digits"]) == [f"digits/{n}" for n in range(1, 7)]
        lines = await head.running.head.journal.read(0, 1000)
        proposals = [line.entry for line in lines if isinstance(line.entry, Added)]
        assert [each.searcher for each in proposals] == ["tpe"] * 4
        node.call.cancel()


async def test_a_sampler_that_fails_is_told_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = search("nsgaii", search=types.Search(startup=1))
    monkeypatch.setattr(searching, "PROCESS", ("-c", "import sys; sys.exit(3)"))
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(broken)
        failed = (await events(head, pb.PUBLIC_EVENT_KIND_SEARCH_FAILED))[-1]
        assert (failed.study, failed.reason) == ("digits", "its process ended")
        for _ in range(6):
            await train(head, node)
        study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        told = "nsgaii failed, and further trials are drawn at random: its process ended"
        assert told in study.notices
        assert len(head.state.members["digits"]) == 6
        added = (await events(head, pb.PUBLIC_EVENT_KIND_ADDED))[-1]
        assert added.reason.endswith(" · proposed by random draws")
        node.call.cancel()


async def test_a_sampler_that_cannot_be_started_now_is_asked_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of memory, for example: the head goes on, and the study's search is what it was."""
    start, tries = asyncio.create_subprocess_exec, itertools.count()

    async def third_time_lucky(*words: Any, **how: Any) -> asyncio.subprocess.Process:
        if next(tries) < 2:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*words, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", third_time_lucky)
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(search("random_walk", search=types.Search(startup=2)))
        for _ in range(6):
            await train(head, node)
        lines = await head.running.head.journal.read(0, 1000)
        proposals = [line.entry for line in lines if isinstance(line.entry, Added)]
        assert {each.searcher for each in proposals} == {"random_walk"}
        assert next(tries) > 2
        node.call.cancel()


async def test_it_is_asked_again_though_nothing_else_happens_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = asyncio.create_subprocess_exec, itertools.count()

    async def fourth_time_lucky(*words: Any, **how: Any) -> asyncio.subprocess.Process:
        if next(tries) < 3:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*words, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fourth_time_lucky)
    monkeypatch.setattr(searching, "FIRST_REST_SECONDS", 0.1)
    async with world(tmp_path) as head:
        node = Node(head, slots=3)
        await node.hello()
        await head.submit(search("random_walk"))
        await until(head, 3)  # the node says nothing: only its own clock wakes it
        assert next(tries) == 4
        told = (await events(head, pb.PUBLIC_EVENT_KIND_SEARCH_FAILED))[-1]
        said = "no searcher can be started now: Resource temporarily unavailable"
        assert (told.study, told.reason, told.seconds) == ("digits", said, 0.1)
        lines = await head.running.head.journal.read(0, 1000)
        assert sum(isinstance(line.entry, SearchFailed) for line in lines) == 1
        study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        assert not any("drawn at random" in each for each in study.notices)
        node.call.cancel()


async def test_what_a_sampler_says_that_cannot_be_read_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PROCESS", ("-c", "input(); print('{}', flush=True); input()"))
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(search("random_walk"))
        failed = (await events(head, pb.PUBLIC_EVENT_KIND_SEARCH_FAILED))[-1]
        assert failed.reason == "its process answers what cannot be read"
        assert len(await until(head, 2)) == 2
        node.call.cancel()


async def test_a_sampler_that_hangs_keeps_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PROCESS", ("-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(searching, "PATIENCE_SECONDS", 0.05)
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(search("random_walk"))
        failed = (await events(head, pb.PUBLIC_EVENT_KIND_SEARCH_FAILED))[-1]
        assert failed.reason == "no answer within 0 s"
        assert len(await until(head, 2)) == 2
        node.call.cancel()


async def test_a_study_whose_next_trial_is_not_proposed_yet_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PROCESS", ("-c", "import time; time.sleep(600)"))
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(search("random_walk"))
        await train(head, node)
        await node.settle()
        study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        assert not study.finished
        assert not study.paused
        assert not study.HasField("remaining_seconds")
        listed = (await head.control.ListStudies(pb.ListStudiesRequest())).studies
        assert [each.id for each in listed] == ["digits"]
        why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
        assert "random_walk: 1 of 6 trials so far" in why.notices[-1]
        node.call.cancel()


async def test_a_search_for_which_nothing_can_be_drawn_either_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PROCESS", ("-c", "pass"))
    monkeypatch.setattr(space, "DRAWS_LIMIT", 20)
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        rare = search("random_walk", where=["lr < 0.02"], seed=_seed_with_one_point())
        await head.submit(rare)
        seen = await events(head, pb.PUBLIC_EVENT_KIND_EXTENDED)
        kinds = [each.kind for each in seen]
        assert seen[-1].reason == "no more trials are proposed"
        assert kinds.count(pb.PUBLIC_EVENT_KIND_SEARCH_FAILED) == 2
        assert not head.state.searching
        study = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        assert "of 20 that were drawn none does" in str(study.notices)
        node.call.cancel()


def _seed_with_one_point() -> int:
    """One by which a point is found for the first trial and none for the next."""
    axes = space.axes(SPACE, ["lr < 0.02"])

    def found(seed: int, number: int) -> bool:
        return any(map(axes.allows, itertools.islice(space.attempts(axes, seed, number), 20)))

    return next(seed for seed in range(1000) if found(seed, 1) and not found(seed, 2))


async def test_who_has_many_studies_makes_others_wait_for_one_question() -> None:
    searches, turns = Searching(cast(Any, None)), []

    async def ask(user: str) -> None:
        async with searches._turn_of(user):
            turns.append(user)
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(user) for user in (*["mallory"] * 50, "alice")))
    assert turns.index("alice") == 1


async def test_a_person_ends_a_search_and_has_it_go_on(head: World, node: Node) -> None:
    await head.submit(search("random_walk"))
    await until(head, 2)
    selection = pb.Selection(study="digits")
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=selection)
    stopped = await head.control.StopTrials(stop)
    assert len(stopped.trials) == 2
    assert (await head.control.StopTrials(stop)).trials == stopped.trials
    assert not head.state.searching
    more = pb.AddTrialsRequest(request_id=request_id(), study="digits", count=3)
    answer = await head.control.AddTrials(more)
    assert list(answer.notes) == ["random_walk proposes 3 more trials as results come in"]
    assert len(await until(head, 3)) == 3
    assert head.state.searching == {"digits": 5}
    one = pb.AddTrialsRequest(request_id=request_id(), study="digits", count=1)
    answer = await head.control.AddTrials(one)
    assert list(answer.notes) == ["random_walk proposes 1 more trial as results come in"]
    refused, words = await status(
        head.control.AddTrials(
            pb.AddTrialsRequest(request_id=request_id(), study="digits", count=100_000)
        )
    )
    assert (refused, "at most 100000 trials" in words) == (CODE.INVALID_ARGUMENT, True)


async def test_a_search_knows_the_trials_of_earlier_studies(head: World, node: Node) -> None:
    await head.submit(search("random", run_cap=3))
    for _ in range(3):
        await train(head, node)
    await node.settle()
    warm = search("random_walk", warm_start=["dig"], name="more")
    submitted = await head.submit(warm)
    assert "warm start: 3 trials of digits have a loss" in submitted.notes
    assert len(submitted.trials) == 1
    question = searching.ask(head.state, head.state.studies["more"], 1)
    assert [each.standing for each in question.known] == ["valued"] * 3 + ["open"]
    assert question.number == 2
    for wrong, words in (
        (search("tpe", warm_start=["other"], name="x"), "no study other"),
        (search("grid", warm_start=["digits"], name="x"), "warm_start"),
    ):
        _, said = await status(head.submit(wrong))
        assert words in said


async def test_what_a_method_lacks_is_said_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission_checks, "find_spec", lambda name: None)
    async with world(tmp_path) as head:
        refused, words = await status(head.submit(search("tpe")))
        assert refused == CODE.INVALID_ARGUMENT
        assert "optuna to be installed where the head runs" in words
        assert "(pip install optuna)" in words
        assert "or one of grid, random, genetic, random_walk" in words
        assert not head.state.studies
        idle = search("random", search=types.Search(ahead=2))
        refused, words = await status(head.submit(idle))
        assert "no `search` with method random, which proposes nothing" in words
        node = await asyncio.wait_for(head.submit(search("genetic")), 60)
        assert len(node.trials) == 4


async def test_several_objectives_have_a_front_and_constraints_leave_trials_without_a_rank(
    head: World,
    node: Node,
) -> None:
    aims = {
        "metric": types.Metric(name="loss"),
        "objectives": [types.Objective(name="size", goal=types.GOAL_MAXIMIZE)],
        "constraints": [types.Constraint(name="memory", max=8.0)],
    }
    await head.submit(search("genetic", search=types.Search(startup=6), **aims))
    told = [(0.5, 3, 1), (0.25, 1, 1), (0.75, 4, 1), (0.5, 2, 1), (0.125, 9, 9)]
    for loss, size, memory in told:
        launch = await node.start()
        await node.report(launch, 1, [loss], size=size, memory=memory)
        await node.complete(launch, 1)
    await node.settle()
    best = await head.control.BestTrials(pb.BestTrialsRequest(study="digits"))
    assert [trial.id for trial in best.trials] == [f"digits/{n}" for n in (2, 1, 3, 4, 5, 6)]
    assert list(best.front) == ["digits/2", "digits/1", "digits/3"]
    assert [trial.rank for trial in best.trials] == [1, 2, 4, 3, 0, 0]
    question = searching.ask(head.state, head.state.studies["digits"], 1)
    assert question.goals == ("minimize", "maximize")
    assert question.known[4].values == (0.125, 9.0)
    assert question.known[4].breaches == (1.0,)
    assert question.known[4].breaks
    for wrong, words in (
        ({**aims, "metric": types.Metric()}, "a `metric` by name"),
        ({**aims, "metric": types.Metric(name="size")}, "which is the metric already"),
        ({**aims, "constraints": [types.Constraint(name="memory")]}, "a `min`, a `max`"),
    ):
        assert words in (await status(head.submit(search("tpe", name="x", **wrong))))[1]
    assert "cmaes has one" in (await status(head.submit(search("cmaes", name="x", **aims))))[1]


async def test_what_was_proposed_within_bounds_that_were_narrowed_meanwhile_is_not_added(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrower = pb.ExtendStudyRequest(request_id=request_id())
    narrower.selection.study = "digits"
    narrower.axes.append(parameter("lr", {"max": 0.5}))
    changes = [narrower]

    async def answer(searching: Searching, question: bytes) -> list[Proposal]:
        rate = 0.9 if changes else 0.25
        while changes:
            await head.control.ExtendStudy(changes.pop())
        return [Proposal((("lr", rate), ("units", 8)))]

    monkeypatch.setattr(Searching, "_answer", answer)
    await head.submit(search(run_cap=2, search=types.Search(startup=1)))
    await train(head, node)
    await until(head, 2)
    assert dict(head.state.trials["digits/2"].spec.parameters)["lr"] == 0.25
