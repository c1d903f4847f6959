"""A connection to the host of a live trial, and how such a host is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.node import frames
from hermesd.node.frames import Frame
from hermesd.node.machine import detached, processes
from hermesd.node.machine.detached import NotBegun
from hermesd.node.machine.environment import host_environment
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage.trial_folder import TrialFolder

# A host waits for nothing but its disk: one that is silent for longer is stopped or stuck.
ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.005
_CREDENTIALS = struct.Struct("iII")  # of the peer: process, user, group


@dataclass(slots=True)
class HostLink:
    """An attached host. `attached` is what it said of itself when we came."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    attached: Frame

    @property
    def host_pid(self) -> int:
        """The number of the host here, which in its own world may be another."""
        peer = self.writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        return int(_CREDENTIALS.unpack(peer)[0])

    @property
    def worker_pid(self) -> int:
        """The number here of the process that the program was when we came; 0 for none."""
        return processes.numbered(int(self.attached["worker_pid"] or 0), self.host_pid)

    def send(self, kind: str, **fields: object) -> None:
        """Ask the host for something; nothing happens if it is gone."""
        if not self.writer.is_closing():
            self.writer.write(frames.encode({"kind": kind, **fields}))

    async def hear(self) -> Frame | None:
        """Its next event; None when the connection is over. Raises FrameError."""
        return await frames.read(self.reader)

    def close(self) -> None:
        """Let go; the host lives on."""
        self.writer.close()


async def attach(path: Path, after: int) -> HostLink | None:
    """The link to a host that listens on `path`, from its event `after` on; None without one,
    or when it does not answer."""
    # Through the directory's descriptor: the path of a Unix socket is limited to 107 bytes.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    finally:
        os.close(folder)
    attached = None
    try:
        writer.write(frames.encode({"kind": "attach", "after": after}))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                attached = await frames.read(reader)
    finally:
        if attached is None:
            writer.close()
    return HostLink(reader, writer, attached) if attached is not None else None


async def start(
    folder: TrialFolder,
    python: str,
    preload: str | None,
    program: Mapping[str, str],
    shim: Path,
    zygotes: Zygotes,
    world: Sequence[str] = (),
) -> HostLink:
    """Start a host for the folder's spec.json, warm where that can be, and attach to it. Cold, it
    may be given a `world` of its own.

    Raises OSError with the end of what it printed when no host comes to life. Cancelled, it
    leaves no host behind.
    """

    async def born() -> int:
        warm = await zygotes.spawn(python, preload, program, folder.spec) if preload else None
        return warm if warm is not None else await _cold(folder, python, program, shim, world)

    folder.socket.unlink(missing_ok=True)
    birth = asyncio.get_running_loop().create_task(born())
    try:
        pid = await asyncio.shield(birth)
        return await _first_attached(folder, pid)
    except asyncio.CancelledError:
        processes.kill([await birth])
        raise


async def _first_attached(folder: TrialFolder, pid: int) -> HostLink:
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(processes.exited(pid))
        while not gone.done():
            if (link := await attach(folder.socket, 0)) is not None:
                gone.cancel()
                return link
            await asyncio.wait({gone}, timeout=_POLL_SECONDS)
    raise OSError(f"the trial's host ended at its start: {detached.last_words(folder.host_log)}")


async def _cold(
    folder: TrialFolder, python: str, program: Mapping[str, str], shim: Path, world: Sequence[str]
) -> int:
    errors = os.open(folder.host_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    command = [python, "-m", "trainer_shim.host", str(folder.spec)]
    environment = host_environment(program, shim)
    try:
        return await detached.start(
            command, environment, folder=folder.path, errors=errors, world=world
        )
    except NotBegun as error:
        raise OSError(f"{error}: {detached.last_words(folder.host_log)}") from None
    finally:
        os.close(errors)
