"""Snapshots are what their name says, land where they should, and are copied for each trial."""

import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermesctl.study_file import snapshot
from hermesd.node import deep_trees
from hermesd.node.runner.imports_ahead import imports_ahead
from hermesd.node.storage import code
from tests.deep_trees import TOO_DEEP, dig


def archive(*members: tarfile.TarInfo, content: bytes = b"print(1)\n") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in members:
            member.size = len(content) if member.isfile() else 0
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
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
        link("way", "../escaped", tarfile.LNKTYPE),
        link("way", "/etc/passwd", tarfile.LNKTYPE),
        link("pipe", "", tarfile.FIFOTYPE),
        link("disk", "", tarfile.BLKTYPE),
        link("null", "", tarfile.CHRTYPE),
    ],
)
async def test_nothing_escapes(tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(code.CodeError):
        await fetch(archive(member), tmp_path / "code")
    assert [path.name for path in tmp_path.rglob("*")] == ["code"]


async def test_a_path_from_the_root_stays_inside(tmp_path: Path) -> None:
    folder = await fetch(archive(tarfile.TarInfo(f"{tmp_path}/train.py")), tmp_path / "code")
    assert not (tmp_path / "train.py").exists()
    assert (folder / f"{tmp_path}/train.py".lstrip("/")).is_file()


def test_a_node_takes_what_a_client_packs_and_no_more() -> None:
    assert code.SIZE_BYTES_MAX == snapshot.SIZE_BYTES_MAX
    assert code.FILES_MAX == snapshot.FILES_MAX
    assert code.DEPTH_MAX == snapshot.DEPTH_MAX


async def test_an_archive_that_grows_too_large_is_refused(tmp_path: Path) -> None:
    half, rest = tarfile.TarInfo("a"), tarfile.TarInfo("b")
    half.size, rest.size = 0, code.SIZE_BYTES_MAX + 1
    data = half.tobuf() + rest.tobuf() + b"x" * 1024
    with pytest.raises(code.CodeError, match="with 'b', expected at most 268435456"):
        await fetch(data, tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_an_archive_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "FILES_MAX", 20)
    files = [tarfile.TarInfo(f"{number}.py") for number in range(21)]
    with pytest.raises(code.CodeError, match="more than 20 files"):
        await fetch(archive(*files), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert (await fetch(archive(*files[:20]), tmp_path)).is_dir()


async def test_the_deepest_tree_that_is_taken_can_be_worked_with(tmp_path: Path) -> None:
    deepest = tarfile.TarInfo("d/" * code.DEPTH_MAX + "train.py")
    unpacked = await fetch(archive(deepest, content=b"import keras"), tmp_path / "code")
    code.working_copy(unpacked, tmp_path / "work", "/", ())
    assert imports_ahead(tmp_path / "work") == "keras"


async def test_a_deeper_tree_is_refused_for_good(tmp_path: Path) -> None:
    deeper = tarfile.TarInfo("d/" * (code.DEPTH_MAX + 1) + "train.py")
    with pytest.raises(code.BadCode, match="lies 201 directories deep, expected at most 200"):
        await fetch(archive(deeper), tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_what_a_program_has_dug_is_looked_through_and_replaced(tmp_path: Path) -> None:
    work = tmp_path / "work"
    dig(work, TOO_DEEP)
    (work / "train.py").write_text("import torch")
    assert imports_ahead(work) == "torch"
    code.working_copy(None, work, "/", ())
    assert list(work.iterdir()) == []


def test_a_tree_goes_whose_branches_are_all_too_deep(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    dig(outside, 1)
    for branch in ("a", "a/d/d/x", "b"):
        dig(tree / branch, TOO_DEEP)
        (tree / branch / "link").symlink_to(outside)
    deep_trees.remove(tree)
    assert not tree.exists()
    assert (outside / "d" / "leaf.py").exists()
    (tmp_path / "link").symlink_to(outside)
    deep_trees.remove(tmp_path / "link")
    assert (outside / "d" / "leaf.py").exists()


async def test_data_may_lie_in_as_many_directories_as_a_path_has_room_for(tmp_path: Path) -> None:
    origin, work = tmp_path / "study", tmp_path / "work"
    dig(origin, TOO_DEEP)
    entry = "d/" * TOO_DEEP + "leaf.py"
    code.working_copy(None, work, str(origin), (entry,))
    assert os.readlink(work / entry) == str(origin / entry)
    code.working_copy(None, work, str(origin), (entry,))  # the one before is replaced
    with pytest.raises(code.CodeError, match=r"^data: d/d/.*: the path is too long here"):
        code.working_copy(None, work, str(origin), ("d/" * 2 * TOO_DEEP + "leaf.py",))
    for folder in (origin, work, tmp_path / "work.partial"):  # too deep for who cleans up
        deep_trees.remove(folder)


async def test_a_download_without_end_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)

    monkeypatch.setattr(code, "ARCHIVE_BYTES_MAX", 10_000)
    with pytest.raises(code.CodeError, match="more than 10000 bytes"):
        await code.fetch("0" * 64, endless(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["gz", "xz"])
async def test_a_compressed_archive_is_refused_before_it_swells(tmp_path: Path, kind: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{kind}") as tar:
        tar.addfile(tarfile.TarInfo("train.py"))
    with pytest.raises(code.CodeError, match="code snapshot"):
        await fetch(stream.getvalue(), tmp_path)


async def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(code.CodeError, match="code snapshot"):
        await fetch(b"x" * 2000, tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_each_trial_has_a_copy_of_its_own(tmp_path: Path) -> None:
    unpacked = await fetch(archive(tarfile.TarInfo("train.py")), tmp_path / "code")
    (tmp_path / "home" / "images").mkdir(parents=True)
    for trial in ("one", "two"):
        code.working_copy(
            unpacked, tmp_path / trial, str(tmp_path / "home"), ("images", str(tmp_path / "home"))
        )
    (tmp_path / "one" / "train.py").write_text("changed")
    assert (tmp_path / "two" / "train.py").read_text() == "print(1)\n"
    assert (unpacked / "train.py").read_text() == "print(1)\n"
    assert (tmp_path / "one" / "images").readlink() == tmp_path / "home" / "images"
    code.working_copy(unpacked, tmp_path / "one", str(tmp_path), ())
    assert (tmp_path / "one" / "train.py").read_text() == "print(1)\n", "a new copy is clean"


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(code.CodeError, match="'images'"):
        code.working_copy(None, tmp_path / "one", str(tmp_path), ("images",))
    assert not (tmp_path / "one").exists()
