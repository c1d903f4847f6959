"""What `doctor` says of the frameworks that an interpreter has, without importing them."""

from __future__ import annotations

import json
import os
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


def test_preview_tells_it_of_what_the_script_imports(
    head: FakeHead, python: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    flags = ["preview", str(script), "--grid", "lr=1", "--set", f"python={python}"]
    script.write_text("import torch.nn as nn\n")
    told = hermesctl(*flags).stderr
    assert "note: resuming is tested with torch 2.6 to " in told
    assert "this is 2.99.1" in told
    script.write_text("from keras import layers\nimport numpy\n")
    assert "resuming is tested" not in hermesctl(*flags).stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho broken >&2; exit 1", "broken"),
        ("#!/bin/sh\nexit 3", "exit code 3"),
        ("#!/bin/sh\ncat > /dev/null; echo 2.13", "it is no Python"),
        ("#!/no/such/interpreter", "No such file or directory"),
    ],
)
async def test_what_is_no_interpreter_says_so(text: str, why: str, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"{text}\n")
    os.chmod(program, 0o755)
    with pytest.raises(NoInterpreter, match=why):
        await frameworks(str(program))
