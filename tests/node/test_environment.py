"""A trial's environment is its submitter's, except for folders that are none on its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hermesd.node.machine.environment import names_temporary, program_environment
from tests.core.node_talk import WORK


def environment(theirs: Mapping[str, str], mine: Mapping[str, str]) -> dict[str, str]:
    program = replace(WORK.program, environment=tuple(theirs.items()))
    made = program_environment(mine, replace(WORK, program=program), {}, (), Path("/t"))
    return {name: made[name] for name in ("HOME", "USER", "TMPDIR") if name in made}


@pytest.fixture
def mine(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "node"), "USER": "hermes-node", "TMPDIR": "/var/tmp"}


def test_what_can_be_written_here_is_the_submitters(tmp_path: Path, mine: dict[str, str]) -> None:
    theirs = {"HOME": str(tmp_path), "USER": "alice", "TMPDIR": str(tmp_path)}
    assert environment(theirs, mine) == theirs


def test_a_home_of_another_machine_is_none_here(tmp_path: Path, mine: dict[str, str]) -> None:
    theirs = {"HOME": str(tmp_path / "alice"), "USER": "alice", "TMPDIR": str(tmp_path / "gone")}
    assert environment(theirs, mine) == mine
    assert environment(theirs, {}) == {}, "nor is one made up"
    theirs["TMPDIR"] = str(tmp_path)
    assert environment(theirs, mine) == {**mine, "TMPDIR": str(tmp_path)}


def test_a_study_names_the_place_of_temporary_files_if_that_is_here(
    tmp_path: Path, mine: dict[str, str]
) -> None:
    for theirs, is_named in (
        ({}, False),
        ({"TMPDIR": str(tmp_path)}, True),
        ({"TMPDIR": "."}, True),
        ({"TMPDIR": str(tmp_path / "gone")}, False),
    ):
        work = replace(WORK, program=replace(WORK.program, environment=tuple(theirs.items())))
        made = program_environment(mine, work, {}, (), Path("/t"))
        assert names_temporary(work, made) is is_named, theirs
