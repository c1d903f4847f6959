"""Within the budget nothing goes; beyond it what can be had again goes, and no more is begun."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hermesd.core.commands import Launch
from hermesd.core.model import Goal, Program, Quantum, RunId, RunTerms
from hermesd.core.node.messages import Assignment, Work
from hermesd.node.storage import client_files
from hermesd.node.storage.code import CodeError
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.deep_trees import TOO_DEEP, dig

NEEDED, STALE = "a" * 64, "b" * 64


async def nothing(sha256: str) -> AsyncIterator[bytes]:
    raise AssertionError(f"{sha256} is there")
    yield b""


def trial(
    root: Path, number: int, outcome: str, keep: tuple[str, ...] = (), user: str = ""
) -> TrialFolder:
    folder = TrialFolder(root / "trials", root / "run", f"digits/{number}")
    program = Program(("x",), "python", NEEDED, "/", keep=keep)
    work = Work(program, (), "loss", Goal.MINIMIZE, 1)
    launch = Launch(RunId(folder.trial, 1), ("n1/cpu0",), Quantum(), "")
    folder.begin(Assignment(launch, None, work, RunTerms(), user=user))
    folder.settle()
    folder.work.mkdir()
    (folder.work / "big").write_bytes(b"x" * 100_000)
    event = {"kind": outcome, "attempt": 1, "seq": 1}
    (folder.path / "events.jsonl").write_text(json.dumps(event))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (NEEDED, STALE):
        (tmp_path / "code" / name).mkdir(parents=True)
        (tmp_path / "code" / name / "train.py").write_bytes(b"x" * 100_000)
    trial(tmp_path, 1, "completed")
    trial(tmp_path, 2, "suspended")
    return tmp_path


def there(root: Path) -> set[str]:
    """What is left of all that might go."""
    paths = {"stale": root / "code" / STALE, "needed": root / "code" / NEEDED}
    paths |= {f"work {i}": root / "trials" / "digits" / str(i) / "work" for i in (1, 2)}
    return {name for name, path in paths.items() if path.exists()}


@pytest.mark.parametrize(
    ("budget", "left"),
    [
        (10_000_000, {"stale", "needed", "work 1", "work 2"}),
        (350_000, {"needed", "work 1", "work 2"}),
        (250_000, {"needed", "work 2"}),
    ],
)
async def test_what_can_be_had_again_goes_first(root: Path, budget: int, left: set[str]) -> None:
    disk = DiskBudget(root, root / "run", budget, nothing)
    assert disk.usage() is None, "nothing was added up yet"
    assert await disk.snapshot(NEEDED) == root / "code" / NEEDED
    assert there(root) == left
    disk = disk.usage()
    assert disk is not None
    assert (disk.budget_bytes, disk.evictions) == (budget, 4 - len(left))
    everything = sum(f.lstat().st_blocks * 512 for f in root.rglob("*") if not f.is_dir())
    assert disk.used_bytes == everything <= budget


async def test_of_a_working_copy_that_goes_what_its_study_keeps_stays(root: Path) -> None:
    """It is listed and sent as before, and goes with the trial."""
    folder = trial(root, 3, "completed", keep=("best.pt", "plots", "*.csv"))
    for name in ("best.pt", "plots/a/b.png", "logs/1.csv", "logs/2.txt"):
        (folder.work / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.work / name).write_text(name)
    (folder.work / "link.csv").symlink_to("/etc/hostname")
    disk = DiskBudget(root, root / "run", 250_000, nothing)
    await disk.snapshot(NEEDED)
    assert not folder.work.exists()
    wanted = pb.SendFile(ticket=1, trial=folder.trial, work=pb.WorkFiles())
    pieces = [piece async for piece in client_files.chunks(wanted, folder, lambda: True)]
    held = {piece.name: piece.data.decode() for piece in pieces if piece.name}
    assert held == {name: name for name in ("best.pt", "logs/1.csv", "plots/a/b.png")}
    folder.forget()
    assert not folder.path.exists()


async def test_a_link_to_what_a_trainer_saved_last_is_kept_as_a_file(root: Path) -> None:
    folder = trial(root, 3, "completed", keep=("ck/last.ckpt", "*.csv"))
    (folder.work / "ck").mkdir()
    (folder.work / "ck" / "epoch3.ckpt").write_text("weights")
    (folder.work / "ck" / "last.ckpt").symlink_to("epoch3.ckpt")
    (folder.work / "out.csv").symlink_to(folder.path / "events.jsonl")
    await DiskBudget(root, root / "run", 250_000, nothing).snapshot(NEEDED)
    assert not folder.work.exists()
    kept = {str(path.relative_to(folder.keep)) for path in folder.keep.rglob("*")}
    assert kept == {"ck", "ck/last.ckpt"}
    assert (folder.keep / "ck" / "last.ckpt").read_text() == "weights"
    assert not (folder.keep / "ck" / "last.ckpt").is_symlink()


async def test_what_is_kept_counts_and_each_copy_goes_once(root: Path) -> None:
    folder = trial(root, 3, "completed", keep=("best.pt", "last.pt"))
    (folder.work / "best.pt").write_bytes(b"x" * 40_000)
    (folder.work / "last.pt").symlink_to("best.pt")
    disk = DiskBudget(root, root / "run", 1000, nothing)
    for _ in range(3):
        disk._looked = 0.0  # as after some time
        with pytest.raises(CodeError):
            await disk.snapshot(NEEDED)
        usage = disk.usage()
        assert usage is not None
        assert usage.evictions == 3, "a snapshot and two working copies"
        held = {(f.lstat().st_ino, f.lstat().st_blocks) for f in root.rglob("*") if f.is_file()}
        assert usage.used_bytes == sum(blocks * 512 for _, blocks in held)
    assert (folder.keep / "last.pt").stat().st_size == 40_000


async def test_a_copy_stays_of_which_a_file_cannot_be_kept(root: Path) -> None:
    """The others are kept all the same, and it goes as soon as all are."""
    folder = trial(root, 3, "completed", keep=("*.csv",))
    for name in ("a/1.csv", "b/2.csv", "c/3.csv"):
        (folder.work / name).parent.mkdir()
        (folder.work / name).write_text(name)
    folder.keep.mkdir()
    (folder.keep / "b").write_text("in the way")
    disk = DiskBudget(root, root / "run", 250_000, nothing)
    with capture_logs() as logs, pytest.raises(CodeError):
        await disk.snapshot(NEEDED)
    (said,) = [line for line in logs if line["log_level"] == "warning"]
    assert said["path"] == str(folder.work)
    assert "File exists" in said["why"]
    assert (folder.work / "b" / "2.csv").exists()
    assert (folder.keep / "c" / "3.csv").read_text() == "c/3.csv"
    (folder.keep / "b").unlink()
    disk._looked = 0.0
    await disk.snapshot(NEEDED)
    assert not folder.work.exists()
    kept = {str(p.relative_to(folder.keep)) for p in folder.keep.rglob("*") if p.is_file()}
    assert kept == {"a/1.csv", "b/2.csv", "c/3.csv"}


async def test_what_is_used_is_known_though_nothing_starts(root: Path) -> None:
    disk = DiskBudget(root, root / "run", 1000, nothing)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        measuring = tasks.create_task(disk.measure())
        while (used := disk.usage()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        measuring.cancel()
    assert used.used_bytes > used.budget_bytes
    assert used.evictions == 0


async def test_beyond_that_nothing_is_started(root: Path) -> None:
    with pytest.raises(CodeError, match="disk_budget_bytes = 1000"):
        await DiskBudget(root, root / "run", 1000, nothing).snapshot(NEEDED)
    assert there(root) == {"needed", "work 2"}


async def test_who_has_filled_it_keeps_nobody_else_from_starting(root: Path) -> None:
    for number, user in enumerate(("alice", "alice", "bob"), 3):
        trial(root, number, "suspended", user=user)
    disk = DiskBudget(root, root / "run", 400_000, nothing)  # a third of it is a share
    with pytest.raises(CodeError, match=r"of them by alice, in trials.*; remove finished studies"):
        await disk.snapshot(NEEDED, "alice")
    for other in ("bob", "carol"):
        assert await disk.snapshot(NEEDED, other) == root / "code" / NEEDED


@pytest.mark.parametrize("place", ["homes", "venvs"])
async def test_a_home_or_an_environment_counts_for_whose_programs_have_filled_it(
    root: Path, place: str
) -> None:
    """Else who fills that would keep others from starting, and not be kept from it."""
    for number, user in enumerate(("alice", "bob"), 3):
        trial(root, number, "suspended", user=user)
    filled = root / place / "400001"
    filled.mkdir(parents=True)
    (filled / "big").write_bytes(b"x" * 600_000)
    disk = DiskBudget(root, root / "run", 800_000, nothing, numbers={"mallory": 400_001})
    with pytest.raises(CodeError, match="of them by mallory"):
        await disk.snapshot(NEEDED, "mallory")
    for other in ("alice", "bob", "carol"):
        assert await disk.snapshot(NEEDED, other) == root / "code" / NEEDED


@pytest.mark.parametrize("instead", ['{"kind": [], "attempt": 1}', "a link to itself"])
async def test_what_a_program_has_put_in_the_place_of_its_events_keeps_no_other_from_starting(
    root: Path, instead: str
) -> None:
    events = TrialFolder(root / "trials", root / "run", "digits/1").path / "events.jsonl"
    events.unlink()
    if instead.startswith("{"):
        events.write_text(instead)
    else:
        events.symlink_to(events)
    trial(root, 3, "completed", user="bob")
    disk = DiskBudget(root, root / "run", 400_000, nothing)
    assert await disk.snapshot(NEEDED, "bob") == root / "code" / NEEDED
    assert there(root) == {"needed", "work 1", "work 2"}


async def test_a_tree_that_a_program_has_dug_is_counted_and_goes(root: Path) -> None:
    """However deep it is: the budget is looked at before any trial starts."""
    dig(TrialFolder(root / "trials", root / "run", "digits/1").work, TOO_DEEP)
    disk = DiskBudget(root, root / "run", 250_000, nothing)
    assert await disk.snapshot(NEEDED) == root / "code" / NEEDED
    assert there(root) == {"needed", "work 2"}


def test_a_trial_with_such_a_tree_can_be_forgotten(root: Path) -> None:
    folder = TrialFolder(root / "trials", root / "run", "digits/2")
    dig(folder.work, TOO_DEEP)
    folder.forget()
    assert not folder.path.exists()


async def test_what_is_being_made_is_left_alone(root: Path) -> None:
    """Of what was removed under its maker, half would be taken for the whole."""
    disk = DiskBudget(root, root / "run", 150_000, nothing)
    making = [root / "code" / "partial-x", root / "venvs" / "venv-1"]
    for folder in (*making, root / "venvs" / "venv-2"):
        folder.mkdir(parents=True)
        (folder / "big").write_bytes(b"x" * 100_000)
    (root / "venvs" / "venv-2" / ".whole").touch()
    with pytest.raises(CodeError, match="disk_budget_bytes"):
        await disk.snapshot(NEEDED)
    assert [folder.exists() for folder in making] == [True, True]
    assert there(root) == {"needed", "work 2"}
    assert [path.name for path in (root / "venvs").iterdir()] == ["venv-1"]


def test_what_a_daemon_before_had_not_unpacked_goes(root: Path) -> None:
    (root / "code" / "partial-x").mkdir()
    DiskBudget(root, root / "run", 10_000_000, nothing)
    assert {path.name for path in (root / "code").iterdir()} == {NEEDED, STALE}
