"""A checkpoint counts only if every byte is what its manifest says; two of those are kept."""

import errno
import fcntl
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.node.storage import checkpoints
from tests.deep_trees import TOO_DEEP, dig
from trainer_shim import checkpoint_dir
from trainer_shim.checkpoint_dir import Builder


def build(folder: Path, name: str, step: int, attempt: int = 1, **said: str | bool) -> Path:
    """A checkpoint as a host writes it."""
    folder.mkdir(exist_ok=True)
    builder = Builder(str(folder), name)
    builder.add("weights.bin", [b"w" * 1000, str(step).encode()])
    builder.finish({"trial": "t/1", "attempt": attempt, "step": step, **said})
    return folder / name


def test_what_a_host_writes_verifies(tmp_path: Path) -> None:
    found = checkpoints.verified(build(tmp_path, "s5", 5))
    assert (found.step, found.attempt, found.size_bytes) == (5, 1, 1001)
    assert found.frame["id"] == "s5"
    assert len(found.sha256) == 64


@pytest.mark.parametrize("harm", ["flip", "cut", "missing", "manifest", "escape", "depth"])
def test_any_damage_is_seen(tmp_path: Path, harm: str) -> None:
    path = build(tmp_path, "s5", 5)
    file, manifest = path / "weights.bin", path / "manifest.json"
    match harm:
        case "flip":
            data = bytearray(file.read_bytes())
            data[500] ^= 1
            file.write_bytes(data)
        case "cut":
            file.write_bytes(file.read_bytes()[:-1])
        case "missing":
            file.unlink()
        case "manifest":
            manifest.write_text(manifest.read_text()[:-3])
        case "escape":
            body = json.loads(manifest.read_text())
            (tmp_path / "outside").write_bytes(file.read_bytes())
            body["files"]["../outside"] = body["files"].pop("weights.bin")
            del body[checkpoints.SUM]
            manifest.write_text(json.dumps(body))
        case "depth":
            manifest.write_text("[" * 100_000)
    with pytest.raises(checkpoints.DamagedCheckpoint, match="s5"):
        checkpoints.verified(path)
    assert list(checkpoints.newest(tmp_path)) == []


@given(st.data())
def test_no_flipped_bit_of_a_manifest_changes_what_is_taken_for_true(data: st.DataObject) -> None:
    """In the words that promise what the program is restored to, too: its seeds, its step."""
    with tempfile.TemporaryDirectory() as folder:
        old = build(Path(folder), "s5", 5)
        path = build(Path(folder), "s9", 9)
        before, manifest = checkpoints.verified(path), path / "manifest.json"
        body = bytearray(manifest.read_bytes())
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        manifest.write_bytes(body)
        found = next(checkpoints.newest(Path(folder)))
        assert replace(found, sha256="") in (
            replace(before, sha256=""),
            replace(checkpoints.verified(old), sha256=""),
        )
        said = checkpoint_dir.newest_undamaged(folder)
        assert said is not None
        assert (said["id"], said["step"]) in (("s9", 9), ("s5", 5))


def test_one_that_was_refused_twice_is_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    old, new = build(folder, "s5", 5), build(folder, "s9", 9)
    assert not checkpoints.refuse(folder, "s9")
    assert [found.path for found in checkpoints.newest(folder)] == [new, old]
    assert checkpoints.refuse(folder, "s9")
    assert [found.path for found in checkpoints.newest(folder)] == [old]
    assert checkpoints.verified(tmp_path / "unusable" / "s9").step == 9
    assert not checkpoints.refuse(folder, "s5")
    assert checkpoints.refuse(folder, "s5")
    assert [path.name for path in (tmp_path / "unusable").iterdir()] == ["s5"]


def test_one_that_cannot_be_relied_on_is_set_aside_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    build(folder, "s9", 9)
    assert not checkpoints.was_refused(folder, "s/0#1@s9")
    assert checkpoints.refuse(folder, "s9", last=True)
    assert list(checkpoints.newest(folder)) == []
    assert checkpoints.was_refused(folder, "s/0#1@s9")
    checkpoints.set_aside(build(folder, "s5", 5))
    assert not checkpoints.was_refused(folder, "s/0#1@s5"), "damage is no refusal"


@pytest.mark.parametrize("name", ["", ".", "..", "s9", "../checkpoints"])
def test_only_a_checkpoint_is_set_aside(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoints"
    build(folder, "s5", 5)
    for _ in range(3):
        assert not checkpoints.refuse(folder, name)
    assert [found.step for found in checkpoints.newest(folder)] == [5]


def test_the_newest_come_first_and_the_damaged_are_passed_over(tmp_path: Path) -> None:
    for step in (10, 5, 20):
        build(tmp_path, f"s{step}", step)
    (tmp_path / "s30.partial").mkdir()
    (tmp_path / "s20" / "weights.bin").write_bytes(b"")
    assert [found.step for found in checkpoints.newest(tmp_path)] == [10, 5]
    assert list(checkpoints.newest(tmp_path / "none")) == []


def test_the_furthest_is_told_by_its_manifest(tmp_path: Path) -> None:
    assert checkpoints.furthest(tmp_path / "nothing") == (0, 0)
    for step in (9, 5):
        build(tmp_path, f"s{step}", step)
    assert checkpoints.furthest(tmp_path) == (9, 1)
    (tmp_path / "s9" / "manifest.json").write_text("{")
    assert checkpoints.furthest(tmp_path) == (5, 1)


def test_two_that_verify_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        build(tmp_path, f"s{step}", step)
    (tmp_path / "s20" / "weights.bin").write_bytes(b"")
    checkpoints.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s10", "s15", "s20"]


def test_the_newest_that_is_no_image_is_kept_beside_two_images(tmp_path: Path) -> None:
    usual = [build(tmp_path, f"s{step}", step) for step in (5, 10)]
    images = [build(tmp_path, f"s{step}", step, form="image") for step in (15, 20, 25)]
    checkpoints.prune(tmp_path)
    kept = [path.exists() for path in (*usual, *images)]
    assert kept == [False, True, False, True, True]


def test_manifests_that_are_damaged_while_old_ones_are_removed_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in the folder of a program, which may do that at any moment."""
    old, *images = [build(tmp_path, f"s{step}", step, form="image") for step in (5, 10, 15)]

    def damage_then(path: Path) -> checkpoints.FoundCheckpoint:
        found = verified(path)
        for each in (old, *images):
            (each / "manifest.json").write_text("")
        return found

    verified = checkpoints.verified
    monkeypatch.setattr(checkpoints, "verified", damage_then)
    checkpoints.prune(tmp_path)
    assert all(path.exists() for path in images)


def test_what_a_program_digs_in_old_ones_stops_nothing(tmp_path: Path) -> None:
    old, *_ = [build(tmp_path, f"s{step}", step) for step in (5, 10, 15)]
    dig(old / "dug", TOO_DEEP)
    checkpoints.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s10", "s15"]
    dig(tmp_path / "s10" / "dug", TOO_DEEP)
    checkpoints.retain(tmp_path, ())
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_link_and_so_on_leads_nowhere(tmp_path: Path) -> None:
    good, bad = [build(tmp_path, f"s{step}", step) for step in (5, 10)]
    place = bad / "weights.bin"
    place.rename(bad / "0")
    for number in range(TOO_DEEP):
        (bad / str(number + 1)).symlink_to(str(number))
    place.symlink_to(str(TOO_DEEP))
    assert [found.path for found in checkpoints.newest(tmp_path)] == [good]


def test_a_manifest_that_can_just_be_read_and_not_be_counted_is_a_damaged_one(
    tmp_path: Path,
) -> None:
    manifest = build(tmp_path, "s5", 5) / "manifest.json"
    whole = json.loads(manifest.read_text())
    for depth in range(sys.getrecursionlimit() - 400, sys.getrecursionlimit()):
        nested = "[" * depth + "]" * depth
        manifest.write_text(f'{json.dumps(whole)[:-1]}, "more": {nested}}}')
        assert checkpoints.furthest(tmp_path) == (0, 0)


def test_what_a_later_attempt_has_taken_is_newer_though_others_had_got_further(
    tmp_path: Path,
) -> None:
    """It went on from step 5, as the head knew it: without this each of its own would be removed as
    it is written, and the next attempt go on from what the head knows nothing of."""
    far = [build(tmp_path, f"s{step}", step) for step in (5, 80, 90)]
    own = build(tmp_path, "own7", 7, attempt=4)
    checkpoints.prune(tmp_path)
    assert [found.path for found in checkpoints.newest(tmp_path)] == [own, far[2]]
    later = build(tmp_path, "own9", 9, attempt=4)
    checkpoints.prune(tmp_path)
    assert [found.path for found in checkpoints.newest(tmp_path)] == [later, own]
    assert checkpoints.is_as_far(later, own)


def test_the_last_good_one_is_never_removed(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        build(tmp_path, f"s{step}", step)
    for name in ("s10", "s15"):
        (tmp_path / name / "weights.bin").write_bytes(b"")
    checkpoints.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s10", "s15", "s5"]


def test_what_another_node_asks_for_stays_until_it_asks_for_another(tmp_path: Path) -> None:
    slow, *later = [build(tmp_path, f"s{step}", step) for step in (5, 6, 7, 8)]
    checkpoints.lend(slow)
    checkpoints.prune(tmp_path)
    assert [path.exists() for path in (slow, *later)] == [True, False, True, True]
    assert checkpoints.verified(slow).step == 5
    checkpoints.lend(later[2])
    checkpoints.prune(tmp_path)
    assert [path.exists() for path in (slow, *later)] == [False, False, True, True]


def test_the_checkpoint_of_a_result_stays_however_far_the_trial_gets(tmp_path: Path) -> None:
    result, *later = [build(tmp_path, f"s{step}", step) for step in (5, 6, 7, 8)]
    checkpoints.prune(tmp_path, "s5")
    assert [path.exists() for path in (result, *later)] == [True, False, True, True]
    assert checkpoints.is_as_far(later[2], result)
    assert checkpoints.is_as_far(result, result)
    assert not checkpoints.is_as_far(result, later[2])
    checkpoints.drop_further(tmp_path, result)
    assert [path.name for path in tmp_path.iterdir()] == ["s5"]


def test_those_from_which_other_trials_go_on_stay_whichever_attempt_wrote_them(
    tmp_path: Path,
) -> None:
    made = [build(tmp_path, f"s{step}", step, 1, is_fork=True) for step in (3, 5)]
    made += [build(tmp_path, f"a{attempt}-s5", 5, attempt) for attempt in (1, 2)]
    made += [build(tmp_path, f"s{step}", step, 2) for step in (6, 7, 8)]
    checkpoints.prune(tmp_path, "a1-s5", {5})
    there = [path.name for path in made if path.exists()]
    assert there == ["s5", "a1-s5", "s7", "s8"]


def test_one_that_is_for_other_trials_by_its_name_alone_stays_too(tmp_path: Path) -> None:
    """Hosts of before a manifest said so outlive the daemon of then."""
    names = ["a1-fork-s3", "a1-fork-s4", "a1-s5", "a1-s6", "a1-s7"]
    made = [build(tmp_path, name, step) for step, name in enumerate(names, 3)]
    checkpoints.prune(tmp_path, forks={3, 5})
    assert [path.name for path in made if path.exists()] == ["a1-fork-s3", "a1-s6", "a1-s7"]


def test_how_checkpoints_are_written_is_tried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(file: object, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0

    assert checkpoints.disk_fact(tmp_path).startswith("checkpoints are written ")
    monkeypatch.setattr(fcntl, "fcntl", refusing)
    assert f"by the page cache, at more cost to the training ({tmp_path}" in checkpoints.disk_fact(
        tmp_path
    )
    assert "No such file" in checkpoints.disk_fact(tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []
