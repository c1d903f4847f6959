"""One person cannot keep the head from the others: what they may have open at once is bounded."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.head.api import watch
from hermesd.head.journal.schema import PointRow
from hermesd.head.refusals import TooMuch
from hermesd.head.security import guard
from hermesd.head.security.guard import Calls
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import control_pb2_grpc, enroll_pb2_grpc
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security.enrollment import enroll
from hermesd.security.identity import Identity, Role
from tests.head.heads import request_id, status, world
from tests.head.test_enroll import Open, connected
from tests.head.test_enroll import head as enrolling
from tests.study_specs import spec

CODE = grpc.StatusCode
ALICE = Identity(Role.USER, "alice")
__all__ = ["enrolling"]


def stub(channel: grpc.aio.Channel) -> Any:
    return control_pb2_grpc.ControlServiceStub(channel)


def watched(channel: grpc.aio.Channel, **metadata: Any) -> Any:
    return stub(channel).WatchJournal(control.WatchJournalRequest(), **metadata)


def test_what_has_ended_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STREAMS_LIMIT", 1)
    open_calls = Calls()
    for _ in range(2):
        with open_calls.counted(ALICE, lasts=True):
            with pytest.raises(TooMuch, match="alice has 1 streams open"):
                open_calls.counted(ALICE, lasts=True).__enter__()
            with open_calls.counted(ALICE, lasts=False):
                pass
    with pytest.raises(KeyError), open_calls.counted(ALICE, lasts=True):
        raise KeyError
    with open_calls.counted(ALICE, lasts=True):
        pass


@pytest.mark.parametrize("role", [Role.NODE, Role.ADMIN, None])
def test_nodes_and_admins_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, role: Role | None
) -> None:
    monkeypatch.setattr(guard, "STREAMS_LIMIT", 0)
    monkeypatch.setattr(guard, "CALLS_LIMIT", 0)
    who = Identity(role, "box") if role is not None else None
    for lasts in (True, False):
        with Calls().counted(who, lasts):
            pass


async def test_a_user_who_has_too_many_streams_open_keeps_nobody_else_out(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "STREAMS_LIMIT", 2)
    alice = await enrolling.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    bob = await enrolling.member(pb.IDENTITY_ROLE_OPERATOR, "bob", tmp_path / "bob")
    async with connected(alice) as hers, connected(bob) as his:
        await stub(hers).SubmitStudy(
            control.SubmitStudyRequest(request_id=request_id(), spec=spec())
        )
        watching = [watched(hers) for _ in range(2)]
        for call in watching:
            assert (await call.read()).events
        code, words = await status(watched(hers).read())
        assert code is CODE.RESOURCE_EXHAUSTED
        assert words.startswith("alice has 2 streams open, as many as one user may")
        assert (await stub(hers).ServerInfo(control.ServerInfoRequest())).version
        for others in (
            watched(his),
            *(watched(enrolling.channel, metadata=enrolling.admin) for _ in range(3)),
        ):
            assert (await others.read()).events


async def test_a_stream_that_its_reader_left_makes_room_for_another(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "STREAMS_LIMIT", 1)
    ended, counted = asyncio.Event(), Calls.counted

    @contextmanager
    def observed(self: Calls, who: Identity | None, lasts: bool) -> Iterator[None]:
        try:
            with counted(self, who, lasts):
                yield
        finally:
            if lasts:
                ended.set()

    monkeypatch.setattr(Calls, "counted", observed)
    alice = await enrolling.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    async with connected(alice) as hers:
        await stub(hers).SubmitStudy(
            control.SubmitStudyRequest(request_id=request_id(), spec=spec())
        )
        first = watched(hers)
        assert (await first.read()).events
        first.cancel()
        await ended.wait()
        assert (await watched(hers).read()).events


async def test_calls_under_way_are_bounded_too(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "CALLS_LIMIT", 1)
    journal, begun, gate = enrolling.running.head.journal, asyncio.Event(), asyncio.Event()
    append = journal.append

    async def slow(*arguments: Any) -> int:
        begun.set()
        await gate.wait()
        return await append(*arguments)

    alice = await enrolling.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    async with connected(alice) as hers, asyncio.TaskGroup() as tasks:
        monkeypatch.setattr(journal, "append", slow)
        request = control.SubmitStudyRequest(request_id=request_id(), spec=spec())
        submitting = tasks.create_task(told(stub(hers).SubmitStudy(request)))
        await begun.wait()
        code, words = await status(stub(hers).ServerInfo(control.ServerInfoRequest()))
        assert code is CODE.RESOURCE_EXHAUSTED
        assert words.startswith("alice has 1 calls in progress, as many as one user may: wait")
        gate.set()
        await submitting
        assert (await stub(hers).ServerInfo(control.ServerInfoRequest())).version


async def told(call: Any) -> Any:
    return await call


async def test_the_past_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many read it: the head would do nothing else."""
    monkeypatch.setattr(watch, "FEW", 0)
    async with world(tmp_path) as head:
        await head.submit(spec())
        read, threads = watch.from_row, set()

        def observed(row: PointRow) -> Any:
            threads.add(threading.current_thread())
            return read(row)

        monkeypatch.setattr(watch, "from_row", observed)

        async def export() -> bytes:
            request = control.ExportStudyRequest(study="digits")
            return b"".join([part.data async for part in head.control.ExportStudy(request)])

        watches = [watched(head.channel) for _ in range(4)]
        exports = await asyncio.gather(export(), export(), *(each.read() for each in watches))
        assert exports[0] == exports[1] != b""
        assert len(threads) == 1
        assert threading.main_thread() not in threads


async def test_what_one_may_change_in_a_minute_comes_at_once_and_more_at_its_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, slept = [100.0], []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    calls, bob = Calls(lambda: now[0]), Identity(Role.USER, "bob")
    at_once = int(guard.CHANGES_A_SECOND * guard.CHANGES_AT_ONCE_SECONDS)
    for _ in range(at_once):
        await calls.turn(ALICE, 1)
    assert max(slept, default=0.0) == pytest.approx(0.0, abs=1e-6)
    await calls.turn(ALICE, 1)
    assert slept[-1] == pytest.approx(1 / guard.CHANGES_A_SECOND)
    for _ in range(3):  # what is refused is not counted
        with pytest.raises(
            TooMuch, match=r"alice makes changes faster than one user.*again in 20 s"
        ):
            await calls.turn(ALICE, 20 * guard.CHANGES_A_SECOND)
    slept.clear()
    await calls.turn(bob, 1)
    now[0] += 61.0
    await calls.turn(ALICE, 1)
    assert not slept


async def test_a_user_who_changes_too_much_waits_and_nobody_else_does(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and answers count by their bytes, previews and what is only read not at all; what
    is renewed for nodes of one's own counts, too."""
    alice = await enrolling.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    bob = await enrolling.member(pb.IDENTITY_ROLE_USER, "bob", tmp_path / "bob")
    async with connected(alice) as hers, connected(bob) as his:
        for channel, name in ((hers, "hers"), (his, "his")):
            submission = control.SubmitStudyRequest(request_id=request_id(), spec=spec())
            submission.spec.name = name
            await stub(channel).SubmitStudy(submission)

        def marking(study: str) -> control.MarkTrialsRequest:
            chosen = control.Selection(study=study)
            return control.MarkTrialsRequest(request_id=request_id(), selection=chosen, note="x")

        inviting: Any = enroll_pb2_grpc.EnrollServiceStub(hers)
        token = (await inviting.Invite(pb.InviteRequest(role=pb.IDENTITY_ROLE_NODE))).token
        node = await asyncio.to_thread(enroll, enrolling.address, token, "hers", tmp_path / "node")
        monkeypatch.setattr(guard, "CHANGES_AT_ONCE_SECONDS", 0.0)
        monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.0)
        monkeypatch.setattr(guard, "PIECE_BYTES", 1e-3)
        assert (await status(stub(hers).MarkTrials(marking("hers"))))[0] is (
            CODE.RESOURCE_EXHAUSTED
        )
        for _ in range(3):
            await stub(hers).ListStudies(control.ListStudiesRequest())
            submission.validate_only = True
            await stub(hers).SubmitStudy(submission)
        async with connected(node) as channel:
            renewing: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
            code, words = await status(renewing.Renew(pb.RenewRequest(signing_request=b"none")))
        assert (code, "alice makes changes" in words) == (CODE.RESOURCE_EXHAUSTED, True)
        monkeypatch.setattr(guard, "PATIENCE_SECONDS", 1e9)
        monkeypatch.setattr(guard, "PIECE_BYTES", 4096)
        await stub(his).MarkTrials(marking("his"))
        assert await enrolling.invite(pb.IDENTITY_ROLE_USER, "carol")


async def test_a_change_is_charged_what_it_writes(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what it says: a stop writes how each trial ended."""
    charged: list[float] = []
    charge = Calls.charge

    def noted(self: Calls, payer: Identity, count: float) -> float:
        charged.append(count)
        return charge(self, payer, count)

    def written() -> int:
        with closing(sqlite3.connect(enrolling.directory / "journal.db")) as journal:
            sql = "SELECT sum(length(body) + length(outcome)) FROM journal WHERE kind IN (?, ?, ?)"
            found = journal.execute(sql, ("Submitted", "Cancelled", "Retried")).fetchone()[0]
            return int(found or 0)

    monkeypatch.setattr(Calls, "charge", noted)
    alice = await enrolling.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    async with connected(alice) as channel:
        hers, many = stub(channel), {"lr": {"values": [float(each) for each in range(2_000)]}}
        selection = control.Selection(study="digits")
        calls: tuple[tuple[Any, Any], ...] = (
            (hers.SubmitStudy, control.SubmitStudyRequest(spec=spec(many))),
            (hers.StopTrials, control.StopTrialsRequest(selection=selection)),
            (hers.RetryTrials, control.RetryTrialsRequest(selection=selection)),
        )
        for call, request in calls:
            before = written()
            request.request_id = request_id()
            charged.clear()
            await call(request)
            bytes_written = written() - before
            assert bytes_written > 10_000
            assert sum(charged) >= bytes_written / guard.PIECE_BYTES
