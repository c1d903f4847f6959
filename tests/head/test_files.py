"""Files on their way from a node to a client: whole, in order, and nobody is held up by them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from hermesd.head.fleet import relay as relay_module
from hermesd.head.fleet.relay import Relay
from hermesd.head.refusals import TooMuch
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head import heads
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}


@pytest.fixture
async def node(head: World) -> AsyncIterator[Node]:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    await node.start()
    await node.settle()
    yield node
    node.call.cancel()


async def asked(node: Node) -> node_pb2.SendFile:
    return (await node.expect("send_file")).send_file


async def send(node: Node, ticket: int, *pieces: tuple[int, bytes], name: str = "") -> None:
    for offset, data in pieces:
        await node.call.write(
            node_pb2.AttachRequest(
                file_chunk=node_pb2.FileChunk(ticket=ticket, name=name, offset=offset, data=data)
            )
        )


async def end(node: Node, ticket: int, error: str = "") -> None:
    last = node_pb2.FileChunk(ticket=ticket, last=True, error=error)
    await node.call.write(node_pb2.AttachRequest(file_chunk=last))


async def test_a_log_is_relayed_from_where_the_client_wants(head: World, node: Node) -> None:
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1", offset=-10))
    wanted = await asked(node)
    assert (wanted.trial, wanted.log.offset, wanted.log.follow) == ("digits/1", -10, False)
    await send(node, wanted.ticket, (90, b"hello "), (96, b"you\n"))
    await end(node, wanted.ticket)
    got = [(piece.offset, piece.data) async for piece in call]
    assert got == [(90, b"hello "), (96, b"you\n")]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [(2, "rank = 2: expected 0 to 1"), (1, "rank = 2: expected 0, as its trials have one process")],
)
async def test_a_rank_that_no_process_can_have_is_refused(
    head: World, node: Node, devices: int, expected: str
) -> None:
    resources = types.Resources(devices=1, max_devices=devices)
    await head.submit(spec(ONE, name="wide", resources=resources))
    code, words = await status(
        head.control.TailLogs(pb.TailLogsRequest(trial="wide/1", rank=2)).read()
    )
    assert code is CODE.INVALID_ARGUMENT
    assert expected in words


async def test_files_of_the_working_copy_are_relayed_as_the_node_sends_them(
    head: World, node: Node
) -> None:
    call = head.control.GetFiles(pb.GetFilesRequest(trial="digits/1", patterns=["*.png"]))
    wanted = await asked(node)
    assert (wanted.trial, list(wanted.work.patterns)) == ("digits/1", ["*.png"])
    piece = node_pb2.FileChunk(
        ticket=wanted.ticket, name="a.png", data=b"a", size_bytes=1, modified_unix_seconds=5.0
    )
    await node.call.write(node_pb2.AttachRequest(file_chunk=piece))
    await end(node, wanted.ticket)
    got = [piece async for piece in call]
    assert got == [
        pb.GetFilesResponse(name="a.png", data=b"a", size_bytes=1, modified_unix_seconds=5.0)
    ]
    call = head.control.GetFiles(pb.GetFilesRequest(trial="digits/1"))
    await end(node, (await asked(node)).ticket, error="digits/1: its working copy was removed")
    code, said = await status(call.read())
    assert (code, said) == (CODE.NOT_FOUND, "digits/1: its working copy was removed")


async def test_so_many_patterns_are_refused_that_a_node_would_compare_for_hours(
    head: World, node: Node
) -> None:
    for patterns in (["*"] * 1_001, ["*" * 5_000]):
        request = pb.GetFilesRequest(trial="digits/1", patterns=patterns)
        code, words = await status(head.control.GetFiles(request).read())
        assert (code, "expected at most 1,000" in words) == (CODE.INVALID_ARGUMENT, True)


async def test_a_followed_log_goes_on_after_a_suspension_and_ends_with_the_trial(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermesd.head.api.files.FOLLOW_SECONDS", 0.0)
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1", follow=True))
    first = await asked(node)
    assert first.log.follow
    await send(node, first.ticket, (0, b"one\n"))
    assert (await call.read()).data == b"one\n"
    await end(node, first.ticket)
    second = await asked(node)
    assert second.log.offset == 4
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
    await head.control.StopTrials(stop)
    suspended = node_pb2.RunSuspended(trial="digits/1", attempt=1, tier=types.TIER_KILL)
    await node.say(run_suspended=suspended)
    await node.settle()
    await send(node, second.ticket, (4, b"two\n"))
    await end(node, second.ticket)
    third = await asked(node)
    assert (third.log.offset, third.log.follow) == (8, False)
    await end(node, third.ticket)
    assert (await call.read()).data == b"two\n"
    assert await call.read() is grpc.aio.EOF


async def test_a_client_that_leaves_ends_the_transfer(head: World, node: Node) -> None:
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1", follow=True))
    wanted = await asked(node)
    await send(node, wanted.ticket, (0, b"x"))
    await call.read()
    call.cancel()
    cancel = await asked(node)
    assert (cancel.ticket, cancel.cancel) == (wanted.ticket, True)
    await send(node, wanted.ticket, (1, b"too late"))
    await node.beat()
    await node.lease()


async def test_a_slow_client_does_not_hold_up_the_nodes_stream(head: World, node: Node) -> None:
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1"))
    wanted = await asked(node)
    block = b"z" * 250_000
    for index in range(200):
        await send(node, wanted.ticket, (index * len(block), block))
    await node.beat()
    await node.lease()
    await end(node, wanted.ticket)
    size = 0
    async for piece in call:
        assert piece.offset == size
        size += len(piece.data)
    assert size == 200 * len(block)


async def test_a_checkpoint_comes_file_by_file_from_the_node_that_has_it(
    head: World, node: Node
) -> None:
    none = head.control.DownloadCheckpoint(pb.DownloadCheckpointRequest(trial="digits/1"))
    code, words = await status(none.read())
    assert code is CODE.NOT_FOUND
    assert "digits/1 has no checkpoint" in words
    saved = types.Checkpoint(id="c7", trial="digits/1", attempt=1, step=7, nodes=["box"])
    await node.say(
        checkpointed=node_pb2.Checkpointed(trial="digits/1", attempt=1, checkpoint=saved)
    )
    await node.settle()
    call = head.control.DownloadCheckpoint(pb.DownloadCheckpointRequest(trial="digits/1"))
    wanted = await asked(node)
    assert wanted.checkpoint == "c7"
    await send(node, wanted.ticket, (0, b"ab"), (2, b"cd"), name="weights")
    await send(node, wanted.ticket, (0, b"{}"), name="manifest.json")
    await end(node, wanted.ticket)
    got = [(piece.name, piece.offset, piece.data) async for piece in call]
    assert got[:3] == [("weights", 0, b"ab"), ("weights", 2, b"cd"), ("manifest.json", 0, b"{}")]


async def test_what_a_node_cannot_send_is_said(head: World, node: Node) -> None:
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1"))
    await end(node, (await asked(node)).ticket, error="output.log: No such file or directory")
    code, words = await status(call.read())
    assert code is CODE.NOT_FOUND
    assert "No such file" in words


async def test_a_node_that_leaves_in_the_middle_is_said(head: World, node: Node) -> None:
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1"))
    await send(node, (await asked(node)).ticket, (0, b"half"))
    assert (await call.read()).data == b"half"
    node.call.cancel()
    code, words = await status(call.read())
    assert code is CODE.UNAVAILABLE
    assert "connection to node box was lost" in words
    gone = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1"))
    assert (await status(gone.read()))[0] is CODE.UNAVAILABLE


async def test_a_trial_is_shown_with_the_last_of_its_output(head: World, node: Node) -> None:
    call = head.control.GetTrial(pb.GetTrialRequest(trial="digits/1"))
    wanted = await asked(node)
    await send(node, wanted.ticket, (0, b"\xff loss: 0.5\n"))
    await end(node, wanted.ticket)
    got = await call
    assert got.output_tail == "\ufffd loss: 0.5\n"
    assert got.trial.id == "digits/1"
    node.call.cancel()
    while head.running.sessions.all():
        await head.running.head.beyond(head.running.head.committed)
    again = await head.control.GetTrial(pb.GetTrialRequest(trial="digits/1"))
    assert again.output_tail == ""


async def test_an_ended_trial_s_output_is_asked_of_the_node_it_ran_on_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With neither a checkpoint nor a failure, nothing else of a trial tells where it was."""
    async with world(tmp_path) as head:
        first, second = Node(head, "a"), Node(head, "b")
        await first.hello()
        await second.hello()
        await head.submit(spec({"lr": {"values": [1.0, 2.0]}}, name="quick"))
        there = {(await node.start()).trial: node for node in (first, second)}
        for node in (first, second):
            run = {"attempt": 1, "step": 0}
            mine = next(trial for trial, at in there.items() if at is node)
            await node.say(run_completed=node_pb2.RunCompleted(trial=mine, **run))
            await node.settle()
        for trial, node in there.items():
            call = head.control.TailLogs(pb.TailLogsRequest(trial=trial))
            wanted = await asked(node)
            await send(node, wanted.ticket, (0, trial.encode()))
            await end(node, wanted.ticket)
            assert (await call.read()).data == trial.encode()
        second.call.cancel()
        while head.running.sessions.find("b"):
            await head.running.head.beyond(head.running.head.committed)
        lost = next(trial for trial, node in there.items() if node is second)
        call = head.control.TailLogs(pb.TailLogsRequest(trial=lost))
        await end(first, (await asked(first)).ticket, error=f"{lost}: its node has no files of it")
        code, words = await status(call.read())
        assert code is CODE.UNAVAILABLE
        assert words == f"the output of {lost} lies on node b, which is not attached"
        first.call.cancel()


async def test_a_log_that_is_followed_waits_for_the_first_output(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermesd.head.api.files.FOLLOW_SECONDS", 0.0)
    call = head.control.TailLogs(pb.TailLogsRequest(trial="digits/1", follow=True))
    await end(node, (await asked(node)).ticket, error="digits/1: its node has no files of it")
    wanted = await asked(node)
    await send(node, wanted.ticket, (0, b"begun"))
    assert (await call.read()).data == b"begun"
    call.cancel()


async def test_what_is_never_read_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "FILE_LIMIT_BYTES", 10)
    relay, session = Relay(tmp_path), heads.session()
    with relay.ask(session, node_pb2.SendFile(trial="d/1")) as ticket:
        for offset in (0, 8):
            chunk = node_pb2.FileChunk(ticket=ticket.number, offset=offset, data=b"12345678")
            relay.deliver(session, chunk)
            relay.deliver(heads.session("liar", "there"), chunk)
        read: list[bytes] = []
        with pytest.raises(TooMuch, match="more than 10 bytes"):
            read += [piece.data async for piece in ticket.chunks()]


@pytest.mark.parametrize("short", ["of the limit for all", "of the disk"])
async def test_all_that_is_never_read_has_a_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    """The disk is the journal's: without room there the head ends."""
    if short == "of the disk":
        left = shutil.disk_usage(tmp_path)._replace(free=10)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
    else:
        monkeypatch.setattr(relay_module, "ALL_LIMIT_BYTES", 10)
    relay, session = Relay(tmp_path), heads.session()
    wanted = node_pb2.SendFile(trial="d/1")
    with relay.ask(session, wanted) as one, relay.ask(session, wanted) as two:
        for ticket, data in ((one, b"12345678"), (two, b"12345678"), (two, b"1"), (one, b"")):
            relay.deliver(session, node_pb2.FileChunk(ticket=ticket.number, data=data))
        with pytest.raises(TooMuch, match="No space left"):
            [piece.data async for piece in two.chunks()]
        assert (await anext(one.chunks())).data == b"12345678"
