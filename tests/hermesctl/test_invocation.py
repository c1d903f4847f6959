"""Commands that are printed can be run as they stand, wherever hermesctl was started from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermesctl.invocation import command


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hermesctl in an environment that is not on PATH."""
    program = tmp_path / ".venv" / "bin" / "hermesctl"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.chdir(tmp_path)
    return program


def test_off_the_path_a_command_is_named_by_its_path(
    started: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert command("best digits") == ".venv/bin/hermesctl best digits"
    monkeypatch.setattr(sys, "argv", [".venv/bin/hermesctl"])
    assert command("best") == ".venv/bin/hermesctl best"
    monkeypatch.setattr(sys, "argv", [str(started)])
    monkeypatch.chdir(started.parent)
    assert command("best") == "./hermesctl best"
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    assert command("best") == f"{started} best"


def test_on_the_path_or_in_a_script_it_is_named_plainly(
    started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(started.parent))
    assert command("best") == "hermesctl best"
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    assert command("best") == "hermesctl best"
