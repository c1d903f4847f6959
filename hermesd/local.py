"""A head and a node for one user on one machine: two child processes, kept alive together.

Both are processes of their own, restarted when they die. They end when told to, and when this
process is gone: each holds the other end of a pipe. Whoever looks for them reads `local.json`,
which is there while both are ready; whoever wants to end them reads `running.lock`, which holds the
number of this process, and is locked, for as long as it lives.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import hermesd
from hermesd.logs import get_logger
from hermesd.notify import notify

BACKOFF_SECONDS = (0.2, 5.0)
# A process that ran this long is not in a crash loop.
STEADY_SECONDS = 30.0
# The node writes its trials down before it ends.
NODE_STOP_SECONDS = 120.0
HEAD_STOP_SECONDS = 15.0
HOPELESS_EXIT = 2
IN_THE_WAY_EXIT = 4
# One that is still ending has its time; longer than that it is somebody's own.
IN_THE_WAY_SECONDS = 30.0
# On a full disk the record cannot be written.
RECORD_AGAIN_SECONDS = 1.0

log = get_logger()


class LocalRefused(Exception):
    """The local head cannot run; says why."""


class InTheWay(LocalRefused):
    """Another one runs where it would, or may soon have ended."""


@dataclass(slots=True)
class Child:
    """A daemon to keep running."""

    name: str
    arguments: tuple[str, ...]
    stop_seconds: float
    #: Set while the daemon says that it is ready.
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    process: asyncio.subprocess.Process | None = None

    async def keep(self, folder: Path, changed: Callable[[], None]) -> None:
        """Run it, again and again, until `stop`. Raises LocalRefused if it refuses to start."""
        backoff = BACKOFF_SECONDS[0]
        in_the_way_since: float | None = None
        while not self.stopping:
            started = asyncio.get_running_loop().time()
            code = await self._run_once(folder, changed)
            changed()
            if self.stopping:
                return
            log.warning("ended", process=self.name, code=code)
            if code == HOPELESS_EXIT:
                raise LocalRefused(f"the {self.name} refuses to start: its reason is above")
            now = asyncio.get_running_loop().time()
            if code != IN_THE_WAY_EXIT:
                in_the_way_since = None
            elif now - (in_the_way_since := in_the_way_since or started) >= IN_THE_WAY_SECONDS:
                raise InTheWay(f"another {self.name} is in the way: see its message above")
            if now - started > STEADY_SECONDS:
                backoff = BACKOFF_SECONDS[0]
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS[1])

    async def _run_once(self, folder: Path, changed: Callable[[], None]) -> int:
        with _notifications(folder / f"{self.name}.notify") as notifications:

            def heard() -> None:
                for line in notifications.recv(4096).decode(errors="replace").splitlines():
                    if line == "READY=1":
                        self.ready.set()
                        changed()

            loop = asyncio.get_running_loop()
            loop.add_reader(notifications, heard)
            try:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "hermesd.cli",
                    *self.arguments,
                    "--until-stdin-closes",
                    stdin=asyncio.subprocess.PIPE,
                    env=_environment(os.environ, folder / f"{self.name}.notify"),
                    start_new_session=True,
                )
                code = await self.process.wait()
                self.process = None
                return code
            finally:
                loop.remove_reader(notifications)
                self.ready.clear()

    async def stop(self) -> None:
        """End it: by SIGTERM, and by SIGKILL when it takes too long."""
        self.stopping = True
        process = self.process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
            try:
                async with asyncio.timeout(self.stop_seconds):
                    await process.wait()
            except TimeoutError:
                log.error("did not stop in time", process=self.name)
                process.kill()


def _environment(environ: Mapping[str, str], notify_socket: Path) -> dict[str, str]:
    """Ours, with the children's readiness told to us; grpc must not hook into forks."""
    inherited = {k: v for k, v in environ.items() if not k.startswith("WATCHDOG_")}
    ours = {"NOTIFY_SOCKET": str(notify_socket), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    return inherited | ours


@contextmanager
def _notifications(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(path))
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = os.open(folder / "running.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    except BlockingIOError:
        raise InTheWay(f"{folder}: a local head runs here already") from None
    finally:
        os.close(lock)


class Local:
    """The two children, and the file that tells where they are."""

    def __init__(self, folder: Path, slots: str | None) -> None:
        self._folder = folder
        self._slots = slots
        self._socket = folder / "head.sock"
        self._record = folder / "local.json"
        cpu = () if slots is None else ("--slots", slots)
        head = ("head", "--state", str(folder / "head"), "--socket", str(self._socket))
        node = ("node", "--state", str(folder / "node"), "--head", f"unix:{self._socket}")
        self.head = Child("head", (*head, "--embedded"), HEAD_STOP_SECONDS)
        self.node = Child("node", (*node, "--name", "local", "--embedded", *cpu), NODE_STOP_SECONDS)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep both running until `stop` is set. Raises LocalRefused, OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(self._folder):
            try:
                async with asyncio.TaskGroup() as tasks:
                    keepers = [
                        tasks.create_task(self.head.keep(self._folder, self._tell)),
                        tasks.create_task(self._node_after_head()),
                    ]
                    await stop.wait()
                    await self._end()
                    for keeper in keepers:
                        keeper.cancel()
            except* LocalRefused as refused:
                await self._end()
                raise refused.exceptions[0] from None
            finally:
                self._record.unlink(missing_ok=True)

    async def _end(self) -> None:
        """The node first: the head is to hear how its trials were left."""
        await self.node.stop()
        await self.head.stop()

    async def _node_after_head(self) -> None:
        await self.head.ready.wait()
        await self.node.keep(self._folder, self._tell)

    def _tell(self) -> None:
        """Write or remove the record: it is there while both are ready."""
        if not (self.head.ready.is_set() and self.node.ready.is_set()):
            self._record.unlink(missing_ok=True)
            return
        fresh = self._record.with_suffix(".new")
        record = {
            "pid": os.getpid(),
            "socket": str(self._socket),
            "version": hermesd.__version__,
            "slots": self._slots,
        }
        try:
            fresh.write_text(json.dumps(record))
            fresh.rename(self._record)
        except OSError as error:
            log.warning("cannot say that both run; tried again", reason=str(error))
            asyncio.get_running_loop().call_later(RECORD_AGAIN_SECONDS, self._tell)
            return
        notify("READY=1")
        log.info("ready", socket=str(self._socket))


async def serve(folder: Path, slots: str | None) -> None:
    """Run until SIGTERM or SIGINT. Raises LocalRefused, OSError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Local(folder, slots).run(stop)
