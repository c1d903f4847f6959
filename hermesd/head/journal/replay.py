"""From the journal to the state: the snapshot, if there is one, then every entry after it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import hermesd
from hermesd.core.invariants import InvariantBroken
from hermesd.core.model import (
    DeviceId,
    Node,
    NodeId,
    Place,
    Pool,
    PoolId,
    RunId,
    Slot,
    Study,
    StudyId,
    Time,
    TrialId,
    UserId,
)
from hermesd.core.policy import Facts
from hermesd.core.sharing import Account, Terms
from hermesd.core.speeds import Evidence
from hermesd.core.state import Rejected, State
from hermesd.core.tables import Members, in_service_of, names_of, rebuilt, riding_of
from hermesd.core.trial import Exclusion, Quarantined, Strike, Trial
from hermesd.head.journal import file
from hermesd.head.journal.store import PAGE, Journal, StateSnapshot
from hermesd.head.reader import still
from hermesd.head.statedir import StateRefused
from hermesd.record import Form, UnreadableEntry

# The state as text, part by part, and back: a cache that saves a restart most of the replay.
#
# Every table is kept in its order, since the order of equals reaches decisions. A snapshot of
# another version, or of types that have changed, is not looked at: the journal is the truth.

PART_ITEMS = 500

TABLES: dict[str, tuple[Any, Any]] = {
    "studies": (StudyId, Study),
    "trials": (TrialId, Trial),
    "members": (StudyId, tuple[TrialId, ...]),
    "active": (StudyId, dict[TrialId, None]),
    "pools": (PoolId, Pool),
    "nodes": (NodeId, Node),
    "slots": (DeviceId, Slot),
    "facts": (StudyId, Facts),
    "terms": (UserId, Terms),
    "accounts": (UserId, Account),
    "requests": (str, tuple[TrialId, ...]),
    "fallen": (StudyId, str),
    "served": (StudyId, dict[DeviceId, Time]),
    "searching": (StudyId, int),
    "unsearched": (StudyId, str),
    "strays": (tuple[NodeId, RunId], None),
    "releases": (tuple[TrialId, NodeId], bool),
    "paces": (DeviceId, Evidence),
    "corrections": (DeviceId, float),
    "strikes": (DeviceId, tuple[Strike, ...]),
    "excluded": (tuple[StudyId, NodeId], Exclusion),
    "quarantined": (Place, Quarantined),
    "severed": (tuple[NodeId, NodeId], Time),
    "sights": (NodeId, dict[str, str]),
    "leftover": (tuple[TrialId, NodeId], bool),
    "dirty": (TrialId, None),
    "taken": (TrialId, None),
    "demanding": (TrialId, None),
    "missing": (tuple[TrialId, str], Time),
    "ended": (StudyId, None),
    "free": (DeviceId, None),
    "expired": (DeviceId, None),
    "parked": (TrialId, None),
    "reserved": (TrialId, DeviceId),
    "gathering": (TrialId, tuple[DeviceId, ...]),
}


class TakenSnapshot(NamedTuple):
    """The state at one moment."""

    now: Time
    half_life_seconds: float
    tables: dict[str, list[tuple[Any, Any]]]


@cache
def _form(table: str) -> Form[tuple[tuple[Any, Any], ...]]:
    key, value = TABLES[table]
    return Form(tuple[tuple[key, value], ...])  # type: ignore[valid-type]


@cache
def shape() -> str:
    """What a snapshot must have been written by to be read: this version with these types."""
    digest = hashlib.sha256(hermesd.__version__.encode())
    for table in TABLES:
        digest.update(json.dumps([table, _form(table).schema()], sort_keys=True).encode())
    return digest.hexdigest()


def taken(state: State) -> TakenSnapshot:
    """The tables of a state that does not change meanwhile."""
    tables = {table: list(getattr(state, table).items()) for table in TABLES}
    tables["members"] = [(study, tuple(members)) for study, members in tables["members"]]
    return TakenSnapshot(state.now, state.half_life_seconds, tables)


def write(taken: TakenSnapshot) -> Iterator[str]:
    """The parts of the state; may run in a thread of its own."""
    yield json.dumps({"now": taken.now, "half_life_seconds": taken.half_life_seconds})
    for table, items in taken.tables.items():
        for start in range(0, len(items), PART_ITEMS):
            piece = tuple(items[start : start + PART_ITEMS])
            yield f"{table} {_form(table).write(piece)}"


def read(parts: tuple[str, ...]) -> State:
    """The state that was written."""
    state = State()
    scalars = json.loads(parts[0])
    state.now, state.half_life_seconds = scalars["now"], scalars["half_life_seconds"]
    for part in parts[1:]:
        table, _, body = part.partition(" ")
        items = _form(table).read(body)
        if table == "members":
            items = tuple((study, Members(trials)) for study, trials in items)
        getattr(state, table).update(items)
    rebuilt(state)
    riding_of(state)
    state.named_requests = names_of(state.requests)
    state.in_service = in_service_of(state)
    return state


@dataclass(slots=True)
class RestoredState:
    """The state after the last entry."""

    state: State
    snapshot_seq: int = 0
    #: Why nothing may be added to it; else empty.
    fault: str = ""


async def replay(journal: Journal) -> RestoredState:
    """Fold the journal. Raises StateRefused for an entry that cannot be read.

    An entry that can be read but not folded, and a state that contradicts itself, leave the head
    readable: `fault` names the entry.
    """
    with _everything_is_kept():
        return await _replay(journal)


@contextmanager
def _everything_is_kept() -> Iterator[None]:
    """Nothing made here is garbage: looking for some would take longer than all the rest.

    What is there at the end is set apart, so that later collections do not look at it either.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


async def _replay(journal: Journal) -> RestoredState:
    replayed = RestoredState(State())
    if saved := await journal.load_snapshot(shape()):
        replayed = RestoredState(read(saved.parts), saved.seq)
    seq = replayed.snapshot_seq
    try:
        while lines := await journal.read(seq, PAGE):
            for line in lines:
                if line.seq != seq + 1:
                    raise StateRefused(f"entries {seq + 1} to {line.seq - 1} are missing{ADVICE}")
                try:
                    replayed.state.apply(line.entry, line.at)
                except Rejected as error:
                    replayed.fault = f"entry {line.seq} cannot be folded: {error}"
                    return replayed
                seq = line.seq
        replayed.state.check()
    except UnreadableEntry as error:
        raise StateRefused(f"{error}{ADVICE}") from None
    except InvariantBroken as error:
        replayed.fault = f"after entry {seq}: {error}"
    return replayed


ADVICE = f"; {file.ADVICE}"


# When a snapshot is due, so that a restart never has much of the journal to fold again.

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
        return self._save(seq, still(state))

    async def _save(self, seq: int, state: State) -> None:
        try:
            parts = await asyncio.to_thread(lambda: tuple(write(taken(state))))
            await self._journal.save_snapshot(StateSnapshot(seq, shape(), parts))
        finally:
            self._saving = False
