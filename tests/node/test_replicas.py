"""A node takes copies of other nodes' checkpoints when the head wants it, and keeps no others."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.config.schema import NodeConfig
from hermesd.core.commands import Release
from hermesd.core.events import Copied, Dropped, NotCopied, RunCompleted, Spoilt
from hermesd.core.model import Checkpoint, RunId
from hermesd.core.node.messages import CheckpointSource, DropCopies, Fetch
from hermesd.node.storage import checkpoints
from hermesd.node.storage.fetching import Fetching, NotFetched
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from hermesd.pb.hermes.v1 import transfer_pb2_grpc
from hermesd.security.ticket import ticket
from tests.node.conftest import Head, Node, becomes
from tests.node.test_checkpoints import build
from tests.node.test_fetching import TRIAL, Giver

IDENTITY = "one study"


@pytest.fixture
async def giver(tmp_path: Path) -> AsyncIterator[Giver]:
    giver = Giver(tmp_path / "a")
    (tmp_path / "a" / "run").mkdir()
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    yield giver
    await giver.server.stop()


@pytest.fixture
def folder(config: NodeConfig) -> TrialFolder:
    return TrialFolder(config.state_dir / "trials", config.runtime_path, TRIAL)


def fetch(giver: Giver, *sources: CheckpointSource, identity: str = IDENTITY) -> Fetch:
    return Fetch(giver.checkpoint, sources or (giver.source(),), (f"{TRIAL}@s3",), "n1", identity)


def names(folder: TrialFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.iterdir())


async def test_a_copy_is_fetched_and_told(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    head.send(fetch(giver))
    assert await head.hears(Copied) == Copied("n1", TRIAL, giver.checkpoint.id)
    assert checkpoints.verified(folder.checkpoints / "s5").sha256 == giver.checkpoint.sha256
    assert folder.identity == IDENTITY
    await giver.server.stop()
    head.send(fetch(giver))  # asked again, since the answer was not heard
    await head.hears(Copied, count=2)


async def test_only_what_is_referred_to_is_kept(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    folder.belong_to(IDENTITY)
    folder.checkpoints.mkdir()
    for name, step in (("s2", 2), ("s3", 3), ("s9", 9)):
        build(folder.checkpoints, name, step)
    (folder.checkpoints / "s4.fetched.partial").mkdir()
    head.send(fetch(giver))
    await head.hears(Copied)
    assert names(folder) == ["s3", "s5"]
    head.send(DropCopies(TRIAL, "another study"))
    await head.hears(Dropped)
    assert names(folder) == ["s3", "s5"]
    head.send(DropCopies(TRIAL, IDENTITY))
    assert await head.hears(Dropped, count=2) == Dropped("n1", TRIAL)
    assert names(folder) == []


async def test_a_folder_that_its_program_has_closed_costs_nothing_but_what_is_in_it(
    head: Head, node: Node, folder: TrialFolder
) -> None:
    folder.belong_to(IDENTITY)
    folder.checkpoints.mkdir(mode=0)
    if os.geteuid() == 0:  # to whom nothing is closed that is its own
        os.chown(folder.path, 4711, 4711)
    head.send(DropCopies(TRIAL, IDENTITY))
    head.send(DropCopies("another/1", ""))
    assert await head.hears(Dropped) == Dropped("n1", "another/1")
    folder.checkpoints.chmod(0o700)
    os.chown(folder.path, os.geteuid(), os.getegid())
    head.send(DropCopies(TRIAL, IDENTITY))
    assert await head.hears(Dropped, count=2) == Dropped("n1", TRIAL)


async def test_what_cannot_be_had_is_told_with_the_reason(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    head.send(fetch(giver, replace(giver.source(), ticket=b"guessed")))
    refused = await head.hears(NotCopied)
    assert not refused.way
    assert "not a ticket for this" in refused.reason
    head.send(fetch(giver, CheckpointSource("far", "unix:/run/of-another/transfer.sock", b"")))
    away = await head.hears(NotCopied, count=2)
    assert away.way, "no other checkpoint can be had from there either"
    assert not folder.checkpoints.exists() or names(folder) == ["s5.fetched.partial"]


async def test_a_damaged_copy_is_none(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    (giver.folder.checkpoints / "s5" / "weights.bin").write_bytes(b"x")
    head.send(fetch(giver))
    refused = await head.hears(NotCopied)
    assert not refused.way
    assert names(folder) == []


def unreadable(file: Path) -> None:
    """Whoever reads it gets an error of the disk (EIO), which is none of its content."""
    file.unlink()
    file.symlink_to("/proc/self/mem")  # whose first page nobody has


def own(head: Head, folder: TrialFolder) -> tuple[Checkpoint, CheckpointSource]:
    """The newest of two checkpoints of the node itself, and how it gives it to others."""
    folder.belong_to(IDENTITY)
    folder.checkpoints.mkdir()
    build(folder.checkpoints, "s3", 3)
    found = checkpoints.verified(build(folder.checkpoints, "s5", 5))
    newest = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, found.sha256, found.size_bytes, ("n1",))
    word = ticket(head.hello.transfer_key, TRIAL, newest.id, "n2", math.inf)
    return newest, CheckpointSource("n1", head.hello.transfer_address, word)


@pytest.mark.parametrize("harm", ["damaged", "gone"])
async def test_a_node_that_cannot_give_a_checkpoint_says_what_it_has_instead(
    head: Head, node: Node, folder: TrialFolder, tmp_path: Path, harm: str
) -> None:
    newest, source = own(head, folder)
    if harm == "damaged":
        (folder.checkpoints / "s5" / "weights.bin").write_bytes(b"x")
    else:
        shutil.rmtree(folder.checkpoints / "s5")
    with pytest.raises(NotFetched):
        await Fetching(None).bring(newest, (source,), tmp_path / "elsewhere")
    said = await head.hears(Spoilt)
    assert (said.node, said.trial, said.checkpoint) == ("n1", TRIAL, newest.id)
    good = checkpoints.verified(folder.checkpoints / "s3")
    assert said.instead == Checkpoint(
        f"{TRIAL}@s3", TRIAL, good.attempt, 3, good.sha256, good.size_bytes, ("n1",)
    )
    assert names(folder) == ["s3"]


@pytest.mark.parametrize("is_readable", [True, False])
async def test_what_is_doubted_for_nothing_stays(
    head: Head, node: Node, giver: Giver, folder: TrialFolder, is_readable: bool
) -> None:
    """An error of the disk says nothing of what is on it."""
    newest, source = own(head, folder)
    if not is_readable:
        unreadable(folder.checkpoints / "s5" / "manifest.json")
    asked = pb.DoubtRequest(trial=TRIAL, checkpoint=newest.id, ticket=source.ticket)
    async with grpc.aio.insecure_channel(source.address) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        await stub.Doubt(asked)
    head.send(fetch(giver))  # whatever it has said is said before this is
    await head.hears(Copied)
    assert not any(isinstance(event, Spoilt) for event in head.events)
    assert names(folder) == ["s3", "s5"]


async def test_what_lies_there_of_another_study_goes(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    folder.belong_to("an older study of that name")
    folder.checkpoints.mkdir()
    build(folder.checkpoints, "s3", 3)
    head.send(fetch(giver))
    await head.hears(Copied)
    assert names(folder) == ["s5"]


async def test_the_trial_goes_on_from_its_copy(
    head: Head, node: Node, giver: Giver, folder: TrialFolder, launch: Callable[..., RunId]
) -> None:
    program = """
import os, sys, trainer_shim
trial = trainer_shim.attach()
print("restored", os.path.exists(os.path.join(trial.resume.path, "weights.bin")), flush=True)
trial.report(6, loss=0.5)
"""
    head.send(fetch(giver))
    await head.hears(Copied)
    await giver.server.stop()
    run = launch(
        attempt=2,
        program=program,
        argv=("python", "train.py"),
        checkpoint=giver.checkpoint,
        identity=IDENTITY,
        sources=(CheckpointSource("a", "", b""),),
    )
    await head.hears(RunCompleted, run)
    assert "restored True" in folder.output.read_text()


async def test_nothing_is_left_when_the_study_is_removed(
    head: Head, node: Node, giver: Giver, folder: TrialFolder
) -> None:
    head.send(fetch(giver))
    await head.hears(Copied)
    head.send(Release(TRIAL, "n1", forget=True))
    await becomes(lambda: not folder.path.exists())
