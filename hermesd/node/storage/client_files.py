"""Files of a trial that a client asked the head for: its output, a checkpoint, the working copy.

A message has at most 256 KiB; files are read in threads, so a slow disk delays nobody.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from hermesd.logs import get_logger
from hermesd.node.driver import MachineDriver
from hermesd.node.machine import accounts
from hermesd.node.storage import code, work_files
from hermesd.node.storage.checkpoints import MARKS, lies_within
from hermesd.node.storage.trial_folder import BadTrial, TrialFolder, TrialFolders
from hermesd.pb.hermes.v1 import node_pb2 as pb

CHUNK_BYTES = 256 * 1024
# A program may have made millions of files: whoever lists those keeps no thread from the trials.
_LISTING = ThreadPoolExecutor(2, "listing")
_POLL_SECONDS = 0.2
_P = ParamSpec("_P")
_F = TypeVar("_F")


async def chunks(
    request: pb.SendFile, folder: TrialFolder, ended: Callable[[], bool]
) -> AsyncIterator[pb.FileChunk]:
    """What was asked for, piece by piece; the last piece says so, or why there is none.

    A log is followed until `ended` says that the trial has no process any more.
    """
    ticket = request.ticket
    try:
        what = request.WhichOneof("what")
        if what in ("checkpoint", "work"):
            work = what == "work"
            files = _work(folder, request.work) if work else _checkpoint(folder, request.checkpoint)
            async for chunk in files:
                chunk.ticket = ticket
                yield chunk
        else:
            if not folder.path.is_dir():
                raise FileNotFoundError(2, "its node has no files of it", folder.trial)
            async for offset, data in _log(folder, request.log, ended):
                yield pb.FileChunk(ticket=ticket, name=folder.output.name, offset=offset, data=data)
    except OSError as error:
        why = _sayable(f"{error.filename}: {error.strerror}")
        yield pb.FileChunk(ticket=ticket, last=True, error=why)
        return
    yield pb.FileChunk(ticket=ticket, last=True)


def checkpoint(folder: TrialFolder, wanted: str) -> Path:
    """The directory of a checkpoint. Raises FileNotFoundError."""
    directory = wanted.rpartition("@")[2]
    root = folder.checkpoints / directory
    if not directory or "/" in directory or directory.startswith(".") or not root.is_dir():
        raise FileNotFoundError(2, "no such checkpoint", wanted)
    return root


def within(root: Path, name: str) -> Path:
    """The file of this name below `root`. Raises FileNotFoundError for any other."""
    path = root / name
    if not lies_within(path, root) or not path.is_file():
        raise FileNotFoundError(2, "no such file", name)
    return path


async def _checkpoint(folder: TrialFolder, wanted: str) -> AsyncIterator[pb.FileChunk]:
    root = folder.as_owner(checkpoint, folder, wanted)
    for path in await _listed(folder, _files_of, root):
        offset = 0
        while True:
            data = await asyncio.to_thread(folder.as_owner, _read, path, offset)
            if data or not offset:
                name = _sayable(str(path.relative_to(root)))
                yield pb.FileChunk(name=name, offset=offset, data=data)
            offset += len(data)
            if len(data) < CHUNK_BYTES:
                break


async def _listed(
    folder: TrialFolder, files: Callable[_P, list[_F]], *args: _P.args, **kwargs: _P.kwargs
) -> list[_F]:
    listing = partial(folder.as_owner, files, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_LISTING, listing)


def _files_of(root: Path) -> list[Path]:
    """What was saved in a checkpoint."""
    marks = [root / mark for mark in MARKS]
    files = (p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and p not in marks)
    return sorted(files)


async def _work(folder: TrialFolder, wanted: pb.WorkFiles) -> AsyncIterator[pb.FileChunk]:
    """Files of the working copy, each as long as it was when it was opened. Raises OSError."""
    work = folder.work if folder.work.is_dir() else folder.keep
    root = work_files.root_of(folder, work)
    if not folder.path.is_dir():
        raise FileNotFoundError(2, "its node has no files of it", folder.trial)
    if not root.is_dir():
        raise FileNotFoundError(2, "its working copy was removed to make room", folder.trial)
    names = await _listed(folder, work_files.matching, root, wanted.patterns)
    if wanted.patterns and not names:
        shown = ", ".join(wanted.patterns)
        raise FileNotFoundError(2, f"its working copy has no such file: {shown}", folder.trial)
    for name in names:
        try:
            fd = await asyncio.to_thread(folder.as_owner, work_files.opened, root, name)
        except OSError:
            continue  # the program has removed it since, or made something else of it
        try:
            found = os.fstat(fd)
            if wanted.written_only and found.st_mtime == code.PACKED_MTIME:
                continue
            offset, data = 0, b""
            while True:
                if not wanted.names_only:
                    count = min(CHUNK_BYTES, found.st_size - offset)
                    data = await asyncio.to_thread(os.pread, fd, count, offset)
                if data or not offset:
                    yield pb.FileChunk(
                        name=_sayable(name),
                        offset=offset,
                        data=data,
                        size_bytes=found.st_size,
                        modified_unix_seconds=found.st_mtime,
                    )
                offset += len(data)
                if len(data) < CHUNK_BYTES or wanted.names_only:
                    break
        finally:
            os.close(fd)


async def _log(
    folder: TrialFolder, wanted: pb.LogRange, ended: Callable[[], bool]
) -> AsyncIterator[tuple[int, bytes]]:
    """The output from an offset on. The file and its predecessor, if any, count as one."""
    path = folder.output_of(wanted.rank)
    before = path.with_name(path.name + ".1")
    old, new = _size(before), _size(path)
    start = wanted.offset if wanted.offset >= 0 else max(0, old + new + wanted.offset)
    position = min(start, old + new)
    if position < old:
        async for data in rest(before, position, folder.path):
            yield position, data
            position += len(data)
    inode, at = _inode(path), max(0, position - old)
    while True:
        over = ended()
        async for data in rest(path if _inode(path) == inode else before, at, folder.path):
            yield position, data
            position, at = position + len(data), at + len(data)
        if _inode(path) != inode:
            inode, at = _inode(path), 0
        elif over or not wanted.follow:
            return
        else:
            await asyncio.sleep(_POLL_SECONDS)


async def rest(path: Path, offset: int, home: Path) -> AsyncIterator[bytes]:
    """What is in the file from there on, piece by piece, as the owner of `home` may read it."""
    while data := await asyncio.to_thread(accounts.owned, home, _read, path, offset):
        yield data
        offset += len(data)


def _read(path: Path, offset: int) -> bytes:
    try:
        with accounts.regular(path) as file:
            return os.pread(file.fileno(), CHUNK_BYTES, offset)
    except FileNotFoundError:
        return b""  # nothing was printed yet, or what is no file, its program has put there


def _sayable(name: str) -> str:
    """A file's name may hold bytes that are no text, and no message carries them."""
    return name.encode(errors="backslashreplace").decode()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


# What the head asks for on a client's behalf: files of trials, sent while their stream lasts.

log = get_logger()


class FileRequests:
    """Files on their way, by ticket."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        driver: MachineDriver,
        folders: TrialFolders,
    ) -> None:
        self._tasks = tasks
        self._driver = driver
        self._folders = folders
        self._sending: dict[int, asyncio.Task[None]] = {}

    def take(self, request: pb.SendFile) -> None:
        """Begin to send what is asked for, or end what is being sent."""
        if request.cancel:
            if task := self._sending.get(request.ticket):
                task.cancel()
            return
        task = self._tasks.create_task(self._send(request))
        self._sending[request.ticket] = task
        task.add_done_callback(lambda _: self._sending.pop(request.ticket, None))

    def drop(self) -> None:
        """The stream is over, and nobody knows its tickets any more."""
        for task in self._sending.values():
            task.cancel()

    async def _send(self, request: pb.SendFile) -> None:
        try:
            folder = self._folders.of(request.trial)
        except BadTrial as error:
            await self._offer(pb.FileChunk(ticket=request.ticket, last=True, error=str(error)))
            return
        try:
            async for chunk in chunks(
                request, folder, lambda: self._driver.has_ended(request.trial)
            ):
                await self._offer(chunk)
        except Exception as error:  # it costs whoever asked, and nobody else
            log.error("not sent", trial=request.trial, exc_info=error)
            why = "the node could not read it; its log says why"
            await self._offer(pb.FileChunk(ticket=request.ticket, last=True, error=why))

    async def _offer(self, chunk: pb.FileChunk) -> None:
        await self._driver.outbox.offer(pb.AttachRequest(file_chunk=chunk))
