"""A backup of a live head is a head: whole, closed to others, and one that can go on."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from hermesd.head.journal import schema
from hermesd.head.journal.backup import backup
from hermesd.head.journal.store import opened
from hermesd.head.statedir import StateRefused
from tests.core.playbook import submitted
from tests.head.heads import world
from tests.head.test_transport import free_port
from tests.study_specs import spec


def unpacked(archive: Path, where: Path) -> Path:
    """The state directory in a backup."""
    with tarfile.open(archive) as tar:
        tar.extractall(where, filter="fully_trusted")
    return where / "head"


async def test_a_backup_of_a_live_head_starts_as_that_head(tmp_path: Path) -> None:
    directory, file = tmp_path / "head", tmp_path / "saved.tar"
    address, enroll = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    async with world(directory, embedded=True) as head:
        await head.submit(spec({"lr": {"values": [1.0, 2.0]}}, name="before"))
        cluster = (directory / "cluster-id").read_text()
        saved = await asyncio.to_thread(backup, directory, file)
        assert saved.entries == head.running.head.committed
        await head.submit(spec({"lr": {"value": 1.0}}, name="after"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert saved.size_bytes == file.stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "saved.tar"]
    restored = unpacked(file, tmp_path / "elsewhere")
    assert restored.stat().st_mode & 0o777 == directory.stat().st_mode & 0o777
    assert not (restored / "head.lock").exists()
    settings = {"embedded": False, "listen": address, "enroll": enroll}
    async with world(restored, **settings) as again:
        assert list(again.state.studies) == ["before"]
        assert len(again.state.trials) == 2
        assert (restored / "cluster-id").read_text() == cluster
        [key] = (restored / "authority").glob("*.key")
        second = tmp_path / "second.tar"
        await asyncio.to_thread(backup, restored, second)
    other = unpacked(second, tmp_path / "other")
    for path in (key, restored / "token", restored / "node-token"):
        copy = other / path.relative_to(restored)
        assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (path.read_bytes(), 0o600)


async def test_nothing_is_replaced_and_nothing_half_made(tmp_path: Path) -> None:
    directory, file = tmp_path / "head", tmp_path / "saved.tar"
    with pytest.raises(StateRefused, match="there is no journal here"):
        backup(directory, file)
    directory.mkdir()
    async with opened(directory) as journal:
        await journal.append([(0.0, submitted(1, "a"), "")])
    file.write_text("precious")
    with pytest.raises(FileExistsError, match=r"saved\.tar exists"):
        backup(directory, file)
    assert file.read_text() == "precious"
    with pytest.raises(StateRefused, match="lies in the state itself"):
        backup(directory, directory / "saved.tar")
    with pytest.raises(FileNotFoundError):
        backup(directory, tmp_path / "nowhere" / "saved.tar")
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (directory / schema.NAME).open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"x" * 8192)
    with pytest.raises(StateRefused, match="is damaged"):
        backup(directory, tmp_path / "other.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "saved.tar"]
