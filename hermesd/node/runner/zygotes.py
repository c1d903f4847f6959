"""Interpreters that have imported the framework, kept warm so that hosts can be forked from them.

A zygote itself says whether it fits a program's environment. If none does, one is started in that
environment. If anything goes wrong with a zygote, the trial gets a cold start. If one hangs in one
study's environment, programs of other interpreters do not wait, and nobody waits for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from hermesd.logs import get_logger
from hermesd.node import frames
from hermesd.node.clock import boottime
from hermesd.node.machine import detached, processes
from hermesd.node.machine.accounts import UnixAccount, connected, own, owned, sockets_of
from hermesd.node.machine.detached import WORLD_OF_MANY
from hermesd.node.machine.environment import OWNER, host_environment

LIMIT = 4
# To import a framework, from a slow disk too; to read a script and fork.
IMPORT_SECONDS = 90.0
FORK_SECONDS = 20.0
END_SECONDS = 5.0
# An interpreter of which one was not ready by then is not kept warm for so long.
COLD_SECONDS = 900.0
_POLL_SECONDS = 0.02

log = get_logger()


class _Kind(NamedTuple):
    python: str
    preload: str
    account: UnixAccount


@dataclass(slots=True, eq=False)
class _Zygote:
    kind: _Kind
    pid: int
    socket: Path
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: bool = False

    async def ask(self, spec: Path) -> dict[str, Any]:
        """Its answer to a request for a host: spawned, with its process id, refused if the
        program must start cold, or unfit if it needs an interpreter of another environment."""
        self.asked = True
        self.writer.write(frames.encode({"kind": "spawn", "spec": str(spec)}))
        async with asyncio.timeout(FORK_SECONDS):
            answer = await frames.read(self.reader)
        if answer is None:
            raise ConnectionResetError("the zygote ended")
        self.asked = False
        if answer["kind"] == "spawned":
            uid = self.kind.account.uid
            answer["pid"] = processes.numbered(int(answer["pid"]), self.pid, uid)
        return answer

    async def close(self) -> None:
        self.writer.close()
        await _end(self.pid, self.kind.account)
        owned(self.socket.parent, self.socket.unlink, missing_ok=True)


class Zygotes:
    """The warm interpreters of a node; at most four, the one unused for longest goes first.

    With `worlds` each has namespaces of its own, in which its forks are, too.
    """

    def __init__(self, sockets: Path, shim: Path, worlds: bool = False) -> None:
        self._sockets = sockets
        self._shim = shim
        self._world = WORLD_OF_MANY if worlds else ()
        self._warm: list[_Zygote] = []  # the one used last at the end
        self._count = itertools.count()
        self._locks: WeakValueDictionary[_Kind, asyncio.Lock] = WeakValueDictionary()
        self._cold_until: dict[_Kind, float] = {}

    async def spawn(
        self,
        python: str,
        preload: str,
        program: Mapping[str, str],
        spec: Path,
        account: UnixAccount | None = None,
    ) -> int | None:
        """Fork a host for `spec` that runs as `account`, by default as this process; its process
        id, or None when it must be started cold."""
        kind = _Kind(python, preload, account or own())
        async with self._locks.setdefault(kind, asyncio.Lock()):
            if boottime() < self._cold_until.get(kind, 0.0):
                return None
            try:
                answer = await self._asked(kind, spec)
                if answer is None:
                    answer = await self._ask(await self._start(kind, program), spec)
                if answer["kind"] == "spawned":
                    return int(answer["pid"]) or None
                log.info("cold start", spec=str(spec), reason=answer.get("reason"))
            except TimeoutError:
                self._cold_until[kind] = boottime() + COLD_SECONDS
                log.warning("no warm starts for now: it hangs", python=python, preload=preload)
            except (OSError, frames.FrameError, KeyError, ValueError) as error:
                log.warning("no warm start", python=python, preload=preload, error=str(error))
            return None

    async def _asked(self, kind: _Kind, spec: Path) -> dict[str, Any] | None:
        """The answer of the first that fits the program; None if there is none."""
        for zygote in [one for one in reversed(self._warm) if one.kind == kind]:
            answer = await self._ask(zygote, spec)
            if answer["kind"] != "unfit":
                return answer
        return None

    async def _ask(self, zygote: _Zygote, spec: Path) -> dict[str, Any]:
        try:
            answer = await zygote.ask(spec)
        except BaseException:
            self._warm = [one for one in self._warm if one is not zygote]
            await zygote.close()
            raise
        if answer["kind"] != "unfit":
            self._warm = [*(one for one in self._warm if one is not zygote), zygote]
        return answer

    async def _start(self, kind: _Kind, program: Mapping[str, str]) -> _Zygote:
        await self._make_room()
        folder = sockets_of(self._sockets, kind.account.uid)
        socket = folder / f"zygote{next(self._count)}.sock"
        owned(folder, socket.unlink, missing_ok=True)
        # Its forks show this environment to the end: they are the node's, not one trial's.
        ours = {**program, OWNER: str(self._shim.parent.absolute())}
        module = ("-m", "trainer_shim.host.zygote", str(socket), "--preload", kind.preload)
        environment = host_environment(ours, self._shim)
        pid = await detached.start(
            [kind.python, *module],
            environment,
            folder=folder,
            world=self._world,
            account=kind.account,
        )
        try:
            async with asyncio.timeout(IMPORT_SECONDS):
                reader, writer = await _connected(socket, pid, kind.account)
        except BaseException:
            await _end(pid, kind.account)
            owned(folder, socket.unlink, missing_ok=True)
            raise
        zygote = _Zygote(kind, pid, socket, reader, writer)
        self._warm.append(zygote)
        return zygote

    async def _make_room(self) -> None:
        """End the one that was not used for longest, but none that is just being asked."""
        while len(self._warm) >= LIMIT:
            idle = next((one for one in self._warm if not one.asked), None)
            if idle is None:
                return
            self._warm.remove(idle)
            await idle.close()

    async def close(self) -> None:
        """End them all."""
        while self._warm:
            await self._warm.pop().close()


async def _end(pid: int, account: UnixAccount) -> None:
    """End it, as far as can be: what waits for a disk does not end before that answers."""
    processes.kill(processes.of_user([pid], account.uid))  # what is stopped ends in no other way
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await processes.exited(pid)


async def _connected(
    path: Path, pid: int, account: UnixAccount
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a zygote, once it has imported what it shall and listens."""
    gone = asyncio.get_running_loop().create_task(processes.exited(pid))
    try:
        while not gone.done():
            stream = connected(path, account.uid)
            if stream is not None:
                return await asyncio.open_unix_connection(sock=stream)
            await asyncio.wait({gone}, timeout=_POLL_SECONDS)
    finally:
        gone.cancel()
    raise ConnectionRefusedError("the zygote ended")
