"""Hypothesis strategies for specs: every message of the study file, filled from its descriptor."""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from hermesd.pb.hermes.v1.types_pb2 import StudySpec, Value

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
INT64 = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.one_of(
    TEXT.map(lambda v: Value(string_value=v)),
    st.sampled_from(["no", "010", "1e-3", "", "~", "12:30:45", "-", "a: b", "#x"]).map(
        lambda v: Value(string_value=v)
    ),
    INT64.map(lambda v: Value(int_value=v)),
    FINITE.map(lambda v: Value(double_value=v)),
    st.booleans().map(lambda v: Value(bool_value=v)),
)


def _value_list(values: list[Value]) -> Value:
    value = Value()
    value.list_value.SetInParent()
    value.list_value.values.extend(values)
    return value


VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3).map(_value_list), max_leaves=4
)
NUMBERS = st.one_of(
    INT64.map(lambda v: Value(int_value=v)), FINITE.map(lambda v: Value(double_value=v))
)


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([v.number for v in field.enum_type.values if v.number])
    return {
        FieldDescriptor.CPPTYPE_STRING: TEXT,
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_DOUBLE: FINITE,
        FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        FieldDescriptor.CPPTYPE_INT64: INT64,
    }[field.cpp_type]


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], *, named: bool = False) -> Message:
    """A message with any subset of its fields set; `named`: its name is there."""
    message = kind()
    for field in cast(list[FieldDescriptor], list(message.DESCRIPTOR.fields)):
        if (field.name != "name" or not named) and not draw(st.booleans()):
            continue
        _fill(draw, message, field)
    return message


def _fill(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    kind = None if field.message_type is None else field.message_type._concrete_class
    target = getattr(message, field.name)
    if kind is Value:
        strategy = NUMBERS if field.name in ("min", "max") else VALUES
        if field.is_repeated:
            target.extend(draw(st.lists(strategy, max_size=3)))
        else:
            target.CopyFrom(draw(strategy))
    elif kind is not None and field.is_repeated and "name" not in kind.DESCRIPTOR.fields_by_name:
        target.extend(draw(st.lists(messages(kind), max_size=3)))
    elif kind is not None and field.is_repeated:
        known = {"name"} if field.name == "settings" else set()
        names = draw(st.lists(TEXT, max_size=3, unique=True))
        for name in names:
            if name in known:
                continue
            item = draw(messages(kind, named=True)) if field.name != "settings" else kind()
            if field.name == "settings":
                item.value.CopyFrom(draw(VALUES))
            item.name = name
            target.append(item)
    elif kind is not None:
        target.SetInParent()
        # Settings are a policy's or a placement's, which then has a name.
        target.CopyFrom(draw(messages(kind, named="settings" in kind.DESCRIPTOR.fields_by_name)))
        target.SetInParent()
    elif field.is_repeated:
        target.extend(draw(st.lists(_scalars(field), max_size=3)))
    else:
        setattr(message, field.name, draw(_scalars(field)))


SPECS: st.SearchStrategy[StudySpec] = messages(StudySpec)  # type: ignore[assignment]
