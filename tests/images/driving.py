"""Hosts in worlds of their own, and a CRIU, as a node daemon has them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pytest

from hermesd.node.machine import detached, images
from hermesd.node.machine.accounts import UnixAccount
from hermesd.node.machine.detached import WORLD
from tests.images.programs import Program
from tests.trainer_shim.driving import ROOT, Trial, environment
from trainer_shim.host import image

# The one that `tests/images/criu.sh .criu` has fetched, if it has.
_FETCHED = Path(ROOT) / ".criu" / "criu"
NAMED = os.environ.get("HERMES_NODE_CRIU", str(_FETCHED) if _FETCHED.exists() else "criu")
_TIMES = 3
_MOMENT_SECONDS = 0.5


def criu(folder: Path) -> str:
    """A CRIU that works here; skips the test without one."""
    if shutil.which(NAMED) is None:
        pytest.skip("no CRIU here")
    found = asyncio.run(images.detect(NAMED, folder, ROOT))
    if not found.criu:
        pytest.skip(f"no process images here: {found.why}")
    return found.criu


class WorldTrial(Trial):
    """A trial whose every host has a world of its own, and its program a folder for temporary
    files."""

    def __init__(
        self,
        directory: Path,
        argv: list[str],
        env: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(directory, argv, env, **{"temporary": str(directory / "tmp"), **fields})

    pid = 0  # of the host, as it is seen from here
    python = sys.executable
    host = "-m", "trainer_shim.host"
    shim = ROOT

    def launch(self, zygote: object = None) -> WorldTrial:
        """Start the host and attach."""
        command = [self.python, *self.host, str(self.spec)]
        env = {**os.environ, "PYTHONPATH": str(self.shim), "PYTHONHASHSEED": "0"}
        # As a node daemon does: what is left of an earlier host may still take connections.
        Path(self.socket_path).unlink(missing_ok=True)
        with (self.directory / "host.log").open("ab") as log:
            self.pid = self.start_host(command, env, log)
        self.attach()
        return self

    def start_host(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> int:
        """As a node daemon does."""
        return asyncio.run(
            detached.start(command, env, folder=self.shim, errors=log.fileno(), world=WORLD)
        )

    def end(self) -> None:
        """Kill the host, and with it all that is in its world; wait until it is gone."""
        self.detach()
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(self.pid)
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            asyncio.run(_readable(fd))
            os.close(fd)


NOBODY = 65534
THEIR_ACCOUNT = UnixAccount("nobody", NOBODY, NOBODY, (), Path("/tmp"))


def give(folder: Path) -> None:
    """Have all that lies there be another user's."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o755)


class Theirs(WorldTrial):
    """A trial of another user."""

    is_roots = False  # for now

    def start_host(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> int:
        """With nothing of root's."""
        if self.is_roots:
            return super().start_host(command, env, log)
        return started_as_theirs(command, {**env, "HOME": "/tmp"}, self.shim, log.fileno())


def started_as_theirs(command: list[str], env: dict[str, str], folder: Path, errors: int) -> int:
    return asyncio.run(
        detached.start(
            command, env, folder=folder, errors=errors, world=WORLD, account=THEIR_ACCOUNT
        )
    )


class InNoWorld(Theirs):
    """A trial of a user who may have no namespaces."""

    def start_host(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> int:
        """With a user's own rights, and whatever CRIU has."""
        orphan = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
        return int(
            subprocess.check_output(
                orphan, env={**env, "HOME": "/tmp"}, cwd=self.shim, stdin=subprocess.DEVNULL,
                stderr=log, user=NOBODY, group=NOBODY, extra_groups=[], start_new_session=True,
            )
        )  # fmt: skip


def make_capable(tool: str, target: Path) -> bool:
    """Have a copy of CRIU at `target` with the capabilities that `setcap` would give; whether that
    can be. A copy that is started by a loader has that beside it."""
    words = Path(tool).read_bytes().split()
    binary, copy = tool, target
    if words[0] == b"#!/bin/sh":
        binary, copy = words[2].decode(), target.with_name("loader")
        target.write_text(Path(tool).read_text().replace(binary, str(copy)))
        target.chmod(0o755)
    shutil.copy(binary, copy)
    numbers = {"cap_setpcap": 8, "cap_checkpoint_restore": 40}
    bits = sum(1 << numbers[name] for name in images.CAPABILITIES.split(","))
    low, high, with_effect = bits & (2**32 - 1), bits >> 32, 0x02000001
    try:
        value = struct.pack("<5I", with_effect, low, low, high, high)
        os.setxattr(copy, "security.capability", value)
    except OSError:
        return False
    return True


async def _readable(fd: int) -> None:
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, ready.set)
    await ready.wait()
    loop.remove_reader(fd)


def lay_out(program: Program, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    for name, text in program.files.items():
        (work / name).write_text(text)
    if program.builds:
        subprocess.run(program.builds, cwd=work, check=True)


def argv(program: Program) -> list[str]:
    return [word.format(python=sys.executable) for word in program.argv]


def files_in(work: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(work)): path.read_bytes()
        for path in sorted(work.rglob("*"))
        if path.is_file()
    }


def undisturbed(program: Program, folder: Path) -> tuple[str, dict[str, bytes]]:
    lay_out(program, folder)
    with TemporaryDirectory(prefix="hermes-") as temporary:
        env = environment(PYTHONHASHSEED="0", TMPDIR=temporary)
        done = subprocess.run(
            argv(program), cwd=folder, env=env, capture_output=True, text=True, check=True
        )
    return done.stdout, files_in(folder)


def missing(program: Program) -> str | None:
    """What is needed to run it, and is not here."""
    for module in program.modules:
        if importlib.util.find_spec(module) is None:
            return module
    return next((tool for tool in program.tools if shutil.which(tool) is None), None)


def suspended_again_and_again(
    trial: WorldTrial, letters: int, other: WorldTrial | None = None
) -> str:
    """Run the trial to its end, which comes after it has printed so many letters, suspended as an
    image now and then, each time by a host that ends there; what it has printed. The last time it
    goes on as the `other`, if there is one, as on another node."""
    path, printed = None, ""
    try:
        for round in range(_TIMES + 1):
            if round == _TIMES and other is not None and path is not None:
                printed = trial.output
                trial, path = other, _moved(path, other)
            trial.launch()
            trial.start(restore=path)
            if round == _TIMES:
                trial.until("completed")
                break
            trial.until("started")
            wait_for_more(trial, letters // (_TIMES + 1))
            trial.suspend("checkpoint")
            event = trial.until("suspended", "completed")
            if event["kind"] == "completed":
                break
            assert event["tier"] == "checkpoint", event
            path = event["checkpoint"]["path"]
            trial.end()
        trial.quit()
    finally:
        trial.end()
    assert path is not None, "it was never suspended"
    return printed + trial.output


def _moved(path: str, other: WorldTrial) -> str:
    """The image at `path`, and nothing else, on the other's node."""
    return str(shutil.copytree(path, other.checkpoints / Path(path).name))


def wait_for_more(trial: WorldTrial, letters: int) -> None:
    """Until the program has printed so much more; of one that prints little any moment will do."""
    had, until = len(trial.output), time.monotonic() + _MOMENT_SECONDS
    while len(trial.output) < had + letters and time.monotonic() < until:
        select.select([trial.daemon], [], [], 0.005)


class Failing:
    """A CRIU that does what it is told when it is asked to dump or to restore."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.path = folder / "failing-criu"
        self._told = folder / "told"
        self.path.write_text(
            f'#!/bin/sh\ncase "$1" in dump|restore) . {self._told};; esac\nexec {tool} "$@"\n'
        )
        self.path.chmod(0o755)
        self.does("")

    def waits(self) -> None:
        """Until it `goes_on`."""
        gate = self._told.with_suffix(".gate")
        os.mkfifo(gate)
        self.does(f"read line < {gate}")

    def goes_on(self) -> None:
        """What it has waited for is there."""
        with self._told.with_suffix(".gate").open("w") as gate:  # it is there
            self.does("")
            gate.write("go\n")

    def does(self, what: str) -> None:
        self._told.write_text(f"{what}\n")


def begun(trial: WorldTrial, restore: str | None = None) -> None:
    """Have it run, or go on, and print something."""
    trial.start(restore=restore)
    trial.until("started")
    wait_for_more(trial, 20)


def saved(trial: WorldTrial) -> str:
    """Suspended as an image, by a host that ends; the next one is there."""
    trial.suspend("checkpoint")
    path = str(trial.until("suspended")["checkpoint"]["path"])
    assert image.is_image(path)
    trial.end()
    trial.launch()
    return path
