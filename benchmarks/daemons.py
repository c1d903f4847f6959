"""A head and node daemons as processes of a benchmark's own, which end with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.orphans import scratch
from hermesctl import Client
from hermesctl.errors import HermesError
from hermesd.node.machine.processes import kill_those

_POLL_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Daemons:
    """A head on loopback with TLS in `folder`, and the nodes that have joined it."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{_free_port()}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HERMES_")},
            "HERMES_HEAD_LISTEN": self.address,
            "HERMES_HEAD_ENROLL": f"127.0.0.1:{_free_port()}",
            "HERMES_HEAD_STATE_DIR": str(folder / "head"),
            "HERMES_NODE_RUN_AS": "self",
            **settings,
        }

    def start_head(self, module: str = "hermesd.cli") -> int:
        """Start the head and wait until it answers; its pid."""
        pid = self._start("head", "head", module=module)

        def answers() -> bool:
            with suppress(HermesError), self.client() as hermes:
                hermes.server_info()
                return True
            return False

        until(answers)
        return pid

    def client(self) -> Client:
        """A client of the head's own administrator."""
        return Client(f"unix:{self.folder}/head/head.sock", patience_seconds=1)

    def join(self, name: str) -> None:
        """Have a node of one slot join, and wait until it is connected."""
        words = ("--state", str(self.folder / name), "--slots", "1")
        self._start(name, *self._invitation(name), *words)
        with self.client() as hermes:
            until(lambda: any(n.id == name and n.connected for n in hermes.nodes()))

    def kill(self, name: str) -> None:
        """kill -9 of everything of a node, of its daemon first: nobody is left to tell."""
        self._processes[name].kill()
        self._processes[name].wait()
        mark = f"{self.folder / name}".encode()

        def is_its(pid: int) -> bool:
            about = Path(f"/proc/{pid}")
            return mark in (about / "cmdline").read_bytes() + (about / "environ").read_bytes()

        while kill_those(is_its):
            pass

    def _invitation(self, name: str) -> list[str]:
        head = f"unix:{self.folder}/head/head.sock"
        done = subprocess.run(
            [sys.executable, "-m", "hermesctl.cli", "node", "token", "--name", name],
            env={**self._environment, "HERMES_HEAD": head},
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return done.stdout.split()[1:]

    def _start(self, name: str, *words: str, module: str = "hermesd.cli") -> int:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env=self._environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        return process.pid


@contextmanager
def daemons(**settings: str) -> Iterator[Daemons]:
    """Daemons for the length of a block, with a folder of their own."""
    with scratch() as folder:
        yield Daemons(folder, settings)


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    while not holds():
        time.sleep(_POLL_SECONDS)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_kib(pid: int) -> int:
    """What a process holds in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
