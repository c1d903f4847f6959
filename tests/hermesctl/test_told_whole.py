"""What people are told of an entry of the journal is in its line whole: every kind of entry, with
every field other than its default, from the journal to `tail`."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from google.protobuf.descriptor import FieldDescriptor

from hermesctl.render.event_lines import event_line
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.from_wire import record as told_as
from hermesd import record
from hermesd.core.commands import Launch
from hermesd.core.state import State
from hermesd.head.api.public_events import public_events
from hermesd.head.journal.schema import JournalLine
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.node.test_wire_whole import Filler

# What a line of `tail` has no words for, as it stands in others of them: the study in the name of
# the trial, and the kind and the tier as words.
APART = {"study", "kind", "tier", "quantum", "metrics", "at_unix_seconds"}


def told(kind: type) -> list[Event]:
    """What a client gets of an entry of this kind that a head has read from its journal."""
    entry = record.decode(*record.encode(Filler().whole(kind)))
    said = public_events(JournalLine(7, 9.0, entry, ""), State())
    sent = [pb.PublicEvent.FromString(each.SerializeToString()) for each in said]
    return [told_as(Event, each) for each in sent]


@pytest.mark.parametrize("kind", record.KINDS.values(), ids=lambda kind: kind.__name__)
def test_a_line_says_all_that_its_event_holds(kind: type) -> None:
    for event in told(kind):
        assert event.kind is not EventKind.OTHER
        line = event_line(event).plain
        numbers = set(map(float, re.findall(r"\d+(?:\.\d+)?", line)))
        for field in pb.PublicEvent.DESCRIPTOR.fields:
            value = getattr(event, field.name)
            if field.name in APART or value is None:
                continue
            if field.type == FieldDescriptor.TYPE_STRING:
                assert value in line, field.name
            elif value:
                assert value in numbers, field.name
        for metric in event.metrics:
            assert metric.name in line
            assert metric.last in numbers
        if event.tier:
            assert f"tier {event.tier}" in line
        if event.quantum is not None:
            assert "quantum " in line


def test_every_field_of_an_event_is_told_of_some_entry() -> None:
    events = [event for kind in record.KINDS.values() for event in told(kind)]
    empty = {
        each.name
        for each in fields(Event)
        if all(getattr(event, each.name) in ("", 0, None, ()) for event in events)
    }
    assert empty == set()


def test_a_launch_names_every_device_of_the_trial() -> None:
    launch = replace(Filler().whole(Launch), devices=("box/0", "box/1"))
    entry = record.decode(*record.encode(launch))
    (said,) = public_events(JournalLine(7, 9.0, entry, ""), State())
    assert "on box/0, box/1 · " in event_line(told_as(Event, said)).plain
