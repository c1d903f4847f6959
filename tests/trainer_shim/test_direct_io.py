"""A file is written past the page cache where that can be done, and is the same where it cannot."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from trainer_shim import checkpoint_dir
from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import receive
from trainer_shim.saver import Saver

MIB = 1 << 20
BODY = os.urandom(MIB) * 21
PARTS = [memoryview(BODY)[: 10 * MIB + 7], memoryview(BODY)[10 * MIB + 7 :], memoryview(b"end")]


class Calls:
    """How a file was written: the sizes of the writes, which of them went past the cache, and how
    long the file was at each sync of its data."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.straight: list[bool] = []
        self.synced: list[int] = []
        write, sync = os.write, os.fdatasync

        def writing(fd: int, data: Any) -> int:
            self.sizes.append(len(data))
            self.straight.append(bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT))
            return write(fd, data)

        def syncing(fd: int) -> None:
            self.synced.append(os.fstat(fd).st_size)
            sync(fd)

        patch.setattr(os, "write", writing)
        patch.setattr(os, "fdatasync", syncing)


def written(folder: Path, is_read_soon: bool = False) -> bytes:
    """What is in the file once the parts were written."""
    with checkpoint_dir.File(str(folder / "state"), is_read_soon) as file:
        for part in PARTS:
            file.write(part)
        file.finish()
    return (folder / "state").read_bytes()


def no_flags(fd: int, command: int, flags: int = 0) -> int:
    """A file system that cannot go past its cache."""
    if command == fcntl.F_SETFL:
        raise OSError(errno.EINVAL, "not here")
    return 0


def test_whole_pieces_go_past_the_cache_and_the_rest_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    assert written(tmp_path) == BODY + b"end"
    assert calls.sizes == [MIB] * 21 + [3]
    if not calls.straight[0]:
        pytest.skip("the file system of the tests has nothing but its cache")
    assert calls.straight == [True] * 21 + [False]
    assert not calls.synced, "nothing of it waits in the cache"


@pytest.mark.parametrize("why", ["read soon", "refused"])
def test_by_the_cache_no_call_writes_or_syncs_more_than_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A thread in one of them cannot be stopped: a suspend would wait for the whole file."""
    if why == "refused":
        monkeypatch.setattr(fcntl, "fcntl", no_flags)
    calls = Calls(monkeypatch)
    assert written(tmp_path, why == "read soon") == BODY + b"end"
    assert not any(calls.straight)
    assert calls.sizes == [MIB] * 21 + [3]
    assert calls.synced == [part * MIB for part in (4, 8, 12, 16, 20)]


@pytest.mark.parametrize("why", ["no memory", "refused", "short", "unaligned rest"])
def test_what_does_not_work_is_written_by_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    write, count = os.write, 0

    def writing(fd: int, data: Any) -> int:
        nonlocal count
        count += 1
        is_straight = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
        if why == "refused" and count > 2 and is_straight:
            raise OSError(errno.EINVAL, "unaligned")
        if why == "short" and count % 3 == 0:
            return write(fd, data[: 64 << 10])
        if why == "unaligned rest" and count % 3 == 0 and not is_straight:
            return write(fd, data[:1001])
        return write(fd, data)

    def no_memory(*arguments: Any) -> Any:
        raise OSError(errno.ENOMEM, "no memory")

    if why == "no memory":
        monkeypatch.setattr(mmap, "mmap", no_memory)
    if why == "unaligned rest":
        monkeypatch.setattr(fcntl, "fcntl", no_flags)
    monkeypatch.setattr(os, "write", writing)
    assert written(tmp_path) == BODY + b"end"
    assert count > 21


def test_a_disk_that_fills_up_leaves_nothing_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, count = os.write, 0

    def writing(fd: int, data: Any) -> int:
        nonlocal count
        count += 1
        if count > 5:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[: len(data) // 2] if count == 5 else data)

    monkeypatch.setattr(os, "write", writing)
    builder = checkpoint_dir.Builder(str(tmp_path), "large", is_read_soon=False)
    with pytest.raises(OSError, match="full"), builder.or_nothing():
        builder.add("state", PARTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_read_soon", [True, False])
def test_a_checkpoint_of_many_pieces_verifies(tmp_path: Path, is_read_soon: bool) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "large", is_read_soon)
    builder.add("state", PARTS)
    builder.add("empty", [])
    builder.finish({"step": 1})
    files = checkpoint_dir.verify(str(tmp_path / "large"))["files"]
    assert files["state"]["bytes"] == 21 * MIB + 3
    assert files["empty"]["bytes"] == 0


class Body:
    """Progress of many pieces."""

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        """Nothing."""

    def write(self, builder: checkpoint_dir.Builder) -> None:
        """Write it."""
        builder.add("state", PARTS)


@pytest.mark.parametrize("wait", [True, False])
def test_only_what_is_written_beside_the_training_goes_past_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    ours, hosts = socket.socketpair()
    with ours, hosts:
        calls = Calls(monkeypatch)
        saver = Saver(AgentChannel(ours), str(tmp_path), lambda why: None)
        saver.save("one", Body, {"step": 1}, wait)
        saver.join()
        assert checkpoint_dir.verify(str(tmp_path / "one"))["step"] == 1
        message = receive(hosts)
    assert message is not None
    assert message["kind"] == "checkpointed"
    if wait:
        assert not any(calls.straight)
    elif not any(calls.straight):
        pytest.skip("the file system of the tests has nothing but its cache")
