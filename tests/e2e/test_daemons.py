"""`hermesd head` and `hermesd node` as one user starts them: their defaults find each other."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import processes

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import argparse
import trainer_shim

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
trial = trainer_shim.attach()
for step in range(1, 6):
    trial.report(step, loss=rate / step)
"""


class Home:
    """One user's home and the daemons in it; nothing is named that has a default."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state" / "hermes"
        self.project = folder / "project"
        self.project.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "XDG_"))}
        place = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        self.environment = kept | place | {"PYTHONPATH": str(ROOT)}

    @asynccontextmanager
    async def daemon(self, *words: str, **environment: str) -> AsyncIterator[asyncio.Queue[bytes]]:
        """`hermesd WORDS` for the length of a block; what it notifies and prints, by lines."""
        said: asyncio.Queue[bytes] = asyncio.Queue()
        address = self.folder / f"{words[0]}{len(environment)}.notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notices:
            notices.bind(str(address))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hermesd.cli", *words),
                cwd=self.project,
                env=self.environment | {"NOTIFY_SOCKET": str(address)} | environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            loop = asyncio.get_running_loop()
            loop.add_reader(notices, lambda: said.put_nowait(notices.recv(100)))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_lines(process, said))
                try:
                    yield said
                finally:
                    loop.remove_reader(notices)
                    if process.returncode is None:
                        process.terminate()
                    await process.wait()

    async def hermesctl(self, *words: str) -> tuple[int | None, str]:
        """Exit code and all that it said."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermesctl.cli", *words),
            cwd=self.project,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()


async def _lines(process: asyncio.subprocess.Process, said: asyncio.Queue[bytes]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        said.put_nowait(line)


async def until(said: asyncio.Queue[bytes], words: str) -> str:
    """Wait for a line with these words in it."""
    while words not in (line := (await said.get()).decode()):
        pass
    return line


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Short enough for sockets below it."""
    return Home(tmp_path_factory.mktemp("u"))


@pytest.mark.timeout(120)
async def test_separate_daemons_run_a_study_with_nothing_but_defaults(home: Home) -> None:
    (home.project / "train.py").write_text(SCRIPT)
    try:
        async with home.daemon("node"), home.daemon("head") as head:
            await until(head, "READY=1")
            code, said = await home.hermesctl(
                "submit", "train.py", "--grid", "rate=0.5,0.25", "--follow"
            )
            assert code == 0, said
            code, said = await home.hermesctl("status", "--output", "json")
            assert code == 0, said
            assert '"completed": 2' in said
            code, said = await home.hermesctl("node", "ls")
            assert code == 0, said
    finally:
        for pid, _ in processes(home.folder):
            if pid != os.getpid():
                os.kill(pid, 9)


@pytest.mark.timeout(180)
async def test_a_local_head_is_begun_with_a_word_and_stays_with_a_word(home: Home) -> None:
    (home.project / "train.py").write_text(SCRIPT)
    submit = ("submit", "train.py", "--grid", "rate=0.5,0.25", "--local", "--follow")
    begun, stays = "starting a head and a node for you", "your head and node stay"
    try:
        code, said = await home.hermesctl(*submit)
        assert code == 0, said
        assert said.startswith(begun)
        assert "nothing runs on the head" not in said
        assert stays in said.splitlines()[-1]
        code, said = await home.hermesctl(*submit, "--again")
        assert code == 0, said
        assert begun not in said
        assert stays in said.splitlines()[-1]
        code, said = await home.hermesctl("local", "stop")
        assert (code, said.splitlines()[-1]) == (0, "stopped")
    finally:
        for pid, _ in processes(home.folder):
            if pid != os.getpid():
                os.kill(pid, 9)


@pytest.mark.timeout(60)
async def test_a_head_without_a_node_says_how_to_add_one(home: Home) -> None:
    (home.project / "train.py").write_text(SCRIPT)
    submit = ("submit", "train.py", "--grid", "rate=0.5,0.25")
    async with home.daemon("head") as head:
        await until(head, "READY=1")
        code, said = await home.hermesctl(*submit, "--local")
        assert code == 4
        assert "a hermesd head of yours runs already" in " ".join(said.split())
        for words in (submit, ("status",)):
            code, said = await home.hermesctl(*words)
            assert code == 0, said
            assert "it has no node; hermesd node adds this machine" in " ".join(said.split())


@pytest.mark.timeout(60)
async def test_whoever_has_no_token_is_told_which_file_was_looked_for(home: Home) -> None:
    missing = str(home.folder / "nowhere" / "token")
    async with home.daemon("head") as head:
        await until(head, "READY=1")
        async with home.daemon("node", HERMES_NODE_TOKEN_FILE=missing) as node:
            line = await until(node, "the head refuses this node")
            assert f"none was sent: {missing}: No such file or directory" in line
        token = home.state / "head" / "token"
        token.rename(token.with_suffix(".away"))
        code, said = await home.hermesctl("status")
        assert code == 4
        assert f"{token}: No such file or directory" in " ".join(said.split())
