"""`hermesd head --repair`: makes a new journal of what can be read of a damaged one.

The damaged files are copied whole and never edited. Entries that cannot be read, or cannot be
folded without those, are named and kept in a text file beside them. It runs by hand, and alone.

A repair ends, and the head starts with the result. If a repair is cut short, either the old files
are still there, or the whole new journal is; in the latter case no head starts until a second
repair has renamed it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermesd import record
from hermesd.core.commands import Command, Launch
from hermesd.core.events import Event, RunFailed
from hermesd.core.invariants import InvariantBroken
from hermesd.core.model import Time
from hermesd.core.state import Rejected, State
from hermesd.core.trial import LOST
from hermesd.head.journal import file as journal_file
from hermesd.head.journal import schema
from hermesd.head.journal.points import Piece, is_block, is_readable
from hermesd.head.journal.schema import JournalLine, PointRow, from_row, to_row
from hermesd.head.statedir import DamagedState, StateRefused

FILES = (schema.NAME, f"{schema.NAME}-wal", f"{schema.NAME}-shm")
SCRATCH = "repairing-"
# A gap in the numbers longer than this is taken for the end.
LONGEST_GAP = 100_000
# After these no other number is worth a try.
_HOPELESS = ("not a database", "no such table", "no such column", "unsupported file format")
# Of a database's header: what it is, the size of its pages, how they are written.
_HEADER_BYTES = 24


@dataclass(slots=True)
class Repaired:
    """What a repair did."""

    kept: int = 0
    points: int = 0
    #: Everything that was left out: its number or None, why, and what it is.
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
            if not self.kept:
                yield "no entry could be read: if there is a backup, restore it before the start"


def repair(directory: Path, now: datetime | None = None) -> Repaired:
    """Repair the journal of a state directory that no head owns; the caller owns it.

    Changes nothing if nothing is wrong. Ends a repair that was cut short. Raises FileNotFoundError
    without a journal, StateRefused with the next step where a repair is not the way, StateAway.
    """
    path = directory / schema.NAME
    _put_in_place(path)
    if not os.path.lexists(path):
        raise FileNotFoundError(
            f"{path}: there is no journal to repair: put it back, from a backup if need be"
        )
    if not path.is_file():
        journal_file.verify(path)  # says what to do
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    for left in directory.glob(f"{SCRATCH}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=directory) as scratch:
        for name in FILES:
            if (directory / name).exists():
                shutil.copy2(directory / name, Path(scratch) / name)
        fresh = Path(scratch) / "fresh.db"
        done = _rebuilt(path, Path(scratch) / schema.NAME, fresh)
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
        done.folder = aside.rename(_unused(directory / f"set-aside-{stamp}"))
        fresh.chmod(0o600)
        journal_file.sync(fresh)
        journal_file.sync(directory)
        fresh.rename(journal_file.repaired(path))
        journal_file.sync(directory)
    _put_in_place(path)
    return done


def _unused(folder: Path) -> Path:
    """The name, with a number if it is taken: of a repair in the same second."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([folder], names) if not name.exists())


def _put_in_place(path: Path) -> None:
    """Give a new journal its name, if there is one; it must never meet the old one's WAL."""
    fresh = journal_file.repaired(path)
    if not fresh.exists():
        return
    for name in FILES[1:]:
        path.with_name(name).unlink(missing_ok=True)
    os.replace(fresh, path)
    journal_file.sync(path.parent)


def _rebuilt(path: Path, damaged: Path, fresh: Path) -> Repaired:
    """The journal `fresh` out of `damaged`, a copy of `path` that may be changed.

    What follows a gap is kept as far as it can be folded; unless the state then contradicts itself.
    """
    try:
        journal_file.verify(damaged, "integrity_check")
        fault = ""
    except DamagedState as error:
        fault = error.what
    if "not a database" in fault:
        _give_header(damaged, fresh)
    try:
        done = _rebuild(damaged, fresh)
    except _Contradiction as first:
        try:
            done = _rebuild(damaged, fresh, behind_gap=f"without what is missing: {first}")
        except _Contradiction as error:
            raise StateRefused(
                f"{path} can be read, but contradicts itself: {error}; nothing was changed: restore"
                " a backup"
            ) from None
    if fault and not done.aside:
        done.aside.append((None, fault, "all entries and points can be read"))
    return done


def _give_header(damaged: Path, fresh: Path) -> None:
    """What begins a database of ours, for one whose beginning is damaged: all else may be there."""
    with closing(sqlite3.connect(fresh)) as empty:
        empty.execute("PRAGMA synchronous = OFF")
        empty.execute("PRAGMA user_version = 0")
        empty.executescript("CREATE TABLE made (n); DROP TABLE made;")
    with damaged.open("r+b") as file:
        file.write(fresh.read_bytes()[:_HEADER_BYTES])


class _Contradiction(Exception):
    """What was kept is no state that a head may go on from."""


def _rebuild(damaged: Path, fresh: Path, behind_gap: str = "") -> Repaired:
    """`behind_gap` says why nothing behind the first gap is kept, if so. Raises _Contradiction."""
    done = Repaired()
    state = State()
    fresh.unlink(missing_ok=True)
    with closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        target.execute("PRAGMA auto_vacuum = INCREMENTAL")
        target.execute("PRAGMA synchronous = OFF")  # `repair` sees it safe once it is whole
        target.executescript(f"BEGIN; {schema.TABLES}")
        with closing(sqlite3.connect(damaged, isolation_level=None)) as source:
            # Makes SQLite read a file that is shorter than its header says.
            source.execute("PRAGMA writable_schema = ON")
            # Text that is no UTF-8 is damage to be shown, not a reason to stop.
            source.text_factory = journal_file.text
            for row in _entries(source, done):
                if behind_gap and done.aside:
                    done.aside.append((row.seq, behind_gap, f"{row.kind} {row.body}"))
                else:
                    _fold(state, row, target, done)
            try:
                state.check()
            except InvariantBroken as error:
                raise _Contradiction(str(error)) from None
            _copy_tables(source, target, done)
        target.execute("COMMIT")
    return done


def _fold(state: State, row: PointRow, target: sqlite3.Connection, done: Repaired) -> None:
    try:
        line = from_row(row)
        try:
            state.apply(line.entry, line.at)
        except Rejected as error:
            ends = _missing_ends(state, line.entry) if done.aside else []
            if not ends:
                raise
            for end in ends:
                state.apply(end, line.at)
                done.aside.append((row.seq, str(error), f"{end.run} is taken for {LOST}"))
                _keep(end, line.at, "", target, done)
            state.apply(line.entry, line.at)
    except (record.UnreadableEntry, Rejected) as error:
        done.aside.append((row.seq, str(error), f"{row.kind} {row.body}"))
        return
    except Exception as error:  # the state may be changed by half
        raise _Contradiction(f"entry {row.seq}: {type(error).__name__}: {error}") from None
    _keep(line.entry, line.at, line.outcome, target, done)


def _missing_ends(state: State, entry: Event | Command) -> list[RunFailed]:
    """The ends of runs that a launch shows to be over, though nothing that can be read ended them:
    else their devices would stay taken, and all that ran there later be set aside."""
    if not isinstance(entry, Launch) or entry.run.trial not in state.trials:
        return []
    present = state.trials[entry.run.trial].run
    slots = [state.slots[name] for name in entry.devices if name in state.slots]
    over = [present.id] if present is not None else []
    over += [slot.run for slot in slots if slot.run is not None]
    detail = "the journal has lost how it ended (hermesd head --repair)"
    return [
        RunFailed(run, LOST, detail, "", state.trials[run.trial].step)
        for run in dict.fromkeys(over)
    ]


def _keep(
    entry: Event | Command, at: Time, outcome: str, target: sqlite3.Connection, done: Repaired
) -> None:
    done.kept += 1
    # Without gaps: an entry's number is its place.
    line = JournalLine(done.kept, at, entry, outcome)
    target.execute(schema.INSERT_ENTRY, to_row(line))


def _entries(source: sqlite3.Connection, done: Repaired) -> Iterator[PointRow]:
    """Every row of the journal that can be had; what is missing before one is set aside."""
    last = 0
    for found, error in _scan(source, schema.SELECT_ENTRIES):
        if found is None:
            done.aside.append((last + 1, error, "unreadable from here on"))
            return
        row = PointRow(*found)
        if row.seq - last > LONGEST_GAP:
            done.aside.append((last + 1, f"the next entry has number {row.seq}", "no entry's"))
            return
        if row.seq != last + 1:
            until = f" to {row.seq - 1}" if row.seq > last + 2 else ""
            done.aside.append((last + 1, error or "missing", f"entry {last + 1}{until}"))
        last = row.seq
        yield row


def _scan(source: sqlite3.Connection, select: str) -> Iterator[tuple[tuple[Any, ...] | None, str]]:
    """Every row that can be had, by its first column, which is a number, and why some before it
    could not. Where a page is damaged, one number at a time. None for the row: no more can be had.

    A damaged tree may lead to the same page again and again: each row has a greater number than
    the one before, so that this ends.
    """
    last = lost = 0
    why = ""
    while lost < LONGEST_GAP:
        try:
            found = source.execute(select, (last, 1)).fetchone()
            if found is not None and not (type(found[0]) is int and found[0] > last):
                raise sqlite3.DatabaseError("rows are not in their order")
        except (sqlite3.Error, OverflowError) as error:
            why = why or str(error)
            if any(words in str(error) for words in _HOPELESS):
                break
            last, lost = last + 1, lost + 1
            continue
        if found is None:
            break
        yield found, why
        last, lost, why = found[0], 0, ""
    if why:
        yield None, why


def _copy_tables(source: sqlite3.Connection, target: sqlite3.Connection, done: Repaired) -> None:
    for what, select, insert, readable in (
        ("points", schema.SCAN_POINTS, schema.INSERT_POINTS, _is_piece),
        ("points", schema.SCAN_REPORTS, schema.INSERT_REPORT, _is_report),
        ("audit entries", schema.SCAN_AUDIT, schema.INSERT_AUDIT, lambda _: True),
    ):
        for found, why in _scan(source, select):
            # An earlier version's journal lacks some tables.
            if why and not (insert != schema.INSERT_POINTS and "no such table" in why):
                done.aside.append((None, why, f"{what} behind the first {done.points} pieces"))
            if found is None:
                break
            # A piece's number is not kept.
            values = found[1:] if insert == schema.INSERT_POINTS else found
            try:
                if not readable(values):
                    raise sqlite3.DataError("its points cannot be read")
                target.execute(insert, values)
                done.points += insert != schema.INSERT_AUDIT
            except (sqlite3.Error, OverflowError) as error:
                done.aside.append((None, str(error), f"{what} of {values[:3]}"))


def _is_piece(values: tuple[Any, ...]) -> bool:
    trial, attempt, metric, _, steps, vals = values
    return is_readable(Piece(trial, attempt, metric, steps, vals))


def _is_report(values: tuple[Any, ...]) -> bool:
    return is_block(values[3])
