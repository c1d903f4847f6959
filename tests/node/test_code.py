"""Snapshots are what their name says, land where they should, and are copied for each trial."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermesd.node import code


def archive(*members: tarfile.TarInfo, content: bytes = b"print(1)\n") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in members:
            member.size = len(content) if member.isfile() else 0
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


async def parts(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 100):
        yield data[at : at + 100]


async def fetch(data: bytes, folder: Path, name: str | None = None) -> Path:
    return await code.fetch(name or hashlib.sha256(data).hexdigest(), parts(data), folder)


async def never() -> AsyncIterator[bytes]:
    raise AssertionError("asked for what is there")
    yield b""


async def test_a_snapshot_is_fetched_once(tmp_path: Path) -> None:
    data = archive(tarfile.TarInfo("train.py"), tarfile.TarInfo("pkg/x.py"))
    folder = await fetch(data, tmp_path)
    assert (folder / "train.py").read_text() == "print(1)\n"
    assert await code.fetch(folder.name, never(), tmp_path) == folder


async def test_content_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    data = archive(tarfile.TarInfo("train.py"))
    with pytest.raises(code.CodeError, match="what came is"):
        await fetch(data, tmp_path, "0" * 64)
    with pytest.raises(code.CodeError, match="64 hexadecimal digits"):
        await fetch(data, tmp_path, "../../etc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo("a/../../escaped"),
        link("way", "../escaped"),
        link("way", "/etc/passwd"),
    ],
)
async def test_nothing_escapes(tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(code.CodeError):
        await fetch(archive(member), tmp_path / "code")
    assert [path.name for path in tmp_path.rglob("*")] == ["code"]


async def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(code.CodeError, match="code snapshot"):
        await fetch(b"x" * 2000, tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_each_trial_has_a_copy_of_its_own(tmp_path: Path) -> None:
    snapshot = await fetch(archive(tarfile.TarInfo("train.py")), tmp_path / "code")
    (tmp_path / "home" / "images").mkdir(parents=True)
    for trial in ("one", "two"):
        code.working_copy(
            snapshot, tmp_path / trial, str(tmp_path / "home"), ("images", str(tmp_path / "home"))
        )
    (tmp_path / "one" / "train.py").write_text("changed")
    assert (tmp_path / "two" / "train.py").read_text() == "print(1)\n"
    assert (snapshot / "train.py").read_text() == "print(1)\n"
    assert (tmp_path / "one" / "images").readlink() == tmp_path / "home" / "images"
    code.working_copy(snapshot, tmp_path / "one", str(tmp_path), ())
    assert (tmp_path / "one" / "train.py").read_text() == "print(1)\n", "a new copy is clean"


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(code.CodeError, match="'images'"):
        code.working_copy(None, tmp_path / "one", str(tmp_path), ("images",))
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import numpy", None),
        ("import tensorflow as tf", "tensorflow"),
        ("from tensorflow import keras", "keras"),
        ("my_kerastic = 1", None),
    ],
)
def test_the_framework_is_read_off_the_text(
    tmp_path: Path, text: str, framework: str | None
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "model.py").write_text(text)
    assert code.framework_of(tmp_path) == framework


async def test_a_damaged_compressed_archive_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as tar:
        content = b"".join(b"%d," % (n * 7919 % 100_003) for n in range(60_000))
        member = tarfile.TarInfo("train.py")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    data = bytearray(stream.getvalue())
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(40)
    with pytest.raises(code.CodeError, match="code snapshot"):
        await fetch(bytes(data), tmp_path)
    assert list(tmp_path.iterdir()) == []
