"""The state as text, part by part, and back: a cache that saves a restart most of the replay.

Every table is kept in its order, since the order of equals reaches decisions. A snapshot of
another version, or of types that have changed, is not looked at: the journal is the truth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import hermesd
from hermesd.core.model import (
    DeviceId,
    Node,
    NodeId,
    RunId,
    Slot,
    Study,
    StudyId,
    TrialId,
)
from hermesd.core.policy import Facts
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.record import Form

PART_ITEMS = 500

TABLES: dict[str, tuple[Any, Any]] = {
    "studies": (StudyId, Study),
    "trials": (TrialId, Trial),
    "members": (StudyId, tuple[TrialId, ...]),
    "active": (StudyId, dict[TrialId, None]),
    "nodes": (NodeId, Node),
    "slots": (DeviceId, Slot),
    "facts": (StudyId, Facts),
    "requests": (str, tuple[TrialId, ...]),
    "fallen": (StudyId, str),
    "strays": (tuple[NodeId, RunId], None),
    "releases": (tuple[TrialId, NodeId], bool),
    "dirty": (TrialId, None),
    "free": (DeviceId, None),
    "expired": (DeviceId, None),
    "reserved": (TrialId, DeviceId),
}


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


def write(state: State) -> Iterator[str]:
    """The parts of the state. Between two parts the state must not change."""
    yield json.dumps({"now": state.now})
    for table in TABLES:
        items = iter(getattr(state, table).items())
        while piece := tuple(islice(items, PART_ITEMS)):
            yield f"{table} {_form(table).write(piece)}"


def read(parts: tuple[str, ...]) -> State:
    """The state that was written."""
    state = State()
    state.now = json.loads(parts[0])["now"]
    for part in parts[1:]:
        table, _, body = part.partition(" ")
        getattr(state, table).update(_form(table).read(body))
    return state
