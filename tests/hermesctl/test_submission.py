"""Where a study's program is looked for, and what its paths become."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from hermesctl.errors import StudyFileError, UsageError
from hermesctl.study_file.submission import (
    from_data,
    from_document,
    inherited_environment,
    interpreter,
    open_study,
    program_sha256,
)
from hermesctl.study_file.trees import tree_of
from hermesctl.study_file.write import study_data
from hermesd.pb.hermes.v1.types_pb2 import StudySpec


def test_the_program_is_found_beside_the_file_or_in_the_present_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sweeps = project / "sweeps"
    sweeps.mkdir()
    file = sweeps / "lr.yaml"
    file.write_text("program: train.py\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyFileError, match=f"expected a file below {sweeps}"):
        from_document(open_study(file), sweeps, Path.cwd())
    monkeypatch.chdir(project)
    assert from_document(open_study(file), sweeps, Path.cwd()).directory == project
    (sweeps / "train.py").touch()
    assert from_document(open_study(file), sweeps, Path.cwd()).directory == sweeps


def test_a_module_of_a_command_is_found_as_a_program_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "package" / "tool").mkdir(parents=True)
    (project / "package" / "fit.py").write_text("1")
    (project / "package" / "tool" / "__main__.py").write_text("2")
    file = project / "sweeps" / "lr.yaml"
    file.parent.mkdir()
    monkeypatch.chdir(project)
    for module, text in (("package.fit", b"1"), ("package.tool", b"2")):
        file.write_text(f"command: python -m {module} ${{args}}\n")
        prepared = from_document(open_study(file), file.parent, Path.cwd())
        assert prepared.directory == project
        assert program_sha256(prepared) == hashlib.sha256(text).hexdigest()


def test_a_program_of_any_kind_that_can_be_run_is_a_study(project: Path) -> None:
    file = project / "search.sh"
    file.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"a program of another kind that can be run \(chmod"):
        open_study(file)
    file.chmod(0o755)
    prepared = from_document(open_study(file), project)
    assert list(prepared.spec.command) == ["./search.sh", "${args}"]
    assert (prepared.spec.name, prepared.directory) == ("search", project)


def test_an_absolute_program_brings_its_own_directory(project: Path, tmp_path: Path) -> None:
    prepared = from_data({"program": str(project / "train.py")}, tmp_path)
    assert prepared.directory == project
    assert prepared.spec.program == "train.py"


def test_a_path_with_dots_or_a_link_is_the_directory_that_it_leads_to(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    (tmp_path / "link").symlink_to(project)
    file = Path("../project/study.yaml")
    for home in (file.absolute().parent, tmp_path / "link"):
        prepared = from_document(open_study(file), home)
        assert (prepared.directory, prepared.spec.program) == (project, "train.py")
    dotted = f"{tmp_path}/docs/../project/train.py"
    assert from_data({"program": dotted}, tmp_path).directory == project


def test_an_interpreter_that_is_not_there_has_its_line(project: Path) -> None:
    file = project / "study.yaml"
    for python in ("no-such-python", "./no/such/python"):
        file.write_text(f"program: train.py\npython: {python}\n")
        words = f"{file}:2:1: python: {python}: expected an interpreter that can be run"
        with pytest.raises(StudyFileError, match=words):
            from_document(open_study(file), project)


def test_what_lies_at_the_path_of_an_interpreter_is_for_the_nodes_to_say(project: Path) -> None:
    """They may have one that this machine has not."""
    file = project / "study.yaml"
    file.write_text("program: train.py\npython: /data/envs/x/bin/python\n")
    prepared = from_document(open_study(file), project)
    theirs = prepared.spec.python
    assert interpreter(theirs, project, here=False) == "/data/envs/x/bin/python"
    with pytest.raises(UsageError, match="/data/envs/x/bin/python: expected an interpreter that"):
        interpreter(theirs, project, here=True)


def test_a_command_without_a_program_is_run_where_its_script_is(project: Path) -> None:
    prepared = from_data({"command": "python train.py ${args}"}, project)
    assert prepared.directory == project


def test_data_is_checked_and_made_independent_of_the_directory(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    (project / "labels.csv").touch()
    spec = {"program": "train.py", "data": ["labels.csv", "../images", str(tmp_path)]}
    prepared = from_data(spec, project)
    assert list(prepared.spec.data) == ["labels.csv", str(tmp_path / "images"), str(tmp_path)]
    assert prepared.notes == (
        f"data: ../images is not below {project}, so trials don't find it there; have the program"
        f" read {tmp_path / 'images'}",
    )


def test_requirements_travel_as_text(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==2.5\n\n")
    spec = from_data({"program": "train.py", "requirements": "requirements.txt"}, project).spec
    assert spec.requirements == "torch==2.5\n"
    again = from_data(study_data(spec), project).spec  # as a study from a head
    assert again.requirements == spec.requirements
    (project / "requirements.txt").write_text(" \n")
    for name in ("requirements.txt", "requirement.txt"):
        with pytest.raises(
            StudyFileError, match=r"expected a requirements file in .*, or its lines as a block"
        ):
            from_data({"program": "train.py", "requirements": name}, project)


def test_a_program_may_not_leave_its_directory(project: Path) -> None:
    (project.parent / "above.py").touch()
    with pytest.raises(StudyFileError, match="expected a file below"):
        from_data({"program": "../above.py"}, project)


def test_interpreters(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter("", project, here=True) == sys.executable
    assert Path(interpreter("sh", project, here=True)).is_absolute()
    (project / "py").symlink_to(sys.executable)
    assert interpreter("./py", project, here=True) == str(project / "py")
    with pytest.raises(UsageError, match="expected an interpreter"):
        interpreter("./train.py", project, here=True)


def test_trials_inherit_what_a_framework_reads() -> None:
    """Without this one, PyTorch does not repeat itself on a GPU."""
    mine = {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "JAX_ENABLE_X64": "1",
        "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
        "EDITOR": "vi",
        "KERAS_TOKEN": "secret",
    }
    found = inherited_environment(StudySpec(), mine)
    assert set(found) == {"CUBLAS_WORKSPACE_CONFIG", "JAX_ENABLE_X64", "XLA_FLAGS"}


def test_a_dict_may_hold_numpys_numbers_and_nothing_stranger() -> None:
    data = {"a": np.float64(0.5), "b": np.int64(3), "c": (np.float32(0.5), True, None)}
    assert str(tree_of(data, "study"))
    for bad in (float("nan"), 2**63, {1: 2}, object(), b"x", {"x": {1, 2}}):
        with pytest.raises(StudyFileError, match="expected"):
            tree_of({"a": bad}, "study")
