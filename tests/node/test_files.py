"""Which names are a checkpoint's when its files are asked for."""

import asyncio
import json
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermesctl.study_file.snapshot import snapshot
from hermesd.core.node.machine import NodeTerms
from hermesd.node.driver import MachineDriver
from hermesd.node.storage import checkpoints, client_files, code, work_files
from hermesd.node.storage.client_files import FileRequests, chunks
from hermesd.node.storage.trial_folder import TrialFolder, TrialFolders
from hermesd.pb.hermes.v1 import node_pb2 as pb


async def sent(folder: TrialFolder, checkpoint: str) -> tuple[list[str], str]:
    """The files that came, and why no more did."""
    request = pb.SendFile(ticket=1, trial=folder.trial, checkpoint=checkpoint)
    pieces = [piece async for piece in chunks(request, folder, lambda: True)]
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return [piece.name for piece in pieces[:-1]], pieces[-1].error


@pytest.mark.parametrize(
    "name", ["", "digits/1@", "@", "digits/1@.", "digits/1@..", "x@a/b", "x@b"]
)
async def test_only_a_checkpoint_is_sent_as_one(tmp_path: Path, name: str) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    (folder.checkpoints / "a" / "b").mkdir(parents=True)
    (folder.checkpoints / "a" / "manifest.json").write_text(json.dumps({}))
    assert await sent(folder, name) == ([], f"{name}: no such checkpoint")
    assert await sent(folder, "digits/1@a") == (["manifest.json"], "")


async def test_what_a_node_notes_on_a_checkpoint_is_no_part_of_it(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    for name in ("a", "b"):
        (folder.checkpoints / name / "parts").mkdir(parents=True)
        (folder.checkpoints / name / "manifest.json").write_text(json.dumps({}))
        (folder.checkpoints / name / "parts" / ".lent").write_text("the program's own")
    checkpoints.lend(folder.checkpoints / "a")
    assert not checkpoints.refuse(folder.checkpoints, "b")
    for name in ("a", "b"):
        assert len(list((folder.checkpoints / name).iterdir())) == 3
        assert await sent(folder, f"digits/1@{name}") == (["manifest.json", "parts/.lent"], "")


async def test_a_trial_that_never_ran_here_is_not_one_that_printed_nothing(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "quick/1")
    request = pb.SendFile(ticket=1, trial="quick/1", log=pb.LogRange())
    (last,) = [piece async for piece in chunks(request, folder, lambda: True)]
    assert last.error == "quick/1: its node has no files of it"
    folder.path.mkdir(parents=True)
    (last,) = [piece async for piece in chunks(request, folder, lambda: True)]
    assert last.last
    assert not last.error


async def test_what_goes_wrong_costs_whoever_asked_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> AsyncIterator[pb.FileChunk]:
        raise RuntimeError("can't start new thread")
        yield pb.FileChunk()

    monkeypatch.setattr(client_files, "chunks", broken)
    driver = MachineDriver(NodeTerms({}))
    folders = TrialFolders(tmp_path / "trials", tmp_path / "run")
    async with asyncio.TaskGroup() as tasks:
        FileRequests(tasks, driver, folders).take(pb.SendFile(ticket=3, trial="digits/1"))
        said = (await driver.outbox.take()).file_chunk
    assert (said.ticket, said.last) == (3, True)
    assert said.error == "the node could not read it; its log says why"


async def sent_work(
    folder: TrialFolder, *patterns: str, **only: bool
) -> tuple[dict[str, bytes], str]:
    """The files of the working copy that came, with what they hold, and why no more did."""
    wanted = pb.WorkFiles(patterns=patterns, **only)
    request = pb.SendFile(ticket=1, trial=folder.trial, work=wanted)
    found: dict[str, bytes] = {}
    last = pb.FileChunk()
    async for piece in chunks(request, folder, lambda: True):
        assert piece.ticket == 1
        if piece.last:
            last = piece
            continue
        assert piece.offset == len(found.get(piece.name, b""))
        assert piece.size_bytes == (folder.work / piece.name).stat().st_size
        found[piece.name] = found.get(piece.name, b"") + piece.data
    assert last.last
    return found, last.error


async def test_files_of_a_working_copy_are_sent_by_path_folder_and_pattern(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    assert (await sent_work(folder))[1] == "digits/1: its node has no files of it"
    folder.path.mkdir(parents=True)
    assert (await sent_work(folder))[1] == "digits/1: its working copy was removed to make room"
    held = {
        "log.csv": b"epoch\n1\n",
        "runs/1/a.png": b"a" * (2 * client_files.CHUNK_BYTES),
        "runs/1/empty": b"",
        "runs/[2].png": b"b",
    }
    for name, data in held.items():
        (folder.work / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.work / name).write_bytes(data)
    assert await sent_work(folder) == (held, "")
    names = dict.fromkeys(held, b"")
    assert await sent_work(folder, names_only=True) == (names, "")
    assert list((await sent_work(folder, "runs/1/"))[0]) == ["runs/1/a.png", "runs/1/empty"]
    assert list((await sent_work(folder, "*.png", "./log.csv"))[0]) == [
        "log.csv", "runs/1/a.png", "runs/[2].png",
    ]  # fmt: skip
    assert list((await sent_work(folder, "runs/[2].png"))[0]) == ["runs/[2].png"]
    nothing = "digits/1: its working copy has no such file: best.pt"
    assert await sent_work(folder, "best.pt") == ({}, nothing)


async def test_nothing_behind_a_link_is_a_file_of_the_working_copy(tmp_path: Path) -> None:
    """A program may write any link, also while its files are read, and any other kind of file."""
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    folder.work.mkdir(parents=True)
    (folder.work / "own").write_text("own")
    (folder.work / "file").symlink_to(outside / "secret")
    (folder.work / "folder").symlink_to(outside)
    os.mkfifo(folder.work / "pipe")
    assert await sent_work(folder) == ({"own": b"own"}, "")
    for name in ("file", "folder/secret", "../../../../outside/secret", str(outside / "secret")):
        assert (await sent_work(folder, name))[0] == {}
        with pytest.raises(OSError, match="no file of"):
            work_files.opened(folder.work.resolve(), name)


async def test_a_link_to_a_file_of_the_working_copy_is_that_file(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    (folder.work / "ck").mkdir(parents=True)
    (folder.work / "ck" / "epoch3.ckpt").write_text("weights")
    (folder.work / "ck" / "last.ckpt").symlink_to("epoch3.ckpt")
    (folder.work / "best").symlink_to(folder.work / "ck" / "last.ckpt")
    (folder.work / "gone").symlink_to("ck/epoch2.ckpt")
    (folder.work / "itself").symlink_to("itself")
    (folder.work / "folder").symlink_to("ck")
    (folder.path / "output.log").write_text("no file of the working copy")
    (folder.work / "log").symlink_to("../output.log")
    names = ("best", "ck/epoch3.ckpt", "ck/last.ckpt")
    assert await sent_work(folder) == (dict.fromkeys(names, b"weights"), "")
    assert await sent_work(folder, "ck/last.ckpt") == ({"ck/last.ckpt": b"weights"}, "")


@pytest.mark.parametrize("long", ["a" * 300, "a/" * 2040, "é/" * 1360, "a" * 5000])
async def test_what_is_longer_than_a_path_can_be_is_no_file(tmp_path: Path, long: str) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    folder.work.mkdir(parents=True)
    (folder.work / "own").write_text("own")
    assert await sent_work(folder, "own", long) == ({"own": b"own"}, "")


async def test_a_link_to_a_folder_is_that_folder_where_it_is_named(tmp_path: Path) -> None:
    """Not with all other files, which are there once; nor where it leads elsewhere."""
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    (folder.work / "runs" / "3" / "plots").mkdir(parents=True)
    (folder.work / "runs" / "3" / "plots" / "a.png").write_text("a")
    (folder.work / "runs" / "latest").symlink_to("3")
    (folder.work / "up").symlink_to(".")
    (folder.work / "out").symlink_to("../..")
    png = {"runs/3/plots/a.png": b"a"}
    assert await sent_work(folder) == (png, "")
    assert await sent_work(folder, "*.png") == (png, "")
    latest = {"runs/latest/plots/a.png": b"a"}
    for pattern in ("runs/latest", "runs/latest/plots/", "./runs/latest/plots/a.png"):
        assert await sent_work(folder, pattern) == (latest, "")
    assert await sent_work(folder, "up/runs/3") == ({"up/runs/3/plots/a.png": b"a"}, "")
    assert (await sent_work(folder, "out"))[0] == {}
    assert (await sent_work(folder, "a/" * 100_000))[0] == {}
    assert work_files.set_aside(folder, ["runs/latest"]) == []
    assert (folder.keep / "runs" / "latest" / "plots" / "a.png").read_text() == "a"


async def test_what_came_with_the_program_can_be_left_out(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    program = tmp_path / "program"
    program.mkdir()
    (program / "train.py").write_text("print(1)")
    (program / "state.json").write_text("{}")
    with snapshot(program) as packed, tarfile.open(fileobj=packed.tar) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    folder.path.mkdir(parents=True)
    code.working_copy(tmp_path / "unpacked", folder.work, str(program), ())
    (folder.work / "state.json").write_text("[]")
    (folder.work / "best.pt").write_text("weights")
    assert list((await sent_work(folder))[0]) == ["best.pt", "state.json", "train.py"]
    written = await sent_work(folder, written_only=True)
    assert written == ({"best.pt": b"weights", "state.json": b"[]"}, "")


async def test_a_link_in_the_place_of_the_working_copy_leads_nowhere(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/1")
    folder.path.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    folder.work.symlink_to(outside)
    assert (await sent_work(folder))[0] == {}
    work_files.set_aside(folder, ["secret"])
    assert not (folder.keep / "secret").exists()
