"""What a user's program puts in the place of files that the daemon of its node reads and writes."""

from __future__ import annotations

import json
import os
import tracemalloc
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest

from hermesd.node.machine import detached
from hermesd.node.storage import trial_folder
from hermesd.node.storage.trial_folder import TrialFolder
from tests.security.test_forged_checkpoints import INSTEAD

SAID = {"kind": "completed", "attempt": 2, "seq": 9}
HUGE = 1 << 42


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/17")
    folder.path.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("kind", INSTEAD)
def test_what_is_no_file_says_nothing_and_is_not_waited_for(folder: TrialFolder, kind: str) -> None:
    with chdir(folder.path):  # a socket's name must be short
        for name in ("events.jsonl", "host.log"):
            INSTEAD[kind](name)
    with suppress(OSError):
        assert folder.outcome(2) is None
        assert folder.backed_checkpoints() == set()
    assert detached.last_words(folder.host_log) == "it printed nothing"


@pytest.mark.parametrize("kind", INSTEAD)
def test_what_lies_where_the_daemon_writes_is_not_written_to(
    folder: TrialFolder, kind: str
) -> None:
    with chdir(folder.path):
        INSTEAD[kind]("spec.partial")
    with suppress(IsADirectoryError):
        folder.write_spec({"trial": "digits/17"})
        assert json.loads(folder.spec.read_text()) == {"trial": "digits/17"}
    assert folder.spec.exists() == (kind != "folder")


def huge(path: Path, end: bytes) -> None:
    """A file of terabytes, most of it a hole."""
    with path.open("wb") as file:
        with suppress(OSError):  # a file system may have none that large
            os.truncate(file.fileno(), HUGE)
        os.truncate(file.fileno(), max(1 << 40, os.fstat(file.fileno()).st_size))
        file.seek(0, os.SEEK_END)
        file.write(end)


def test_of_a_huge_file_only_the_end_is_read(folder: TrialFolder) -> None:
    huge(folder.path / "events.jsonl", f"\n{json.dumps(SAID)}\n".encode())
    huge(folder.host_log, b"the end")
    assert folder.outcome(2) == SAID
    assert detached.last_words(folder.host_log).endswith("the end")


def test_what_a_host_may_write_down_is_read_whole(
    folder: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"kind": "reported", "attempt": 2, "seq": seq} for seq in range(100)] + [SAID]
    text = "\n".join(map(json.dumps, lines))
    (folder.path / "events.jsonl").write_text(text)

    def read() -> list[Any]:
        return [*map(json.loads, folder.reports(2)), folder.outcome(2)]

    monkeypatch.setattr(trial_folder, "WRITTEN_BYTES", len(text))
    assert read() == lines
    monkeypatch.setattr(trial_folder, "WRITTEN_BYTES", len(text) // 2)
    assert read() == lines[-len(read()) :]
    assert 40 < len(read()) < 60
    monkeypatch.setattr(trial_folder, "REPORTS_MAX", 10)
    assert read() == lines[-11:]


def test_reports_are_kept_as_they_are_written(folder: TrialFolder) -> None:
    """Read, a file that a program has filled up takes twenty times the memory, of everybody's."""
    line = json.dumps({"kind": "reported", "attempt": 2, "points": [[]] * 2_000})
    (folder.path / "events.jsonl").write_text(f"{line}\n" * 500)
    tracemalloc.start()
    try:
        assert len(folder.reports(2)) == 500
        assert tracemalloc.get_traced_memory()[1] < 3 * 500 * len(line)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["[]", "{}", "7"])
def test_a_kind_that_is_no_word_says_nothing(folder: TrialFolder, kind: str) -> None:
    (folder.path / "events.jsonl").write_text(f'{{"kind": {kind}, "attempt": 2}}\n')
    assert folder.outcome(2) is None
    assert not folder.reports(2)
