"""Code snapshots: fetched once by content, unpacked safely, copied for each trial.

Nothing from an archive is written outside its directory (tarfile's `data` filter), no more is
unpacked than a client may pack, and an unpacked snapshot is either complete or not there. Each
trial works in its own copy; entries that the study names as data are links to the originals.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO

from hermesd.core.trial import CODE
from hermesd.node import deep_trees
from hermesd.node.reasons import Foreseen

# What the packer of a client allows, in bytes and in files.
SIZE_BYTES_MAX = 256 << 20
FILES_MAX = 20_000
# A client packs each file as of this time, and each copy has it from there.
PACKED_MTIME = 0
# Directories within each other: copying calls itself for each, and has an end there.
DEPTH_MAX = 200
# What an archive holds beside: headers and padding of each entry, and its end.
_ENTRY_BYTES = 4096
ARCHIVE_BYTES_MAX = SIZE_BYTES_MAX + (FILES_MAX + 1) * _ENTRY_BYTES

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHOWN = 40


class CodeError(Foreseen):
    """A snapshot that cannot be used; says why."""


class BadCode(CodeError):
    """One that cannot be used on any machine."""

    kind = CODE


def is_snapshot(path: Path) -> bool:
    """Whether it is one that was unpacked, and not one that is being unpacked."""
    return _SHA256.fullmatch(path.name) is not None


async def fetch(
    sha256: str, parts: AsyncIterator[bytes], folder: Path, is_for_all: bool = False
) -> Path:
    """The unpacked snapshot `sha256` in `folder`; `parts` are asked for only if it is missing. What
    `is_for_all` any account of this machine can read.

    Raises CodeError when the content is not what the name says or does not unpack.
    """
    if not _SHA256.fullmatch(sha256):
        raise CodeError(f"code_sha256: {sha256!r}, expected 64 hexadecimal digits")
    target = folder / sha256
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        async for part in parts:
            size += len(part)
            if size > ARCHIVE_BYTES_MAX:
                raise CodeError(
                    f"code snapshot {sha256}: more than {ARCHIVE_BYTES_MAX} bytes, expected at most"
                    f" {FILES_MAX} files of {SIZE_BYTES_MAX} bytes together"
                )
            digest.update(part)
            file.write(part)
        if digest.hexdigest() != sha256:
            raise CodeError(f"code snapshot {sha256}: what came is {digest.hexdigest()}")
        file.seek(0)
        partial = Path(tempfile.mkdtemp(prefix=deep_trees.PARTIAL, dir=folder))
        try:
            await asyncio.to_thread(_unpack, file, partial, sha256)
            os.chmod(partial, 0o755)
            if is_for_all:
                await asyncio.to_thread(make_readable, partial)
            os.rename(partial, target)
        except OSError:
            if not target.is_dir():  # else another trial of the study was faster
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _unpack(file: IO[bytes], target: Path, sha256: str) -> None:
    try:
        # As it is packed, without compression: what comes out is no larger than what went in.
        with tarfile.open(fileobj=file, mode="r:") as archive:
            archive.extractall(target, members=_bounded(archive), filter="data")
    except (tarfile.TarError, EOFError, OverflowError, ValueError) as error:
        raise BadCode(f"code snapshot {sha256}: {error}") from None


def make_readable(folder: Path) -> None:
    """Let any account read a snapshot, and none but the daemon's change it. Its name is known to
    those alone who know what is in it. Blocks."""
    for _, folders, files, fd in os.fwalk(folder):
        for name in (".", *folders, *files):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):
                rights = 0o055 if mode & stat.S_IXUSR else 0o044
                os.chmod(name, (stat.S_IMODE(mode) | rights) & ~0o022, dir_fd=fd)


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, as long as they are no more than a client packs."""
    size = 0
    for count, member in enumerate(archive, 1):
        size += max(0, member.size)
        if (depth := member.name.count("/")) > DEPTH_MAX:
            where = f"{member.name[:_SHOWN]}..."
            raise tarfile.TarError(
                f"{where!r} lies {depth} directories deep, expected at most {DEPTH_MAX}"
            )
        if count > FILES_MAX:
            raise tarfile.TarError(f"more than {FILES_MAX} files")
        if size > SIZE_BYTES_MAX:
            raise tarfile.TarError(
                f"{size} bytes with {member.name!r}, expected at most {SIZE_BYTES_MAX}"
            )
        yield member


def working_copy(snapshot: Path | None, target: Path, origin: str, data: Iterable[str]) -> None:
    """A writable copy of a snapshot (None: of nothing) at `target`, made beside it and renamed.

    `data` are paths relative to `origin`, the directory that the snapshot was taken of, or
    absolute; they become links. Raises CodeError when one of them is not there.
    """
    partial = target.with_name(target.name + ".partial")
    deep_trees.remove(partial)
    if snapshot is None:
        partial.mkdir(parents=True)
    else:
        shutil.copytree(snapshot, partial, symlinks=True)
    for entry in data:
        try:
            _link(partial, origin, entry)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise CodeError(f"data: {entry[:_SHOWN]}...: the path is too long here") from None
    deep_trees.remove(target)
    os.rename(partial, target)


def _link(work: Path, origin: str, entry: str) -> None:
    """Raises CodeError, OSError."""
    source = Path(origin, entry)
    if not _is_there(source):
        raise CodeError(f"data: {entry!r}: {source} is not on this machine")
    link = Path(os.path.normpath(work / entry))
    if os.path.isabs(entry) or work not in link.parents:
        return  # it lies beside the working directory: the program is told its own way
    deep_trees.make(link.parent)
    if not link.is_symlink() and not link.exists():
        link.symlink_to(source)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # the program may be of a group that may look
        return True
