"""Uploaded code snapshots by their content: one file each, named by its SHA-256.

A blob is written under another name, fsynced and renamed, so a name never stands for anything but
the whole content. The head never opens what is inside. One user's blobs take at most half of the
space that the others' leave, so nobody can fill it for everybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

CHUNK_BYTES = 256 * 1024
NAME = re.compile(r"[0-9a-f]{64}")


class TooLarge(Exception):
    """The blob, or all blobs together, would exceed their limit."""


class Blob(NamedTuple):
    """What was stored."""

    sha256: str
    size_bytes: int


class Blobs:
    """The store in one directory, with a limit for each blob, for those of a user, and for all."""

    def __init__(self, directory: Path, limit_bytes: int, total_limit_bytes: int) -> None:
        self._directory = directory
        self._limit = limit_bytes
        self._total_limit = total_limit_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in directory.glob("*.partial"):
            left.unlink()
        # Of uploads under way, by user: each of them counts for the others.
        self._coming: Counter[str] = Counter()
        # Who has stored what, since this head started: of the rest nobody knows whose it is.
        self._owners: dict[str, str] = {}

    def path(self, sha256: str) -> Path | None:
        """Where a blob lies; None if it is not there."""
        if not NAME.fullmatch(sha256):
            return None
        path = self._directory / sha256
        return path if path.exists() else None

    async def put(
        self, chunks: AsyncIterator[bytes], user: str = "", used: Collection[str] = ()
    ) -> Blob:
        """Store what the chunks of a user make together, whose studies have `used` these blobs.
        Raises TooLarge."""
        stored, theirs = self._stored(), self._of(user, used)
        share = (self._total_limit - (stored - theirs)) // 2 - theirs
        room = min(self._limit, self._total_limit - stored, share)
        descriptor, name = tempfile.mkstemp(suffix=".partial", dir=self._directory)
        partial = Path(name)
        digest = hashlib.sha256()
        size = 0
        try:
            with os.fdopen(descriptor, "wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    self._coming[user] += len(chunk)
                    coming = self._coming.total()
                    is_over = self._coming[user] > room or stored + coming > self._total_limit
                    if size > room or is_over:
                        raise TooLarge(
                            f"more than {max(room, 0)} bytes: the limit is {self._limit} for one"
                            f" code snapshot, {self._total_limit} for all, and for a user half of"
                            f" what others leave, of which {theirs} are in use (a .hermesignore"
                            " keeps data out; `hermesctl study rm` gives back)"
                        )
                    await asyncio.to_thread(_take, file.write, digest.update, chunk)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
                if self._stored() + size > self._total_limit:  # others came meanwhile
                    raise TooLarge(f"the limit for all code snapshots is {self._total_limit} bytes")
            partial.rename(self._directory / digest.hexdigest())
            self._owners.setdefault(digest.hexdigest(), user)
        finally:
            self._coming[user] -= size
            partial.unlink(missing_ok=True)
        await asyncio.to_thread(self._sync)
        return Blob(digest.hexdigest(), size)

    async def read(self, path: Path) -> AsyncIterator[bytes]:
        """The content in chunks."""
        with path.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk

    def keep_only(self, referenced: Iterable[str], older_than: float) -> list[str]:
        """Remove what nothing refers to and was stored before `older_than`; the names."""
        keep = set(referenced)
        gone = [
            path
            for path in self._directory.iterdir()
            if path.name not in keep and path.stat().st_mtime < older_than
        ]
        for path in gone:
            path.unlink()
            self._owners.pop(path.name, None)
        return sorted(path.name for path in gone)

    def remove(self, sha256: str) -> None:
        """Remove a blob if it is there."""
        if path := self.path(sha256):
            path.unlink(missing_ok=True)
        self._owners.pop(sha256, None)

    def _of(self, user: str, used: Collection[str]) -> int:
        """The bytes of what a user has: what their studies use, and what they have stored."""
        names = {*used, *(name for name, owner in self._owners.items() if owner == user)}
        return sum(path.stat().st_size for name in names if (path := self.path(name)))

    def _stored(self) -> int:
        whole = (path for path in self._directory.iterdir() if path.suffix != ".partial")
        return sum(path.stat().st_size for path in whole)

    def _sync(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _take(write: object, update: object, chunk: bytes) -> None:
    assert callable(write)
    assert callable(update)
    write(chunk)
    update(chunk)
