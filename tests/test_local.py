"""`hermesd local` with real processes: both run, come back, and end with it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from hermesd import local
from hermesd.cli import REFUSED
from hermesd.head.journal import schema
from hermesd.head.statedir import owned
from hermesd.local import Child, LocalRefused
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc

ROOT = Path(__file__).resolve().parent.parent


class Local:
    """The process, and the readiness that it tells."""

    def __init__(self, state: Path, process: asyncio.subprocess.Process) -> None:
        self.state = state
        self.process = process
        self.notices: asyncio.Queue[bytes] = asyncio.Queue()

    async def ready(self) -> dict[str, object]:
        """Wait until it says that both are ready; its record."""
        while b"READY=1" not in await self.notices.get():
            pass
        record: dict[str, object] = json.loads((self.state / "local.json").read_text())
        return record

    def child(self, name: str) -> int:
        """The pid of a child."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in map(int, task.read_text().split()):
            if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
        raise AssertionError(f"no {name} runs")


@asynccontextmanager
async def started(folder: Path, log_path: Path | None = None) -> AsyncIterator[Local]:
    """Run it in `folder`; ended by SIGTERM if it still runs after the block."""
    address = folder / "notices"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notices:
        address.unlink(missing_ok=True)
        notices.bind(str(address))
        state = folder / "state"
        with (log_path or folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hermesd.cli", "local", "--state", str(state)),
                *("--slots", "1"),
                cwd=ROOT,
                env={**os.environ, "NOTIFY_SOCKET": str(address)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        local = Local(state, process)
        loop = asyncio.get_running_loop()
        loop.add_reader(notices, lambda: local.notices.put_nowait(notices.recv(100)))
        try:
            yield local
        finally:
            loop.remove_reader(notices)
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def gone(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await asyncio.to_thread(select.select, [descriptor], [], [])
    finally:
        os.close(descriptor)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short enough for sockets below it."""
    return tmp_path_factory.mktemp("l")


async def test_a_log_that_cannot_be_written_ends_nobody(folder: Path) -> None:
    async with started(folder, Path("/dev/full")) as local:
        await local.ready()
        os.kill(local.child("head"), signal.SIGKILL)
        await local.ready()
        assert local.process.returncode is None


async def refused(state: Path) -> str:
    """What a local head says that ends at once; Python's own warnings are told, too."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "dev", "-m", "hermesd.cli", "local", "--state", str(state)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode
    return said.decode()


async def test_a_second_one_and_a_file_in_its_place_are_refused_in_one_line(folder: Path) -> None:
    (folder / "state").mkdir()
    with (folder / "state" / "running.lock").open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        said = await refused(folder / "state")
    assert said == f"hermesd: {folder}/state: a local head runs here already\n"
    (folder / "file").touch()
    said = await refused(folder / "file")
    assert said == f"hermesd: [Errno 17] File exists: '{folder}/file'\n"


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few megabytes at `folder`; skips the test where none can be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file systems can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def lines_of(fifo: Path) -> asyncio.StreamReader:
    """What is written to a named pipe, made here."""
    os.mkfifo(fifo)
    file = os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb")
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    return reader


@pytest.mark.root
async def test_a_full_disk_is_waited_out(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("log") / "pipe"
    lines = await lines_of(log)
    with small_disk(folder):
        async with started(folder, log) as local:
            await local.ready()
            filler = folder / "filler"
            with filler.open("wb") as file, suppress(OSError):
                while True:
                    os.write(file.fileno(), bytes(1024))
            os.kill(local.child("head"), signal.SIGKILL)
            while not re.search(rb"No space left|disk is full", await lines.readline()):
                pass
            filler.unlink()
            await local.ready()
            assert local.process.returncode is None


async def test_both_answer_and_all_ends_by_sigterm(folder: Path) -> None:
    async with started(folder) as local:
        record = await local.ready()
        assert record["pid"] == local.process.pid
        pids = [local.child("head"), local.child("node")]
        async with grpc.aio.insecure_channel(f"unix:{record['socket']}") as channel:
            stub = control_pb2_grpc.ControlServiceStub(channel)
            seen = stub.WatchJournal(pb.WatchJournalRequest())
            event = (await seen.read()).events[0]
            assert event.kind == pb.PUBLIC_EVENT_KIND_NODE_JOINED
            seen.cancel()
        local.process.terminate()
        assert await local.process.wait() == 0
        for pid in pids:
            await gone(pid)
        assert not (local.state / "local.json").exists()
        assert not (local.state / "head.sock").exists()


@pytest.mark.parametrize("name", ["head", "node"])
async def test_a_daemon_that_was_killed_comes_back(folder: Path, name: str) -> None:
    async with started(folder) as local:
        await local.ready()
        before = local.child(name)
        os.kill(before, signal.SIGKILL)
        await local.ready()
        assert local.child(name) != before


async def test_nothing_outlives_it_even_when_it_is_killed(folder: Path) -> None:
    async with started(folder) as local:
        await local.ready()
        pids = [local.child("head"), local.child("node")]
        local.process.kill()
        await local.process.wait()
        for pid in pids:
            await gone(pid)
    async with started(folder) as again:
        assert (await again.ready())["pid"] == again.process.pid


async def test_a_second_one_is_refused_and_leaves_the_first_alone(folder: Path) -> None:
    async with started(folder) as local:
        await local.ready()
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermesd.cli", "local", "--state", str(local.state)),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await second.communicate()
        assert second.returncode == 4
        assert b"a local head runs here already" in errors
        assert (local.state / "local.json").exists()


async def test_a_journal_that_cannot_be_used_ends_it_with_the_reason(folder: Path) -> None:
    head = folder / "state" / "head"
    head.mkdir(parents=True)
    (head / schema.NAME).write_bytes(b"")
    async with started(folder) as local:
        assert await local.process.wait() == REFUSED
        log = (folder / "log").read_text()
        assert "is empty: nothing of it was changed" in log
        assert "the head refuses to start" in log


async def test_a_full_disk_at_the_heads_start_passes(folder: Path) -> None:
    async with started(folder) as local:
        await local.ready()
        node, pid = local.child("node"), local.process.pid
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        # No room for the index of the journal's log, which every start makes.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (16_384, unlimited[1]))
        os.kill(local.child("head"), signal.SIGKILL)
        while "event=ended process=head code=1" not in (log := (folder / "log").read_text()):
            assert local.process.returncode is None
            await asyncio.sleep(0.01)
        journal = local.state / "head" / schema.NAME
        assert f"hermesd: {journal} cannot be used as its disk is now: disk I/O error" in log
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        await local.ready()
        assert local.child("node") == node


async def test_its_number_is_known_while_a_child_does_not_get_on_its_feet(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_NODE_SHARED_DIR", str(folder / "not-mounted-yet"))
    async with started(folder) as local:
        while "process=node" not in (folder / "log").read_text():
            assert local.process.returncode is None
            await asyncio.sleep(0.01)
        assert not (local.state / "local.json").exists()
        with (local.state / "running.lock").open("rb") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.kill(int(lock.read()), signal.SIGTERM)
        assert await local.process.wait() == 0


async def test_what_no_restart_would_mend_is_given_up_on(folder: Path) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "node").write_text("a file where a directory should be")
    async with started(folder) as local:
        assert await local.process.wait() == REFUSED
        said = (folder / "log").read_text()
    assert f"--state: node.state_dir = {local.state / 'node'}: File exists; expected" in said
    assert "the node refuses to start: its reason is above" in said


async def test_a_head_that_stays_in_the_way_is_given_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is still ending is waited for; this one is somebody's own."""
    folder = tmp_path / "head"
    with owned(folder):
        child = Child("head", ("head", "--state", str(folder), "--embedded"), 1.0)
        monkeypatch.setattr(local, "IN_THE_WAY_SECONDS", 0.0)
        with pytest.raises(LocalRefused, match="another head is in the way"):
            await child.keep(tmp_path, lambda: None)
