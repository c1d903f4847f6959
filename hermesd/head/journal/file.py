"""The journal's file: created whole, and checked without changing a byte of it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from hermesd.head.journal import schema
from hermesd.head.statedir import DamagedState, StateAway, StateRefused

ADVICE = "nothing of it was changed; `hermesd head --repair` sets aside what cannot be read"
# SQLITE_ERROR: a header or a schema that makes no sense to SQLite.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
# A version further ahead than this is damage rather than a newer head's.
_VERSIONS_TO_COME = 100
# In the header: how the file may be read and written, 2 for a write-ahead log.
_WAL_FORMAT = 2


def read_only(path: Path) -> str:
    """The URI that opens a database so that nothing can be written to it."""
    return f"{path.absolute().as_uri()}?mode=ro"


def text(data: bytes) -> str:
    """Text as it lies in a journal: what is no UTF-8 is shown, and fails its checksum."""
    return data.decode(errors="backslashreplace")


def create(path: Path) -> None:
    """A new journal, complete before it bears its name: a file that is there is never half made."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # it is seen safe once it is whole
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema.TABLES)
    sync(fresh)
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
            f"a repair of {path} was cut short: run `hermesd head --repair` again, to complete it"
        )
    if os.path.lexists(path):
        return verify(path)
    traces = [path.with_name(name) for name in ("cluster-id", f"{path.name}-wal")]
    left = [*filter(Path.exists, traces), *path.parent.glob("set-aside-*")]
    if left:
        raise StateRefused(
            f"{path} is missing, yet {left[0]} is there: put the journal back; or, to begin with"
            f" nothing, move all of {path.parent} away"
        )
    create(path)


def verify(path: Path, check: str = "quick_check") -> None:
    """Whether it is a journal of ours, and whole. What quick_check leaves out, the order of indexes
    among others, a head finds when it writes; SQLite's integrity_check finds it at once.

    Raises DamagedState for what a repair may mend, StateRefused for what it may not, StateAway.
    """
    if not path.is_file():
        raise StateRefused(
            f"{path} is not a file: the journal was expected there; move away what is there, and"
            " put the journal back, from a backup if need be"
        )
    if path.stat().st_size == 0:
        raise DamagedState(path, "is empty", ADVICE)
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as connection:
            application, version, found = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version", check)
            )
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    except sqlite3.DatabaseError as error:
        raise refusal(path, error) from None
    if application != schema.APPLICATION_ID:
        if not {"journal", "points", "snapshot"} <= tables:
            raise StateRefused(
                f"{path} is not a journal of Hermes: put the journal back, from a backup if need be"
            )
        what = f"is damaged (application id {application}, expected {schema.APPLICATION_ID})"
        raise DamagedState(path, what, ADVICE)
    if schema.VERSION < version <= schema.VERSION + _VERSIONS_TO_COME:
        raise StateRefused(
            f"{path} has schema version {version}, this head knows {schema.VERSION}: use the"
            " version that wrote it, or a newer one"
        )
    if version not in range(1, schema.VERSION + 1):
        raise DamagedState(path, f"is damaged (schema version {version})", ADVICE)
    since = {"journal": 1, "points": 1, "snapshot": 1, "reports": 2, "audit": 3}
    expected = [name for name, first in since.items() if version >= first]
    if missing := [name for name in expected if name not in tables]:
        raise DamagedState(path, f"is damaged (it lacks the table {missing[0]})", ADVICE)
    if found != "ok":
        raise DamagedState(path, f"is damaged ({found})", ADVICE)
    with path.open("rb") as file:
        if max(file.read(20)[18:]) > _WAL_FORMAT:
            raise DamagedState(path, "is damaged (its header allows no writing)", ADVICE)


def told(error: Exception) -> str:
    """A failed commit in words, with the way out where no other try can succeed."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
        return f"{error}; `hermesd head --repair` sets aside what cannot be used"
    return str(error)


def refusal(path: Path, error: sqlite3.Error) -> Exception:
    """What to say of a journal that SQLite cannot use: Damaged, or StateAway for a disk that may
    be well another time."""
    # One without a code is of Python's own: text that is none.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return DamagedState(path, f"is damaged ({error})", ADVICE)
    return StateAway(f"{path} cannot be used as its disk is now: {error}")
