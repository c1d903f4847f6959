"""Programs of any kind, suspended as images wherever they are, on one node and then on another:
they come to the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.images.driving import (
    WorldTrial,
    argv,
    criu,
    files_in,
    lay_out,
    missing,
    suspended_again_and_again,
    undisturbed,
    wait_for_more,
)
from tests.images.programs import PROGRAMS, Program, python
from tests.trainer_shim.driving import environment

pytestmark = pytest.mark.image

ELSEWHERE = """
written, added = open("../../elsewhere/written", "w"), open("../../elsewhere/added", "a")
for step in range(70):
    for file in (written, added): print(step, file=file, flush=True)
    print(step, flush=True); rest()
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> str:
    return criu(tmp_path_factory.mktemp("criu"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_suspended_as_an_image_comes_to_the_same(
    name: str, tmp_path: Path, tool: str
) -> None:
    program = PROGRAMS[name]
    if lacks := missing(program):
        pytest.skip(f"no {lacks} here")
    output, files = undisturbed(program, tmp_path / "plain")
    here, there = (
        WorldTrial(tmp_path / node, argv(program), criu=tool, trial="test/t") for node in "ab"
    )
    for trial in (here, there):
        lay_out(program, trial.directory / "work")
    if program.stays:
        with pytest.raises(AssertionError, match=program.stays):
            suspended_again_and_again(here, len(output), there)
        return
    assert suspended_again_and_again(here, len(output), there) == output
    assert files_in(there.directory / "work") == files


@pytest.mark.parametrize(
    "name",
    [
        "sqlite",
        "sqlite in wal",
        "grows a file",
        "appends",
        "renames",
        "removes",
        "mmap",
        "fifo",
        "unix server",
        "temporary files",
        "temporary socket",
        "temporary database",
        "deleted open file",
        "shared memory as a folder",
    ],
)
def test_a_program_that_goes_back_to_an_image_comes_to_the_same(
    name: str, tmp_path: Path, tool: str
) -> None:
    program = PROGRAMS[name]
    output, files = undisturbed(program, tmp_path / "plain")
    trial = WorldTrial(tmp_path / "t", argv(program), criu=tool)
    assert _gone_back(trial, program, len(output) // 4) == output
    assert files_in(trial.directory / "work") == files


SHARED = """
import sqlite3
table = open("../../elsewhere/table", "r+")
database = sqlite3.connect("../../elsewhere/rows.db")
for step in range(70):
    table.seek(0, 2); print(step, file=table, flush=True)
    rows = database.execute("select count(*) from rows").fetchone()
    print(step, flush=True); rest()
table.seek(0, 2); print(*rows, file=table)
"""


def test_what_it_shares_with_others_elsewhere_is_found_as_it_is_by_then(
    tmp_path: Path, tool: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "table").touch()
    with closing(sqlite3.connect(elsewhere / "rows.db")) as database:
        database.execute("create table rows (blob)")
        output = "".join(f"{step}\n" for step in range(70))
        trial = WorldTrial(tmp_path / "t", argv(python(SHARED)), criu=tool)

        def grow() -> None:
            with database:
                database.executemany("insert into rows values (zeroblob(?))", [(4000,)] * 200)

        assert _gone_back(trial, python(SHARED), len(output) // 4, grow) == output
    reason = [event["reason"] for event in trial.events if event["kind"] == "fidelity"][-1]
    assert f", but not {elsewhere}/rows.db, {elsewhere}/table, on machines" in reason
    *written, last = (elsewhere / "table").read_text().split()
    assert len(written) > 70, "it was not set back"
    assert list(dict.fromkeys(written)) == output.split()
    assert last == "200", "it has not seen what others have written"


def test_files_elsewhere_are_cut_if_a_program_that_goes_back_writes_them_and_not_if_it_adds_to_them(
    tmp_path: Path, tool: str
) -> None:
    program, elsewhere = python(ELSEWHERE), tmp_path / "elsewhere"
    elsewhere.mkdir()
    output = "".join(f"{step}\n" for step in range(70))
    trial = WorldTrial(tmp_path / "t", argv(program), criu=tool)
    assert _gone_back(trial, program, len(output) // 4) == output
    assert (elsewhere / "written").read_text() == output
    added = (elsewhere / "added").read_text()
    assert added != output
    assert list(dict.fromkeys(added.split())) == output.split()


def test_a_place_for_temporary_files_that_is_not_held_is_named(tmp_path: Path, tool: str) -> None:
    program = PROGRAMS["temporary files"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place, said in ((elsewhere, f", but not its TMPDIR ({elsewhere})"), (".", "")):
        trial = WorldTrial(
            tmp_path / f"t{len(said)}",
            argv(program),
            environment(TMPDIR=str(place)),
            criu=tool,
            temporary="",
        )
        lay_out(program, trial.directory / "work")
        trial.launch()
        trial.start()
        reason = trial.until("fidelity")["reason"]
        trial.until("completed")
        trial.quit()
        held = f"images hold its processes and its working copy{said}, on machines of one kind"
        assert reason == held


@pytest.mark.parametrize(
    ("end", "kind", "checkpoint", "are_left"),
    [
        ("", "completed", "of a framework", False),
        ("; exit(3)", "failed", "", False),
        # A retry from there may look for them, and finds the names that they had.
        ("; exit(3)", "failed", "of a framework", True),
    ],
)
def test_temporary_files_are_left_only_where_a_retry_may_look_for_them(
    tmp_path: Path, tool: str, end: str, kind: str, checkpoint: str, are_left: bool
) -> None:
    program = python(f"import os, tempfile; print(os.path.realpath(tempfile.mkdtemp())){end}")
    trial = WorldTrial(tmp_path / "t", argv(program), criu=tool)
    lay_out(program, trial.directory / "work")
    trial.launch()
    (Path(trial.checkpoints) / checkpoint).mkdir(exist_ok=True)
    trial.start()
    assert "its working copy and its TMPDIR" in trial.until("fidelity")["reason"]
    trial.until(kind)
    trial.quit()
    made = Path(trial.output.strip())
    assert made.parent == trial.directory / "tmp"
    assert made.parent.exists() is are_left


def _gone_back(
    trial: WorldTrial,
    program: Program,
    letters: int,
    meanwhile: Callable[[], object] = lambda: None,
) -> str:
    """What the program prints if it is killed after it has printed so many letters more than when
    an image of it was made, and goes on from that."""
    lay_out(program, trial.directory / "work")
    path = None
    try:
        for is_saved in (True, False):
            trial.launch()
            trial.start(restore=path)
            trial.until("started")
            wait_for_more(trial, letters)
            if is_saved:
                trial.suspend("checkpoint")
                path = trial.until("suspended")["checkpoint"]["path"]
                meanwhile()
            trial.end()
        trial.launch()
        trial.start(restore=path)
        trial.until("completed")
        trial.quit()
    finally:
        trial.end()
    return trial.output
