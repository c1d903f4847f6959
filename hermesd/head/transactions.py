"""The writing connection of the journal, in a thread of its own.

Rule: a transaction is one hop to that thread and back, not one for each of its statements: a hop
costs more than most of these.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from hermesd.head import schema

# Each with the rows that it is for.
Statements: TypeAlias = list[tuple[str, Sequence[Sequence[Any]]]]
T = TypeVar("T")

_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "busy_timeout = 5000",
    "journal_size_limit = 67108864",
)


class Transactions:
    """Made by `transactions`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "journal")

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
        while not await self.do(functools.partial(_commit, statements)):
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
    if connection.execute("PRAGMA user_version").fetchone() == (1,):
        connection.executescript(schema.UPGRADE)


def _commit(statements: Statements, connection: sqlite3.Connection) -> bool:
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
    connection.execute("COMMIT")
    return True
