"""Interpreters with the framework imported, kept warm to fork hosts from.

Rule: whether one fits a program's environment is its own to say. When none does, one is started
in that environment. Whatever goes wrong with one, the answer is a cold start.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from hermesd.node import frames
from hermesd.node.environment import OWNER, host_environment

LIMIT = 4
_POLL_SECONDS = 0.02

log = structlog.get_logger()


class _Kind(NamedTuple):
    python: str
    preload: str


@dataclass(slots=True, eq=False)
class _Zygote:
    kind: _Kind
    process: asyncio.subprocess.Process
    socket: Path
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, spec: Path) -> dict[str, Any]:
        """Its answer to a request for a host: spawned, with its process id, refused if the
        program must start cold, or unfit if it needs an interpreter of another environment."""
        self.writer.write(frames.encode({"kind": "spawn", "spec": str(spec)}))
        answer = await frames.read(self.reader)
        if answer is None:
            raise ConnectionResetError("the zygote ended")
        return answer

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await self.process.wait()
        self.socket.unlink(missing_ok=True)


class Zygotes:
    """The warm interpreters of a node; at most four, the one unused for longest goes first."""

    def __init__(self, sockets: Path, shim: Path) -> None:
        self._sockets = sockets
        self._shim = shim
        self._warm: list[_Zygote] = []  # the one used last at the end
        self._count = itertools.count()
        self._lock = asyncio.Lock()

    async def spawn(
        self, python: str, preload: str, program: Mapping[str, str], spec: Path
    ) -> int | None:
        """Fork a host for `spec`; its process id, or None when it must be started cold."""
        kind = _Kind(python, preload)
        async with self._lock:
            try:
                answer = await self._asked(kind, spec)
                if answer is None:
                    answer = await self._ask(await self._start(kind, program), spec)
                if answer["kind"] == "spawned":
                    return int(answer["pid"])
                log.info("cold start", spec=str(spec), reason=answer.get("reason"))
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
            self._warm.remove(zygote)
            self._warm.append(zygote)
        return answer

    async def _start(self, kind: _Kind, program: Mapping[str, str]) -> _Zygote:
        while len(self._warm) >= LIMIT:
            await self._warm.pop(0).close()
        socket = self._sockets / f"zygote{next(self._count)}.sock"
        socket.unlink(missing_ok=True)
        # Its forks show this environment to the end: they are the node's, not one trial's.
        ours = {**program, OWNER: str(self._shim.parent.absolute())}
        process = await asyncio.create_subprocess_exec(
            kind.python,
            "-m",
            "trainer_shim.zygote",
            str(socket),
            "--preload",
            kind.preload,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=host_environment(ours, self._shim),
            start_new_session=True,
        )
        try:
            reader, writer = await _connected(socket, process)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        self._warm.append(_Zygote(kind, process, socket, reader, writer))
        return self._warm[-1]

    async def close(self) -> None:
        """End them all."""
        while self._warm:
            await self._warm.pop().close()


async def _connected(
    socket: Path, process: asyncio.subprocess.Process
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a zygote, once it has imported what it shall and listens."""
    while process.returncode is None:
        try:
            return await asyncio.open_unix_connection(socket)
        except (FileNotFoundError, ConnectionRefusedError):
            await asyncio.sleep(_POLL_SECONDS)
    raise ConnectionRefusedError(f"the zygote ended with {process.returncode}")
