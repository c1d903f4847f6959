"""The checkpoints of a trial on this node's disk.

Only manifests are parsed (JSON of limited size, with a hash of its own text); the files are only
hashed. A directory that does not verify is passed over, and removed as outdated only if two newer
ones verify; a checkpoint of a later attempt is newer. One from which a program failed to go on
twice is set aside. One that another node asks for is kept until that node asks for the next.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from hermesd.core.bounds import LARGEST_COUNT
from hermesd.core.model import FORK_IN_NAME, CheckpointId
from hermesd.node import deep_trees
from hermesd.node.frames import Frame
from hermesd.node.machine.accounts import owned, regular

MANIFEST = "manifest.json"
SUM = "sum"  # in a manifest: the hash of all else that it says
MANIFEST_LIMIT_BYTES = 16 << 20
KEPT = 2
# What the system says of a file that is not there; whatever else it says may be over soon.
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# And of one that a program has made into what nobody can read: the other checkpoints count.
_FORGED = (errno.EACCES, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ENAMETOOLONG)
_REFUSED = ".refused"  # in a checkpoint that a program could not go on from once
LENT = ".lent"  # in the checkpoint that another node asked for last
MARKS = (_REFUSED, LENT)  # a node's own notes on a checkpoint, beside what was saved
_SET_ASIDE = "unusable"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE_BYTES = 1 << 20
# Of a manifest, as a host says it: what an image is, and whether it is for other trials.
_SAID = ("form", "why", "gpu", "is_fork")
# Its forms, of which what a program goes on from by its framework has none.
IMAGE, RESULT = "image", "result"
# No system lets a file have longer ones.
_LONGEST_PATH_BYTES, _LONGEST_NAME_BYTES = 4_096, 255


class DamagedCheckpoint(Exception):
    """A checkpoint that is incomplete or not what its manifest says; names the file."""


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint whose files are what its manifest says."""

    path: Path
    step: int
    attempt: int
    created: str
    sha256: str
    size_bytes: int
    #: What it says of itself besides: `_SAID`.
    said: Mapping[str, str]
    #: The hyper-parameters of the program that it is an image of, as its manifest has them.
    parameters: Any

    @property
    def is_image(self) -> bool:
        """Whether it is an image of processes."""
        return self.said.get("form") == IMAGE

    @property
    def is_result(self) -> bool:
        """Whether it has only what people load, and no program goes on from it."""
        return self.said.get("form") == RESULT

    def can_be_gone_on_from(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a program with these hyper-parameters can go on from it: an image has those that
        it was made with in its memory."""
        if self.is_image:
            return bool(self.parameters == parameters)
        return not self.is_result

    @property
    def frame(self) -> Frame:
        """As a host would report it."""
        return {
            "id": self.path.name,
            "step": self.step,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
            **self.said,
        }


def disk_fact(folder: Path) -> str:
    """How checkpoints are written below `folder`, in words; tries it out."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError as error:
        how = f"by the page cache, at more cost to the training ({folder}: {error.strerror})"
    else:
        how = "past the page cache"
    return f"checkpoints are written {how}"


def verified(path: Path) -> FoundCheckpoint:
    """The checkpoint at `path`, every file hashed.

    Raises DamagedCheckpoint, and OSError where the disk does not let it be read now, which says
    nothing about it.
    """
    manifest, digest = _manifest(path)
    files = manifest["files"]
    size = sum(entry["bytes"] for entry in files.values())
    # Of links and holes, to be read for years; some file systems do not say how large they are.
    if 0 < (whole := shutil.disk_usage(path).total) < size:
        raise DamagedCheckpoint(f"{path}: its manifest says {size} bytes, the disk has {whole}")
    for name, expected in files.items():
        file = path / name
        try:
            if not lies_within(file, path):
                raise DamagedCheckpoint(f"{path}: {name} lies outside")
            found = _measure(file, expected["bytes"])
        except OSError as error:
            if not _is_lasting(error):
                raise
            raise DamagedCheckpoint(f"{path}: {name}: {error.strerror}") from None
        if found != expected:
            raise DamagedCheckpoint(f"{path}: {name} is {found}, its manifest says {expected}")
    created = str(manifest.get("created_utc", ""))
    said = {name: str(manifest[name]) for name in _SAID if manifest.get(name)}
    return FoundCheckpoint(
        path,
        int(manifest["step"]),
        int(manifest.get("attempt", 0)),
        created,
        digest,
        size,
        said,
        manifest.get("parameters"),
    )


def lies_within(file: Path, folder: Path) -> bool:
    """Whether a path leads to a place below `folder`, its links followed; a circle of links is
    followed as far as it goes."""
    try:
        return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
    except RecursionError:  # a link to a link and so on, far more than the system follows
        return False


def promised(path: Path, sha256: str) -> dict[str, int]:
    """The files that the manifest at `path` names, with their bytes, if it is the one of this hash
    (empty: if it is any). Raises DamagedCheckpoint."""
    manifest, digest = _manifest(path)
    if sha256 and digest != sha256:
        raise DamagedCheckpoint(f"it is {digest}, the head knows {sha256}")
    return {name: entry["bytes"] for name, entry in manifest["files"].items()}


def newest(folder: Path) -> Iterator[FoundCheckpoint]:
    """The checkpoints in `folder` that verify, newest first; each is hashed when asked for.

    Those of a later attempt are newer, even where it has not got as far: it went on from what the
    head knew, and what earlier ones came to beyond that is no longer valid.
    """
    return _verifying(_by_age(folder))


def _verifying(paths: Iterable[Path]) -> Iterator[FoundCheckpoint]:
    for path in paths:
        with suppress(DamagedCheckpoint):
            yield verified(path)


def furthest(folder: Path) -> tuple[int, int]:
    """The step of the furthest checkpoint in `folder`, by its manifest alone, and the attempt that
    took it; zeros without one."""
    attempt, step, *_ = max(_complete(folder), key=itemgetter(1, 2), default=(0, 0))
    return step, attempt


def prune(folder: Path, held: str = "", forks: Collection[int] = ()) -> None:
    """Remove what is older than the two newest checkpoints that verify, except the one `held`, by
    its name, those from which others go on at `forks`, the one that is lent, and where both are
    images of processes the newest that is none: other machines can use that."""
    order = iter(_by_age(folder))
    kept = [found for _, found in zip(range(KEPT), _verifying(order), strict=False)]
    if len(kept) < KEPT:
        return
    lacks_usual = all(found.is_image for found in kept)
    for path in order:
        said = _said(path)
        if lacks_usual and said and said.get("form") not in (IMAGE, RESULT):
            lacks_usual = False
            continue
        is_fork = said.get("is_fork", FORK_IN_NAME in path.name) and said.get("step") in forks
        if not is_fork and path != folder / held and not (path / LENT).exists():
            deep_trees.remove(path)


def lend(path: Path) -> None:
    """Another node asks for this checkpoint: it stays, however long that takes, until one of the
    trial's others is asked for.

    Copies that take longer than two intervals between checkpoints would else never be whole.
    Raises OSError.
    """
    if not (path / LENT).exists():
        for other in path.parent.glob(f"*/{LENT}"):
            other.unlink(missing_ok=True)
        (path / LENT).touch()


def fork(path: Path, target: Path) -> None:
    """Have a checkpoint as `target` as well, of another trial; its files are the same.

    Raises DamagedCheckpoint, OSError.
    """
    if (target / MANIFEST).exists():
        return
    verified(path)
    partial = target.with_suffix(".partial")
    deep_trees.remove(partial)
    shutil.copytree(path, partial, copy_function=os.link, ignore=lambda *_: MARKS)
    partial.rename(target)


def copy(source: Path, theirs: Path, target: Path, ours: Path) -> None:
    """The files of a checkpoint, read as the owner of `theirs` and written as that of `ours` may,
    each on the disk when this returns. Raises DamagedCheckpoint, OSError."""
    sizes = owned(theirs, promised, source, "")
    for name, size_bytes in (*sorted(sizes.items()), (MANIFEST, MANIFEST_LIMIT_BYTES)):
        with owned(theirs, regular, source / name, os.O_NOFOLLOW) as file:
            owned(ours, (target / name).parent.mkdir, mode=0o700, parents=True, exist_ok=True)
            with open(owned(ours, os.open, target / name, _NEW, 0o600), "wb") as written:
                written.writelines(_pieces(file, size_bytes))
                written.flush()
                os.fsync(written.fileno())
    owned(ours, _settle, target)


def is_as_far(path: Path, other: Path) -> bool:
    """Whether a checkpoint is of the step of another, or of a later one, by their manifests."""
    if path == other:
        return True
    order = _by_progress(path.parent)
    return path in order and other in order and order.index(path) < order.index(other)


def drop_further(folder: Path, path: Path) -> None:
    """Remove the checkpoints that are further than this one."""
    for further in itertools.takewhile(lambda each: each != path, _by_progress(folder)):
        deep_trees.remove(further)


def retain(folder: Path, names: Collection[str]) -> None:
    """Remove all checkpoints in `folder`, and what is left of attempts to bring some, but these."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names:
            deep_trees.remove(path)


def refuse(folder: Path, name: str, last: bool = False) -> bool:
    """A program could not go on from this checkpoint; whether it is set aside for that.

    It is the second time, or nothing else is to be expected (`last`): at the first it may have been
    something else that the program missed when it was run again. The last that was set aside is
    kept for whoever wants to know.
    """
    path = next((path for path in folder.iterdir() if path.name == Path(name).name), None)
    if path is None:
        return False
    again = (path / _REFUSED).exists()
    (path / _REFUSED).touch()
    if again or last:
        set_aside(path)
    return again or last


def was_refused(folder: Path, id: CheckpointId) -> bool:
    """Whether this is what was set aside last, for a program that could not go on from it."""
    return (folder.parent / _SET_ASIDE / id.rpartition("@")[2] / _REFUSED).exists()


def set_aside(path: Path) -> None:
    """Take a checkpoint, if it is there, from those that trials may go on from."""
    if path.exists():
        aside = path.parent.parent / _SET_ASIDE
        deep_trees.remove(aside)
        aside.mkdir()
        path.rename(aside / path.name)


def _settle(target: Path) -> None:
    """Have the names of all files on the disk."""
    for folder, _, _ in os.walk(target):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _by_progress(folder: Path) -> list[Path]:
    """Complete checkpoints by step and time, furthest first, judged by their manifests alone."""
    ranked = sorted(_complete(folder), key=itemgetter(1, 2), reverse=True)
    return [path for *_, path in ranked]


def _by_age(folder: Path) -> list[Path]:
    """The same by attempt first, newest first."""
    return [path for *_, path in sorted(_complete(folder), reverse=True)]


def _complete(folder: Path) -> list[tuple[int, int, str, Path]]:
    """Attempt, step and time of each complete checkpoint."""
    found: list[tuple[int, int, str, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".partial" or not path.is_dir():
            continue
        if not (manifest := _said(path)):
            continue
        created = str(manifest.get("created_utc", ""))
        found.append((int(manifest.get("attempt", 0)), int(manifest["step"]), created, path))
    return found


def _said(path: Path) -> dict[str, Any]:
    """What the manifest of a checkpoint says; empty if it is damaged."""
    with suppress(DamagedCheckpoint):
        return _manifest(path)[0]
    return {}


def _manifest(path: Path) -> tuple[dict[str, Any], str]:
    try:
        with regular(path / MANIFEST) as file:
            body = file.read(MANIFEST_LIMIT_BYTES)
        manifest = json.loads(body)
        if not isinstance(manifest, dict) or not _is_sound(manifest):
            raise DamagedCheckpoint(f"{path}: its manifest names no step and files")
        if SUM in manifest and manifest[SUM] != _sum_of(manifest):  # earlier ones have none
            raise DamagedCheckpoint(f"{path}: its manifest is not what was written")
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and not _is_lasting(error):
            raise
        raise DamagedCheckpoint(f"{path}: no readable manifest: {error}") from None
    return manifest, hashlib.sha256(body).hexdigest()


def _is_lasting(error: OSError) -> bool:
    """Whether a file that could not be read will not be readable later, either."""
    return isinstance(error, _MISSING) or error.errno in _FORGED


def _sum_of(manifest: Mapping[str, Any]) -> str:
    """Of all that a manifest says but this, as the host has counted it."""
    said = {name: value for name, value in manifest.items() if name != SUM}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _is_sound(manifest: Mapping[str, Any]) -> bool:
    """Whether it has what a manifest has: it may come from anybody."""
    step, files = manifest.get("step"), manifest.get("files")
    if not _is_count(step) or not _is_count(manifest.get("attempt", 0)):
        return False
    if not isinstance(files, dict):
        return False
    if not all(isinstance(each, dict) and _is_count(each.get("bytes")) for each in files.values()):
        return False
    if not all(map(_is_file, files)):
        return False
    # In this order a folder comes just before what is in it.
    order = sorted(f"{name}/".replace("/", "\0") for name in files)
    return not any(inner.startswith(outer) for outer, inner in itertools.pairwise(order))


def _is_file(said: str) -> bool:
    """Whether it can be a file's below a checkpoint's directory, and no manifest's."""
    try:
        encoded = os.fsencode(said)
    except UnicodeEncodeError:
        return False
    if len(encoded) > _LONGEST_PATH_BYTES or b"\0" in encoded or said == MANIFEST:
        return False
    name = PurePosixPath(said)
    inside = name.parts and not name.is_absolute() and ".." not in name.parts
    is_short = all(len(part) <= _LONGEST_NAME_BYTES for part in encoded.split(b"/"))
    return bool(inside) and str(name) == said and is_short


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _measure(path: Path, expected_bytes: int) -> dict[str, Any]:
    """What a manifest would say of a file; of one of another size than expected that alone: a
    program can make one that would be read for years."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected_bytes:
            return {"bytes": size}
        digest, size = hashlib.sha256(), 0
        for piece in _pieces(file, expected_bytes):
            digest.update(piece)
            size += len(piece)
        return {"sha256": digest.hexdigest(), "bytes": size}


def _pieces(file: BinaryIO, expected_bytes: int) -> Iterator[bytes]:
    """What is in a file, up to one byte more than is expected, by which it is seen to be too long:
    a program can make it longer as fast as it is read."""
    left = expected_bytes + 1
    while piece := file.read(min(_PIECE_BYTES, left)):
        left -= len(piece)
        yield piece
