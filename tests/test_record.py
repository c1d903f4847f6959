"""What the journal writes is read back equal, whatever an entry holds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import record
from hermesd.core.commands import Launch
from hermesd.core.events import (
    Added,
    Extended,
    Paused,
    PoolsConfigured,
    QuantumEnded,
    Reported,
    RunStarted,
    Submitted,
)
from hermesd.core.losses import Chunk
from hermesd.core.model import OnSameFailure, Quantum, RunId, Scalar, StopRule
from hermesd.pieces import whole
from tests.core.playbook import submitted

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.one_of(
    TEXT,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(str, TEXT)
ENTRIES = st.one_of([st.from_type(kind) for kind in record.KINDS.values()])


WITH_SETTINGS = Submitted | Added | Extended | PoolsConfigured


def with_scalars(entry: Any) -> bool:
    """Infinities are no values of hyper-parameters and settings: a study or a pool with one is
    refused."""
    return "inf" not in repr(entry) or not isinstance(entry, WITH_SETTINGS)


@given(ENTRIES.filter(with_scalars))
def test_every_entry_comes_back_equal(entry: record.Entry) -> None:
    kind, body = record.encode(entry)
    again = record.decode(kind, body)
    assert again == entry
    assert type(again) is type(entry)
    assert "\n" not in body
    assert whole(record.encode_in_pieces(entry, at_once=1)) == (kind, body)


@pytest.mark.parametrize("trials", [0, 1, record.PIECE, 2 * record.PIECE + 1])
def test_a_study_written_in_pieces_is_written_as_in_one(trials: int) -> None:
    event = submitted(trials, '"trials":[]', owner='"trials":[')
    event = replace(event, request_id='"trials":[]')
    assert whole(record.encode_in_pieces(event)) == record.encode(event)


@pytest.mark.parametrize(("had", "more"), [(0, 0), (0, 1), (2, 0), (2, 2)])
def test_a_field_that_is_made_longer_is_written_as_in_one(had: int, more: int) -> None:
    event = submitted(had + more, '"trials":[]', owner='"trials":[')
    begun, rest = (replace(event, trials=part) for part in (event.trials[:had], event.trials[had:]))
    assert record.lengthened(record.encode(begun), rest, "trials") == record.encode(event)


@given(st.dictionaries(TEXT, SCALARS))
def test_hyper_parameters_keep_their_type(values: dict[str, Any]) -> None:
    form: record.Form[Any] = record.Form(tuple[tuple[str, Scalar], ...])
    again = form.read(form.write(tuple(values.items())))
    assert [(k, type(v), v) for k, v in again] == [(k, type(v), v) for k, v in values.items()]


def test_nothing_that_is_not_finite_is_lost_and_the_body_is_json() -> None:
    report = Reported(
        RunId("digits/1", 2),
        7,
        (Chunk(1, 7, 7, math.nan, -math.inf, math.inf),),
        (("loss", math.nan),),
    )
    kind, body = record.encode(report)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(body, parse_constant=refuse)["run"] == ["digits/1", 2]
    again = record.decode(kind, body)
    assert isinstance(again, Reported)
    chunk = again.chunks[0]
    assert math.isnan(chunk.total)
    assert (chunk.low, chunk.high) == (-math.inf, math.inf)
    assert math.isnan(again.metrics[0][1])


def test_a_field_that_an_older_version_did_not_write_takes_its_default() -> None:
    body = '{"run":["digits/1",1],"step":0,"start_seconds":0.5}'
    assert record.decode("RunStarted", body) == RunStarted(RunId("digits/1", 1), 0, 0.5)
    body = '{"run":["d/1",1],"devices":["n/0"],"quantum":{},"reason":"first"}'
    launch = Launch(RunId("d/1", 1), ("n/0",), Quantum(), "first")
    assert record.decode("Launch", body) == launch
    longer = Extended("s", ("s/0",), StopRule(9), (("epochs", 2),), (("x",),), "r1")
    kind, body = record.encode(longer)
    before = json.loads(body)
    for field in ("source", "redrawn", "added", "ended"):
        del before[field]
    assert record.decode(kind, json.dumps(before)) == longer
    kind, body = record.encode(submitted(on_same_failure=OnSameFailure.STUDY))
    older = json.loads(body)
    for field in ("on_same_failure", "metric_chosen"):
        del older["study"][field]
    again = record.decode(kind, json.dumps(older))
    assert isinstance(again, Submitted)
    assert again.study.on_same_failure is OnSameFailure.GO_ON, "what it did is replayed as it went"
    assert not again.study.metric_chosen


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("Teleported", "{}", "unknown kind 'Teleported'"),
        ("QuantumEnded", "{}", r"QuantumEnded with .*run: expected a value"),
        ("QuantumEnded", '{"run":["a",1],"grant":"x","step":1}', "grant = x: expected a valid int"),
        ("QuantumEnded", "not json", "QuantumEnded with"),
        ("QuantumEnded", "", "QuantumEnded with"),
        ("QuantumEnded", "},{", "QuantumEnded with"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(kind: str, body: str, message: str) -> None:
    with pytest.raises(record.UnreadableEntry, match=message):
        record.decode(kind, body)


def test_kinds_have_names_of_their_own() -> None:
    assert record.encode(QuantumEnded(RunId("a", 1), 0, 3))[0] == "QuantumEnded"
    assert record.encode(Paused(("a/1",), "r"))[0] == "Paused"
    assert len(record.KINDS) > 25
