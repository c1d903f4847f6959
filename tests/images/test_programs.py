"""Programs of any kind, suspended as images wherever they are: they come to the same."""

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
    trial = WorldTrial(tmp_path / "t", argv(program), criu=tool)
    lay_out(program, trial.directory / "work")
    suspended_again_and_again(trial, len(output))
    assert trial.output == output
    assert files_in(trial.directory / "work") == files
