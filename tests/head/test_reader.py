"""Long answers are made beside the loop: nobody waits for another user's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermesd.core.state import State
from hermesd.head import loop, reader
from hermesd.head.reader import Reader
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pieces import Pieces
from tests.core.playbook import submitted
from tests.head.heads import cancelled, world
from tests.study_specs import spec


@pytest.fixture
async def desk() -> AsyncIterator[Reader]:
    made = Reader()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(made.run())
        yield made
        working.cancel()


def pieces(name: str, count: int, done: list[str]) -> Pieces[str]:
    for _ in range(count):
        done.append(name)
        yield
    return name


async def test_users_take_turns_and_each_has_one_answer_made_at_a_time(
    desk: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_advance", _one_piece)
    done: list[str] = []
    asked = [("alice", "a1"), ("alice", "a2"), ("bob", "b")]
    calls = [desk.do(user, lambda name=name: pieces(name, 3, done)) for user, name in asked]
    assert await asyncio.gather(*calls) == ["a1", "a2", "b"]
    assert done == ["a1", "b", "a1", "b", "a1", "b", "a2", "a2", "a2"]


def _one_piece(pieces: Pieces[str], free: threading.Event) -> tuple[str] | None:
    try:
        next(pieces)
    except StopIteration as ended:
        return (ended.value,)
    return None


async def test_the_thread_stands_still_while_somebody_waits_for_a_change(
    desk: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LONGEST_PAUSE_SECONDS", 3_600)
    standing, done = threading.Event(), list[str]()

    def wait(patience: float) -> bool:
        standing.set()
        return threading.Event.wait(desk._free, patience)

    monkeypatch.setattr(desk._free, "wait", wait)
    async with asyncio.TaskGroup() as tasks:
        with desk.paused(), desk.paused():
            call = tasks.create_task(desk.do("alice", lambda: pieces("a", 3, done)))
            await asyncio.to_thread(standing.wait)
            assert not done
    assert (call.result(), len(done)) == ("a", 3)


async def test_but_not_for_good(desk: Reader) -> None:
    with desk.paused():
        assert await desk.do("alice", lambda: pieces("a", 3, [])) == "a"


async def test_the_loop_goes_on_and_what_nobody_waits_for_is_left_undone(desk: Reader) -> None:
    going, gate, done = threading.Event(), threading.Event(), []

    def slow() -> Pieces[str]:
        going.set()
        gate.wait()
        yield
        while True:
            done.append("more")
            yield

    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(desk.do("alice", slow))
        await asyncio.to_thread(going.wait)  # the loop has the time for this
        await cancelled(call)
    gate.set()
    assert await desk.do("alice", lambda: pieces("next", 1, [])) == "next"
    left = len(done)
    assert await desk.do("alice", lambda: pieces("next", 1, [])) == "next"
    assert len(done) == left


async def test_what_is_asked_while_an_earlier_answer_is_made_is_made_too(desk: Reader) -> None:
    going, gate = threading.Event(), threading.Event()

    def slow() -> Pieces[str]:
        going.set()
        gate.wait()
        yield
        return "slow"

    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(desk.do("alice", slow))]
        calls.append(tasks.create_task(desk.do("alice", lambda: pieces("waiting", 1, []))))
        await asyncio.to_thread(going.wait)
        calls.append(tasks.create_task(desk.do("alice", lambda: pieces("late", 1, []))))
        await asyncio.sleep(0)  # it is asked by now
        gate.set()
    assert [call.result() for call in calls] == ["slow", "waiting", "late"]


async def test_what_goes_wrong_is_the_callers_alone(desk: Reader) -> None:
    def wrong() -> Pieces[str]:
        yield
        raise KeyError("x")

    def at_once() -> Pieces[str]:
        raise ValueError("y")

    with pytest.raises(KeyError):
        await desk.do("alice", wrong)
    with pytest.raises(ValueError, match="y"):
        await desk.do("alice", at_once)
    assert await desk.do("alice", lambda: pieces("next", 1, [])) == "next"


def test_the_still_state_stays_as_it_was() -> None:
    state = State()
    state.apply(submitted(3), 1.0)
    state.sights["n"] = {"/data": ""}
    state.riding.kin["root"] = {"s/1": None}
    taken = reader.still(state)
    state.sights["n"]["/data"] = "missing"
    state.riding.kin["root"]["s/2"] = None
    assert (taken.sights["n"], taken.riding.kin["root"]) == ({"/data": ""}, {"s/1": None})
    state.riding.kin.clear()
    for trial in list(state.active["s"]):
        del state.active["s"][trial]
        del state.trials[trial]
    state.now = 9.0
    assert len(taken.trials) == len(taken.active["s"]) == 3
    assert taken.now == 1.0


async def test_a_large_study_is_answered_as_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as up:
        await up.submit()
        between = {"lr": {"min": 0.0, "max": 1.0}}
        drawn = spec(between, name="drawn", method="SEARCH_METHOD_RANDOM", run_cap=4)
        calls = (
            lambda: up.control.GetStudy(pb.GetStudyRequest(study="digits")),
            lambda: up.control.ListStudies(pb.ListStudiesRequest()),
            lambda: up.control.ListTrials(pb.ListTrialsRequest(study="digits", page_size=2)),
            lambda: up.control.BestTrials(pb.BestTrialsRequest(study="digits", count=3)),
            lambda: up.control.GetTrial(pb.GetTrialRequest(trial="digits/2")),
            lambda: up.submit(spec(name="other"), validate_only=True),
        )
        changes = (
            lambda: up.submit(drawn, request_id="submit"),
            lambda: up.control.AddTrials(
                pb.AddTrialsRequest(request_id="add", study="drawn", count=2)
            ),
        )
        made = [await change() for change in changes]
        at_once = [await call() for call in calls]
        monkeypatch.setattr(loop, "SMALL", 0)
        assert [await call() for call in calls] == at_once
        again = [await change() for change in changes]
        assert [each.trials for each in again] == [each.trials for each in made]
        assert [trial.id for trial in again[1].trials] == ["drawn/5", "drawn/6"]
        assert [trial.number for trial in at_once[0].trials] == [1, 2, 3, 4]
