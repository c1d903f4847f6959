"""All that a head says is in a record, and no word of a newer head is a fault."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.from_wire import FORMS, record
from hermesctl.sdk.records import Node, Trial, TrialState
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

MESSAGES: list[tuple[type, Any]] = [(kind, form.message) for kind, form in FORMS.items()]
# What a client has no use for: a trial's own checkpoint says of which run it is in its id.
UNTOLD = {"Checkpoint.trial", "Checkpoint.attempt", "Quantum.exact", "Quantum.milestones"}
_VALUES: dict[int, Any] = {
    FieldDescriptor.TYPE_STRING: "word",
    FieldDescriptor.TYPE_BYTES: b"word",
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_DOUBLE: 0.5,
    FieldDescriptor.TYPE_ENUM: 2,
}


def filled(message: Message, name: str) -> Message:
    """The message with something in one of its fields."""
    field = message.DESCRIPTOR.fields_by_name[name]
    value: Any = _VALUES.get(field.type, 7)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        value = _whole(field.message_type)
        if field.is_repeated:
            getattr(message, name).append(value)
        else:
            getattr(message, name).CopyFrom(value)
    elif field.is_repeated:
        getattr(message, name).append(value)
    else:
        setattr(message, name, value)
    return message


def _whole(kind: Descriptor) -> Message:
    """A message with something in each of its fields, but for those that are messages again."""
    if kind.name == "NamedValue":
        return types.NamedValue(name="word", value=types.Value(int_value=3))
    made: Message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.type != FieldDescriptor.TYPE_MESSAGE or field.message_type.name in ("Metric",):
            filled(made, field.name)
    return made


FIELDS = [
    (kind, made, field.name)
    for kind, made in MESSAGES
    for field in made.DESCRIPTOR.fields
    if f"{made.DESCRIPTOR.name}.{field.name}" not in UNTOLD
]


@pytest.mark.parametrize(("kind", "made", "name"), FIELDS)
def test_every_field_of_a_message_is_in_its_record(kind: type, made: Any, name: str) -> None:
    role = made.DESCRIPTOR.fields_by_name.get("role")
    usual = {"role": 1} if role is not None and role.enum_type else {}  # none is nobody's
    assert record(kind, filled(made(**usual), name)) != record(kind, made(**usual))


def test_words_of_a_newer_head_are_no_fault() -> None:
    assert record(Trial, pb.Trial(state=99, fidelity=99, kept_tier=99)) == record(Trial, pb.Trial())  # type: ignore[arg-type]
    assert record(Trial, pb.Trial(state=99)).state is TrialState.WAITING  # type: ignore[arg-type]
    assert record(Event, pb.PublicEvent(kind=99)).kind is EventKind.OTHER  # type: ignore[arg-type]


def test_what_an_older_head_does_not_say_has_its_usual_value() -> None:
    node = record(Node, pb.Node(devices=[pb.DeviceStatus()]))
    assert (node.pool, node.devices[0].speed) == ("default", 1.0)
    trial = record(Trial, pb.Trial())
    assert (trial.rank, trial.signal, trial.stalled_since_unix_seconds) == (None, None, None)
