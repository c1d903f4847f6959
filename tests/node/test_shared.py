"""Copies of checkpoints in a directory that several nodes have: whole, verified, of one study."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.core.commands import Release
from hermesd.core.events import Copied, NodeJoined, NotCopied, RunCompleted, RunFailed
from hermesd.core.model import Checkpoint, RunId
from hermesd.core.node.messages import Fetch
from hermesd.node.daemon import run_node
from hermesd.node.storage import checkpoints
from hermesd.node.storage.fetching import Fetching, NotFetched
from hermesd.node.storage.shared_directory import MARK, Shared, SharedAway
from hermesd.node.storage.transfer_service import TransferService
from hermesd.node.storage.trial_folder import TrialFolder
from tests.node.conftest import Head, Node, becomes
from tests.node.test_checkpoints import build
from tests.node.test_fetching import TRIAL, Giver

IDENTITY = "0f1e2d3c"
Launch = Callable[..., RunId]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "nfs").mkdir()
    return tmp_path / "nfs"


@pytest.fixture
def shared(root: Path) -> Shared:
    return Shared(root, "a")


def made(folder: Path, step: int) -> Checkpoint:
    """A checkpoint of the trial below a folder."""
    found = checkpoints.verified(build(folder, f"s{step}", step))
    size = found.size_bytes
    return Checkpoint(f"{TRIAL}@s{step}", TRIAL, 1, step, found.sha256, size, ("a",))


@pytest.fixture
def five(tmp_path: Path, shared: Shared) -> Checkpoint:
    """A checkpoint that was put there."""
    checkpoint = made(tmp_path / "a", 5)
    shared.put(tmp_path / "a" / "s5", TRIAL, IDENTITY, ())
    return checkpoint


def test_all_nodes_see_the_same_directory_by_its_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    names = [Shared(root, "a").name, Shared(root, "b").name, Shared(tmp_path / "other", "a").name]
    assert names[0] == names[1] != names[2]
    assert [path.name for path in root.iterdir()] == [MARK]


def test_what_one_node_puts_there_another_takes(
    root: Path, five: Checkpoint, tmp_path: Path
) -> None:
    other = Shared(root, "b")
    assert other.take(five, IDENTITY, tmp_path / "b")
    assert checkpoints.verified(tmp_path / "b" / "s5").sha256 == five.sha256
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["s5"]


def test_nothing_is_of_another_study(shared: Shared, five: Checkpoint, tmp_path: Path) -> None:
    assert not shared.take(five, "another", tmp_path / "b")
    assert not shared.take(five, "", tmp_path / "b")
    shared.forget(TRIAL, "another")
    shared.forget(TRIAL, "")
    assert shared.take(five, IDENTITY, tmp_path / "b")


def test_only_what_is_referred_to_is_kept(
    shared: Shared, five: Checkpoint, root: Path, tmp_path: Path
) -> None:
    for step, keep in ((7, ("s5",)), (9, ("s7",))):
        made(tmp_path / "a", step)
        shared.put(tmp_path / "a" / f"s{step}", TRIAL, IDENTITY, keep)
    assert sorted(path.name for path in (root / IDENTITY / TRIAL).iterdir()) == ["s7", "s9"]
    shared.forget(TRIAL, IDENTITY)
    assert [path.name for path in root.iterdir()] == [MARK]


@pytest.mark.parametrize("harm", ["flip", "other"])
def test_a_copy_that_is_not_the_known_one_is_not_taken(
    shared: Shared, five: Checkpoint, root: Path, tmp_path: Path, harm: str
) -> None:
    weights = root / IDENTITY / TRIAL / "s5" / "weights.bin"
    if harm == "flip":
        weights.write_bytes(b"v" + weights.read_bytes()[1:])
    else:
        five = replace(five, sha256="0" * 64)
    with pytest.raises(SharedAway):
        shared.take(five, IDENTITY, tmp_path / "b")
    assert not list((tmp_path / "b").iterdir())


def test_a_damaged_checkpoint_is_not_put_there(shared: Shared, root: Path, tmp_path: Path) -> None:
    made(tmp_path / "a", 5)
    (tmp_path / "a" / "s5" / "weights.bin").write_bytes(b"x")
    with pytest.raises(checkpoints.DamagedCheckpoint):
        shared.put(tmp_path / "a" / "s5", TRIAL, IDENTITY, ())
    assert not (root / IDENTITY / TRIAL / "s5").exists()


@pytest.mark.parametrize("what", ["unmounted", "another"])
def test_where_it_is_not_mounted_nothing_is_written(
    shared: Shared, five: Checkpoint, root: Path, tmp_path: Path, what: str
) -> None:
    shutil.rmtree(root)
    root.mkdir()
    if what == "another":
        (root / MARK).write_text("of somebody else")
    before = list(root.iterdir())
    with pytest.raises(SharedAway, match=r"another directory|No such file"):
        shared.put(tmp_path / "a" / "s5", TRIAL, IDENTITY, ())
    with pytest.raises(SharedAway):
        shared.take(five, IDENTITY, tmp_path / "b")
    assert list(root.iterdir()) == before


async def test_a_run_waits_for_a_directory_that_is_away_rather_than_begin_anew(
    shared: Shared, five: Checkpoint, root: Path, tmp_path: Path
) -> None:
    fetching = Fetching(None, shared)
    root.rename(tmp_path / "away")
    with pytest.raises(NotFetched, match=r"could not be had: shared_dir = .*: No such file"):
        await fetching.bring(five, (), tmp_path / "b", IDENTITY)
    (tmp_path / "away").rename(root)
    await fetching.bring(five, (), tmp_path / "b", IDENTITY)
    assert checkpoints.verified(tmp_path / "b" / "s5").step == 5


async def test_a_node_gives_others_what_lies_in_its_shared_directory(
    shared: Shared, five: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "g" / "run").mkdir(parents=True)
    giver = Giver(tmp_path / "g")
    shutil.rmtree(giver.folder.checkpoints)
    giver.server = TransferService(giver.folders, giver, shared)
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "g"))
    try:
        with pytest.raises(NotFetched, match="no such checkpoint"):
            await Fetching(None).bring(five, (giver.source(),), tmp_path / "b", "../" + IDENTITY)
        await Fetching(None).bring(five, (giver.source(),), tmp_path / "b", IDENTITY)
    finally:
        await giver.server.stop()
    assert checkpoints.verified(tmp_path / "b" / "s5").sha256 == five.sha256


@pytest.fixture
def config(config: NodeConfig, root: Path) -> NodeConfig:
    return config.model_copy(update={"shared_dir": root})


@pytest.fixture
async def own(node: Node, config: NodeConfig) -> TrialFolder:
    """A trial of this node with a checkpoint."""
    folder = TrialFolder(config.state_dir / "trials", config.runtime_path, TRIAL)
    folder.belong_to(IDENTITY)
    return folder


async def test_a_node_shares_its_own_checkpoint_when_it_is_asked_to(
    head: Head, node: Node, own: TrialFolder, root: Path, shared: Shared
) -> None:
    joined = await head.hears(NodeJoined)
    assert joined.shared == shared.name
    assert any(str(root) in fact for fact in joined.facts)
    checkpoint = made(own.checkpoints, 5)
    head.send(Fetch(checkpoint, (), (), "n1", IDENTITY))
    assert await head.hears(Copied) == Copied("n1", TRIAL, checkpoint.id)
    assert checkpoints.verified(root / IDENTITY / TRIAL / "s5").sha256 == checkpoint.sha256
    head.send(Fetch(checkpoint, (), (), "n1", "another"))
    assert (await head.hears(NotCopied)).way
    head.send(Release(TRIAL, "n1", forget=True))
    await becomes(lambda: not (root / IDENTITY).exists())


async def test_what_is_there_no_more_and_what_cannot_be_written_is_told(
    head: Head, node: Node, own: TrialFolder, root: Path, tmp_path: Path
) -> None:
    checkpoint = made(own.checkpoints, 5)
    shutil.rmtree(own.checkpoints / "s5")
    head.send(Fetch(checkpoint, (), (), "n1", IDENTITY))
    assert not (await head.hears(NotCopied)).way
    made(own.checkpoints, 5)
    root.rename(tmp_path / "away")
    head.send(Fetch(checkpoint, (), (), "n1", IDENTITY))
    away = await head.hears(NotCopied, count=2)
    assert away.way
    assert "No such file" in away.reason


RESTORED = """
import os, trainer_shim
trial = trainer_shim.attach()
print("restored", os.path.exists(os.path.join(trial.resume.path, "weights.bin")), flush=True)
trial.report(6, loss=0.5)
"""


async def test_a_trial_of_a_dead_node_goes_on_from_the_directory(
    head: Head, node: Node, five: Checkpoint, root: Path, tmp_path: Path, launch: Launch
) -> None:
    wanted = {
        "program": RESTORED,
        "argv": ("python", "train.py"),
        "checkpoint": five,
        "identity": IDENTITY,
    }
    root.rename(tmp_path / "away")
    failed = await head.hears(RunFailed, launch(attempt=2, **wanted))
    assert failed.error_kind == "not_fetched"
    (tmp_path / "away").rename(root)
    await head.hears(RunCompleted, launch(attempt=3, **wanted))
    output = node.config.state_dir / "trials" / TRIAL / "output.log"
    assert "restored True" in output.read_text()


async def test_a_node_without_its_directory_does_not_start(config: NodeConfig, root: Path) -> None:
    root.rmdir()
    with pytest.raises(SharedAway, match=r"shared_dir = .*/nfs: No such file"):
        await run_node(config, {}, asyncio.Event(), lambda: None)
