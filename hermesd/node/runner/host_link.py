"""A connection to the host of a live trial, and how such a host is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.node import frames
from hermesd.node.frames import Frame
from hermesd.node.machine import accounts, detached, processes
from hermesd.node.machine.accounts import UnixAccount, own
from hermesd.node.machine.detached import NotBegun
from hermesd.node.machine.environment import host_environment
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage.trial_folder import TrialFolder

# A host waits for nothing but its disk: one that is silent for longer is stopped or stuck.
ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.005


@dataclass(slots=True)
class HostLink:
    """An attached host."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: What the host said of itself when we attached.
    attached: Frame
    #: The number of the host here, which in its own world may be another.
    host_pid: int
    #: As whom it runs.
    uid: int

    @property
    def worker_pid(self) -> int:
        """The number here of the process that the program was when we came; 0 for none."""
        return processes.numbered(int(self.attached["worker_pid"] or 0), self.host_pid, self.uid)

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


async def attach(path: Path, after: int, uid: int) -> HostLink | None:
    """The link to a host that listens on `path` as `uid`, from its event `after` on; None without
    one, or when it does not answer."""
    stream = accounts.connected(path, uid)
    if stream is None:
        return None
    # Now: once the other end has hung up, nobody tells.
    who = accounts.peer(stream)
    reader, writer = await asyncio.open_unix_connection(sock=stream)
    attached = None
    try:
        writer.write(frames.encode({"kind": "attach", "after": after}))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                attached = await frames.read(reader)
    finally:
        if attached is None:
            writer.close()
    return HostLink(reader, writer, attached, *who) if attached is not None else None


async def start(
    folder: TrialFolder,
    python: str,
    preload: str | None,
    program: Mapping[str, str],
    shim: Path,
    zygotes: Zygotes,
    world: Sequence[str] = (),
    account: UnixAccount | None = None,
) -> HostLink:
    """Start a host for the folder's spec.json, warm where that can be, and attach to it. Cold, it
    may be given a `world` of its own. It runs as `account`, by default as this process.

    Raises OSError with the end of what it printed when no host comes to life. Cancelled, it
    leaves no host behind.
    """

    account = account or own()

    async def born() -> int:
        if preload:
            warm = await zygotes.spawn(python, preload, program, folder.spec, account)
            if warm is not None:
                return warm
        return await _cold(folder, python, program, shim, world, account)

    folder.unlink_socket()
    birth = asyncio.get_running_loop().create_task(born())
    try:
        pid = await asyncio.shield(birth)
        return await _first_attached(folder, pid)
    except asyncio.CancelledError:
        processes.kill(pid for pid in [await birth] if processes.runs_as(pid, account.uid))
        raise


async def _first_attached(folder: TrialFolder, pid: int) -> HostLink:
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(processes.exited(pid))
        while not gone.done():
            if (link := await attach(folder.socket, 0, folder.uid)) is not None:
                gone.cancel()
                return link
            await asyncio.wait({gone}, timeout=_POLL_SECONDS)
    raise OSError(f"the trial's host ended at its start: {_last_words(folder)}")


def _last_words(folder: TrialFolder) -> str:
    return folder.as_owner(detached.last_words, folder.host_log)


async def _cold(
    folder: TrialFolder,
    python: str,
    program: Mapping[str, str],
    shim: Path,
    world: Sequence[str],
    account: UnixAccount,
) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
    errors = folder.as_owner(os.open, folder.host_log, flags, 0o600)
    command = [python, "-m", "trainer_shim.host", str(folder.spec)]
    environment = host_environment(program, shim)
    try:
        return await detached.start(
            command, environment, folder=folder.path, errors=errors, world=world, account=account
        )
    except NotBegun as error:
        raise OSError(f"{error}: {_last_words(folder)}") from None
    finally:
        os.close(errors)
