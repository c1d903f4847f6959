"""Programs of any kind, suspended as images wherever they are, on one node and then on another:
they come to the same."""

from __future__ import annotations

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
from tests.images.programs import PROGRAMS

pytestmark = pytest.mark.image


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
        "deleted open file",
    ],
)
def test_a_program_that_goes_back_to_an_image_comes_to_the_same(
    name: str, tmp_path: Path, tool: str
) -> None:
    program = PROGRAMS[name]
    output, files = undisturbed(program, tmp_path / "plain")
    trial, path = WorldTrial(tmp_path / "t", argv(program), criu=tool), None
    lay_out(program, trial.directory / "work")
    try:
        for is_saved in (True, False):
            trial.launch()
            trial.start(restore=path)
            trial.until("started")
            wait_for_more(trial, len(output) // 4)
            if is_saved:
                trial.suspend("checkpoint")
                path = trial.until("suspended")["checkpoint"]["path"]
            trial.end()
        trial.launch()
        trial.start(restore=path)
        trial.until("completed")
        trial.quit()
    finally:
        trial.end()
    assert trial.output == output
    assert files_in(trial.directory / "work") == files
