"""Whoever changes something, or is refused, is in the audit, and stays there."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner

from hermesctl.cli import app
from hermesd.head.api import requests, trials
from hermesd.head.clock import Clock
from hermesd.head.journal import schema
from hermesd.head.journal.repair import repair
from hermesd.head.journal.schema import AuditEntry
from hermesd.head.journal.store import opened
from hermesd.head.security import audit as audits
from hermesd.head.security.audit import OK, Attempt, Audit, subject_of
from hermesd.head.security.guard import LOCAL, METHODS, READS
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import (
    control_pb2_grpc,
    enroll_pb2,
    enroll_pb2_grpc,
    node_pb2,
    types_pb2,
)
from hermesd.security.enrollment import enroll
from hermesd.security.identity import Identity, Role
from tests.head.heads import by_token, request_id, status, world
from tests.head.test_enroll import Open, attached, connected, head
from tests.study_specs import spec

assert head  # a fixture

CODE = grpc.StatusCode


async def audited(system: Open, **wanted: Any) -> list[Any]:
    """What an admin is shown, the oldest first."""
    answer = await system.control.ListAudit(pb.ListAuditRequest(**wanted), metadata=system.admin)
    return list(reversed(answer.entries))


def test_every_method_is_a_read_or_a_change() -> None:
    """Who adds a method that changes something need not think of the audit."""
    assert set(METHODS) > READS
    words = ("Get", "List", "Explain", "Best", "Watch", "Tail", "Export", "Download", "ServerInfo")
    ours = {method.rpartition("/")[2] for method in READS if "/hermes." in method}
    assert all(name.startswith(words) for name in ours)


async def test_who_came_by_which_invitation_of_whom_and_did_what(
    head: Open, tmp_path: Path
) -> None:
    root = await head.member(enroll_pb2.IDENTITY_ROLE_ADMIN, "root", tmp_path / "root")
    async with connected(root) as channel:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
        request = enroll_pb2.InviteRequest(role=enroll_pb2.IDENTITY_ROLE_USER, name="alice")
        token = (await stub.Invite(request)).token
        alice = await asyncio.to_thread(enroll, head.address, token, "alice", tmp_path / "alice")
        async with connected(alice) as hers:
            control: Any = control_pb2_grpc.ControlServiceStub(hers)
            submission = pb.SubmitStudyRequest(request_id=request_id(), spec=spec())
            submission.spec.name = "hers"
            await control.SubmitStudy(submission)
            await control.ListStudies(pb.ListStudiesRequest())
            assert (await status(control.ListAudit(pb.ListAuditRequest())))[0] is (
                CODE.PERMISSION_DENIED
            )
        await stub.Revoke(
            enroll_pb2.RevokeRequest(role=enroll_pb2.IDENTITY_ROLE_USER, name="alice")
        )
    invited, enrolled, submitted, refused, revoked = (await audited(head))[-5:]
    assert (invited.role, invited.name, invited.method) == ("admin", "root", "Invite")
    assert invited.shown.startswith("certificate ")
    mark = invited.subject.rpartition("invitation ")[2]
    assert invited.subject == f"role user, name alice; invitation {mark}"
    assert (enrolled.method, enrolled.name, enrolled.shown) == ("Enroll", "", "invitation")
    assert enrolled.subject == f"name alice; invitation {mark}, for a user"
    assert (submitted.role, submitted.name, submitted.method) == ("user", "alice", "SubmitStudy")
    assert "name hers" in submitted.subject
    assert submitted.peer.startswith("ipv4:127.0.0.1:")
    assert (refused.name, refused.method, refused.result) == (
        "alice",
        "ListAudit",
        "PERMISSION_DENIED",
    )
    assert "admin" in refused.reason
    assert (revoked.name, revoked.method, revoked.subject) == (
        "root",
        "Revoke",
        "role user, name alice",
    )
    assert all(one.result == OK for one in (invited, enrolled, submitted, revoked))
    assert token not in "".join(one.subject for one in await audited(head))
    assert await audited(head, name="alice") == [submitted, refused]
    assert await audited(head, refusals_only=True) == [refused]
    assert await audited(head, within_seconds=3_600) == await audited(head)
    assert await audited(head, within_seconds=1e-9) == []
    assert await audited(head, page_size=1) == [revoked]
    assert await audited(head, page_size=2, page_token=str(revoked.number)) == [submitted, refused]


async def test_which_node_came_and_which_left_for_good(head: Open, tmp_path: Path) -> None:
    """Also of one that shows the token for all nodes, which names none."""
    box = await head.member(enroll_pb2.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    async with connected(box) as channel:
        node = await attached(channel, "box")
        await node.say(goodbye=node_pb2.Goodbye(reason="it is given back", for_good=True))
        await node.ended()
    shown = by_token(head.directory / "node-token")
    other = await attached(head.channel, "other", metadata=shown)
    code, _ = await status(attached(head.channel, "other", metadata=shown, slots=10**6))
    assert code is not CODE.OK
    other.call.cancel()
    came, left, second, refused = [
        (each.role, each.name, each.method, each.subject, each.result)
        for each in await audited(head)
        if each.method == "Attach"
    ]
    assert came == ("node", "box", "Attach", "node box", OK)
    assert left == (
        "node", "box", "Attach", "node box, which left for good: its certificate ended", OK,
    )  # fmt: skip
    assert second == ("node", "", "Attach", "node other", OK)
    assert refused[:3] == ("node", "", "Attach")
    assert refused[-1] != OK


async def test_a_revoked_certificate_is_refused_under_its_name(head: Open, tmp_path: Path) -> None:
    alice = await head.member(enroll_pb2.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    gone = enroll_pb2.RevokeRequest(role=enroll_pb2.IDENTITY_ROLE_USER, name="alice")
    await stub.Revoke(gone, metadata=head.admin)
    async with connected(alice) as channel:
        control: Any = control_pb2_grpc.ControlServiceStub(channel)
        code, _ = await status(control.ListStudies(pb.ListStudiesRequest()))
    assert code is CODE.UNAUTHENTICATED
    refused = (await audited(head))[-1]
    assert (refused.role, refused.name, refused.method) == ("user", "alice", "ListStudies")
    assert refused.result == "UNAUTHENTICATED"


async def test_refusals_fill_no_disk(head: Open) -> None:
    ask = head.control.RemoveStudy
    for _ in range(50):
        assert (await status(ask(pb.RemoveStudyRequest(study="none"))))[0] is CODE.UNAUTHENTICATED
    (entry,) = await audited(head)
    assert (entry.method, entry.role, entry.name, entry.times) == ("RemoveStudy", "", "", 1)


async def test_strangers_of_many_addresses_add_few_entries_and_hide_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "STRANGERS_LIMIT", 5)
    async with opened(tmp_path) as journal:
        audit = Audit(journal, Clock(0.0))
        enrolling = "/hermes.v1.EnrollService/Enroll"
        for number in range(200):
            stranger = Attempt(None, "invitation", f"ipv4:10.0.0.{number}:1", enrolling)
            await audit.note(stranger, "FAILED_PRECONDITION", "no such token")
        bob = Attempt(Identity(Role.USER, "bob"), "token", "unix:", "/hermes.v1.ControlService/S")
        await audit.note(bob, "PERMISSION_DENIED", "he may not")
        entries = await journal.audit(2**62, 300)
    assert len(entries) == 5 + 1 + 1
    assert entries[0].name == "bob"


async def test_refusals_that_came_again_are_counted_and_written_at_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        audit = Audit(journal, Clock(0.0))
        for port in range(7):
            mallory = Attempt(None, "", f"ipv4:10.0.0.1:{port}", "/hermes.v1.ControlService/Stop")
            await audit.note(mallory, "UNAUTHENTICATED", "no token")
        bob = Attempt(
            Identity(Role.USER, "bob"), "token", "unix:", "/hermes.v1.ControlService/Stop"
        )
        audit.note_late(bob, "CANCELLED")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(audit.run())
            await asyncio.sleep(0)
            running.cancel()
        again, his, first = await journal.audit(2**62, 10)
    assert (first.times, again.times) == (1, 6)
    assert (first.peer, again.reason) == ("ipv4:10.0.0.1:0", "no token")
    assert (his.name, his.result) == ("bob", "CANCELLED")


async def test_a_change_and_what_the_audit_has_of_it_are_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for the disk is nearly all of the time that a small change takes."""
    for module in (requests, trials):
        monkeypatch.setattr(module, "PART", 2)
    async with world(tmp_path) as up:
        await up.submit()
        syncs, taken = up.running.head.journal.syncs, []
        for selection in (pb.Selection(trials=["digits/1"]), pb.Selection(study="digits")):
            before = sum(syncs.counts)
            marking = pb.MarkTrialsRequest(request_id=request_id(), selection=selection, note="x")
            await up.control.MarkTrials(marking)
            taken.append(sum(syncs.counts) - before)
        # Of what is done in parts it is known at the end that it was done.
        assert taken == [1, 3]
        entries = (await up.control.ListAudit(pb.ListAuditRequest())).entries
        assert [entry.method for entry in entries] == ["MarkTrials", "MarkTrials", "SubmitStudy"]
        assert all((entry.name, entry.shown) == (LOCAL.name, "socket") for entry in entries)


async def test_a_call_that_fails_after_its_change_ends_when_the_audit_has_that_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as up:
        await up.submit()
        head, written, may_write = up.running.head, asyncio.Event(), asyncio.Event()
        append, change = head.journal.append_audit, head.change

        async def slow(entries: list[AuditEntry]) -> None:
            if entries[-1].result == OK:
                written.set()
                await may_write.wait()
            await append(entries)

        async def failing(*what: Any) -> Any:
            await change(*what)
            raise ZeroDivisionError

        monkeypatch.setattr(head.journal, "append_audit", slow)
        monkeypatch.setattr(head, "change", failing)
        marking = pb.MarkTrialsRequest(
            request_id=request_id(), selection=pb.Selection(trials=["digits/1"]), note="x"
        )
        call = up.control.MarkTrials(marking)
        await written.wait()
        # Something else that the head answers: by then it would have answered this one.
        with pytest.raises(grpc.aio.AioRpcError):
            await up.control.RemoveStudy(pb.RemoveStudyRequest(study="none"))
        assert not call.done()
        may_write.set()
        assert (await status(call))[0] is CODE.INTERNAL
        entries = (await up.control.ListAudit(pb.ListAuditRequest())).entries
        assert [entry.result for entry in entries if entry.method == "MarkTrials"] == [
            "INTERNAL", OK,
        ]  # fmt: skip


async def test_the_audit_survives_a_restart_and_a_repair(tmp_path: Path) -> None:
    async with world(tmp_path) as up:
        await up.submit()
        before = (await up.control.ListAudit(pb.ListAuditRequest())).entries
        assert [entry.method for entry in before] == ["SubmitStudy"]
        assert before[0].shown == "socket"
    path = tmp_path / schema.NAME
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE journal SET crc = crc + 1 WHERE seq = 1")
    assert repair(tmp_path).folder is not None
    async with world(tmp_path) as up:
        assert (await up.control.ListAudit(pb.ListAuditRequest())).entries == before


async def test_only_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "AUDIT_LIMIT", 10)
    monkeypatch.setattr(audits, "MERGE_SECONDS", 0.0)
    async with opened(tmp_path) as journal:
        for number in range(25):
            entry = AuditEntry(0, float(number), "user", "a", "", "", "Stop", "", OK, "")
            await journal.append_audit([entry])
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(Audit(journal, Clock(0.0)).run())
            while len(await journal.audit(2**62, 100)) > 10:
                assert not running.done()
            running.cancel()
        assert [entry.at_unix_seconds for entry in await journal.audit(2**62, 100)] == [
            float(number) for number in range(24, 14, -1)
        ]


async def test_the_command_shows_it(tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        run = CliRunner().invoke(app, [*arguments, "--head", f"unix:{tmp_path / 'head.sock'}"])
        assert run.exit_code == 0, run.output
        return run.stdout

    async with world(tmp_path) as up:
        await up.submit()
        await status(up.control.RemoveStudy(pb.RemoveStudyRequest(study="none", request_id="r")))
        whole = json.loads(await asyncio.to_thread(said, "audit", "-o", "json"))["entries"]
        refused = json.loads(await asyncio.to_thread(said, "audit", "--refused", "-o", "json"))
        newest = json.loads(await asyncio.to_thread(said, "audit", "-n", "1", "-o", "json"))
        table = await asyncio.to_thread(said, "audit", "--since", "1h")
    assert [entry["method"] for entry in whole] == ["SubmitStudy", "RemoveStudy"]
    assert whole[1]["subject"] == "study none"
    assert refused["entries"] == newest["entries"] == whole[1:]
    assert [line.split()[-1] for line in table.splitlines()] == ["result", OK, "NOT_FOUND"]


def test_no_secret_of_a_request_is_told() -> None:
    """Each text field of each request is filled; only what names something comes through."""
    names = {"study", "trial", "trials", "node", "device", "name", "code_sha256"}
    methods = [
        method
        for file in (pb.DESCRIPTOR, enroll_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
        for method in service.methods
    ]
    for method in methods:
        request = GetMessageClass(method.input_type)()
        for field in method.input_type.fields:
            word = f"value-of-{field.name}"
            if not field.is_repeated and field.type == field.TYPE_STRING:
                setattr(request, field.name, word)
            if not field.is_repeated and field.type == field.TYPE_BYTES:
                setattr(request, field.name, word.encode())
        told = {word.rpartition("value-of-")[2] for word in subject_of(request).split(", ")}
        assert told <= names | {""}, (method.name, told)


def test_a_selection_of_many_trials_is_told_in_short() -> None:
    trials = [f"s/{number}" for number in range(500)]
    request = pb.StopTrialsRequest(request_id="r", selection=pb.Selection(trials=trials))
    assert subject_of(request) == f"trials {' '.join(trials[:10])} and 490 more"
    environment = [types_pb2.NamedValue(name="WANDB_API_KEY")]
    assert subject_of(pb.SubmitStudyRequest(environment=environment)) == ""
