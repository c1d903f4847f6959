"""The state as text, part by part, and back: a cache that saves a restart most of the replay.

Every table is kept in its order, since the order of equals reaches decisions. A snapshot of
another version, or of types that have changed, is not looked at: the journal is the truth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import hermesd
from hermesd.core.copies import rebuilt
from hermesd.core.history import Exclusion, Quarantined, Strike
from hermesd.core.model import DeviceId, NodeId, Place, RunId, Study, StudyId, Time, TrialId, UserId
from hermesd.core.nodes import Node, Slot
from hermesd.core.policy import Facts
from hermesd.core.pools import Pool, PoolId
from hermesd.core.sharing import Account, Terms
from hermesd.core.speeds import Evidence
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.record import Form

PART_ITEMS = 500

TABLES: dict[str, tuple[Any, Any]] = {
    "studies": (StudyId, Study),
    "trials": (TrialId, Trial),
    "versions": (TrialId, int),
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
    "served": (StudyId, Time),
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
    "ended": (StudyId, None),
    "free": (DeviceId, None),
    "expired": (DeviceId, None),
    "parked": (TrialId, None),
    "reserved": (TrialId, DeviceId),
}


class Taken(NamedTuple):
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


def taken(state: State) -> Taken:
    """The tables as they are now: what they hold is frozen, so listing it is enough."""
    tables = {table: list(getattr(state, table).items()) for table in TABLES}
    tables["sights"] = [(node, dict(seen)) for node, seen in state.sights.items()]
    tables["active"] = [(study, dict(trials)) for study, trials in state.active.items()]
    return Taken(state.now, state.half_life_seconds, tables)


def write(taken: Taken) -> Iterator[str]:
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
        getattr(state, table).update(_form(table).read(body))
    rebuilt(state)
    return state
