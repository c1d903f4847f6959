"""The journal on disk: what was acknowledged survives kill -9 and, by synchronous=FULL, power loss.

One task owns the writing connection, and commits whatever has gathered in one transaction. Any
commit error but BUSY breaks the journal for good: the transaction may be on the disk all the same,
so the head must stop and read the journal again. Readers have a connection of their own, which
cannot write.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import sqlite3
import zlib
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import aiosqlite

from hermesd.core.model import RunId, StudyId, Time, TrialId
from hermesd.head.clock import boottime
from hermesd.head.counters import Histogram
from hermesd.head.journal import file, schema
from hermesd.head.journal.points import Block, Piece, is_block, joined, pack
from hermesd.head.journal.schema import AuditEntry, JournalLine, PointRow, from_row, to_row
from hermesd.logs import get_logger
from hermesd.pieces import parts
from hermesd.record import Entry

# The writing connection of the journal, in a thread of its own.
#
# A transaction is one hop to that thread and back, not one for each of its statements: a
# hop costs more than most of these.

# Each with the rows that it is for.
Statements: TypeAlias = list[tuple[str, Sequence[Sequence[Any]]]]
T = TypeVar("T")

_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "busy_timeout = 5000",
    "journal_size_limit = 67108864",
)


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class Transactions:
    """Made by `transactions`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "journal")
        #: How long bare COMMITs took: the write and its fsync.
        self.syncs = Histogram()

    async def open(self) -> None:
        """Connect. A journal of an earlier version becomes one of this."""
        loop = asyncio.get_running_loop()
        connect = functools.partial(sqlite3.connect, self._path, isolation_level=None)
        self._connection = await loop.run_in_executor(self._thread, connect)
        await self.do(_set_up)

    async def do(self, deed: Callable[[sqlite3.Connection], T]) -> T:
        """What `deed` comes to there."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, deed, self._connection)

    async def commit(self, statements: Statements) -> None:
        """Carry all of them out, or none. Raises sqlite3.Error, OverflowError."""
        while not await self.do(functools.partial(_commit, statements, self.syncs)):
            pass


@asynccontextmanager
async def transactions(path: Path) -> AsyncIterator[Transactions]:
    """A connection to a journal that is there, closed at the end of the block."""
    made = Transactions(path)
    try:
        await made.open()
        try:
            yield made
        finally:
            await made.do(sqlite3.Connection.close)
    finally:
        made._thread.shutdown()


def _set_up(connection: sqlite3.Connection) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    if connection.execute("PRAGMA user_version").fetchone()[0] < schema.VERSION:
        connection.executescript(schema.UPGRADE)


def _commit(statements: Statements, syncs: Histogram, connection: sqlite3.Connection) -> bool:
    """One transaction; False if somebody else holds the file, who was waited for as long as the
    busy timeout is."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise
    for sql, rows in statements:
        if rows:
            connection.executemany(sql, rows)
    began = boottime()
    connection.execute("COMMIT")
    syncs.add(boottime() - began)
    return True


# Points of reports on their way into pieces.
#
# What a report brought is one row when it comes, whatever the number of its metrics. When some
# have gathered of a run, or it is over, they become pieces, metric by metric, and the rows go.
#
# What has a row is here as well, so that curves are whole without looking for it.

GATHERED = 64

log = get_logger()


class Moving(NamedTuple):
    """Blocks that become pieces with the transaction under way."""

    run: RunId
    blocks: list[tuple[int, bytes]]


class FreshPoints:
    """The blocks that have rows, by run and number of the row."""

    def __init__(self) -> None:
        self._last = 0
        self._runs: dict[RunId, list[tuple[int, bytes]]] = {}
        self._over: dict[RunId, None] = {}
        self._moving: list[Moving] = []

    def read(self, rows: Iterable[tuple[int, TrialId, int, bytes]]) -> None:
        """Take over what an earlier head left; nothing more will come of these runs' rows."""
        for number, trial, attempt, points in rows:
            self._last = max(self._last, number)
            if not is_block(points):
                log.warning("points cannot be read: the disk has changed them", trial=trial)
                continue
            run = RunId(trial, attempt)
            self._runs.setdefault(run, []).append((number, points))
            self._over[run] = None

    def take(self, blocks: Iterable[Block], seq: int) -> tuple[Statements, list[Moving]]:
        """What is to be written of blocks that came with entry `seq`; when that is done, what moved
        is to be `forgotten`."""
        rows = []
        full, self._over = self._over, {}
        for run, points in blocks:
            self._last += 1
            rows.append((self._last, *run, points))
            mine = self._runs.setdefault(run, [])
            mine.append((self._last, points))
            if len(mine) >= GATHERED:
                full[run] = None
        moving = [Moving(run, self._runs.pop(run)) for run in full if run in self._runs]
        self._moving += moving
        pieces = [
            (*run, metric, seq, *pack(curve))
            for run, blocks in moving
            for metric, curve in joined(points for _, points in blocks).items()
        ]
        gone = [(number,) for _, blocks in moving for number, _ in blocks]
        return [
            (schema.INSERT_REPORT, rows),
            (schema.INSERT_POINTS, pieces),
            (schema.DELETE_REPORT, gone),
        ], moving

    def forget(self, moved: Iterable[Moving]) -> None:
        """These are pieces by now."""
        for one in moved:
            self._moving.remove(one)

    def close(self, run: RunId) -> None:
        """No more will come of this run: its blocks go with what is written next."""
        if run in self._runs:
            self._over[run] = None

    def drop(self, trials: Collection[TrialId]) -> None:
        """Nothing of these trials is wanted any more."""
        for run in [run for run in self._runs if run.trial in trials]:
            del self._runs[run]

    def pieces(self, trial: TrialId) -> list[Piece]:
        """The trial's points that are no stored pieces yet."""
        return self.pieces_of({trial})

    def pieces_of(self, trials: Collection[TrialId]) -> list[Piece]:
        """Those of several trials."""
        mine = [Moving(run, blocks) for run, blocks in self._runs.items() if run.trial in trials]
        mine += [one for one in self._moving if one.run.trial in trials]
        return [
            Piece(*run, metric, *pack(curve))
            for run, blocks in mine
            for metric, curve in joined(points for _, points in blocks).items()
        ]


PAGE = 2_000
FORGOTTEN_AT_ONCE = 1_000
WRITES_LIMIT = 256


class JournalBroken(Exception):
    """A commit failed. Nobody knows whether it took effect: the head must stop."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """A state in parts."""

    #: The entry after which the state was so.
    seq: int
    #: Names what wrote it.
    shape: str
    parts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of everything in it."""
        digest = hashlib.sha256(f"{self.seq} {self.shape}\n".encode())
        for part in self.parts:
            digest.update(hashlib.sha256(part.encode()).digest())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Write:
    statements: Statements
    done: asyncio.Future[None]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Journal]:
    """The journal of a state directory, made if none ever was; closed at the end of the block.

    Raises StateRefused if it is damaged, gone or not ours, StateAway if the disk does not let us
    see; nothing of it is changed then.
    """
    path = directory / schema.NAME
    await asyncio.to_thread(file.prepare, path)
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(transactions(path))
            uri = file.read_only(path)
            reader = await stack.enter_async_context(aiosqlite.connect(uri, uri=True))
            reader.text_factory = file.text
            async with reader.execute("SELECT max(seq) FROM journal") as cursor:
                (last,) = await cursor.fetchone() or (0,)
            async with reader.execute(schema.SELECT_REPORTS) as cursor:
                left = [tuple(row) for row in await cursor.fetchall()]
        except sqlite3.Error as error:
            raise file.refusal(path, error) from None
        journal = Journal(path, connection, reader, last or 0, left)
        writer = asyncio.create_task(journal._write_all())  # noqa: TID251 - awaited below
        try:
            yield journal
        finally:
            await journal._stop(writer)


class Journal:
    """Append, read, follow. Made by `opened`."""

    def __init__(
        self,
        path: Path,
        connection: Transactions,
        reader: aiosqlite.Connection,
        last: int,
        left: Iterable[tuple[Any, ...]] = (),
    ) -> None:
        self._path = path
        self._connection = connection
        self._reader = reader
        self._reading = asyncio.Lock()
        self._queue: asyncio.Queue[_Write | None] = asyncio.Queue(WRITES_LIMIT)
        self._last = last
        # With which entry each study began that was asked about.
        self._first: dict[StudyId, int] = {}
        #: How many bytes of entries were appended since it was opened.
        self.body_bytes = 0
        self._broken: JournalBroken | None = None
        self._fresh = FreshPoints()
        self._fresh.read(left)

    @property
    def last(self) -> int:
        """The sequence number that was given out last."""
        return self._last

    @property
    def syncs(self) -> Histogram:
        """How long the disk took for each transaction, whoever waited for it."""
        return self._connection.syncs

    # Writing.

    async def append(
        self,
        entries: Sequence[tuple[Time, Entry, str]],
        points: Iterable[Block] = (),
        encoded: Mapping[int, tuple[str, str]] = MappingProxyType({}),
        paying: Mapping[int, Callable[[int], object]] = MappingProxyType({}),
    ) -> int:
        """Write entries (with their outcomes) and points in one transaction; the last number.

        On the disk when this returns. `encoded` has those that were encoded before, by their place:
        they are long, and not even their checksum is made here. Those of `paying` hear how many
        bytes the entry in their place takes. Raises JournalBroken.
        """
        lines = [
            JournalLine(seq, at, entry, outcome)
            for seq, (at, entry, outcome) in enumerate(entries, self._last + 1)
        ]
        self._last = last = self._last + len(lines)
        statements, moving = self._fresh.take((each for each in points if each.points), last)
        rows = [
            await asyncio.to_thread(to_row, line, encoded[place])
            if place in encoded
            else to_row(line)
            for place, line in enumerate(lines)
        ]
        self.body_bytes += sum(len(row.body) for row in rows)
        for place, hear in paying.items():
            hear(_size_bytes(rows[place].body) + _size_bytes(rows[place].outcome))
        try:
            await self._submit([(schema.INSERT_ENTRY, rows), *statements])
        finally:
            self._fresh.forget(moving)
        return last

    def close_run(self, run: RunId) -> None:
        """No more points will come of this run."""
        self._fresh.close(run)

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Write what calls did; on the disk when this returns. Raises JournalBroken."""
        rows = [(None, *dataclasses.astuple(entry)[1:]) for entry in entries]
        await self._submit([(schema.INSERT_AUDIT, rows)])

    async def trim_audit(self) -> None:
        """Remove all but the newest of what calls did. Raises JournalBroken."""
        await self._submit([(schema.TRIM_AUDIT, [(schema.AUDIT_LIMIT,)])])

    async def forget_points(self, trials: Iterable[TrialId]) -> None:
        """Remove every point of these trials. Raises JournalBroken."""
        tables = ("points", "reports")
        for some in parts(trials, FORGOTTEN_AT_ONCE):  # others wait for each transaction
            self._fresh.drop(set(some))
            rows = [(trial,) for trial in some]
            await self._submit([(f"DELETE FROM {table} WHERE trial = ?", rows) for table in tables])

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        """Keep this snapshot instead of the one before. Raises JournalBroken."""
        digest = await asyncio.to_thread(lambda: snapshot.digest)
        bodies = await asyncio.to_thread(
            lambda: [zlib.compress(part.encode(), 1) for part in snapshot.parts]
        )
        rows = [
            (part, snapshot.seq, snapshot.shape, digest, body) for part, body in enumerate(bodies)
        ]
        await self._submit(
            [("DELETE FROM snapshot", [()]), ("INSERT INTO snapshot VALUES (?, ?, ?, ?, ?)", rows)]
        )

    async def _submit(self, statements: Statements) -> None:
        if self._broken:
            raise self._broken
        write = _Write(statements, asyncio.get_running_loop().create_future())
        await self._queue.put(write)
        await asyncio.shield(write.done)

    async def _write_all(self) -> None:
        """The writer: drain, one transaction, resolve. Ends with None or at a failure."""
        closing = False
        while not closing:
            gathered = [await self._queue.get()]
            while not self._queue.empty():
                gathered.append(self._queue.get_nowait())
            batch = [write for write in gathered if write is not None]
            closing = len(batch) < len(gathered)
            try:
                await self._connection.commit([each for one in batch for each in one.statements])
            except Exception as error:  # a writer that died unheard would leave all waiting
                self._broken = JournalBroken(f"a commit failed: {file.told(error)}")
                self._fail(batch)
                return
            for write in batch:
                if not write.done.done():
                    write.done.set_result(None)

    def _fail(self, batch: list[_Write]) -> None:
        while not self._queue.empty():
            if (write := self._queue.get_nowait()) is not None:
                batch.append(write)
        for write in batch:
            if not write.done.done() and self._broken is not None:
                write.done.set_exception(self._broken)

    async def _stop(self, writer: asyncio.Task[None]) -> None:
        if not writer.done():
            await self._queue.put(None)
            await writer

    # Reading.

    async def rows(self, after: int, limit: int = PAGE) -> list[PointRow]:
        """Rows behind the number `after`, unread."""
        return [PointRow(*row) for row in await self._select(schema.SELECT_ENTRIES, (after, limit))]

    def each_row(self, after: int, limit: int = PAGE, cut: bool = False) -> Iterator[PointRow]:
        """The same one by one, from whichever thread: by a connection of its own, so that not all
        are in memory at once. `cut`: of many new trials only the first and the last are there."""
        sql = schema.SELECT_CUT_ENTRIES if cut else schema.SELECT_ENTRIES
        try:
            uri = file.read_only(self._path)
            with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
                connection.text_factory = file.text
                for row in connection.execute(sql, (after, limit)):
                    yield PointRow(*row)
        except sqlite3.Error as error:
            raise file.refusal(self._path, error) from None

    async def read(self, after: int, limit: int = PAGE) -> list[JournalLine]:
        """Entries behind the number `after`, at most `limit`. Raises record.Unreadable."""
        return [from_row(row) for row in await self.rows(after, limit)]

    async def pieces(self, trial: TrialId, metric: str) -> list[Piece]:
        """The points of a metric of a trial. What becomes a piece meanwhile may come twice."""
        fresh = [piece for piece in self._fresh.pieces(trial) if piece.metric == metric]
        sql = (
            "SELECT trial, attempt, metric, steps, vals FROM points"
            " WHERE trial = ? AND metric = ? ORDER BY attempt, part"
        )
        stored = [Piece(*row) for row in await self._select(sql, (trial, metric))]
        return sorted(stored + fresh, key=lambda piece: piece.attempt)

    async def metrics(self, trial: TrialId) -> list[str]:
        """The metrics that a trial has points of."""
        fresh = {piece.metric for piece in self._fresh.pieces(trial)}
        sql = "SELECT DISTINCT metric FROM points WHERE trial = ?"
        return sorted(fresh.union(row[0] for row in await self._select(sql, (trial,))))

    async def metrics_of(self, trials: Collection[TrialId]) -> dict[TrialId, list[str]]:
        """The metrics of each of these trials that has points."""
        chosen = frozenset(trials)
        found = {(piece.trial, piece.metric) for piece in self._fresh.pieces_of(chosen)}
        sql = (
            "SELECT DISTINCT trial, metric FROM points"
            " WHERE trial IN (SELECT value FROM json_each(?))"
        )
        found.update((row[0], row[1]) for row in await self._select(sql, (json.dumps([*trials]),)))
        metrics: dict[TrialId, list[str]] = {}
        for trial, metric in sorted(found):
            metrics.setdefault(trial, []).append(metric)
        return metrics

    async def trials_with_points(self) -> list[TrialId]:
        """The trials that have any."""
        sql = "SELECT trial FROM points UNION SELECT trial FROM reports"
        return [row[0] for row in await self._select(sql, ())]

    async def audit(
        self, before: int, limit: int, since: Time = 0.0, name: str = "", refusals: bool = False
    ) -> list[AuditEntry]:
        """What calls did, the newest first: at most `limit` with numbers below `before`, from the
        time `since` on; only of the caller `name`, only `refusals`."""
        rows = await self._select(
            schema.SELECT_AUDIT,
            {"before": before, "limit": limit, "since": since, "name": name, "refusals": refusals},
        )
        return [AuditEntry(*row) for row in rows]

    async def submitted(self) -> dict[StudyId, str]:
        """All studies that ever were, removed ones too, with their identities.

        No id is given out again.
        """
        sql = (
            "SELECT body ->> '$.study.id', body ->> '$.study.identity' FROM journal"
            " WHERE kind = 'Submitted'"
        )
        return {row[0]: row[1] or "" for row in await self._select(sql, ())}

    async def before(self, study: StudyId) -> int:
        """The number of the last entry before a study was submitted; 0 of one that never was."""
        if study not in self._first:
            sql = (
                "SELECT min(seq) FROM journal"
                " WHERE kind = 'Submitted' AND body ->> '$.study.id' = ?"
            )
            (first,) = (await self._select(sql, (study,)))[0]
            if not first:
                return 0
            self._first[study] = first
        return self._first[study] - 1

    async def owners(self) -> dict[StudyId, str]:
        """Whose each study is, removed ones too."""
        sql = (
            "SELECT body ->> '$.study.id', body ->> '$.study.owner' FROM journal"
            " WHERE kind = 'Submitted'"
        )
        return {row[0]: row[1] for row in await self._select(sql, ())}

    async def load_snapshot(self, shape: str) -> StateSnapshot | None:
        """The snapshot, if one of this shape is there whole."""
        rows = await self._select("SELECT seq, shape, digest, body FROM snapshot ORDER BY part", ())
        if not rows or any(row[1] != shape or row[:3] != rows[0][:3] for row in rows):
            return None
        try:
            parts = tuple(zlib.decompress(row[3]).decode() for row in rows)
        except (zlib.error, ValueError, TypeError):
            return None
        snapshot = StateSnapshot(rows[0][0], shape, parts)
        whole = snapshot.digest == rows[0][2] and snapshot.seq <= self._last
        return snapshot if whole else None

    async def _select(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        try:
            async with self._reading, self._reader.execute(sql, values) as cursor:
                return [tuple(row) for row in await cursor.fetchall()]
        except sqlite3.Error as error:  # of a body that is no JSON, for example
            raise file.refusal(self._path, error) from None
