"""A checkpoint is complete or absent, and damage done later is seen."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.node.storage import checkpoints
from tests.deep_trees import TOO_DEEP, dig
from trainer_shim import checkpoint_dir
from trainer_shim.adapters.tensorflow import store

FIELDS = {"trial": "t/1", "attempt": 1, "framework": "none", "fidelity": "author", "reason": ""}


def write(parent: Path, id: str, step: int) -> checkpoint_dir.Fields:
    builder = checkpoint_dir.Builder(str(parent), id)
    builder.add("state", [b"abc", memoryview(b"def" * step)])
    return builder.finish({**FIELDS, "step": step, "seeds": {}})


def test_a_checkpoint_verifies_and_says_what_it_is(tmp_path: Path) -> None:
    summary = write(tmp_path, "c1", 3)
    assert summary["bytes"] == 3 + 9
    assert checkpoint_dir.verify(summary["path"])["step"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["c1"]


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "no manifest"])
def test_damage_is_named_and_the_one_before_is_found(tmp_path: Path, harm: str) -> None:
    write(tmp_path, "old", 3)
    newest = Path(write(tmp_path, "new", 5)["path"])
    file = newest / ("manifest.json" if harm == "no manifest" else "state")
    if harm == "flip":
        file.write_bytes(b"X" + file.read_bytes()[1:])
    elif harm == "truncate":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    with pytest.raises(
        checkpoint_dir.CheckpointError, match=r"manifest" if harm == "no manifest" else "state"
    ):
        checkpoint_dir.verify(str(newest))
    found = checkpoint_dir.newest_undamaged(str(tmp_path))
    assert found is not None
    assert found["id"] == "old"


def test_the_newest_is_not_passed_over_because_it_cannot_be_read_for_now(tmp_path: Path) -> None:
    """An older one would lose what was trained since, and nobody would be told."""
    write(tmp_path, "old", 3)
    state = Path(write(tmp_path, "new", 5)["path"]) / "state"
    state.unlink()
    state.symlink_to(state.name)
    found = checkpoint_dir.newest_undamaged(str(tmp_path))
    assert found is not None
    assert (found["id"], found["step"]) == ("new", 5)


def test_what_cannot_be_read_for_now_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path, "c", 3)["path"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # not one more
    try:
        with pytest.raises(OSError, match="Too many open files"):
            checkpoint_dir.verify(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert checkpoint_dir.verify(path)["step"] == 3


@given(st.data())
def test_a_flipped_bit_of_a_manifest_changes_nothing_unseen(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(write(Path(folder), "c", 3)["path"])
        before, manifest = checkpoint_dir.verify(str(path)), path / checkpoint_dir.MANIFEST
        body = bytearray(manifest.read_bytes())
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        manifest.write_bytes(body)
        try:
            after = checkpoint_dir.verify(str(path))
        except checkpoint_dir.CheckpointError:
            return
        assert {name: after[name] for name in before if name in after} == {
            name: before[name] for name in before if name in after
        }
        assert len(before.keys() - after.keys()) <= 1


def test_a_manifest_of_before_there_were_sums_is_taken(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "c", 3)["path"])
    manifest = json.loads((path / checkpoint_dir.MANIFEST).read_text())
    del manifest["sum"]
    (path / checkpoint_dir.MANIFEST).write_text(json.dumps(manifest))
    assert checkpoint_dir.verify(str(path))["step"] == 3
    assert checkpoints.verified(path).step == 3


def test_an_unfinished_checkpoint_does_not_count(tmp_path: Path) -> None:
    checkpoint_dir.Builder(str(tmp_path), "half").add("state", [b"x"])
    assert checkpoint_dir.newest_undamaged(str(tmp_path)) is None


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    with pytest.raises(ZeroDivisionError), builder.or_nothing():
        builder.add("state", (bytes(1 // (3 - i)) for i in range(4)))
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_writes_any_more_is_swept(tmp_path: Path) -> None:
    write(tmp_path, "whole", 3)
    checkpoint_dir.Builder(str(tmp_path), "half").add("state", [b"x"])
    (tmp_path / "b.fetched.partial").mkdir()
    checkpoint_dir.sweep(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "b.fetched.partial"}


def test_files_of_the_program_are_taken_over_with_their_folders(tmp_path: Path) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    (Path(builder.partial) / "sub").mkdir()
    (Path(builder.partial) / "sub" / "w").write_bytes(b"123")
    builder.adopt()
    summary = builder.finish({**FIELDS, "step": 1, "seeds": {}})
    assert list(checkpoint_dir.verify(summary["path"])["files"]) == ["sub/w"]


@pytest.mark.parametrize(
    ("name", "target"),
    [("manifest.json", ""), ("out", "/etc/hostname"), ("gone", "nothing"), ("pipe", None)],
)
def test_what_would_not_be_the_same_afterwards_is_not_taken_over(
    tmp_path: Path, name: str, target: str | None
) -> None:
    """The manifest's place, links out of the checkpoint, and what is no file: said by name."""
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    path = Path(builder.partial, name)
    if target:
        path.symlink_to(target)
    elif target is None:
        os.mkfifo(path)
    else:
        path.write_text("mine")
    with pytest.raises(checkpoint_dir.CheckpointError, match=name):
        builder.adopt()


@pytest.mark.parametrize("depth", [250, TOO_DEEP])
def test_folders_without_end_are_refused_and_removed(tmp_path: Path, depth: int) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    dig(Path(builder.partial), depth)
    with pytest.raises(checkpoint_dir.CheckpointError, match="the 200 that"), builder.or_nothing():
        builder.adopt()
    assert not list(tmp_path.iterdir())
    dig(Path(builder.partial), depth)  # as one who was killed has left it
    checkpoint_dir.sweep(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_link_within_a_checkpoint_is_taken_over(tmp_path: Path) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    Path(builder.partial, "step-3").write_text("state")
    Path(builder.partial, "last").symlink_to("step-3")
    builder.adopt()
    path = builder.finish({**FIELDS, "step": 3, "seeds": {}})["path"]
    assert set(checkpoint_dir.verify(path)["files"]) == {"step-3", "last"}


def test_what_is_superseded_takes_over_no_further_file(tmp_path: Path) -> None:
    builder = checkpoint_dir.Builder(str(tmp_path), "c")
    Path(builder.partial, "weights").write_bytes(b"w")
    builder.supersede()
    with pytest.raises(checkpoint_dir.SaveSuperseded), builder.or_nothing():
        builder.adopt()
    assert not list(tmp_path.iterdir())


def test_a_file_is_shared_with_the_checkpoint_before_and_outlives_it(tmp_path: Path) -> None:
    old = Path(write(tmp_path, "old", 3)["path"])
    builder = checkpoint_dir.Builder(str(tmp_path), "new")
    assert builder.link("state", str(old))
    assert not builder.link("nothing", str(old))
    assert not builder.link("state", str(tmp_path / "gone"))
    new = Path(builder.finish({**FIELDS, "step": 5, "seeds": {}})["path"])
    assert (new / "state").samefile(old / "state")
    shutil.rmtree(old)
    assert checkpoint_dir.verify(str(new))["step"] == 5


def test_what_is_written_in_place_of_a_shared_file_leaves_the_other_one(tmp_path: Path) -> None:
    old = write(tmp_path, "old", 3)["path"]
    builder = checkpoint_dir.Builder(str(tmp_path), "new")
    assert builder.link("state", old)
    builder.add("state", [b"another"])
    builder.finish({**FIELDS, "step": 5, "seeds": {}})
    assert checkpoint_dir.verify(old)["step"] == 3
    assert (tmp_path / "new" / "state").read_bytes() == b"another"


@pytest.mark.parametrize("id", ["", "a/b", ".x", "c.partial"])
def test_an_id_that_is_no_plain_name_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(checkpoint_dir.CheckpointError, match="plain file name"):
        checkpoint_dir.Builder(str(tmp_path), id)


@pytest.mark.parametrize("is_earlier", [False, True])
def test_what_a_tensorflow_loop_has_trained_is_a_file_of_its_own(
    tmp_path: Path, is_earlier: bool
) -> None:
    """Checkpoints of earlier versions, which have all arrays in one, are read as well."""
    arrays = [b"told", b"", b"weights"]
    builder = checkpoint_dir.Builder(str(tmp_path), "one")
    state = {"steps": 3}
    store.LoopSnapshot(state, arrays, beside=0 if is_earlier else 2).write(builder)
    path = Path(builder.finish({**FIELDS, "step": 3, "seeds": {}})["path"])
    assert (path / "tensorflow.arrays").read_bytes() == (
        b"toldweights" if is_earlier else b"weights"
    )
    if is_earlier:
        (path / "tensorflow.beside").unlink()
        whole = json.loads((path / "tensorflow.json").read_text())
        del whole["beside"]
        (path / "tensorflow.json").write_text(json.dumps(whole))
    found = store.load(str(path))
    assert found is not None
    assert (found.state, found.arrays) == (state, arrays)
