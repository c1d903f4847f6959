"""A head and its nodes as real processes on machines of their own, and the means to kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Node
from tests.cluster.network import PORTS, Network
from tests.e2e.cluster import parent, processes

REPOSITORY = Path(__file__).resolve().parents[2]
NODES = ("node-a", "node-b", "node-c")
SLOTS = 2
POLL_SECONDS = 0.3

Environment: TypeAlias = Callable[[str], Mapping[str, str]]
Wiring: TypeAlias = Callable[[], AbstractContextManager[Network]]


class Machine:
    """A machine with one daemon, which is started again whenever it ends, but for `dead` ones."""

    def __init__(self, name: str, on: Sequence[str], state: Path) -> None:
        self.name = name
        self.on = on
        self.state = state
        self.dead = False
        self.environment: Mapping[str, str] = {}
        self._words: Sequence[str] = ()
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._alive = asyncio.Event()

    def serve(self, tasks: asyncio.TaskGroup, *first: str, again: Sequence[str]) -> None:
        """Run the daemon from here on; the first time with words of its own."""
        self._words = again
        self._alive.set()
        self._keeper = tasks.create_task(self._keep(first))

    async def _keep(self, first: Sequence[str]) -> None:
        words = first
        while True:
            await self._alive.wait()
            with (self.state.parent / f"{self.name}.log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.on, sys.executable, "-m", "hermesd.cli", *words,
                    env={**self.environment}, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
            status = await self._process.wait()
            assert status == -signal.SIGKILL, f"{self.name} ended by itself, with {status}"
            words = self._words

    @property
    def daemon(self) -> int:
        """The daemon's pid."""
        assert self._process is not None
        return self._process.pid

    def pids(self, kind: str) -> list[int]:
        """The pids of the hosts, trainers or zygotes of this machine."""
        found = {pid: " ".join(words) for pid, words in processes(self.state)}
        hosts = {pid for pid, line in found.items() if "trainer_shim.host" in line}
        zygotes = {pid for pid, line in found.items() if "trainer_shim.host.zygote" in line}
        # A training process is forked by its host, a warm host by its zygote.
        trainers = {pid for pid in hosts | zygotes if parent(pid) in hosts}
        return sorted({"host": hosts - trainers, "trainer": trainers, "zygote": zygotes}[kind])

    def die(self) -> None:
        """Lose power: everything of this machine at once, and nothing comes back before `boot`."""
        self._alive.clear()
        kill([self.daemon])  # first, or it might tell of the others
        while left := [pid for pid, _ in processes(self.state)]:
            kill(left)

    def boot(self) -> None:
        """Be switched on again."""
        self._alive.set()

    async def stop(self) -> None:
        """End it for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        while left := [pid for pid, _ in processes(self.state)]:
            kill(left)
        if self._process is not None:
            await self._process.wait()


class Place:
    """A head with its nodes on one network, and an administrator's client."""

    def __init__(self, folder: Path, wires: Network, lease_seconds: float) -> None:
        self.folder = folder
        self.wires = wires
        self.lease_seconds = lease_seconds
        self.head = self._machine("head")
        self.nodes: dict[str, Machine] = {}
        self.client: AsyncClient

    def _machine(self, name: str) -> Machine:
        state = self.folder / name
        state.mkdir()
        return Machine(name, self.wires.on(name), state)

    async def start(self, tasks: asyncio.TaskGroup, extra: Environment) -> None:
        """Start the head, and have the nodes join it by tokens."""
        host = self.wires.join("head")
        address, enroll = (f"{host}:{port}" for port in PORTS)
        base = {k: v for k, v in os.environ.items() if not k.startswith("HERMES_")}
        base["HERMES_NODE_RUN_AS"] = "self"
        base |= {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.head.environment = {
            **base,
            **extra("head"),
            "HERMES_HEAD_LISTEN": address,
            "HERMES_HEAD_ENROLL": enroll,
            "HERMES_HEAD_LEASE_SECONDS": str(self.lease_seconds),
        }
        words = ("head", "--state", str(self.head.state))
        self.head.serve(tasks, *words, again=words)
        await self.until(self.listens)
        # Now that its token is there.
        self.client = AsyncClient(f"unix:{self.socket}", patience_seconds=60)
        for name in NODES:
            self.wires.join(name)
            self.nodes[name] = node = self._machine(name)
            node.environment = {**base, **extra(name)}
        # All at once: most of that is Pythons that start.
        async with asyncio.TaskGroup() as joining:
            for node in self.nodes.values():
                joining.create_task(self._join(node, tasks, address))
        await self.until(self.whole)

    async def _join(self, node: Machine, tasks: asyncio.TaskGroup, address: str) -> None:
        join = (await self._ctl("node", "token", "--name", node.name)).split()
        assert join[:4] == ["hermesd", "node", "join", address]
        join[3] = f"{self.wires.to_head(node.name)}:{PORTS[0]}"
        mine = ("--state", str(node.state), "--slots", str(SLOTS))
        node.serve(tasks, *join[1:], *mine, again=("node", *mine))

    async def _ctl(self, *words: str) -> str:
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hermesctl.cli", *words,
            env={**self.head.environment, "HERMES_HEAD": f"unix:{self.socket}"},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await command.communicate()
        assert command.returncode == 0
        return said.decode()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds; the test's own time limit is the bound."""
        while not await holds():  # noqa: ASYNC110 - what it waits for is in other processes
            await asyncio.sleep(POLL_SECONDS)

    @property
    def socket(self) -> Path:
        return self.head.state / "head.sock"

    async def listens(self) -> bool:
        """Whether the head has come so far."""
        return self.socket.exists()

    async def known(self) -> dict[str, Node]:
        """The nodes as the head sees them."""
        return {node.id: node for node in await self.client.nodes()}

    async def whole(self) -> bool:
        """Whether all nodes are connected."""
        known = await self.known()
        return all(name in known and known[name].connected for name in NODES)

    async def connected(self, name: str) -> bool:
        """Whether one is."""
        return (await self.known())[name].connected

    async def stop(self) -> None:
        """End everything."""
        if hasattr(self, "client"):
            await self.client.close()
        for machine in (*self.nodes.values(), self.head):
            await machine.stop()


def kill(pids: Iterator[int] | Sequence[int]) -> None:
    """SIGKILL, for those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def place(
    folder: Path, network: Wiring, extra: Environment, lease_seconds: float
) -> AsyncIterator[Place]:
    """A cluster for the length of a block; whatever is left of it afterward is killed.

    `extra` is what the daemon of a machine finds in its environment beside the usual.
    """
    with network() as wires:
        made = Place(folder, wires, lease_seconds)
        async with asyncio.TaskGroup() as tasks:
            try:
                await made.start(tasks, extra)
                yield made
            finally:
                await made.stop()
