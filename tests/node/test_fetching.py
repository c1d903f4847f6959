"""A checkpoint of another node comes whole or not at all, and only with the head's ticket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from hermesd.config.schema import NodeConfig
from hermesd.core.events import NodeJoined, RunCompleted, RunFailed, RunSuspended
from hermesd.core.model import Checkpoint, RunId, Tier
from hermesd.core.node.messages import CheckpointSource
from hermesd.node.storage import checkpoints, fetching, transfer_service
from hermesd.node.storage.fetching import Fetching, NotFetched
from hermesd.node.storage.transfer_service import TransferService
from hermesd.node.storage.trial_folder import TrialFolders
from hermesd.pb.hermes.v1 import enroll_pb2, transfer_pb2_grpc
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from hermesd.security.enrollment import Membership, enroll
from hermesd.security.ticket import ticket
from tests.head.test_enroll import Open
from tests.head.test_enroll import head as enrolling
from tests.node.conftest import Head, Node, becomes
from tests.node.test_checkpoints import build
from tests.ways import Way

TRIAL = "digits/1"
CODE = grpc.StatusCode
__all__ = ["enrolling"]


class Giver:
    """A node with one checkpoint of a trial, and where it gives it away."""

    def __init__(self, root: Path) -> None:
        self.folders = TrialFolders(root / "trials", root / "run")
        self.folder = self.folders.of(TRIAL)
        self.folder.checkpoints.mkdir(parents=True)
        found = checkpoints.verified(build(self.folder.checkpoints, "s5", 5))
        identifier = f"{TRIAL}@s5"
        self.checkpoint = Checkpoint(
            identifier, TRIAL, 1, 5, found.sha256, found.size_bytes, ("a",)
        )
        self.server = TransferService(self.folders, self)
        self.doubted: list[str] = []

    async def doubt(self, trial: str, name: str) -> None:
        self.doubted.append(name)

    def source(self, node: str = "a", ends: float = math.inf) -> CheckpointSource:
        word = ticket(self.server.key, TRIAL, self.checkpoint.id, "b", ends)
        return CheckpointSource(node, self.server.address, word)


@pytest.fixture
async def giver(tmp_path: Path) -> AsyncIterator[Giver]:
    giver = Giver(tmp_path / "a")
    (tmp_path / "a" / "run").mkdir()
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    yield giver
    await giver.server.stop()


async def bring(giver: Giver, target: Path, *sources: CheckpointSource) -> None:
    await Fetching(None).bring(giver.checkpoint, sources or (giver.source(),), target)


async def test_it_is_what_the_other_node_has(giver: Giver, tmp_path: Path) -> None:
    await bring(giver, tmp_path / "b")
    assert checkpoints.verified(tmp_path / "b" / "s5").sha256 == giver.checkpoint.sha256
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["s5"]
    await giver.server.stop()
    await bring(giver, tmp_path / "b")  # it is there: nobody is asked


async def test_a_checkpoint_stays_for_as_long_as_it_takes_to_bring_it(
    giver: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a trial that has written two more before the second file is asked for."""
    folder, read = giver.folder.checkpoints, transfer_service.client_files.rest

    async def slowly(path: Path, offset: int, home: Path) -> AsyncIterator[bytes]:
        async for data in read(path, offset, home):
            yield data
        for step in (6, 7):
            if not (folder / f"s{step}").exists():
                build(folder, f"s{step}", step)
        checkpoints.prune(folder)

    monkeypatch.setattr(transfer_service.client_files, "rest", slowly)
    await bring(giver, tmp_path / "b")
    assert checkpoints.verified(tmp_path / "b" / "s5").sha256 == giver.checkpoint.sha256
    assert (folder / "s7").exists()


async def test_a_disk_that_hangs_holds_up_nothing_but_the_file(
    giver: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of shared files may belong to a machine that is gone."""
    within = transfer_service.client_files.within
    looked: list[threading.Thread] = []

    def looking(root: Path, name: str) -> Path:
        looked.append(threading.current_thread())
        return within(root, name)

    monkeypatch.setattr(transfer_service.client_files, "within", looking)
    await bring(giver, tmp_path / "b")
    assert looked
    assert threading.main_thread() not in looked


async def test_an_address_that_has_no_effect_is_told(tmp_path: Path) -> None:
    server = Giver(tmp_path / "a").server
    (tmp_path / "a" / "run").mkdir()
    with structlog.testing.capture_logs() as said:
        await server.start(NodeConfig(name="a", state_dir=tmp_path / "a", transfer="10.0.0.2:7413"))
        await server.stop()
    assert said[0]["event"] == "transfer has no effect before this node has joined its head"
    assert server.address.startswith("unix:")


async def test_what_was_cut_off_goes_on_where_it_was(giver: Giver, tmp_path: Path) -> None:
    """What is there already is not asked for: it would come damaged by now."""
    weights = giver.folder.checkpoints / "s5" / "weights.bin"
    whole = weights.read_bytes()
    partial = tmp_path / "b" / "s5.fetched.partial"
    partial.mkdir(parents=True)
    (partial / "weights.bin").write_bytes(whole[:700])
    weights.write_bytes(b"?" * 700 + whole[700:])
    await bring(giver, tmp_path / "b")
    assert checkpoints.verified(tmp_path / "b" / "s5").step == 5


@pytest.mark.parametrize("harm", ["other", "longer", "flip", "gone"])
async def test_nothing_comes_of_what_is_not_the_known_one(
    giver: Giver, tmp_path: Path, harm: str
) -> None:
    weights = giver.folder.checkpoints / "s5" / "weights.bin"
    match harm:
        case "other":
            giver.checkpoint = replace(giver.checkpoint, sha256="0" * 64)
        case "longer":
            weights.write_bytes(weights.read_bytes() + b"x")
        case "flip":
            weights.write_bytes(b"v" + weights.read_bytes()[1:])
        case "gone":
            weights.unlink()
    with pytest.raises(NotFetched, match="digits/1@s5 could not be had: a at unix:"):
        await bring(giver, tmp_path / "b")
    assert list(checkpoints.newest(tmp_path / "b")) == []
    assert giver.doubted == [giver.checkpoint.id], "the node that gave it is to look at its own"


async def test_the_next_source_is_asked(giver: Giver, tmp_path: Path) -> None:
    await bring(giver, tmp_path / "b", CheckpointSource("away", "", b""), giver.source())
    assert (tmp_path / "b" / "s5").is_dir()
    wrong = replace(giver.source(), ticket=b"guessed")
    with pytest.raises(NotFetched, match="away is away; a at"):
        await bring(giver, tmp_path / "c", CheckpointSource("away", "", b""), wrong)
    assert giver.doubted == []


async def test_a_socket_of_another_machine_is_not_waited_for(giver: Giver, tmp_path: Path) -> None:
    await bring(
        giver, tmp_path / "b", CheckpointSource("far", "unix:/run/of-another/transfer.sock", b"")
    )
    assert not (tmp_path / "b").exists()


class Liar(transfer_pb2_grpc.TransferServiceServicer):
    """A node that has the tickets, and sends what it likes."""

    def __init__(self, manifest: bytes) -> None:
        self.manifest = manifest
        self.asked: list[str] = []
        self.silent = asyncio.Event()

    async def Fetch(
        self, request: pb.FetchRequest, context: Any
    ) -> AsyncIterator[pb.FetchResponse]:
        self.asked.append(request.file)
        if request.file == "manifest.json":
            yield pb.FetchResponse(data=self.manifest)
            return
        yield pb.FetchResponse(data=b"x")
        await self.silent.wait()

    async def Doubt(self, request: pb.DoubtRequest, context: Any) -> pb.DoubtResponse:
        return pb.DoubtResponse()

    @contextlib.asynccontextmanager
    async def at(self, path: Path) -> AsyncIterator[CheckpointSource]:
        server = grpc.aio.server()
        transfer_pb2_grpc.add_TransferServiceServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        yield CheckpointSource("liar", f"unix:{path}", b"")
        await server.stop(None)


LIES = (
    "[]",
    "{}",
    "[" * 100_000,
    '{"step": 5}',
    '{"step": 5, "files": []}',
    '{"step": 5, "files": {"a": 1}}',
    '{"step": 5, "files": {"a": {"bytes": "7"}}}',
    '{"step": 5, "files": {"a": {"bytes": -7}}}',
    '{"step": 5, "attempt": "x", "files": {}}',
    f'{{"step": {10**400}, "files": {{}}}}',
    *(
        json.dumps({"step": 5, "files": {name: {"bytes": 1, "sha256": ""} for name in names}})
        for names in (
            ["."], ["a\0"], ["a", "a/b"], ["/etc/x"], ["../x"], ["a/../../x"], ["manifest.json"]
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie[:50])
async def test_whatever_a_node_sends_is_no_more_than_damaged(tmp_path: Path, lie: str) -> None:
    liar = Liar(lie.encode())
    known = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "", 1, ("liar",))
    async with liar.at(tmp_path / "liar.sock") as source:
        with pytest.raises(NotFetched, match="could not be had") as caught:
            await Fetching(None).bring(known, (source,), tmp_path / "b")
    assert not caught.value.way
    assert liar.asked == ["manifest.json"]
    assert list((tmp_path / "b").iterdir()) == []


async def test_nothing_is_fetched_by_a_manifest_that_is_not_the_known_one(tmp_path: Path) -> None:
    """Else any node could fill the disks of others, before anything is found to be wrong."""
    liar = Liar(b'{"step": 5, "files": {"weights": {"bytes": 1000000, "sha256": ""}}}')
    known = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "5ha", 1, ("liar",))
    async with liar.at(tmp_path / "liar.sock") as source:
        with pytest.raises(NotFetched, match="the head knows 5ha"):
            await Fetching(None).bring(known, (source,), tmp_path / "b")
    assert liar.asked == ["manifest.json"]


async def test_what_there_is_no_room_for_is_not_begun(tmp_path: Path) -> None:
    liar = Liar(b'{"step": 5, "files": {"weights": {"bytes": %d, "sha256": ""}}}' % 2**53)
    known = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "", 1, ("liar",))
    async with liar.at(tmp_path / "liar.sock") as source:
        with pytest.raises(OSError, match="No space left"):
            await Fetching(None).bring(known, (source,), tmp_path / "b")
    assert liar.asked == ["manifest.json"]


async def test_who_sends_next_to_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_SECONDS", 0.1)
    liar = Liar(b'{"step": 5, "files": {"weights": {"bytes": 1000, "sha256": ""}}}')
    known = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "", 1, ("liar",))
    async with liar.at(tmp_path / "liar.sock") as source:
        with pytest.raises(NotFetched, match=r"less than 1048576 bytes came in 0\.1 s") as caught:
            await Fetching(None).bring(known, (source,), tmp_path / "b")
    assert caught.value.way


@pytest.mark.parametrize("name", ["../../../b/outside", "/etc/x", "..", ".x", "", "a/b"])
async def test_no_checkpoint_lies_outside_of_its_trial(
    giver: Giver, tmp_path: Path, name: str
) -> None:
    """A node names its own checkpoints; the head may pass that on."""
    known = replace(giver.checkpoint, id=f"{TRIAL}@{name}")
    with pytest.raises(NotFetched, match="names no directory"):
        await Fetching(None).bring(known, (giver.source(),), tmp_path / "b" / "c" / "d")
    assert not (tmp_path / "b").exists()


def stalling(giver: Giver, here: Path, limit: int) -> Way:
    """The way to a giver, on which everything stops after so many bytes from there."""
    return Way(str(here), giver.server.address.removeprefix("unix:"), limit)


@pytest.mark.parametrize("limit", [0, 1000])
async def test_a_node_that_has_stalled_is_given_up(
    giver: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    impatient = [(name, value // 20) for name, value in fetching._OPTIONS]
    monkeypatch.setattr(fetching, "_OPTIONS", impatient)
    monkeypatch.setattr(fetching, "TRIES", 1)
    (giver.folder.checkpoints / "s5" / "weights.bin").write_bytes(b"w" * 100_000)
    path = tmp_path / "way.sock"
    with stalling(giver, path, limit).serve(), pytest.raises(NotFetched) as caught:
        await bring(giver, tmp_path / "b", replace(giver.source(), address=f"unix:{path}"))
    assert caught.value.way


@pytest.mark.parametrize("file", ["../../../identity", "/etc/passwd", "nothing", "", "a\0b"])
async def test_a_ticket_is_for_the_files_of_one_checkpoint(giver: Giver, file: str) -> None:
    async def fetch(checkpoint: str, file: str) -> Any:
        async with grpc.aio.insecure_channel(giver.server.address) as channel:
            stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
            word = giver.source().ticket
            request = pb.FetchRequest(trial=TRIAL, checkpoint=checkpoint, ticket=word, file=file)
            return await stub.Fetch(request).code()

    assert await fetch(giver.checkpoint.id, file) is grpc.StatusCode.NOT_FOUND
    assert await fetch(f"{TRIAL}@s6", "manifest.json") is grpc.StatusCode.PERMISSION_DENIED
    async with grpc.aio.insecure_channel(giver.server.address) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        other = pb.DoubtRequest(trial=TRIAL, checkpoint=f"{TRIAL}@s6", ticket=giver.source().ticket)
        assert await stub.Doubt(other).code() is grpc.StatusCode.PERMISSION_DENIED
    assert f"{TRIAL}@s6" not in giver.doubted


async def test_between_machines_each_side_must_be_a_node_of_the_head(
    enrolling: Open, tmp_path: Path
) -> None:
    async def joined(name: str) -> Membership:
        token = await enrolling.invite(enroll_pb2.IDENTITY_ROLE_NODE)
        folder = tmp_path / name / "membership"
        return await asyncio.to_thread(enroll, enrolling.address, token, name, folder)

    await joined("a")
    mine = await joined("b")
    giver = Giver(tmp_path / "a")
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    assert giver.server.address.startswith("127.0.0.1:")
    try:
        await Fetching(mine).bring(giver.checkpoint, (giver.source(),), tmp_path / "x")
        assert (tmp_path / "x" / "s5").is_dir()
        other = (giver.source("c"),)  # it is not the node that it is taken for
        with pytest.raises(NotFetched):
            await Fetching(mine).bring(giver.checkpoint, other, tmp_path / "y")
        with pytest.raises(NotFetched):
            await Fetching(None).bring(giver.checkpoint, (giver.source(),), tmp_path / "y")
    finally:
        await giver.server.stop()


async def test_a_trial_goes_on_at_another_node_where_it_was(
    head: Head,
    config: NodeConfig,
    node: Node,
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
    launch: Callable[..., RunId],
    tmp_path: Path,
) -> None:
    first = await running(argv=("python", "train.py", "100000", "0.005"))
    ended = await suspended(first, Tier.CHECKPOINT)
    checkpoint = ended.checkpoint
    assert checkpoint is not None
    there = head.hello
    word = ticket(there.transfer_key, checkpoint.trial, checkpoint.id, "n2", math.inf)
    steps = str(checkpoint.step + 3)
    other = config.model_copy(update={"name": "n2", "state_dir": tmp_path / "node2"})
    async with Node(other):
        after = len(head.events)
        await head.hears(NodeJoined, after=after - 1)
        again: dict[str, Any] = {
            "checkpoint": checkpoint,
            "device": "n2/cpu0",
            "argv": ("python", "train.py", steps, "0.005"),
        }
        nobody = (CheckpointSource("n1", "", word), CheckpointSource("n3", "127.0.0.1:1", word))
        away = launch(attempt=2, sources=nobody, **again)
        failed = await head.hears(RunFailed, away, after)
        assert failed.error_kind == "not_fetched", "that tells nothing of n2"
        assert "n1 is away; n3 at 127.0.0.1:1: " in failed.detail
        gone = replace(checkpoint, id=f"{TRIAL}@s999")
        pass_of_it = ticket(there.transfer_key, TRIAL, gone.id, "n2", math.inf)
        source = CheckpointSource("n1", there.transfer_address, pass_of_it)
        without = launch(attempt=3, sources=(source,), **{**again, "checkpoint": gone})
        failed = await head.hears(RunFailed, without, after)
        assert failed.error_kind == "not_fetched"
        assert "no such checkpoint" in failed.detail
        run = launch(
            attempt=4, sources=(CheckpointSource("n1", there.transfer_address, word),), **again
        )
        done = await head.hears(RunCompleted, run, after)
        assert done.step == checkpoint.step + 3
        folder = TrialFolders(other.state_dir / "trials", other.runtime_path).of(TRIAL)
        total = float(sum(range(1, done.step + 1)))
        assert f"done {done.step} {total}" in folder.output.read_text()


async def test_who_has_stalled_keeps_no_turn(
    giver: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = [
        (name, value // 20 if value >= 1000 else value) for name, value in transfer_service._OPTIONS
    ]
    monkeypatch.setattr(transfer_service, "_OPTIONS", impatient)
    await giver.server.stop()
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    (giver.folder.checkpoints / "s5" / "weights.bin").write_bytes(b"w" * 10_000_000)
    wanted = {"trial": TRIAL, "checkpoint": giver.checkpoint.id, "ticket": giver.source().ticket}
    way = tmp_path / "way.sock"
    with stalling(giver, way, 1000).serve():
        async with (
            grpc.aio.insecure_channel(f"unix:{way}") as stalled,
            grpc.aio.insecure_channel(giver.server.address) as channel,
        ):
            stub: Any = transfer_pb2_grpc.TransferServiceStub(stalled)
            calls = [stub.Fetch(pb.FetchRequest(file="weights.bin", **wanted)) for _ in range(2)]
            await becomes(giver.server._turns.locked)
            third: Any = transfer_pb2_grpc.TransferServiceStub(channel)
            manifest = pb.FetchRequest(file="manifest.json", **wanted)
            assert [piece.data async for piece in third.Fetch(manifest)]
            for call in calls:
                call.cancel()


async def test_who_does_not_read_keeps_no_turn(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giver.server, "_turns", asyncio.Semaphore(1))
    (giver.folder.checkpoints / "s5" / "weights.bin").write_bytes(b"w" * 20_000_000)
    async with grpc.aio.insecure_channel(giver.server.address) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        word = giver.source().ticket
        wanted = {"trial": TRIAL, "checkpoint": giver.checkpoint.id, "ticket": word}
        with monkeypatch.context() as impatient:
            impatient.setattr(transfer_service, "PATIENCE_SECONDS", 0.1)
            unread = stub.Fetch(pb.FetchRequest(file="weights.bin", **wanted))
            await becomes(giver.server._turns.locked)
            await becomes(lambda: not giver.server._turns.locked())
        manifest = pb.FetchRequest(file="manifest.json", **wanted)
        assert [piece.data async for piece in stub.Fetch(manifest)]
        unread.cancel()


async def test_who_has_not_taken_even_the_first_piece_is_told(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_service, "PATIENCE_SECONDS", 0.0)
    async with grpc.aio.insecure_channel(giver.server.address) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        word = giver.source().ticket
        wanted = {"trial": TRIAL, "checkpoint": giver.checkpoint.id, "ticket": word}
        with pytest.raises(grpc.aio.AioRpcError) as told:
            _ = [
                piece async for piece in stub.Fetch(pb.FetchRequest(file="manifest.json", **wanted))
            ]
    assert told.value.code() is CODE.DEADLINE_EXCEEDED


async def test_doubts_need_a_ticket_too(giver: Giver) -> None:
    async with grpc.aio.insecure_channel(giver.server.address) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        word = giver.source().ticket
        request = pb.DoubtRequest(trial=TRIAL, checkpoint=f"{TRIAL}@s6", ticket=word)
        assert await stub.Doubt(request).code() is CODE.PERMISSION_DENIED
    assert giver.doubted == []
