"""Which names are a checkpoint's when its files are asked for."""

import json
from pathlib import Path

import pytest

from hermesd.node.files import chunks
from hermesd.node.folder import TrialFolder
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
