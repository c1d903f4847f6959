"""Interpreters with the framework imported, kept warm to fork hosts from.

Rule: one for each interpreter and framework environment, started when the first program that
wants it is launched. Whatever goes wrong with one, the answer is a cold start.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from hermesd.node import frames
from hermesd.node.environment import OWNER, host_environment

LIMIT = 4
_POLL_SECONDS = 0.02
# What an interpreter or a framework reads while it starts, and can't be changed in a fork.
_PREFIXES = ("CUDA_", "KERAS_", "LD_", "MKL_", "NVIDIA_", "OMP_", "PYTHON", "TF_", "XLA_")

log = structlog.get_logger()


class _Key(NamedTuple):
    python: str
    preload: str
    environment: frozenset[tuple[str, str]]


@dataclass(slots=True)
class _Zygote:
    process: asyncio.subprocess.Process
    socket: Path
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def spawn(self, spec: Path) -> int | None:
        """The process id of a new host; None, with the reason logged, if it must start cold."""
        self.writer.write(frames.encode({"kind": "spawn", "spec": str(spec)}))
        answer = await frames.read(self.reader)
        if answer is None:
            raise ConnectionResetError("the zygote ended")
        if answer["kind"] == "spawned":
            return int(answer["pid"])
        log.info("cold start", spec=str(spec), reason=answer.get("reason"))
        return None

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
        self._warm: dict[_Key, _Zygote] = {}
        self._count = itertools.count()
        self._lock = asyncio.Lock()

    async def spawn(
        self, python: str, preload: str, program: Mapping[str, str], spec: Path
    ) -> int | None:
        """Fork a host for `spec`; its process id, or None when it must be started cold."""
        fixed = frozenset(item for item in program.items() if item[0].startswith(_PREFIXES))
        key = _Key(python, preload, fixed)
        async with self._lock:
            try:
                zygote = self._warm.pop(key, None) or await self._start(key, program)
                self._warm[key] = zygote
                return await zygote.spawn(spec)
            except (OSError, frames.FrameError, KeyError, ValueError) as error:
                log.warning("no warm start", python=python, preload=preload, error=str(error))
                if broken := self._warm.pop(key, None):
                    await broken.close()
                return None

    async def _start(self, key: _Key, program: Mapping[str, str]) -> _Zygote:
        while len(self._warm) >= LIMIT:
            await self._warm.pop(next(iter(self._warm))).close()
        socket = self._sockets / f"zygote{next(self._count)}.sock"
        socket.unlink(missing_ok=True)
        # Its forks show this environment to the end: they are the node's, not one trial's.
        ours = {**program, OWNER: str(self._shim.parent.absolute())}
        process = await asyncio.create_subprocess_exec(
            key.python,
            "-m",
            "trainer_shim.zygote",
            str(socket),
            "--preload",
            key.preload,
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
        return _Zygote(process, socket, reader, writer)

    async def close(self) -> None:
        """End them all."""
        while self._warm:
            await self._warm.popitem()[1].close()


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
