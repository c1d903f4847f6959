"""Large content to and from the head: code snapshots up, checkpoints and exports down.

What arrives is written beside its destination and renamed once it is complete. A name that would
lead out of the destination is refused, and one that a terminal or file system may not be able to
handle is changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from hermesctl.errors import HermesError, UsageError
from hermesctl.sdk.connection import Connection
from hermesctl.sdk.requests import asked
from hermesctl.study_file.snapshot import CodeSnapshot
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb

OnProgress: TypeAlias = Callable[[int], None]

_CHUNK_BYTES = 256 << 10
_UPLOAD_TIMEOUT_SECONDS = 3_600.0
_LONGEST_NAME_BYTES = 255  # that file systems take
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


async def upload(connection: Connection, code: CodeSnapshot) -> None:
    """Send a code snapshot; the head keeps one copy of each content."""

    async def send(_: object, **options: object) -> pb.PutBlobResponse:
        # Each try reads the file anew, and lazily: the head's pace bounds the memory.
        return await connection.stub.PutBlob(_chunks(code), **options)  # type: ignore[arg-type]

    response = await connection.call(send, None, _UPLOAD_TIMEOUT_SECONDS)
    if response.sha256 != code.sha256:
        raise HermesError(
            f"the head stored the code as {printable(response.sha256)}, expected {code.sha256}"
        )


Piece: TypeAlias = pb.DownloadCheckpointResponse | pb.GetFilesResponse


def checkpoint_files(connection: Connection, trial: str, checkpoint: str) -> AsyncGenerator[Piece]:
    """The files of a trial's checkpoint, piece by piece; of the newest if none is named."""
    request = asked(pb.DownloadCheckpointRequest, trial=trial, checkpoint=checkpoint)
    return connection.stream(connection.stub.DownloadCheckpoint, request)


def work_files(
    connection: Connection, trial: str, patterns: Sequence[str], **only: bool
) -> AsyncGenerator[pb.GetFilesResponse]:
    """The files of a trial's working copy that fit one of the patterns, piece by piece; `only` as
    in the request."""
    request = asked(pb.GetFilesRequest, trial=trial, patterns=patterns, **only)
    return connection.stream(connection.stub.GetFiles, request)


async def download(
    pieces: AsyncGenerator[Piece],
    destination: Path,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> list[Path]:
    """Write files that come in pieces as the directory `destination`; returns them.

    `on_progress` is told how many bytes have come. Raises UsageError when the destination can't
    be written, or is there and not an empty directory; with `force` files replace those of the same
    names in it, and all others stay.
    """
    name = printable(str(destination))
    if destination.exists() and not destination.is_dir():
        raise UsageError(f"{name}: expected a directory, this is a file")
    try:
        occupied = destination.exists() and any(destination.iterdir())
        if occupied and not force:
            raise UsageError(
                f"{name}: expected a new directory, or one that is empty; with force the files "
                "of the same names are replaced"
            )
        partial = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}.partial")
        partial.mkdir(parents=True)
        try:
            names = await _receive(pieces, partial, on_progress)
            if occupied:
                _move_into(partial, destination, names)
            else:
                partial.rename(destination)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from None
    return [destination / name for name in names]


async def _receive(
    pieces: AsyncGenerator[Piece], folder: Path, on_progress: OnProgress | None
) -> list[PurePosixPath]:
    sizes: dict[PurePosixPath, int] = {}
    modified: dict[PurePosixPath, float] = {}
    async with aclosing(pieces) as chunks:
        async for chunk in chunks:
            if not chunk.name and not chunk.data:
                continue  # the end of all files
            name = _name_here(chunk.name)
            if chunk.offset != sizes.get(name, 0):
                raise HermesError(f"the head left a gap in {printable(chunk.name)}; try again")
            (folder / name.parent).mkdir(parents=True, exist_ok=True)
            with (folder / name).open("ab") as stream:
                stream.write(chunk.data)
            sizes[name] = chunk.offset + len(chunk.data)
            if isinstance(chunk, pb.GetFilesResponse):
                modified[name] = chunk.modified_unix_seconds
            if on_progress is not None:
                on_progress(sum(sizes.values()))
    if not sizes:
        raise HermesError("the head sent no files; try again")
    for name in sizes:
        with (folder / name).open("rb") as stream:
            # Of a file that came with the program none is known. Any number may have been sent.
            if at := modified.get(name):
                with suppress(OSError, OverflowError, ValueError):
                    os.utime(stream.fileno(), (at, at))
            os.fsync(stream.fileno())
    return list(sizes)


def _move_into(source: Path, destination: Path, names: Sequence[PurePosixPath]) -> None:
    for name in names:
        (destination / name.parent).mkdir(parents=True, exist_ok=True)
        (source / name).replace(destination / name)


def _name_here(name: str) -> PurePosixPath:
    """The name under which a file is written. Raises HermesError if it leads elsewhere."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise HermesError(f"the head sent a file name that is not one: {printable(name)!r}")
    return PurePosixPath(*map(_part_here, path.parts))


def _part_here(part: str) -> str:
    """Control characters are escaped; of a name that is too long, as escapes on the node or here
    may make it, the beginning gives way to a digest."""
    part = _CONTROL.sub(lambda match: printable(match[0]), part)
    encoded = part.encode()
    if len(encoded) <= _LONGEST_NAME_BYTES:
        return part
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    rest = encoded[len(digest) + 1 - _LONGEST_NAME_BYTES :].decode(errors="ignore")
    return f"{digest}-{rest}"


def _chunks(code: CodeSnapshot) -> Iterator[pb.PutBlobRequest]:
    code.tar.seek(0)
    while data := code.tar.read(_CHUNK_BYTES):
        yield pb.PutBlobRequest(data=data)


async def write_file(content: AsyncIterator[bytes], to: Path, *, force: bool) -> None:
    """Write the file `to`, which appears when it is whole.

    Raises UsageError if it can't be written, or is there already, unless `force`.
    """
    name = printable(str(to))
    if to.is_dir() or not to.name:
        raise UsageError(f"{name}: expected a file's name, this is a directory")
    if to.exists() and not force:
        raise UsageError(f"{name}: it exists; add --force to replace it")
    partial = to.with_name(f".{to.name}.partial")
    try:
        with partial.open("wb") as stream:
            async for data in content:
                stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(to)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{name}: {reason}") from None
    finally:
        with suppress(OSError):
            partial.unlink()
