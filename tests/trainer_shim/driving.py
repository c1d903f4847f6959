"""Drives real hosts and zygotes as a node daemon does: a trial directory and a socket."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.forked import Forked
from tests.waiting import until
from trainer_shim.channel import frames

ROOT = Path(__file__).resolve().parents[2]
Event = dict[str, Any]


class Trial:
    """One trial directory, its host, and the events heard so far."""

    def __init__(
        self,
        directory: Path,
        argv: list[str],
        env: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        self.directory = directory
        (directory / "work").mkdir(parents=True)
        self.checkpoints = directory / "checkpoints"
        spec = {
            "trial": f"test/{directory.name}",
            "argv": argv,
            "cwd": str(directory / "work"),
            "env": env if env is not None else environment(),
            "signal": "loss",
            "seed": None,
            "checkpoints": str(self.checkpoints),
            "output": str(directory / "output.log"),
            "output_limit_bytes": 1 << 20,
            "lease_grace_seconds": 60,
            "orphan_seconds": 600,
            "cgroup_work": None,
            "cgroup_host": None,
            "parameters": {},
            "socket": str(directory / "host.sock"),
            **fields,
        }
        self.spec = directory / "spec.json"
        self.spec.write_text(json.dumps(spec))
        self.socket_path = str(spec["socket"])
        self.attempt = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.host_pid = 0
        self.daemon: socket.socket | None = None
        self.events: list[Event] = []
        self.attached: Event = {}

    def launch(self, zygote: Zygote | None = None) -> Trial:
        """Start the host, cold or from a zygote, and attach."""
        if zygote is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainer_shim.host", str(self.spec)],
                cwd=ROOT,
                start_new_session=True,
            )
        else:
            answer = zygote.spawn(self.spec)
            assert answer["kind"] == "spawned", answer
            self.host_pid = answer["pid"]
        self.attach()
        return self

    def attach(self, after: int = 0) -> Event:
        """Connect as a node daemon; in place of the connection there was."""
        self.detach()
        self.daemon = until(self._connected)
        self.send("attach", after=after)
        answer = frames.receive(self.daemon)
        assert answer is not None
        assert answer["kind"] == "attached"
        self.attached = answer
        self.host_pid = answer["host_pid"]
        return answer

    def _connected(self) -> socket.socket | None:
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            daemon.connect(self.socket_path)
        except (FileNotFoundError, ConnectionRefusedError):
            daemon.close()
            assert self.process is None or self.process.poll() is None, "the host died"
            return None
        return daemon

    def detach(self) -> None:
        """Go away, as a daemon that is restarted does."""
        if self.daemon is not None:
            self.daemon.close()
            self.daemon = None

    def send(self, kind: str, **fields: Any) -> None:
        """One request, with the current attempt."""
        assert self.daemon is not None
        frames.send(self.daemon, {"kind": kind, "attempt": self.attempt, **fields})

    def start(self, restore: str | None = None, limit: int | None = None) -> None:
        """The next attempt, in a new training process."""
        self.attempt += 1
        self.send("start", restore=restore, limit_step=limit)

    def resume(self, limit: int | None = None) -> None:
        """The next attempt, in the parked process."""
        self.attempt += 1
        self.send("resume", limit_step=limit)

    def suspend(self, tier: str, deadline: float = 60.0) -> None:
        """Ask for the device back."""
        self.send("suspend", tier=tier, deadline_seconds=deadline)

    def until(self, *kinds: str) -> Event:
        """The next event of one of these kinds, keeping those before it."""
        assert self.daemon is not None
        while True:
            event = frames.receive(self.daemon)
            assert event is not None, f"the host went away waiting for {kinds}: {self.output}"
            self.events.append(event)
            if event["kind"] in kinds:
                return event
            if event["kind"] == "failed":
                raise AssertionError(f"{event}\n{self.output}")

    def quit(self) -> None:
        """End the host, and with it the process."""
        if self.daemon is not None:
            self.send("quit")
            while frames.receive(self.daemon) is not None:
                pass
            self.detach()
        if self.process is not None:
            self.process.wait()

    @property
    def output(self) -> str:
        """What the program has printed."""
        path = self.directory / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def losses(self) -> dict[int, float]:
        """The loss of each step as reported; a step reported twice must agree."""
        found: dict[int, float] = {}
        for event in self.events:
            if event["kind"] != "reported":
                continue
            for step, metrics in event["points"]:
                if "loss" in metrics:
                    loss = float(metrics["loss"])
                    assert found.setdefault(step, loss) == loss, (step, found[step], loss)
        return found


class Zygote:
    """A zygote and the connection that owns it. It is nobody's child: tests of groups of processes
    end all that are below the test's own. One `of_keras` has it from the process of all tests."""

    def __init__(self, path: Path, preload: str = "", of_keras: bool = False) -> None:
        self.of_keras = of_keras
        module = ["-m", "trainer_shim.host.zygote", str(path)]
        if preload:
            module += ["--preload", preload]
        shim = _linked(path.parent / "shim")
        # PyTorch sets it in a test's own process; no trial has it.
        env = {name: it for name, it in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
        if of_keras:
            env["PYTHONHASHSEED"] = "0"  # or it would start anew to have it
            self._forked = Forked("keras", *module, environment=env, folder=shim)
            self.pid = self._forked.pid
        else:
            orphan = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", sys.executable, *module]
            started = subprocess.check_output(orphan, cwd=shim, env=env, start_new_session=True)
            self.pid = int(started)
        self._end = open(  # noqa: SIM115
            os.pidfd_open(self.pid), "rb", buffering=0
        )
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                self.control.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                assert not select.select([self._end], [], [], 0.01)[0], "the zygote died"

    def spawn(self, spec: Path) -> Event:
        """Ask for a host."""
        frames.send(self.control, {"kind": "spawn", "spec": str(spec)})
        answer = frames.receive(self.control)
        assert answer is not None
        return answer

    def close(self) -> None:
        """Let go of it; it ends by itself."""
        self.control.close()
        if not self._end.closed:
            select.select([self._end], [], [])
            self._end.close()
            if self.of_keras:
                self._forked.communicate()


def _linked(folder: Path) -> Path:
    """A folder in which the package is found through a link, as a node daemon has it."""
    folder.mkdir(exist_ok=True)
    for package in ("trainer_shim", "tests"):
        with suppress(FileExistsError):
            (folder / package).symlink_to(ROOT / package)
    return folder


@contextmanager
def ending(trial: Trial) -> Iterator[Trial]:
    """A trial whose processes are gone when the block is left, however it is left."""
    try:
        yield trial
    finally:
        trial.detach()
        if trial.host_pid:
            with suppress(ProcessLookupError):
                os.kill(trial.host_pid, signal.SIGKILL)
        if trial.process is not None:
            trial.process.kill()
            trial.process.wait()


def environment(**extra: str) -> dict[str, str]:
    """The environment a trial runs in, as a node daemon would give it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **extra}
