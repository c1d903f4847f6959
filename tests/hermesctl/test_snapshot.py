"""Code snapshots: the same content is the same bytes, and what stays behind stays behind."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesctl.errors import SnapshotError
from hermesctl.study_file.regular_files import open_regular
from hermesctl.study_file.snapshot import IgnoreRules, snapshot
from tests.deep_trees import dig


def names(directory: Path, *data: str) -> list[str]:
    with snapshot(directory, data) as packed, tarfile.open(fileobj=packed.tar) as tar:
        assert packed.files == len(tar.getnames())
        return tar.getnames()


def write(root: Path, *files: str) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_the_same_content_is_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, "b.py", "a/x.py", "é.txt")
    write(two, "é.txt", "a/x.py", "b.py")
    os.utime(two / "b.py", (1, 1))
    (two / "a" / "x.py").chmod(0o600)
    with snapshot(one) as first, snapshot(two) as second:
        assert first.sha256 == second.sha256
        assert first.tar.read() == second.tar.read()
    (two / "b.py").chmod(0o755)
    with snapshot(one) as first, snapshot(two) as second:
        assert first.sha256 != second.sha256


def test_the_study_s_own_file_travels_and_is_no_part_of_the_code_s_identity(
    tmp_path: Path,
) -> None:
    write(tmp_path, "train.py", "lib/net.py")
    with snapshot(tmp_path) as bare:
        assert bare.identity == bare.sha256
    write(tmp_path, "study.yaml")
    own = [tmp_path / "lib" / ".." / "study.yaml"]
    with snapshot(tmp_path, own_files=own) as packed, tarfile.open(fileobj=packed.tar) as tar:
        assert "study.yaml" in tar.getnames()
        assert packed.sha256 != bare.sha256
        assert packed.identity == bare.sha256
    write(tmp_path, "lib/more.py")
    with snapshot(tmp_path, own_files=own) as packed:
        assert packed.identity not in (bare.sha256, packed.sha256)


def test_what_is_rebuilt_and_what_is_named_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/net.py", "lib/notes.txt", "keep.log", "run.log", "data/big")
    write(tmp_path, ".git/HEAD", "lib/__pycache__/x.pyc", "my env/pyvenv.cfg", "my env/bin/python")
    write(tmp_path, "out/a", "deep/out/b", "deep/down/out.txt", "node_modules/x", "cache/x")
    (tmp_path / ".hermesignore").write_text("# mine\n*.log\n!keep.log\n/out/\nlib/*.txt\n")
    assert names(tmp_path, "data", str(tmp_path / "cache")) == [
        *(".hermesignore", "deep/down/out.txt", "deep/out/b", "keep.log", "lib/net.py"),
        "train.py",
    ]


def test_links_travel_as_what_the_program_sees(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "train.py", "real.txt")
    write(tmp_path, "outside.txt", "folder/x")
    (root / "inside").symlink_to("real.txt")
    (root / "copied").symlink_to(tmp_path / "outside.txt")
    (root / "dangling").symlink_to("/nowhere/at/all")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(root / "s"))
        with snapshot(root) as packed, tarfile.open(fileobj=packed.tar) as tar:
            members = {m.name: m for m in tar.getmembers()}
            content = tar.extractfile("copied")
            assert content is not None
            assert content.read() == b"outside.txt"
    assert sorted(members) == ["copied", "inside", "real.txt", "train.py"]
    assert members["inside"].linkname == "real.txt"
    (root / "folder").symlink_to(tmp_path / "folder")
    with pytest.raises(SnapshotError, match=r"folder: a link to a directory outside .* `data:`"):
        names(root)
    assert "folder/x" not in names(root, "folder")


def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "outside").symlink_to("/dev/zero")
    assert names(tmp_path) == ["link", "train.py"]
    os.mkfifo(tmp_path / ".hermesignore")
    with pytest.raises(SnapshotError, match=r"\.hermesignore: not readable: .*a named pipe"):
        names(tmp_path)


def test_a_file_that_became_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "train.py")
    before = os.stat(tmp_path / "train.py")
    (tmp_path / "train.py").unlink()
    os.mkfifo(tmp_path / "train.py")
    monkeypatch.setattr(os, "stat", lambda path: before)
    with pytest.raises(OSError, match="a named pipe"):
        open_regular(tmp_path / "train.py")


def test_a_state_directory_inside_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "state/local.log", "state/node/lock", "state/node/shim/readme")
    (tmp_path / "state" / "node" / "shim" / "trainer_shim").symlink_to(Path(__file__).parent)
    write(tmp_path, "head only/head.lock", "head only/journal.db", "heads/train.py")
    assert names(tmp_path) == ["heads/train.py", "train.py"]
    with pytest.raises(SnapshotError, match="Hermes keeps its state in this one"):
        names(tmp_path / "state")


def test_a_snapshot_that_is_too_large_names_its_largest_entries(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(bytes(5000))
    (tmp_path / "video.mp4").write_bytes(bytes(9000))
    with (
        pytest.raises(SnapshotError) as caught,
        snapshot(tmp_path, size_bytes_max=10_000),
    ):
        pass
    assert "Largest: video.mp4 (8.8 KiB), weights/ (4.9 KiB), train.py (8 B)" in str(caught.value)
    with snapshot(tmp_path, ("weights",), size_bytes_max=10_000) as packed:
        assert packed.files == 2


def test_directories_without_end_are_refused_by_name_and_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    dig(tmp_path / "data", 600)
    with pytest.raises(SnapshotError, match=r"data/ holds more than 200 .*\.hermesignore"):
        names(tmp_path)
    assert names(tmp_path, "data") == ["train.py"]
    write(tmp_path, "d/" * 200 + "deep.py")
    assert len(names(tmp_path, "data")) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "secret")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(SnapshotError, match=r"secret: Permission denied.*\.hermesignore"):
        names(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "name", "is_folder", "ignored"),
    [
        ("*.log", "a/b.log", False, True),
        ("*.log", "a/b.log.txt", False, False),
        ("/a", "a", False, True),
        ("/a", "b/a", False, False),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("**/x", "a/b/x", False, True),
        ("a/**/x", "a/x", False, True),
        ("a/**", "a/b/c", False, True),
        ("?.py", "a.py", False, True),
        ("?.py", "ab.py", False, False),
        ("[ab].py", "b.py", False, True),
        ("[!ab].py", "b.py", False, False),
        ("a+b", "a+b", False, True),
        ("[", "[", False, False),
        ("[[]a]", "[a]", False, True),
        ("[]a]", "]", False, True),
        ("a[!b]c", "a/c", False, False),
        (r"\#x", "#x", False, True),
        (r"\!x", "!x", False, True),
        (r"a\*", "ab", False, False),
        ("x  ", "x", False, True),
        ("x\\  ", "x ", False, True),
        ("data/**", "data", True, False),
        ("data/**", "data/raw/a", False, True),
        ("a/**/b", "a/b", False, True),
        ("a/**/b", "a/x/y/b", False, True),
        ("a**b", "a/b", False, False),
        ("# x", "# x", False, False),
        ("x.pyc", "y.pyc", False, True),  # built in
    ],
)
def test_patterns(pattern: str, name: str, is_folder: bool, ignored: bool) -> None:
    assert IgnoreRules((pattern,)).ignores(name, is_folder) is ignored


def test_code_alone_travels_where_everything_but_folders_and_code_is_ignored(
    tmp_path: Path,
) -> None:
    write(tmp_path, "train.py", "notes.txt", "models/a/net.py", "models/net.bin", "data/make.py")
    (tmp_path / ".hermesignore").write_text("*\n!*/\n!*.py\ndata/\n")
    assert names(tmp_path) == ["models/a/net.py", "train.py"]


def test_a_file_travels_that_is_taken_back_of_all_that_is_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "data/keep.csv", "data/large.csv", "data/raw/large.csv")
    (tmp_path / ".hermesignore").write_text("data/**\n!data/keep.csv\n")
    assert names(tmp_path) == [".hermesignore", "data/keep.csv", "train.py"]


def test_a_folder_that_is_taken_back_takes_back_no_file_in_it() -> None:
    rules = IgnoreRules(("*.log", "!runs/"))
    assert not rules.ignores("runs", True)
    assert rules.ignores("runs/a.log", False)


_PARTS = (
    "a",
    "b",
    "ab",
    "*",
    "**",
    "?",
    "a*",
    "*.py",
    "[ab]",
    "[!a]",
    "x y",
    "\\#h",
    "\\!n",
    "\\ ",
)
_patterns = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "!"]),
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**", " "]),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of files, three folders deep, of which git can say what it would not ignore."""
    if shutil.which("git") is None:
        pytest.skip("no git here")
    root = tmp_path_factory.mktemp("repository") / "tree"
    subprocess.run(["git", "init", "--quiet", "--bare", root.with_name("git")], check=True)
    folders = ("a", "ab", "#h", "!n", "x y")
    for path in (*folders, *(f"{a}/{b}" for a in folders for b in folders)):
        write(root, *(f"{path}/{name}" for name in ("b", "a.py", "x ", "[a]")))
    return root


@settings(max_examples=60, deadline=None)
@given(st.lists(_patterns, max_size=4))
def test_what_travels_is_what_git_would_not_ignore(repository: Path, lines: list[str]) -> None:
    for name in (".gitignore", ".hermesignore"):
        (repository / name).write_text("\n".join(lines) + "\n")
    command = ["git", "--git-dir", repository.with_name("git"), "--work-tree", ".", "ls-files"]
    command += ["-z", "--others", "--exclude-per-directory", ".gitignore"]
    listed = subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True
    ).stdout
    assert names(repository) == sorted(filter(None, listed.split("\0")))


def test_the_last_pattern_decides() -> None:
    rules = IgnoreRules(("*.log", "!keep.log", "keep.log"))
    assert rules.ignores("keep.log", False)
    assert not IgnoreRules(("*.log", "!keep.log")).ignores("keep.log", False)


@pytest.mark.parametrize("pattern", ["[z-a]", "[[:digit:]].csv"])
def test_a_pattern_that_is_none_is_named(pattern: str) -> None:
    with pytest.raises(SnapshotError, match=rf"{re.escape(pattern)}: expected "):
        IgnoreRules((pattern,))
