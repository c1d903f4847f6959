"""What a trial left behind is found without cgroups, and nothing else is taken for it."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.core.events import NodeJoined, RunFailed
from hermesd.core.model import RunId
from hermesd.node import deep_trees
from hermesd.node.machine import cgroups, processes
from hermesd.node.machine.availability import described
from hermesd.node.machine.cgroups import NoCgroups
from hermesd.node.machine.environment import OWNER
from hermesd.node.runner.cleanup import end_strays
from trainer_shim.host.freeze import WorkGroup

from .conftest import DAEMON, Head, Node, becomes, daemon_process, host_of

# A child in the program's session, one in its own, and one that never became another program.
LEAVING = """
import os, subprocess, sys, time, trainer_shim
sleeping = [sys.executable, "-c", "import time; time.sleep(1000)"]
children = [subprocess.Popen(sleeping, start_new_session=i > 0).pid for i in range(2)]
children.append(os.fork())
if children[-1] == 0:
    os.setsid()
    os.chdir("/")
    time.sleep(1000)
print("children", *children, flush=True)
trial = trainer_shim.attach()
step = 0
while True:
    step += 1
    time.sleep(0.002)
    trial.report(step, loss=1.0)
"""
WITHOUT_CGROUPS = DAEMON.replace(
    "config = ",
    "from hermesd.node.machine import cgroups\n"
    "cgroups.detect = lambda name: cgroups.NoCgroups('a test')\n"
    "config = ",
)


@contextmanager
def watched(pids: list[int]) -> Iterator[Callable[[], list[int]]]:
    """Which of these processes have ended."""
    descriptors = {os.pidfd_open(pid): pid for pid in pids}
    try:
        yield lambda: [descriptors[fd] for fd in select.select(list(descriptors), [], [], 0)[0]]
    finally:
        for fd in descriptors:
            os.close(fd)


@pytest.fixture
async def bystanders(config: NodeConfig) -> AsyncIterator[Callable[..., Awaitable[int]]]:
    started: list[asyncio.subprocess.Process] = []

    async def start(owner: Path | None, cwd: Path) -> int:
        mark = {} if owner is None else {OWNER: str(owner)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"),
            cwd=cwd,
            env={**os.environ, **mark},
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        await process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_what_outlived_daemon_and_host_is_ended_before_the_device_is_given_on(
    head: Head,
    config: NodeConfig,
    running: Callable[..., Awaitable[RunId]],
    bystanders: Callable[..., Awaitable[int]],
    no_survivors: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    daemon = await daemon_process(config, WITHOUT_CGROUPS)
    await head.hears(NodeJoined)
    run = await running(program=LEAVING)
    folder = config.state_dir / "trials" / "digits" / "1"
    children = [int(word) for word in (folder / "output.log").read_text().split()[1:4]]
    strangers = [
        await bystanders(None, folder / "work"),
        await bystanders(config.state_dir, Path("/")),
        await bystanders(tmp_path / "other" / "trials" / "digits" / "1", Path("/")),
    ]
    of_a_run_that_is_over = await bystanders(folder.with_name("17"), Path("/"))
    from_warm_interpreter = await bystanders(config.state_dir, folder / "work")
    host = host_of(config)
    worker = min(processes.below(host))
    for pid in (daemon.pid, host):
        os.kill(pid, signal.SIGKILL)
    await daemon.wait()
    for pid in (host, worker):
        await processes.exited(pid)
    monkeypatch.setattr(cgroups, "detect", lambda name: NoCgroups("a test"))
    leftovers = [from_warm_interpreter, of_a_run_that_is_over]
    with watched(children) as left, watched(leftovers) as warm:
        assert left() == [], "they are what this test is about"
        with watched(strangers) as others:
            async with Node(config):
                assert (await head.hears(RunFailed, run)).error_kind == "lost"
                assert sorted(left()) == sorted(children)
                assert sorted(warm()) == sorted(leftovers)
                assert others() == []


async def test_what_runs_of_a_state_directory_that_was_removed_is_ended_first(
    head: Head,
    config: NodeConfig,
    bystanders: Callable[..., Awaitable[int]],
    no_survivors: None,
    tmp_path: Path,
) -> None:
    """To the head its runs are over with the next Hello, and they go on elsewhere."""
    trial = config.state_dir / "trials" / "digits" / "1"
    left = [await bystanders(owner, Path("/")) for owner in (trial, config.state_dir)]
    others = [await bystanders(owner, Path("/")) for owner in (None, tmp_path / "other")]
    with watched(left) as gone, watched(others) as strangers:
        async with Node(config):
            await head.hears(NodeJoined)
            assert sorted(gone()) == sorted(left)
            assert strangers() == []
        trial.mkdir(parents=True, exist_ok=True)
    mine = await bystanders(trial, Path("/"))
    with watched([mine]) as ended:
        async with Node(config):
            await head.hears(NodeJoined, count=2)
            assert ended() == [mine], "no run is known that it could be of"


async def test_the_mark_is_read_of_the_process_as_it_was_started(
    bystanders: Callable[..., Awaitable[int]], tmp_path: Path
) -> None:
    pid = await bystanders(tmp_path / "a", tmp_path)
    assert processes.started_with(pid, OWNER) == str(tmp_path / "a")
    assert processes.started_with(pid, "HERMES") is None
    assert processes.kill_those(lambda each: each == pid) == {pid}
    await becomes(lambda: processes.kill_those(lambda each: each == pid) == set())


DIVING = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.mkdir(sys.argv[2])
    os.chdir(sys.argv[2])
print("there", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("depth", "name"), [(2500, "d"), (20, "d" * 250)])
async def test_a_process_is_found_however_deep_it_works(
    tmp_path: Path, depth: int, name: str
) -> None:
    """Where the system does not tell: else one that does would keep all others from being ended."""
    pipe, work = asyncio.subprocess.PIPE, tmp_path / "trials" / "digits" / "1" / "work"
    work.mkdir(parents=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DIVING, str(depth), name),
        cwd=work,
        env={**os.environ, OWNER: str(tmp_path)},
        stdin=pipe,
        stdout=pipe,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    with pytest.raises(OSError, match="name too long"):
        os.readlink(f"/proc/{process.pid}/cwd")
    assert processes.folder(process.pid).is_relative_to(work / name)
    assert end_strays(tmp_path / "trials", tmp_path, {"digits/1"}) == set()
    assert end_strays(tmp_path / "trials", tmp_path, ()) == {process.pid}
    await process.communicate()
    deep_trees.remove(work)


# What the system leaves of a longer name, cut off in a letter; and ends of lines, after one of
# which it would say as whom it runs.
NAMES = ["обучение".encode()[:15], b"\xe9t\xe9", b"a) Z 1 1 (\r\x85", b"\x0b\x0cUid: 77 77 77"]
NAMED = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", NAMES)
async def test_a_process_is_found_whatever_bytes_it_has_named_itself(name: bytes) -> None:
    pipe = asyncio.subprocess.PIPE
    words = ("-c", NAMED, name.hex())
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=pipe, stdout=pipe, start_new_session=True
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"named\n"
    assert processes.Remembered.of(process.pid).session() == {process.pid}
    assert process.pid in processes.below(os.getpid())
    assert processes.parent(process.pid) == os.getpid()
    assert processes.resident_bytes([process.pid]) > 0
    assert not processes.runs_as(process.pid, 77)
    assert 77 not in processes.accounts()
    assert f"process {process.pid} (" in described(process.pid)
    mine = WorkGroup(os.getpid(), None)
    assert process.pid in mine.members()
    assert mine.memory_bytes() > 0
    assert mine.cpu_seconds() >= 0  # a short life may count for none
    assert processes.kill_those(lambda each: each == process.pid) == {process.pid}
    await process.communicate()


@pytest.mark.parametrize("said", [-1, 0, 1 << 40])
def test_a_number_that_no_process_has_is_nobodys(said: int) -> None:
    """A negative one would be told all at once to end; a large one fits into no message."""
    assert processes.numbered(said, os.getpid(), os.geteuid()) == 0


async def test_a_session_is_no_more_ours_once_another_process_has_its_number() -> None:
    leader = await asyncio.create_subprocess_exec(
        "sh", "-c", "sleep 600 & read line", stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    remembered = processes.Remembered.of(leader.pid)
    await becomes(lambda: len(remembered.session()) == 2)
    (child,) = remembered.session() - {leader.pid}
    try:
        assert replace(remembered, birth=remembered.birth - 1).session() == set()
        leader.kill()
        await leader.wait()
        assert remembered.session() == {child}, "it is still the session of the one that is gone"
    finally:
        processes.kill({child})
