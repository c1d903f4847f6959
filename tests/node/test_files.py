"""Which names are a checkpoint's when its files are asked for."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermesd.core.node.machine import NodeTerms
from hermesd.node.driver import MachineDriver
from hermesd.node.storage import checkpoints, client_files
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
