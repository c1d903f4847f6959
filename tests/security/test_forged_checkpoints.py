"""What a program puts in the place of its checkpoints neither stops its node nor misleads it.

The node's daemon reads no more of a checkpoint than its manifest and the sums of its files: what
frameworks make of those is their programs' matter, under their own accounts.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hermesd.node import head_messages
from hermesd.node.storage import checkpoints
from hermesd.node.storage.checkpoints import MANIFEST, DamagedCheckpoint
from hermesd.node.storage.trial_folder import TrialFolders
from tests.security.test_hostile_images import ANYTHING, places

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SOUND = {
    "version": 1,
    "step": 5,
    "attempt": 1,
    "created_utc": "2026-11-26T12:00:00.000+00:00",
    "form": "image",
    "why": "no adapter",
    "gpu": "",
    "files": {"a/b": {"sha256": EMPTY, "bytes": 0}},
}
NAMES = st.text(st.sampled_from("ab./\0\ud800"), max_size=8)


def forged(folder: Path, manifest: object) -> Path:
    """A checkpoint of one empty file that says this."""
    path = folder / "s5"
    (path / "a").mkdir(parents=True)
    (path / "a" / "b").touch()
    (path / MANIFEST).write_text(json.dumps(manifest))
    return path


@given(st.sampled_from(sorted(places(SOUND))), ANYTHING | NAMES | st.dictionaries(NAMES, ANYTHING))
def test_whatever_a_manifest_says_it_is_damaged_or_sound(
    place: tuple[str, ...], said: object
) -> None:
    manifest = copy.deepcopy(SOUND)
    *above, last = place
    inside: dict[str, object] = manifest
    for name in above:
        inside = inside[name]  # type: ignore[assignment]
    inside[last] = said
    with tempfile.TemporaryDirectory() as root:
        path = forged(Path(root), manifest)
        with suppress(DamagedCheckpoint):
            found = checkpoints.verified(path)
            assert (found.size_bytes, type(found.step)) == (0, int)
            json.dumps(found.frame).encode()
        assert checkpoints.furthest(Path(root))[0] >= 0
        assert len(list(checkpoints.newest(Path(root)))) <= 1
        checkpoints.prune(Path(root))


@pytest.mark.parametrize("name", ["a/" * 500_000 + "b", "a" * 300, "\ud800", "a/../b", "a//b"])
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_made_of_it(
    tmp_path: Path, name: str
) -> None:
    path = forged(tmp_path, SOUND | {"files": {name: {"sha256": EMPTY, "bytes": 0}}})
    with pytest.raises(DamagedCheckpoint, match="names no step and files"):
        checkpoints.verified(path)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b/c", "a/b"), ("a", "a!", "a/b")])
def test_no_file_lies_in_another(tmp_path: Path, names: tuple[str, ...]) -> None:
    files = {name: {"sha256": EMPTY, "bytes": 0} for name in names}
    with pytest.raises(DamagedCheckpoint, match="names no step and files"):
        checkpoints.verified(forged(tmp_path, SOUND | {"files": files}))


def test_a_manifest_of_many_deep_names_takes_no_memory_for_their_folders(tmp_path: Path) -> None:
    deep = {f"{n}/" + "a/" * 2_000 + "b": {"sha256": EMPTY, "bytes": 0} for n in range(2_000)}
    with pytest.raises(DamagedCheckpoint, match="No such file"):
        checkpoints.verified(forged(tmp_path, SOUND | {"files": deep}))


def _listen(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)


INSTEAD: dict[str, Callable[[str], None]] = {
    "pipe": os.mkfifo,
    "socket": _listen,
    "folder": os.mkdir,
    "circle": lambda name: os.symlink(name, name),
    "endless": lambda name: os.symlink("/dev/zero", name),
    "descriptor": lambda name: os.symlink("/proc/self/fd/0", name),
    "long": lambda name: os.symlink("a" * 300, name),
}


@pytest.mark.parametrize("kind", INSTEAD)
@pytest.mark.parametrize("place", [MANIFEST, "a/b"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, place: str, kind: str) -> None:
    forged(tmp_path, SOUND | {"step": 4}).rename(tmp_path / "s4")
    path = forged(tmp_path, SOUND)
    (path / place).unlink()
    with chdir((path / place).parent):  # a socket's name must be short
        INSTEAD[kind](Path(place).name)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(DamagedCheckpoint, match="s5"):
        checkpoints.verified(path)
    assert os.listdir("/proc/self/fd") == before, "nor does it keep a descriptor open"
    assert checkpoints.furthest(tmp_path) == ((4, 1) if place == MANIFEST else (5, 1))
    assert [found.step for found in checkpoints.newest(tmp_path)] == [4], "the one before counts"


@pytest.mark.parametrize(
    ("said_bytes", "why"), [(0, "its manifest says {'sha256'"), (1 << 46, "the disk has")]
)
def test_what_would_be_read_for_days_is_not_begun(
    tmp_path: Path, said_bytes: int, why: str
) -> None:
    path = forged(tmp_path, SOUND | {"files": {"a/b": {"sha256": EMPTY, "bytes": said_bytes}}})
    with suppress(OSError):  # a file system may have none that large
        os.truncate(path / "a" / "b", 1 << 43)
    os.truncate(path / "a" / "b", max(1 << 40, os.path.getsize(path / "a" / "b")))
    with pytest.raises(DamagedCheckpoint, match=why):
        checkpoints.verified(path)


def test_what_grows_while_it_is_read_is_read_no_further(tmp_path: Path) -> None:
    # Of size 0, and yet there is something to be read.
    assert checkpoints._measure(Path("/proc/self/status"), 0)["bytes"] == 1
    path = forged(tmp_path, SOUND)
    (path / "a" / "b").write_bytes(b"x" * 1_000_000)
    checkpoints.copy(path, tmp_path, tmp_path / "copy", tmp_path)
    assert os.path.getsize(tmp_path / "copy" / "a" / "b") == 1
    with pytest.raises(DamagedCheckpoint, match="a/b is"):
        checkpoints.verified(tmp_path / "copy")


def test_a_checkpoint_that_cannot_be_read_costs_the_head_no_word_of_the_others(
    tmp_path: Path,
) -> None:
    folders = TrialFolders(tmp_path / "trials", tmp_path / "run")
    for trial in ("t/0", "t/1"):
        forged(folders.of(trial).checkpoints, SOUND)
    unread = folders.of("t/0").checkpoints / "s5" / MANIFEST
    unread.unlink()
    unread.symlink_to("/proc/self/mem")  # whose first page is an error to read
    with capture_logs() as said:
        held = list(head_messages._held(folders))
    assert [(each.trial, each.checkpoint_step) for each in held] == [("t/0", 0), ("t/1", 5)]
    assert [each["trial"] for each in said] == ["t/0"]
    assert "Input/output error" in said[0]["error"]


def test_a_disk_that_does_not_say_how_large_it_is_has_room_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"a/b": {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}}
    path = forged(tmp_path, SOUND | {"files": whole})
    (path / "a" / "b").write_bytes(b"x")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0))
    assert checkpoints.verified(path).size_bytes == 1
