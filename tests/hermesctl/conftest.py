"""A head that answers, and an environment in which it is the one that is found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermesctl.invocation import named_head
from tests.hermesctl.fake_head import FakeHead, HeadThread


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A command that a test runs in this process names the head for the rest of the process."""
    before = named_head.set("")
    yield
    named_head.reset(before)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short state directory of this test's own, with no head in it."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        for name in ("HERMES_HEAD", "HERMES_TOKEN_FILE", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HERMES_STATE", folder)
        yield Path(folder)


@pytest.fixture
def serving(state: Path) -> Iterator[HeadThread]:
    """The fake head, serving where the embedded one would."""
    thread = HeadThread(state / "head.sock")
    yield thread
    thread.close()


@pytest.fixture
def head(serving: HeadThread) -> FakeHead:
    """The fake head."""
    return serving.head


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a program and a study file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "study.yaml").write_text(
        "name: digits\nprogram: train.py\nmethod: grid\nmetric: val_loss\n"
        "parameters:\n  lr:\n    values: [0.1, 0.05]\n"
    )
    return folder
