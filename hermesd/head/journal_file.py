"""The journal's file itself: made whole, and looked at without a byte of it changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from hermesd.head import schema
from hermesd.head.statedir import StateAway, StateRefused

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def read_only(path: Path) -> str:
    """The URI that opens a database so that nothing can be written to it."""
    return f"{path.absolute().as_uri()}?mode=ro"


def create(path: Path) -> None:
    """A new journal, complete before it bears its name: a file that is there is never half made."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema.TABLES)
    fresh.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """See a file's content, or a directory's names, safe on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def repaired(path: Path) -> Path:
    """Where a repair leaves the new journal before it gets its name."""
    return path.with_name(f"{path.name}.repaired")


def prepare(path: Path) -> None:
    """See a whole journal of ours there: made if nothing ever was. Raises StateRefused, StateAway.

    Where anything tells of an earlier journal a new one would be a silent loss of all studies.
    """
    if repaired(path).exists():
        raise StateRefused(
            f"a repair of {path} was cut short: run `hermesd head --repair` again, which ends it"
        )
    if path.exists():
        return verify(path)
    traces = [path.with_name(name) for name in ("cluster-id", f"{path.name}-wal")]
    left = [*filter(Path.exists, traces), *path.parent.glob("set-aside-*")]
    if left:
        raise StateRefused(
            f"{path} is missing, yet {left[0]} is there: put the journal back; or, to begin with"
            f" nothing, move all of {path.parent} away"
        )
    create(path)


def verify(path: Path) -> None:
    """Whether it is a journal of ours, and whole. Raises StateRefused, StateAway."""
    advice = "nothing of it was changed; `hermesd head --repair` sets aside what cannot be read"
    if path.stat().st_size == 0:
        raise StateRefused(f"{path} is empty: {advice}")
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as connection:
            application, version, check = (
                (connection.execute(f"PRAGMA {name}").fetchone() or ("",))[0]
                for name in ("application_id", "user_version", "quick_check")
            )
    except sqlite3.DatabaseError as error:
        # One without a code is of Python's own: text that is none.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & 0xFF in _DAMAGE:
            raise StateRefused(f"{path} is damaged ({error}): {advice}") from None
        raise StateAway(f"{path} cannot be used as its disk is now: {error}") from None
    if application != schema.APPLICATION_ID:
        raise StateRefused(f"{path} is not a journal of Hermes")
    if version not in range(1, schema.VERSION + 1):
        raise StateRefused(
            f"{path} has schema version {version}, this head knows {schema.VERSION}: use the"
            " version that wrote it, or a newer one"
        )
    if check != "ok":
        raise StateRefused(f"{path} is damaged ({check}): {advice}")
