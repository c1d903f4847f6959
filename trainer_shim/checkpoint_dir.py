"""A checkpoint as a directory: files, and a manifest that proves them.

A checkpoint is built in `<id>.partial`. Every file is fsynced, the manifest is written last, and
then the directory is renamed. So a directory without that suffix is complete, and if any hash in it
is wrong, that of the manifest's own text included, it has been damaged since. What fails while it
is built is removed at once, and what was interrupted at the next start.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import hashlib
import json
import mmap
import operator
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Union

from trainer_shim import file_moves

# Writing a file past the kernel's page cache, where that can be done.
#
# Whole pieces are written from one buffer, whose pages are there from the first piece on.
# In the page cache every byte gets a fresh page, which takes more of the processor than all else
# of a checkpoint. What the file system or the memory does not allow is written by the cache, as
# ever.

# Of one call: a thread in it cannot be stopped, and a suspend waits for it.
PIECE_BYTES = 1 << 20
_SYNCED_AT_ONCE = 4 * PIECE_BYTES


class File:
    """A new file at `path`, for parts of any size. All of it is durable after `finish`.

    With `is_read_soon` it is written by the cache, where it is found then.
    """

    def __init__(self, path: str, is_read_soon: bool) -> None:
        self._is_possible = not is_read_soon  # to go past the cache
        self._is_straight = False
        self._unsynced = 0
        self._filled = 0
        self._buffer: mmap.mmap | bytearray
        try:
            self._buffer = mmap.mmap(-1, PIECE_BYTES)  # from the start of a page, as it has to be
        except OSError:
            self._buffer, self._is_possible = bytearray(PIECE_BYTES), False
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def write(self, part: memoryview) -> None:
        """Write these bytes after the ones before. Raises OSError, on a full disk above all."""
        at = 0
        while at < len(part):
            size = min(len(part) - at, PIECE_BYTES - self._filled)
            self._buffer[self._filled : self._filled + size] = part[at : at + size]
            self._filled += size
            at += size
            if self._filled == PIECE_BYTES:
                self._go_straight(self._is_possible)
                self._flush()

    def finish(self) -> None:
        """Write what is left. Raises OSError."""
        self._go_straight(False)  # it is no whole piece
        self._flush()
        os.fsync(self._fd)

    def _flush(self) -> None:
        with memoryview(self._buffer) as whole, whole[: self._filled] as piece:
            at = 0
            while at < len(piece):
                try:
                    at += os.write(self._fd, piece[at:])
                except OSError as error:
                    if not self._is_straight or error.errno != errno.EINVAL:
                        raise
                    self._is_possible = False
                if at < len(piece):  # what is left of it may lie anywhere
                    self._go_straight(False)
        if not self._is_straight:
            self._unsynced += self._filled
            if self._unsynced >= _SYNCED_AT_ONCE:
                os.fdatasync(self._fd)
                self._unsynced = 0
        self._filled = 0

    def _go_straight(self, is_to: bool) -> None:
        if is_to == self._is_straight:
            return
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        try:
            changed = flags | os.O_DIRECT if is_to else flags & ~os.O_DIRECT
            fcntl.fcntl(self._fd, fcntl.F_SETFL, changed)
        except OSError:
            self._is_possible = False
        else:
            self._is_straight = is_to


VERSION = 1
MANIFEST = "manifest.json"
# Errors that tell what a checkpoint is, and not how its disk does for now.
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_SUM = "sum"  # in a manifest: the hash of all else that it says
# Of what a manifest says, what is told of a checkpoint.
_SAID = ("form", "why", "gpu", "is_fork")
_PARTIAL = ".partial"
_PART = ".part" + _PARTIAL  # what one of several processes has finished of a checkpoint of all
_FETCHED = ".fetched.partial"  # a node daemon brings it from another machine, and may go on with it
_CHUNK = 1 << 20
_DEPTH_MAX = 200  # folders within each other: what copies a checkpoint calls itself for each

Buffer = Union[bytes, bytearray, memoryview]
Fields = dict[str, Any]


class CheckpointError(Exception):
    """A checkpoint is incomplete, of another version, or its sums do not agree."""


class SaveSuperseded(Exception):
    """A later checkpoint is to be written in the place of this one."""


class Builder:
    """A checkpoint being written under `parent` with the name `id`.

    With `is_read_soon` it is left in the page cache; else it is written past that, at less cost to
    what runs meanwhile. If it `is_part`, it is what one of several processes has to give to a
    checkpoint of all of them (`joined`), and counts as partial until then.
    """

    def __init__(
        self, parent: str, id: str, is_read_soon: bool = True, is_part: bool = False
    ) -> None:
        if not id or "/" in id or id.startswith(".") or id.endswith(_PARTIAL):
            raise CheckpointError(f"checkpoint id {id!r}, expected a plain file name")
        self.id = id
        self.path = os.path.join(parent, id)
        self.partial = self.path + (_PART if is_part else _PARTIAL)
        self._is_part = is_part
        self._is_read_soon = is_read_soon
        self._is_superseded = False
        self._sums: dict[str, Fields] = {}
        self._linked: dict[str, Fields] = {}  # the files of the checkpoints that some come from
        file_moves.remove_tree(self.partial)
        os.makedirs(self.partial)

    @contextlib.contextmanager
    def or_nothing(self) -> Iterator[None]:
        """What fails within leaves nothing of the checkpoint behind."""
        try:
            yield
        except BaseException:
            file_moves.remove_tree(self.partial)
            raise

    def supersede(self) -> None:
        """Have whoever writes it give it up, at its next piece, or at the next file of another's.
        Called from another thread."""
        self._is_superseded = True

    def add(self, name: str, parts: Iterable[Buffer]) -> None:
        """Write one file from its parts, hashed on the way and fsynced. Raises SaveSuperseded.

        In pieces: a thread that writes or syncs cannot be stopped, and a suspend waits for it.
        """
        digest, size = hashlib.sha256(), 0
        path = os.path.join(self.partial, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # it may be linked, and another checkpoint's too
        with File(path, self._is_read_soon) as file:
            for part in parts:
                view = memoryview(part).cast("B")
                for piece in (view[at : at + _CHUNK] for at in range(0, len(view), _CHUNK)):
                    if self._is_superseded:
                        raise SaveSuperseded
                    digest.update(piece)
                    file.write(piece)
                    size += len(piece)
            file.finish()
        self._sums[name] = {"sha256": digest.hexdigest(), "bytes": size}

    def link(self, name: str, path: str) -> bool:
        """Take over a file of the finished checkpoint at `path`, as it is and without copying it;
        False if that cannot be. Damage that it has is found in both of them."""
        try:
            entry = self._files_of(path)[name]
            os.link(os.path.join(path, name), os.path.join(self.partial, name))
        except (OSError, KeyError, CheckpointError):
            return False
        self._sums[name] = entry
        return True

    def _files_of(self, path: str) -> Fields:
        if path not in self._linked:
            self._linked[path] = _manifest(path)[0]["files"]
        return self._linked[path]

    def take_in(self, path: str, folder: str = "") -> Fields:
        """Move what is finished at `path` into `folder`, with its manifest; or without one in here,
        with the files of this checkpoint. The sums hold as they are; the answer is the manifest.

        Raises SaveSuperseded, CheckpointError and OSError.
        """
        if self._is_superseded:
            raise SaveSuperseded
        manifest, body = _manifest(path)
        if folder:
            os.rename(path, os.path.join(self.partial, folder))
            digest = hashlib.sha256(body).hexdigest()
            self._sums[os.path.join(folder, MANIFEST)] = {"sha256": digest, "bytes": len(body)}
        else:
            for name in os.listdir(path):
                if name != MANIFEST:
                    os.rename(os.path.join(path, name), os.path.join(self.partial, name))
        for name, entry in manifest["files"].items():
            self._sums[os.path.join(folder, name)] = entry
        return manifest

    def adopt(self) -> None:
        """Take over the files that somebody else wrote into `partial`.

        Raises SaveSuperseded, and CheckpointError for what would not be there, or not be the same,
        afterward.
        """
        for folder, _, names in os.walk(self.partial):
            inside = os.path.relpath(folder, self.partial)
            if inside.count(os.sep) >= _DEPTH_MAX:
                raise CheckpointError(
                    f"the program saves folders within each other, {inside[:40]}..., more than the"
                    f" {_DEPTH_MAX} that a checkpoint may hold"
                )
            for file_name in names:
                path = os.path.join(folder, file_name)
                name = os.path.relpath(path, self.partial)
                if self._is_superseded:
                    raise SaveSuperseded
                if name not in self._sums:
                    self._see_to(name, path)
                    _fsync(path)
                    self._sums[name] = _measure(path)

    def _see_to(self, name: str, path: str) -> None:
        found = os.path.realpath(path)
        if name == MANIFEST:
            raise CheckpointError(
                f"the program saves a file {MANIFEST}, a name that the checkpoint itself needs"
            )
        if not os.path.isfile(found):
            raise CheckpointError(f"the program saves {name}, which is no file")
        if os.path.islink(path) and (
            os.path.isabs(os.readlink(path))
            or not found.startswith(os.path.realpath(self.partial) + os.sep)
        ):
            raise CheckpointError(f"the program saves {name}, a link that leads out of its folder")

    def finish(self, fields: Mapping[str, Any]) -> Fields:
        """Write the manifest, make everything durable, rename.

        `fields` are trial, attempt, step, framework, fidelity, reason, parameters and clock;
        `form` is `image` or `result` of what no program restores by itself, `is_fork` whether it
        was written where other trials part from this one, and `result_step` the step of the files
        for people where it is another.
        The answer is {id, path, step, bytes, sha256}, where sha256 is the manifest's.
        """
        now = datetime.datetime.now(datetime.timezone.utc)
        manifest = {"version": VERSION, **fields, "files": self._sums}
        manifest["created_utc"] = now.isoformat(timespec="milliseconds")
        manifest[_SUM] = _sum_of(manifest)
        body = json.dumps(manifest, indent=1, sort_keys=True).encode()
        path = os.path.join(self.partial, MANIFEST)
        with open(path, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        for folder, _, _ in os.walk(self.partial):
            _fsync(folder)
        if self._is_part:
            return {**_summary(self.partial, manifest, body), "id": self.id}
        shutil.rmtree(self.path, ignore_errors=True)
        os.rename(self.partial, self.path)
        _fsync(os.path.dirname(self.path))
        return _summary(self.path, manifest, body)


def joined(parent: str, part: Mapping[str, Any], others: Mapping[str, str]) -> Fields:
    """The checkpoint of several processes, of which each has finished a part: `part`, as `finish`
    has answered, has its files as they are, and `others` are those of the other processes, by the
    folders that they come to lie in.

    The answer is that of `finish`. Raises CheckpointError and OSError.
    """
    builder = Builder(parent, part["id"])
    with builder.or_nothing():
        manifest = builder.take_in(part["path"])
        file_moves.remove_tree(part["path"])
        for folder, path in others.items():
            builder.take_in(path, folder)
        its_own = ("version", "files", "created_utc", _SUM)
        return builder.finish({k: v for k, v in manifest.items() if k not in its_own})


def sweep(parent: str) -> None:
    """Remove the checkpoints that nobody writes any more: those who did were killed."""
    for name in os.listdir(parent):
        if name.endswith(_PARTIAL) and not name.endswith(_FETCHED):
            file_moves.remove_tree(os.path.join(parent, name))


def verify(path: str) -> Fields:
    """The manifest of the checkpoint at `path`, every file's sum checked.

    Raises CheckpointError naming the file that is missing or differs, and OSError where one that is
    there can't be read for now: that tells nothing of what is in it.
    """
    manifest = _manifest(path)[0]
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise CheckpointError(f"{path}: the manifest lists no files")
    for name, expected in files.items():
        try:
            found = _measure(os.path.join(path, name))
        except _ABSENT as error:
            raise CheckpointError(f"{path}: {name}: {error.strerror}") from error
        if found != expected:
            raise CheckpointError(f"{path}: {name} is {found}, the manifest says {expected}")
    return manifest


def newest_undamaged(parent: str) -> Fields | None:
    """{id, path, step, bytes, sha256} of the furthest checkpoint that is not damaged, if any.

    One whose files can't be read for now counts: it is verified again before a trial resumes from
    it, and an older one would silently lose the training since.
    """
    found: list[tuple[int, str, str, Fields, bytes]] = []
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return None
    for name in names:
        path = os.path.join(parent, name)
        if name.endswith(_PARTIAL) or not os.path.isdir(path):
            continue
        try:
            manifest, body = _manifest(path)
        except (CheckpointError, OSError):
            continue
        found.append((int(manifest["step"]), str(manifest["created_utc"]), path, manifest, body))
    for _, _, path, manifest, body in sorted(found, key=operator.itemgetter(0, 1), reverse=True):
        try:
            verify(path)
        except CheckpointError:
            continue
        except OSError:
            pass
        return _summary(path, manifest, body)
    return None


def _manifest(path: str) -> tuple[Fields, bytes]:
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            body = file.read()
        manifest = json.loads(body)
    except (*_ABSENT, ValueError) as error:
        raise CheckpointError(f"{path}: no readable manifest: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise CheckpointError(f"{path}: not a checkpoint of version {VERSION}")
    if _SUM in manifest and manifest[_SUM] != _sum_of(manifest):  # earlier ones have none
        raise CheckpointError(f"{path}: the manifest is not what was written")
    return manifest, body


def _sum_of(manifest: Mapping[str, Any]) -> str:
    """Of all that a manifest says but this."""
    said = {name: value for name, value in manifest.items() if name != _SUM}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _summary(path: str, manifest: Fields, body: bytes) -> Fields:
    return {
        "id": os.path.basename(path),
        "path": path,
        "step": manifest["step"],
        "bytes": sum(entry["bytes"] for entry in manifest["files"].values()),
        "sha256": hashlib.sha256(body).hexdigest(),
        **{name: manifest[name] for name in _SAID if manifest.get(name)},
    }


def _measure(path: str) -> Fields:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while True:
            chunk = file.read(_CHUNK)
            if not chunk:
                break
            digest.update(chunk)
            size += len(chunk)
    return {"sha256": digest.hexdigest(), "bytes": size}


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
