"""Files outside of the working directory, temporary folders and shared memory of a re-run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, environment
from tests.trainer_shim.suspending import complete, suspend

TRAINING = """
import trainer_shim
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps([state, step]))
while step < 6:
    state, step = state * 0.9, step + 1
    {step}
    trial.report(step, loss=state, save=save)
"""
# All that a beginning does to files that it names by a whole path.
LOGS = """
import csv, json, logging, os, pathlib, shutil, sys
there = pathlib.Path(sys.argv[1])
os.makedirs(there / "run")
if (there / "old.txt").exists():
    os.remove(there / "old.txt")
log = open(there / "log.txt", "w")
log.write("begun\\n")
handler = logging.FileHandler(there / "run" / "handler.log")
logging.getLogger().addHandler(handler)
logging.warning("begun")
rows = open(there / "shared.csv", "a", newline="")
csv.writer(rows).writerow(["begun"])
both = os.open(there / "both.bin", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(both, b"head")
(there / "run" / "config.json").write_text("{}")
assert (there / "run" / "config.json").read_text() == "{}"
(there / "best.tmp").write_text("none")
os.replace(there / "best.tmp", there / "best.txt")
"""
LOGGING = """log.write(f"step {step}\\n"); logging.warning("step %d", step)
    csv.writer(rows).writerow([step]); os.write(both, bytes([step]))
    log.flush(); rows.flush()
    best = there / "best.tmp"
    if step == 1: best.write_text("best"); os.replace(best, there / "best.txt")
    (there / "old.txt").write_text(str(step))"""


def run(trial: Trial, *steps: int) -> None:
    """A trial ended at these boundaries, and gone on with."""
    trial.launch()
    complete(trial, *steps)


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("steps", [(1,), (2, 3, 5)], ids=str)
def test_files_outside_are_those_of_a_run_that_was_not_ended(
    make_trial: MakeTrial, tmp_path: Path, steps: tuple[int, ...]
) -> None:
    program = LOGS + TRAINING.replace("{step}", LOGGING)
    folders = [tmp_path / "elsewhere-1", tmp_path / "elsewhere-2"]
    for folder, suspends in zip(folders, ((), steps), strict=True):
        folder.mkdir()
        run(make_trial(program, str(folder)), *suspends)
    undisturbed, ended = map(contents, folders)
    assert undisturbed["log.txt"].startswith(b"begun\nstep 1\n")
    assert undisturbed["shared.csv"] == b"begun\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n"
    assert ended == undisturbed


def test_what_others_have_added_meanwhile_stays(make_trial: MakeTrial, tmp_path: Path) -> None:
    """Back at an older checkpoint, it has added its own rows twice, and cut none of theirs."""
    (tmp_path / "all").mkdir()
    program = LOGS + TRAINING.replace("{step}", LOGGING)
    trial = make_trial(program, str(tmp_path / "all")).launch()
    trial.start(limit=2)
    trial.until("parked")
    trial.send("checkpoint", id="older")
    checkpoint = trial.until("checkpointed")["path"]
    trial.resume(limit=4)
    trial.until("parked")
    trial.send("kill")
    trial.until("suspended")
    with open(tmp_path / "all" / "shared.csv", "a") as file:
        file.write("another's\r\n")
    trial.start(restore=checkpoint)
    trial.until("completed")
    rows = (tmp_path / "all" / "shared.csv").read_text().split()
    assert rows == ["begun", "1", "2", "3", "4", "another's", "3", "4", "5", "6"]
    log = (tmp_path / "all" / "log.txt").read_text()
    assert log == "begun\n" + "".join(f"step {step}\n" for step in range(1, 7))


TEMPORARY = """
import json, os, pathlib, tempfile
from multiprocessing.shared_memory import SharedMemory
made = pathlib.Path(tempfile.mkdtemp(prefix="made-"))
entered = tempfile.TemporaryDirectory(prefix="entered-")
file = tempfile.NamedTemporaryFile("w", prefix="file-")
named = SharedMemory(create=True, size=64, name=os.environ["SEGMENT"])
other = SharedMemory(create=True, size=64)
log = open(made / "log", "w")
log.write("begun\\n")
with open("segments", "a") as segments:
    segments.write(f"{other.name}\\n")
"""
TEMPORARILY = """log.write(f"{step}\\n"); log.flush()
    pathlib.Path(entered.name, "best").write_text(str(step)); file.write(str(step)); file.flush()"""
ENDED = """
log.close()
print("END", (made / "log").read_text().split(), os.listdir(entered.name))
print("FILE", pathlib.Path(file.name).read_text())
for one in (named, other):
    one.close()
    one.unlink()
"""


def test_what_is_temporary_is_found_again_and_nothing_is_left(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    there = tmp_path / "tmp"
    there.mkdir()
    segment = f"hermes-test-{os.getpid()}"
    program = TEMPORARY + TRAINING.replace("{step}", TEMPORARILY) + ENDED
    trial = make_trial(program, env=environment(TMPDIR=str(there), SEGMENT=segment)).launch()
    restore = None
    for step in (2, 3, 5):
        trial.start(restore=restore, limit=step)
        trial.until("parked")
        assert (Path("/dev/shm") / segment).exists()
        restore = suspend(trial)["checkpoint"]["path"]
        assert not (Path("/dev/shm") / segment).exists()
        assert sorted(path.name[:4] for path in there.iterdir()) == ["ente", "file", "made"]
    trial.start(restore=restore)
    trial.until("completed")
    assert "END ['begun', '1', '2', '3', '4', '5', '6'] ['best']" in trial.output
    assert "FILE 123456\n" in trial.output
    for name in (trial.directory / "work" / "segments").read_text().split():
        assert not (Path("/dev/shm") / name).exists()
    assert [path.name[:4] for path in there.iterdir()] == ["made"]
