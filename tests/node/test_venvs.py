"""A study's requirements are installed once on a node, and its trials run with them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from hermesd.core.commands import Launch, Look
from hermesd.core.events import Looked, RunCompleted, RunFailed
from hermesd.core.model import Goal, Program, Quantum, RunId, RunTerms, Venv
from hermesd.core.node.messages import Assignment, Work
from hermesd.node.machine import processes
from hermesd.node.machine import venvs as machine_venvs
from hermesd.node.machine.accounts import UnixAccount
from hermesd.node.machine.venvs import BEING_MADE, NotMade, Venvs
from hermesd.node.outbox import Outbox
from tests.deep_trees import TOO_DEEP, dig
from tests.node.conftest import CPU0, Head, Node, becomes, blob, looked

OFFLINE = {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}
UV = Path(sys.executable).with_name("uv")


def wheel(folder: Path) -> str:
    """A requirement that needs no network: a distribution of one module."""
    path = folder / "demo_of_ours-1.0-py3-none-any.whl"
    about = "demo_of_ours-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo_of_ours.py", "WORDS = 'made for it'\n")
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: demo-of-ours\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return str(path)


def without_uv() -> dict[str, str]:
    return {**os.environ, **OFFLINE, "PATH": "/usr/bin:/bin"}


def with_uv() -> dict[str, str]:
    return {**os.environ, **OFFLINE, "PATH": f"{UV.parent}:/usr/bin:/bin"}


def quick() -> dict[str, str]:
    """With uv, where it is: it takes a tenth of the time."""
    return with_uv() if UV.exists() else without_uv()


def venvs(folder: Path, environ: Mapping[str, str]) -> tuple[Venvs, Outbox]:
    outbox = Outbox()
    return Venvs("n1", folder / "venvs", environ, outbox), outbox


async def imported(python: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        python, "-c", "import demo_of_ours; print(demo_of_ours.WORDS)",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return (await process.communicate())[0]


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_it_is_made_once(tmp_path: Path, installer: str) -> None:
    if installer == "uv" and not UV.exists():
        pytest.skip("no uv beside this interpreter")
    made, _ = venvs(tmp_path, with_uv() if installer == "uv" else without_uv())
    venv = Venv(sys.executable, wheel(tmp_path))
    python = await made.interpreter(venv)
    assert await imported(python) == b"made for it\n"
    Path(venv.requirements).unlink()
    assert await made.interpreter(venv) == python, "nothing is installed a second time"


async def test_what_cannot_be_made_is_told_and_made_once_it_can(tmp_path: Path) -> None:
    made, outbox = venvs(tmp_path, quick())
    venv = Venv(sys.executable, str(tmp_path / "demo_of_ours-1.0-py3-none-any.whl"))
    with pytest.raises(NotMade, match="demo_of_ours"):
        await made.interpreter(venv)
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(made.run())
        made.want([venv])
        assert (await looked(outbox)).sights == ((venv.name, BEING_MADE),)
        [(name, reason)] = (await looked(outbox)).sights
        assert name == venv.name
        assert "demo_of_ours" in reason
        wheel(tmp_path)
        made.want([venv])  # a stream that came anew asks again
        assert (await looked(outbox)).sights == ((venv.name, BEING_MADE),)
        assert (await looked(outbox)).sights == ((venv.name, ""),)
        making.cancel()


async def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    made, _ = venvs(tmp_path, without_uv())
    with pytest.raises(NotMade, match="No such file"):
        await made.interpreter(Venv("/no/such/python", "x"))


async def test_what_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    made, _ = venvs(tmp_path, quick())
    venv = Venv(sys.executable, wheel(tmp_path))
    (tmp_path / "venvs" / venv.name / "bin").mkdir(parents=True)
    (tmp_path / "venvs" / venv.name / "bin" / "python").symlink_to("/nowhere")
    assert await imported(await made.interpreter(venv)) == b"made for it\n"


async def test_what_comes_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    made, _ = venvs(tmp_path, quick())
    with pytest.raises(NotMade):
        await made.interpreter(Venv(sys.executable, str(tmp_path / "nothing.whl")))
    assert list((tmp_path / "venvs").iterdir()) == []


async def test_what_a_daemon_before_had_not_made_or_removed_to_its_end_goes(tmp_path: Path) -> None:
    made, _ = venvs(tmp_path, quick())
    for name in ("half-made", "partial-half-gone", "whole"):
        (tmp_path / "venvs" / name).mkdir(parents=True)
    for name in ("partial-half-gone", "whole"):
        (tmp_path / "venvs" / name / ".whole").touch()
    dig(tmp_path / "venvs" / "half-made" / "lib", TOO_DEEP)  # whatever was being installed
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(made.run())
        await becomes(lambda: len(list((tmp_path / "venvs").iterdir())) == 1)
        making.cancel()
    assert (tmp_path / "venvs" / "whole").exists()


SLOW = """#!/bin/sh
# An interpreter of which `-m venv` never ends, and writes on and on where it is.
echo $$ > %(begun)s
while :; do date > written; sleep 0.01; done
"""


def slow(tmp_path: Path) -> tuple[Venv, Path]:
    """An environment that takes for ever, and a file with the number of the process that tries."""
    begun, python = tmp_path / "begun", tmp_path / "slow-python"
    python.write_text(SLOW % {"begun": begun})
    python.chmod(0o755)
    return Venv(str(python), "x"), begun


async def test_one_that_takes_for_ever_keeps_nobody_waiting(tmp_path: Path) -> None:
    made, outbox = venvs(tmp_path, without_uv())
    stuck, begun = slow(tmp_path)
    broken = Venv("/no/such/python", "x")
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(made.run())
        made.want([stuck])
        assert (await looked(outbox)).sights == ((stuck.name, BEING_MADE),)
        await becomes(begun.exists)
        made.want([broken])
        assert (await looked(outbox)).sights == ((broken.name, BEING_MADE),)
        assert "No such file" in (await looked(outbox)).sights[0][1]
        making.cancel()


async def test_one_that_forks_and_forks_is_ended_with_all_of_it(tmp_path: Path) -> None:
    """While it was looked who is to be ended, there came more, which held its output open."""
    made, _ = venvs(tmp_path, without_uv())
    stuck, begun = slow(tmp_path)
    forking = SLOW.replace("date > written; sleep 0.01", "sleep 1000 & sleep 0.002")
    Path(stuck.python).write_text(forking % {"begun": begun})
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(made.interpreter(stuck))
        await becomes(lambda: begun.exists() and bool(begun.read_text().strip()))
        leader = processes.Remembered.of(int(begun.read_text()))
        await becomes(lambda: len(leader.session()) > 20)
        making.cancel()
    assert leader.session() == set()


LEAVES = """#!/bin/sh
setsid sleep 1000 &
echo $! >> %(left)s
%(python)s "$@"
"""


async def test_what_an_installer_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    """A compiler's server, say, which has its output open."""
    made, _ = venvs(tmp_path, without_uv())
    python, left = tmp_path / "python", tmp_path / "left"
    python.write_text(LEAVES % {"left": left, "python": sys.executable})
    python.chmod(0o755)
    try:
        assert Path(await made.interpreter(Venv(str(python), ""))).exists()
    finally:
        processes.kill(map(int, left.read_text().split()))


async def test_an_installer_that_cannot_be_watched_is_its_own_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = venvs(tmp_path, without_uv())

    async def exited(pid: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(processes, "exited", exited)
        with pytest.raises(NotMade, match="Too many open files"):
            await made.interpreter(Venv(sys.executable, ""))
    assert Path(await made.interpreter(Venv(sys.executable, ""))).exists()


async def test_those_of_other_accounts_that_take_for_ever_take_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many users there are: each account has one."""
    monkeypatch.setattr(machine_venvs, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(machine_venvs, "MOST_AT_ONCE", 1)
    made, _ = venvs(tmp_path, without_uv())
    begun: list[int] = []
    ends = asyncio.Event()

    async def make(venv: Venv, folder: Path, account: UnixAccount) -> None:
        begun.append(account.uid)
        await ends.wait()

    monkeypatch.setattr(made, "_make", make)
    monkeypatch.setattr(UnixAccount, "make_folder", lambda self, place: None)
    async with asyncio.TaskGroup() as tasks:
        for uid in (4711, 4711, 4712, 4713):
            account = UnixAccount(f"{uid}", uid, uid, (), tmp_path)
            tasks.create_task(made.interpreter(Venv(sys.executable, f"{uid}"), account))
        await becomes(lambda: len(begun) == 3)
        assert sorted(begun) == [4711, 4712, 4713]
        ends.set()


async def test_many_that_take_for_ever_keep_nobody_waiting_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wants them: with one account for all, nobody knows."""
    monkeypatch.setattr(machine_venvs, "TURN_SECONDS", 0.1)
    made, _ = venvs(tmp_path, without_uv())
    folders = [tmp_path / f"{number}" for number in range(machine_venvs.AT_ONCE + 1)]
    for folder in folders:
        folder.mkdir()
    stuck = [slow(folder) for folder in folders]
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(made.run())
        made.want(venv for venv, _ in stuck)
        for _, begun in stuck:
            await becomes(begun.exists)
        making.cancel()


async def test_however_many_take_for_ever_only_some_do_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_venvs, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(machine_venvs, "MOST_AT_ONCE", 3)
    made, _ = venvs(tmp_path, without_uv())
    begun: list[str] = []
    ends = asyncio.Event()

    async def make(venv: Venv, *_: object) -> None:
        begun.append(venv.requirements)
        await ends.wait()

    monkeypatch.setattr(made, "_make", make)
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(made.interpreter(Venv(sys.executable, f"{number}")))
        # Their turns are over: only a place is what the others wait for.
        await becomes(lambda: len(begun) >= 3 and not made._turns.locked())
        await becomes(lambda: not made._turns.locked())
        assert len(begun) == 3
        ends.set()
    assert len(begun) == 8


async def test_what_an_earlier_daemon_left_at_work_does_not_write_into_it(tmp_path: Path) -> None:
    """Such as was killed itself: its installer is nobody's child, and goes on."""
    stuck, begun = slow(tmp_path)
    orphaned = f"""
import asyncio, pathlib
from hermesd.core.model import Venv
from hermesd.node.machine.venvs import Venvs
from hermesd.node.outbox import Outbox
made = Venvs("n1", pathlib.Path({str(tmp_path / "venvs")!r}), {without_uv()!r}, Outbox())
asyncio.run(made.interpreter(Venv({stuck.python!r}, "x")))
"""
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", orphaned)
    await becomes(lambda: begun.exists() and bool(begun.read_text().strip()))
    daemon.kill()
    await daemon.wait()
    installer = int(begun.read_text())
    Path(stuck.python).write_text("#!/bin/sh\necho it ends; exit 1\n")
    made, _ = venvs(tmp_path, without_uv())
    try:
        with pytest.raises(NotMade, match="it ends"):
            await made.interpreter(stuck)
        assert processes.session(installer) == set()
        assert not (tmp_path / "venvs" / stuck.name / "written").exists()
    finally:
        processes.kill(processes.session(installer))


async def test_of_what_an_installer_prints_the_end_is_told(tmp_path: Path) -> None:
    made, _ = venvs(tmp_path, without_uv())
    python = tmp_path / "loud-python"
    python.write_text("#!/bin/sh\nyes no | head -c 5000000\necho the end\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(NotMade) as caught:
        await made.interpreter(Venv(str(python), "x"))
    assert str(caught.value).endswith("the end")
    assert len(str(caught.value)) <= 600


@pytest.fixture
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node daemon that finds uv, if it is there."""
    monkeypatch.setenv("PATH", f"{UV.parent}{os.pathsep}{os.environ['PATH']}")


PROGRAM = """
import demo_of_ours, sys, trainer_shim
print(demo_of_ours.WORDS, sys.argv, flush=True)
trainer_shim.attach().report(1, loss=0.5)
"""


def launched(head: Head, attempt: int, requirements: str) -> RunId:
    """A Launch whose command line names the interpreter by its path, as submissions do."""
    code = blob({"train.py": PROGRAM})
    name = hashlib.sha256(code).hexdigest()
    head.blobs[name] = code
    argv = (sys.executable, "train.py", "--lr=1")
    program = Program(argv, sys.executable, name, "/", requirements=requirements)
    work = Work(program, (), "loss", Goal.MINIMIZE, 7)
    run = RunId("digits/1", attempt)
    head.send(Assignment(Launch(run, (CPU0,), Quantum(), ""), None, work, RunTerms()))
    return run


async def test_a_trial_runs_with_what_its_study_requires(
    head: Head, quicker: None, node: Node, tmp_path: Path
) -> None:
    venv = Venv(sys.executable, wheel(tmp_path))
    head.send(Look("n1", (), (venv,)))
    await head.until(lambda: Looked("n1", ((venv.name, ""),)) in head.events)
    await head.hears(RunCompleted, launched(head, 1, venv.requirements))
    output = node.config.state_dir / "trials" / "digits" / "1" / "output.log"
    assert "made for it ['train.py', '--lr=1']" in output.read_text()
    shutil.rmtree(node.config.state_dir / "venvs")
    failed = await head.hears(RunFailed, launched(head, 2, "/no/such.whl"))
    assert failed.error_kind == "unmet"
    assert "such.whl" in failed.detail
