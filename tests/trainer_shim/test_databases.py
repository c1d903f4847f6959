"""A database that a program writes to is whole after each resume, however it is written to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial

# Rows long enough for a page each; one transaction is never ended.
PROGRAM = """
import json, os, pathlib, sqlite3, sys
import trainer_shim
mode, use = sys.argv[1:]
def opened():
    found = sqlite3.connect("runs/db.sqlite", isolation_level=None)
    found.execute("pragma busy_timeout = 0")
    return found
os.makedirs("runs", exist_ok=True)
db = opened()
db.execute(f"pragma journal_mode = {mode}")
db.execute("create table if not exists rows (step int, note text)")
trial = trainer_shim.attach()
step = 0
if trial.resume:
    step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps(step))
while step < 6:
    step += 1
    if use == "closed":
        db.close()
        db = opened()
    if not db.in_transaction:
        db.execute("begin")
    db.execute("insert into rows values (?, ?)", (step, "x" * 5000))
    if use != "never ended":
        db.execute("commit")
    if use == "closed":
        db.close()
    trial.report(step, loss=1 / step, save=save)
if use == "never ended":
    db.execute("commit")
"""


def rows(path: Path) -> list[int]:
    """The steps that a database has rows of, once it is known to be whole."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        return [step for (step,) in db.execute("select step from rows order by rowid")]


def set_back(trial: Trial) -> Path:
    """Have a trial saved at its second step, killed at its fourth, and go on from there to its
    end; its working directory."""
    trial.launch().start(limit=2)
    trial.until("parked")
    trial.send("checkpoint", id="second")
    path = trial.until("checkpointed")["path"]
    trial.resume(limit=4)
    trial.until("parked")
    trial.send("kill")
    trial.until("suspended")
    trial.start(restore=path)
    trial.until("completed")
    return trial.directory / "work"


@pytest.mark.parametrize("mode", ["wal", "delete", "persist", "truncate"])
@pytest.mark.parametrize("use", ["open", "closed", "never ended"])
def test_a_database_is_whole_and_has_all_its_rows(
    make_trial: MakeTrial, mode: str, use: str
) -> None:
    """Those of after the checkpoint stay, for a library may not be taken back in time."""
    work = set_back(make_trial(PROGRAM, mode, use))
    after = [3, 4] if use != "never ended" else []
    before = [1, 2] if use != "never ended" else []
    assert rows(work / "runs" / "db.sqlite") == [*before, *after, 3, 4, 5, 6]
    assert not list(work.rglob("*.earlier*"))


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_one_that_was_there_before_the_program_keeps_what_lies_beside_it(
    make_trial: MakeTrial, mode: str
) -> None:
    trial = make_trial(PROGRAM, mode, "open")
    (trial.directory / "work" / "runs").mkdir()
    with closing(sqlite3.connect(trial.directory / "work" / "runs" / "db.sqlite")) as db:
        db.execute("create table rows (step int, note text)")
        db.execute("insert into rows values (0, 'here')")
        db.commit()
    work = set_back(trial)
    assert rows(work / "runs" / "db.sqlite") == [0, 1, 2, 3, 4, 3, 4, 5, 6]


def test_what_a_busy_one_cannot_take_lies_beside_it(make_trial: MakeTrial) -> None:
    """A beginning that leaves a transaction open: nothing can be put into its database then."""
    trial = make_trial(
        PROGRAM.replace(
            "trial = trainer_shim", "db.execute('begin exclusive')\ntrial = trainer_shim"
        ),
        "delete",
        "open",
    )
    work = set_back(trial)
    assert rows(work / "runs" / "db.sqlite") == [3, 4, 5, 6]
    assert rows(work / "runs" / "db.sqlite.earlier") == [1, 2, 3, 4]


def test_another_format_of_that_kind_is_neither_cut_nor_mixed_with_an_older_one(
    make_trial: MakeTrial,
) -> None:
    """HDF5: what is written past Python, into a file that stays open."""
    script = """
import json, os, pathlib
import trainer_shim
fd = os.open("data.h5", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.pwrite(fd, b"\\x89HDF\\r\\n\\x1a\\n", 0)
trial = trainer_shim.attach()
step = 0
if trial.resume:
    step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps(step))
while step < 6:
    step += 1
    os.pwrite(fd, b"%d" % step, 7 + step)
    trial.report(step, loss=1 / step, save=save)
"""
    work = set_back(make_trial(script))
    assert (work / "data.h5").read_bytes().endswith(b"\0\0003456")
    assert (work / "data.h5.earlier").read_bytes().endswith(b"1234")
