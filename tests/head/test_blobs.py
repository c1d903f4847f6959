"""What all code snapshots may take is a bound, however they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermesd.head.blobs import Blobs, TooLarge


async def pieces(count: int, data: bytes) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield data


async def test_uploads_at_once_share_what_is_left(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit_bytes=80, total_limit_bytes=100)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 60
        with pytest.raises(TooLarge):
            await blobs.put(pieces(5, b"abcdefghij"))

    assert (await blobs.put(slowly())).size_bytes == 60
    assert (await blobs.put(pieces(4, b"abcdefghij"))).size_bytes == 40


async def test_one_that_came_meanwhile_counts(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit_bytes=80, total_limit_bytes=100)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 30
        await blobs.put(pieces(6, b"0123456789"))
        yield b"x" * 30

    with pytest.raises(TooLarge):
        await blobs.put(slowly())
    assert blobs._coming == 0
    assert len(list(tmp_path.iterdir())) == 1
