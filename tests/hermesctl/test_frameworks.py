"""What `doctor` says of the frameworks that an interpreter has, without importing them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermesctl.commands.frameworks import NoInterpreter, frameworks
from tests.hermesctl.fake_head import FakeHead
from tests.hermesctl.test_cli import hermesctl


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An environment in which installers have left records of these versions, and nothing else."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name, version in (("torch", "2.99.1"), ("tensorflow-cpu", "2.21.0"), ("keras", "3.15.0")):
        record = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder / "bin" / "python"


def _executable(path: Path, text: str) -> Path:
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_untested_versions_are_told_by_doctor(
    head: FakeHead, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(hermesctl("doctor", "--python", str(python), "-o", "json").stdout)
    mine = [each for each in told["checks"] if each["name"] == "trials' python"]
    found, *doubts = [(each["verdict"], each["words"]) for each in mine]
    assert found[0] == "ok"
    assert "torch 2.99.1, keras 3.15.0, tensorflow 2.21.0" in found[1]
    assert ("note", doubts[0][1]) == doubts[0]
    assert doubts[0][1].startswith("resuming is tested with torch 2.6 to ")
    assert "this is 2.99.1" in doubts[0][1]
    assert "only be parked" in mine[1]["remedy"]


def test_a_python_without_a_framework_is_told_what_installs_one(
    head: FakeHead, tmp_path: Path
) -> None:
    """By names that registries know, before a release as after it."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)
    told = json.loads(hermesctl("doctor", "--python", str(bare), "-o", "json").stdout)
    (mine,) = [each for each in told["checks"] if each["name"] == "trials' python"]
    assert "no framework" in mine["words"]
    wanted = r"-m pip install 'tensorflow[<>=.,0-9]+' or 'torch[<>=.,0-9]+'"
    assert re.search(f"{bare} {wanted}", mine["remedy"])


def test_preview_tells_it_of_what_the_script_imports(
    head: FakeHead, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = _executable(python.parent / "hermesctl", "")  # beside it on PATH is the submitter's
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", [str(mine)])
    script = tmp_path / "train.py"
    flags = ["preview", str(script), "--grid", "lr=1"]
    script.write_text("import torch.nn as nn\n")
    told = hermesctl(*flags).stderr
    assert "note: resuming is tested with torch 2.6 to " in told
    assert "this is 2.99.1" in told
    script.write_text("from keras import layers\nimport numpy\n")
    assert "resuming is tested" not in hermesctl(*flags).stderr


def test_preview_runs_no_interpreter_that_the_study_names(head: FakeHead, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    _executable(tmp_path / "python", f"touch {ran}")
    (tmp_path / "train.py").write_text("import torch\n")
    study = tmp_path / "study.yaml"
    study.write_text("program: train.py\npython: ./python\nparameters: {lr: {values: [1]}}\n")
    assert hermesctl("preview", str(study)).exit_code == 0
    assert not ran.exists()


async def test_nothing_of_the_current_folder_is_imported(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "email.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":")  # an empty entry means the current folder, too
    found = await frameworks(str(python))
    assert "torch" in [each.package for each in found]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo broken >&2; exit 1", "broken"),
        ("exit 3", "exit code 3"),
        ("cat > /dev/null; echo 2.13", "it is not a Python"),
        ("#!/no/such/interpreter", "No such file or directory"),
    ],
)
async def test_what_is_no_interpreter_says_so(text: str, why: str, tmp_path: Path) -> None:
    program = _executable(tmp_path / "python", text)
    with pytest.raises(NoInterpreter, match=why):
        await frameworks(str(program))
