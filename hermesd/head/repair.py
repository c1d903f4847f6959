"""`hermesd head --repair`: a new journal out of what can be read of a damaged one.

The damaged files are copied aside whole, never edited. Entries that cannot be read, or not be
folded without those, are named and kept in a text file beside them. Run by hand, by nobody else.

Rule: whenever a repair is cut short, what was there is still there, or the whole new journal is:
then no head starts before a second repair has given it its name.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hermesd import record
from hermesd.core.state import Rejected, State
from hermesd.head import journal_file, schema
from hermesd.head.schema import Line, Row, from_row, to_row

FILES = (schema.NAME, f"{schema.NAME}-wal", f"{schema.NAME}-shm")
SCRATCH = "repairing-"
# A gap in the numbers longer than this is taken for the end.
LONGEST_GAP = 100_000


@dataclass(slots=True)
class Repaired:
    """What was done. `aside` holds (number or None, why, what) of everything left out."""

    kept: int = 0
    points: int = 0
    aside: list[tuple[int | None, str, str]] = field(default_factory=list)
    folder: Path | None = None

    def told(self) -> Iterator[str]:
        """It in lines, for people."""
        yield f"{self.kept} entries and {self.points} pieces of curves can be read"
        for number, why, what in self.aside:
            yield f"set aside: {number or 'pages'}: {why}: {what[:80]}"
        if self.folder is None:
            yield "nothing is wrong; nothing was changed"
        else:
            yield f"the damaged files are in {self.folder}; a new journal is in their place"


def repair(directory: Path, now: datetime | None = None) -> Repaired:
    """Repair the journal of a state directory that no head owns; the caller owns it.

    Changes nothing if nothing is wrong. Ends a repair that was cut short. Raises FileNotFoundError
    without a journal.
    """
    path = directory / schema.NAME
    _put_in_place(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no journal to repair")
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    for left in directory.glob(f"{SCRATCH}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=directory) as scratch:
        for name in FILES:
            if (directory / name).exists():
                shutil.copy2(directory / name, Path(scratch) / name)
        fresh = Path(scratch) / "fresh.db"
        done = _rebuild(Path(scratch) / schema.NAME, fresh)
        if not done.aside:
            return done
        aside = Path(scratch) / "aside"
        aside.mkdir(mode=0o700)
        lines = [json.dumps({"seq": n, "why": why, "what": what}) for n, why, what in done.aside]
        (aside / "entries.jsonl").write_text("".join(f"{line}\n" for line in lines))
        for name in FILES:
            if (directory / name).exists():
                shutil.copy2(directory / name, aside / name)
        for kept in (*aside.iterdir(), aside):
            journal_file.sync(kept)
        done.folder = aside.rename(directory / f"set-aside-{stamp}")
        fresh.chmod(0o600)
        journal_file.sync(fresh)
        journal_file.sync(directory)
        fresh.rename(journal_file.repaired(path))
        journal_file.sync(directory)
    _put_in_place(path)
    return done


def _put_in_place(path: Path) -> None:
    """Give a new journal its name, if there is one; it must never meet the old one's WAL."""
    fresh = journal_file.repaired(path)
    if not fresh.exists():
        return
    for name in FILES[1:]:
        path.with_name(name).unlink(missing_ok=True)
    os.replace(fresh, path)
    journal_file.sync(path.parent)


def _rebuild(damaged: Path, fresh: Path) -> Repaired:
    done = Repaired()
    state = State()
    with closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        target.execute("PRAGMA auto_vacuum = INCREMENTAL")
        target.execute("PRAGMA synchronous = FULL")
        target.executescript(schema.TABLES)
        target.execute("BEGIN")
        with closing(sqlite3.connect(damaged, isolation_level=None)) as source:
            # Makes SQLite read a file that is shorter than its header says.
            source.execute("PRAGMA writable_schema = ON")
            # Text that is no UTF-8 is damage to be shown, not a reason to stop.
            source.text_factory = lambda data: data.decode(errors="backslashreplace")
            for row in _readable_rows(source, done):
                _fold(state, row, target, done)
            _copy_points(source, target, done)
            _note_damage(source, done)
        target.execute("COMMIT")
    return done


def _fold(state: State, row: Row, target: sqlite3.Connection, done: Repaired) -> None:
    try:
        line = from_row(row)
        state.apply(line.entry, line.at)
    except (record.Unreadable, Rejected) as error:
        done.aside.append((row.seq, str(error), f"{row.kind} {row.body}"))
        return
    done.kept += 1
    # Without gaps: an entry's number is its place.
    moved = Line(done.kept, line.at, line.entry, line.outcome)
    target.execute(schema.INSERT_ENTRY, to_row(moved))


def _readable_rows(source: sqlite3.Connection, done: Repaired) -> Iterator[Row]:
    """Every row that can be had, by number; where a page is damaged, one number at a time."""
    seq = lost = 0
    while lost < LONGEST_GAP:
        try:
            rows = source.execute(schema.SELECT_ENTRIES, (seq, 1)).fetchall()
            if not rows:
                return
            row = Row(*rows[0])
        except (sqlite3.Error, TypeError) as error:
            if lost == 0:
                done.aside.append((seq + 1, str(error), "unreadable from here on"))
            if isinstance(error, sqlite3.Error) and "not a database" in str(error):
                return
            seq, lost = seq + 1, lost + 1
            continue
        yield row
        seq, lost = row.seq, 0


def _note_damage(source: sqlite3.Connection, done: Repaired) -> None:
    """Damage where nothing was lost: in an index, say. The head would not start with it."""
    if done.aside:
        return
    try:
        (found,) = source.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        done.aside.append((None, found, "all entries and points can be read"))


def _copy_points(source: sqlite3.Connection, target: sqlite3.Connection, done: Repaired) -> None:
    _copy_rows(source, schema.SELECT_POINTS, target, schema.INSERT_POINTS, done)
    with suppress(sqlite3.Error):
        if source.execute("PRAGMA user_version").fetchone() == (1,):
            return
    _copy_rows(source, schema.SELECT_REPORTS, target, schema.INSERT_REPORT, done)


def _copy_rows(
    source: sqlite3.Connection, select: str, target: sqlite3.Connection, insert: str, done: Repaired
) -> None:
    before = done.points
    try:
        for row in source.execute(select):
            target.execute(insert, row)
            done.points += 1
    except sqlite3.Error as error:
        what = f"points behind the first {done.points - before} pieces"
        done.aside.append((None, str(error), what))
