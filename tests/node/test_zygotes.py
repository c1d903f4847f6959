"""Warm starts: one interpreter for many hosts, and a cold start whenever that cannot be."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import trainer_shim
from hermesd.node.machine import detached, processes
from hermesd.node.machine.detached import WORLD, NotBegun
from hermesd.node.machine.environment import OWNER, host_environment
from hermesd.node.runner import host_link
from hermesd.node.runner.zygotes import LIMIT, Zygotes
from hermesd.node.storage.trial_folder import TrialFolder


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    folder = tmp_path / "shim"
    folder.mkdir()
    (folder / "trainer_shim").symlink_to(Path(trainer_shim.__file__).parent)
    return folder


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """A program's environment in which `keras` is a small module that can be imported."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "keras.py").write_text("imported = True")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(tmp_path / "lib")}


@pytest.fixture
async def zygotes(tmp_path: Path, shim: Path) -> AsyncIterator[Zygotes]:
    sockets = tmp_path / "run"
    sockets.mkdir()
    warm = Zygotes(sockets, shim)
    yield warm
    await warm.close()
    assert list(sockets.glob("zygote*")) == []


def make(
    tmp_path: Path, number: int, env: dict[str, str], text: str = "import keras"
) -> TrialFolder:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", f"t/{number}")
    folder.work.mkdir(parents=True)
    (folder.work / "train.py").write_text(text)
    folder.write_spec(
        {
            "trial": folder.trial,
            "argv": ["python", "train.py"],
            "cwd": str(folder.work),
            "env": env,
            "signal": "loss",
            "seed": 1,
            "checkpoints": str(folder.checkpoints),
            "output": str(folder.output),
            "output_limit_bytes": 1000,
            "lease_grace_seconds": 1,
            "orphan_seconds": 900,
            "cgroup_work": None,
            "cgroup_host": None,
            "parameters": {},
            "socket": str(folder.socket),
        }
    )
    return folder


async def start(
    folder: TrialFolder,
    zygotes: Zygotes,
    shim: Path,
    env: dict[str, str],
    python: str = sys.executable,
) -> bytes:
    """Start a host, end it again, and return its command line, which names who it came from."""
    link = await host_link.start(folder, python, "keras", env, shim, zygotes)
    command = Path(f"/proc/{link.host_pid}/cmdline").read_bytes()
    link.send("quit")
    await processes.exited(link.host_pid)
    link.close()
    return command


async def test_many_hosts_come_from_one_interpreter(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    commands = {await start(make(tmp_path, i, program), zygotes, shim, program) for i in range(2)}
    (command,) = commands
    assert b"zygote0.sock" in command


async def test_in_a_world_of_its_own_its_hosts_outlive_it(
    tmp_path: Path, shim: Path, program: dict[str, str]
) -> None:
    try:
        probe = await detached.start(["true"], os.environ, folder=tmp_path, world=WORLD)
    except NotBegun:
        pytest.skip("no process images here: no namespaces")
    await processes.exited(probe)
    (tmp_path / "run").mkdir()
    warm = Zygotes(tmp_path / "run", shim, worlds=True)
    links = []
    for number in range(3):
        folder = make(tmp_path, number, program)
        links.append(await host_link.start(folder, sys.executable, "keras", program, shim, warm))
    first = {processes.parent(link.host_pid) for link in links}
    assert len(first) == 1, "one world"
    assert all(
        b"zygote0.sock" in Path(f"/proc/{link.host_pid}/cmdline").read_bytes() for link in links
    )
    await warm.close()
    for link in links:
        link.send("quit")
        await processes.exited(link.host_pid)
        link.close()
    await processes.exited(first.pop() or 0)


@pytest.mark.parametrize(
    "variable",
    ["TF_DETERMINISTIC_OPS", "TORCH_CUDNN_V8_API_DISABLED", "NCCL_DEBUG", "LD_LIBRARY_PATH"],
)
async def test_what_is_read_at_the_start_has_an_interpreter_of_its_own(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str], variable: str
) -> None:
    other = {**program, variable: "1"}
    environments = [program, other, program, other]
    commands = [
        await start(make(tmp_path, number, env), zygotes, shim, env)
        for number, env in enumerate(environments)
    ]
    used = [command.split(b"zygote")[-1][:1] for command in commands]
    assert used == [b"0", b"1", b"0", b"1"]


async def test_what_nothing_reads_at_the_start_needs_no_interpreter_of_its_own(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    await start(make(tmp_path, 1, program), zygotes, shim, program)
    other = {**program, "RATE": "0.1"}
    assert b"zygote0.sock" in await start(make(tmp_path, 2, other), zygotes, shim, other)


async def test_a_script_that_sets_such_variables_starts_cold(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    text = "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'; import keras"
    command = await start(make(tmp_path, 1, program, text), zygotes, shim, program)
    assert b"trainer_shim.host" in command


def hangs(tmp_path: Path, program: dict[str, str]) -> dict[str, str]:
    """The environment of a program whose framework's import comes to no end."""
    (tmp_path / "stuck").mkdir(exist_ok=True)
    (tmp_path / "stuck" / "keras.py").write_text("import time; time.sleep(3600)")
    return {**program, "PYTHONPATH": str(tmp_path / "stuck")}


def named(path: Path) -> list[int]:
    """The processes that have a path in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(path).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


async def test_an_interpreter_that_died_is_replaced(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    await start(make(tmp_path, 1, program), zygotes, shim, program)
    for pid in named(tmp_path / "run/zygote0"):
        processes.kill([pid])
        await processes.exited(pid)
    assert b"trainer_shim.host" in await start(make(tmp_path, 2, program), zygotes, shim, program)
    assert b"zygote1.sock" in await start(make(tmp_path, 3, program), zygotes, shim, program)


async def test_an_interpreter_without_the_framework_serves_all_the_same(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    (tmp_path / "lib" / "keras.py").unlink()
    assert b"zygote0" in await start(make(tmp_path, 1, program), zygotes, shim, program)


async def test_what_cannot_be_started_at_all_is_an_error_with_its_words(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    with pytest.raises(OSError, match="/nowhere/python"):
        await start(make(tmp_path, 1, program), zygotes, shim, program, "/nowhere/python")


async def test_only_so_many_are_kept(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    for number in range(LIMIT + 1):
        env = {**program, "OMP_NUM_THREADS": str(number + 1)}
        await start(make(tmp_path, number, env), zygotes, shim, env)
    assert len(named(tmp_path / "run")) == LIMIT


async def test_what_it_forks_bears_the_mark_of_the_node_and_of_no_trial(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    trial = {**program, OWNER: str(tmp_path / "trials/t/1")}
    await start(make(tmp_path, 1, trial), zygotes, shim, trial)
    (interpreter,) = named(tmp_path / "run/zygote0")
    assert processes.started_with(interpreter, OWNER) == str(shim.parent)


async def test_one_whose_import_hangs_delays_nobody_elses(
    tmp_path: Path, zygotes: Zygotes, shim: Path, program: dict[str, str]
) -> None:
    hanging = make(tmp_path, 1, hangs(tmp_path, program))
    theirs = tmp_path / "python"
    theirs.symlink_to(sys.executable)
    waiting = asyncio.get_running_loop().create_task(
        zygotes.spawn(str(theirs), "keras", hangs(tmp_path, program), hanging.spec)
    )
    assert b"zygote" in await start(make(tmp_path, 2, program), zygotes, shim, program)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_one_that_hangs_is_given_up_and_not_waited_for_again(
    tmp_path: Path,
    zygotes: Zygotes,
    shim: Path,
    program: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hermesd.node.runner.zygotes.IMPORT_SECONDS", 0.1)
    env = hangs(tmp_path, program)
    assert b"trainer_shim.host" in await start(make(tmp_path, 1, env), zygotes, shim, env)
    monkeypatch.setattr("hermesd.node.runner.zygotes.IMPORT_SECONDS", 3600.0)
    assert b"trainer_shim.host" in await start(make(tmp_path, 2, env), zygotes, shim, env)


async def test_one_that_is_stopped_is_given_up_and_ended(
    tmp_path: Path,
    zygotes: Zygotes,
    shim: Path,
    program: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await start(make(tmp_path, 1, program), zygotes, shim, program)
    (interpreter,) = named(tmp_path / "run/zygote0")
    os.kill(interpreter, signal.SIGSTOP)
    monkeypatch.setattr("hermesd.node.runner.zygotes.FORK_SECONDS", 0.1)
    assert b"trainer_shim.host" in await start(make(tmp_path, 2, program), zygotes, shim, program)
    await processes.exited(interpreter)


def test_a_hosts_path_has_the_shim_first(shim: Path, program: dict[str, str]) -> None:
    assert host_environment(program, shim)["PYTHONPATH"].startswith(f"{shim}:")
