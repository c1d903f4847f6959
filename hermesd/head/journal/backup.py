"""`hermesd backup`: the head's state in one file, whether the head runs or not.

The journal comes first, copied by SQLite as it was at one moment. What it refers to (code
snapshots, the authority) was there before it, and is added as it is. Whoever has the file has the
head's keys and tokens.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from hermesd.head.journal import file as journal_file
from hermesd.head.journal import schema
from hermesd.head.statedir import StateRefused

# What is of this process or this moment alone: locks, sockets, files being written, old damage.
_PASSING = (
    "head.lock",
    "*.sock",
    "*.partial",
    "*.new",
    "journal.db*",
    "repairing-*",
    "set-aside-*",
)


class SavedBackup(NamedTuple):
    """What a backup holds."""

    entries: int
    size_bytes: int


def backup(directory: Path, target: Path) -> SavedBackup:
    """Write the state in `directory` to the tar file `target`, readable by its owner alone.

    The file is there whole or not at all. Raises StateRefused where there is no journal of ours or
    it is damaged, and for a target in the directory, StateAway where its disk is in trouble,
    FileExistsError rather than replace a file, other OSErrors where the target cannot be written.
    """
    if not (directory / schema.NAME).exists():
        raise StateRefused(f"{directory}: there is no journal here")
    if target.resolve().is_relative_to(directory.resolve()):
        raise StateRefused(f"{target} lies in the state itself: the next backup would hold it, too")
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists")
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tempfile.TemporaryDirectory(prefix=".hermes-", dir=target.parent) as scratch:
                copy = Path(scratch) / schema.NAME
                entries = _copy(directory / schema.NAME, copy)
                with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    _add(archive, directory, copy)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    journal_file.sync(target.parent)
    return SavedBackup(entries, target.stat().st_size)


def _copy(journal: Path, copy: Path) -> int:
    """The journal as it is now, verified; how many entries it has."""
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(sqlite3.connect(journal_file.read_only(journal), uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            (entries,) = target.execute("SELECT COUNT(*) FROM journal").fetchone()
    except sqlite3.DatabaseError as error:
        journal_file.verify(journal)  # says what is wrong with it
        raise OSError(f"{journal} cannot be copied: {error}") from None
    journal_file.verify(copy)
    return int(entries)


def _add(archive: tarfile.TarFile, directory: Path, journal: Path) -> None:
    """The directory by its own name, with owners and modes, so that unpacking is all there is to a
    restore."""
    archive.add(directory, directory.name, recursive=False)
    info = archive.gettarinfo(directory / schema.NAME, f"{directory.name}/{schema.NAME}")
    info.size = journal.stat().st_size
    with journal.open("rb") as file:
        archive.addfile(info, file)
    for path in _lasting(directory):
        with contextlib.suppress(FileNotFoundError):  # the code of a study that was just removed
            archive.add(path, f"{directory.name}/{path.relative_to(directory)}", recursive=False)


def _lasting(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if any(path.match(pattern) for pattern in _PASSING):
            continue
        if path.is_dir() and not path.is_symlink():
            yield path
            yield from _lasting(path)
        elif path.is_file():
            yield path
