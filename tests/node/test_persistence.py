"""What the system refuses for a while costs nothing: no device, no run, no journal."""

import asyncio
import errno
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hermesd.config.schema import NodeConfig
from hermesd.core.events import NodeJoined, RunCompleted, RunFailed
from hermesd.core.model import RunId
from hermesd.node.machine import processes
from hermesd.node.storage.trial_folder import TrialFolder, UnreadableFolder

from .conftest import DAEMON, SHORT, Head, Node, becomes, worker_of

LOGGING = DAEMON.replace("config = ", "from hermesd import logs\nlogs.configure()\nconfig = ")


class Crowded:
    """A node daemon that is left without a descriptor for anything new."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)

    def crowd(self) -> None:
        used = {int(name) for name in os.listdir(f"/proc/{self.process.pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (free, self._limits[1]))

    def relieve(self) -> None:
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, self._limits)

    async def says(self, words: bytes) -> None:
        assert self.process.stderr is not None
        while words not in await self.process.stderr.readline():
            pass


async def test_no_device_is_given_on_while_nobody_can_see_to_its_processes(
    head: Head,
    config: NodeConfig,
    running: Callable[..., Awaitable[RunId]],
    no_survivors: None,
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOGGING, config.model_dump_json()),
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    await head.hears(NodeJoined)
    run = await running()
    daemon = Crowded(process)
    host, worker = worker_of(config)
    daemon.crowd()
    os.kill(host, signal.SIGKILL)
    await daemon.says(b"tried again")
    await daemon.says(b"tried again")
    assert [event for event in head.events if isinstance(event, RunFailed)] == []
    daemon.relieve()
    assert (await head.hears(RunFailed, run)).error_kind == "lost"
    await processes.exited(worker)
    process.terminate()
    await process.wait()


def unreadable(path: Path) -> Callable[[], None]:
    """Have the system refuse to open a file, whoever asks; what is returned puts it back."""
    kept = path.with_name("kept-by-the-test")
    path.rename(kept)
    path.symlink_to(path.name)
    return lambda: os.replace(kept, path)


async def test_a_journal_that_cannot_be_read_for_now_is_no_damage(
    head: Head,
    config: NodeConfig,
    running: Callable[..., Awaitable[RunId]],
    no_survivors: None,
) -> None:
    async with Node(config):
        await head.hears(NodeJoined)
        run = await running()
        host, _ = worker_of(config)
        folder = TrialFolder(config.state_dir / "trials", config.runtime_path, "digits/1")
    journal = folder.journal / "run.pb"
    put_back = unreadable(journal)
    for look in (folder.journaled, folder.last, folder.set_aside):
        with pytest.raises(OSError, match=str(errno.ELOOP)):
            look()
    with capture_logs() as said:

        async def put_back_once_it_is_missed() -> None:
            await becomes(lambda: any("cannot be read" in line["event"] for line in said))
            put_back()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(put_back_once_it_is_missed())
            async with Node(config):
                await head.hears(NodeJoined, count=2)
                assert host == worker_of(config)[0]
    assert not folder.journal.joinpath("run.pb.damaged").exists()
    hellos = [event for event in head.events if isinstance(event, NodeJoined)]
    assert [live.run for live in hellos[-1].live] == [run]
    assert not any(isinstance(event, RunFailed) for event in head.events)


async def test_an_end_that_cannot_be_read_for_now_is_not_lost(
    head: Head,
    config: NodeConfig,
    launch: Callable[..., RunId],
    no_survivors: None,
) -> None:
    head.deaf = True  # the run's end stays with the node
    async with Node(config):
        await head.hears(NodeJoined)
        run = launch(argv=SHORT)
        await head.hears(RunCompleted, run)
    folder = TrialFolder(config.state_dir / "trials", config.runtime_path, "digits/1")
    assert folder.outcome(1) is not None
    put_back = unreadable(folder.path / "events.jsonl")
    with pytest.raises(OSError, match=str(errno.ELOOP)):
        folder.outcome(1)
    put_back()
    assert (outcome := folder.outcome(1)) is not None
    assert outcome["kind"] == "completed"


def test_only_what_is_read_and_wrong_is_damage(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path, "digits/1")
    folder.journal.mkdir(parents=True)
    (folder.journal / "run.pb").write_bytes(b"\xff")
    with pytest.raises(UnreadableFolder):
        folder.journaled()
    assert [path.name for path in folder.set_aside()] == ["run.pb.damaged"]
