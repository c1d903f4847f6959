"""When a snapshot is due, so that a restart never has much of the journal to fold again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hermesd.core.state import State
from hermesd.head import snapshot
from hermesd.head.journal import Journal, Snapshot

# What a restart folds again at most, twice over while a snapshot is being saved: entries count by
# the time to fold them, some 40 microseconds each, and bytes by the time to read them.
ENTRIES = 50_000
BYTES = 48 * 2**20


class Snapshots:
    """The snapshots of one journal, saved one at a time; the last one was of entry `seq`."""

    def __init__(self, journal: Journal, seq: int) -> None:
        self._journal = journal
        self._seq = seq
        self._bytes = 0
        self._saving = False

    def due(self, committed: int) -> bool:
        """Whether enough has gathered behind the last snapshot, and that one is saved."""
        entries = committed - self._seq
        body_bytes = self._journal.body_bytes - self._bytes
        return not self._saving and (entries >= ENTRIES or body_bytes >= BYTES)

    def take(self, state: State, seq: int) -> Coroutine[Any, Any, None]:
        """What saves the state as it is now, after entry `seq`. Raises JournalBroken."""
        self._seq, self._bytes, self._saving = seq, self._journal.body_bytes, True
        return self._save(seq, snapshot.taken(state))

    async def _save(self, seq: int, tables: snapshot.Taken) -> None:
        try:
            parts = await asyncio.to_thread(lambda: tuple(snapshot.write(tables)))
            await self._journal.save_snapshot(Snapshot(seq, snapshot.shape(), parts))
        finally:
            self._saving = False
