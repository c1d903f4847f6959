"""Bulk content to and from the head: code snapshots up, checkpoints down.

Rule: what arrives is written beside its destination and renamed when it is complete; a name that
would leave the destination is refused.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path, PurePosixPath

from hermesctl.connection import Connection
from hermesctl.errors import HermesError, UsageError
from hermesctl.snapshot import Snapshot
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb

_CHUNK_BYTES = 256 << 10
_UPLOAD_TIMEOUT_SECONDS = 3_600.0


async def upload(connection: Connection, code: Snapshot) -> None:
    """Send a code snapshot; the head keeps one copy of each content."""

    async def send(_: object, **options: object) -> pb.PutBlobResponse:
        # Each try reads the file anew, and lazily: the head's pace bounds the memory.
        return await connection.stub.PutBlob(_chunks(code), **options)  # type: ignore[arg-type]

    response = await connection.call(send, None, _UPLOAD_TIMEOUT_SECONDS)
    if response.sha256 != code.sha256:
        raise HermesError(
            f"the head stored the code as {printable(response.sha256)}, expected {code.sha256}"
        )


async def download(
    connection: Connection, trial: str, destination: Path, checkpoint: str = ""
) -> list[Path]:
    """Write a trial's checkpoint as the directory `destination`; returns its files.

    Raises UsageError when the destination is there and not an empty directory.
    """
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise UsageError(
            f"{printable(str(destination))}: expected a new directory, or one that is empty"
        )
    partial = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir(parents=True)
    try:
        names = await _receive(connection, trial, checkpoint, partial)
        partial.rename(destination)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [destination / name for name in names]


async def _receive(
    connection: Connection, trial: str, checkpoint: str, folder: Path
) -> list[PurePosixPath]:
    request = pb.DownloadCheckpointRequest(trial=trial, checkpoint=checkpoint)
    names: dict[PurePosixPath, int] = {}
    method = connection.stub.DownloadCheckpoint
    async with aclosing(connection.stream(method, request)) as chunks:
        async for chunk in chunks:
            if not chunk.name and not chunk.data:
                continue  # the end of all files
            name = _safe_name(chunk.name)
            if chunk.offset != names.get(name, 0):
                raise HermesError(f"the head left a gap in {printable(chunk.name)}; try again")
            (folder / name.parent).mkdir(parents=True, exist_ok=True)
            with (folder / name).open("ab") as stream:
                stream.write(chunk.data)
                stream.flush()
                os.fsync(stream.fileno())
            names[name] = chunk.offset + len(chunk.data)
    if not names:
        raise HermesError("the head sent no files; try again")
    return list(names)


def _safe_name(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or not name.isprintable():
        raise HermesError(f"the head sent a file name that is not one: {printable(name)!r}")
    return path


def _chunks(code: Snapshot) -> Iterator[pb.PutBlobRequest]:
    code.tar.seek(0)
    while data := code.tar.read(_CHUNK_BYTES):
        yield pb.PutBlobRequest(data=data)
