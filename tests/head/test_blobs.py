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

    async def slowly(*others: str) -> AsyncIterator[bytes]:
        yield b"x" * 50
        if others:
            await blobs.put(slowly(*others[1:]), others[0])
        else:
            with pytest.raises(TooLarge):
                await blobs.put(pieces(1, b"abcdefghij"), "carol")

    assert (await blobs.put(slowly("bob"), "alice")).size_bytes == 50


async def test_one_that_came_meanwhile_counts(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit_bytes=80, total_limit_bytes=100)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 10
        await blobs.put(pieces(5, b"0123456789"), "bob")
        await blobs.put(pieces(5, b"01234"), "carol")
        yield b"x" * 40

    with pytest.raises(TooLarge):
        await blobs.put(slowly(), "alice")
    assert not blobs._coming.total()
    assert len(list(tmp_path.iterdir())) == 2


async def test_the_store_is_full_for_one_user_and_not_for_the_next(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit_bytes=1000, total_limit_bytes=1000)
    first = await blobs.put(pieces(4, b"a" * 100), "alice")
    with pytest.raises(TooLarge, match="half of what others leave, of which 400 are in use"):
        await blobs.put(pieces(2, b"b" * 100), "alice")
    assert (await blobs.put(pieces(3, b"c" * 100), "bob")).size_bytes == 300
    with pytest.raises(TooLarge):
        await blobs.put(pieces(1, b"d"), "bob")
    assert (await blobs.put(pieces(1, b"e" * 140), "carol")).size_bytes == 140

    # What her studies use is hers, too, when nobody remembers who brought it.
    again = Blobs(tmp_path, limit_bytes=1000, total_limit_bytes=1000)
    with pytest.raises(TooLarge):
        await again.put(pieces(1, b"f"), "alice", {first.sha256})
    again.remove(first.sha256)
    assert (await again.put(pieces(2, b"f" * 100), "alice")).size_bytes == 200


async def test_uploads_of_one_user_at_once_share_what_they_may_have(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, limit_bytes=100, total_limit_bytes=100)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 40
        with pytest.raises(TooLarge):
            await blobs.put(pieces(2, b"0123456789"), "alice")

    await blobs.put(slowly(), "alice")
