"""Writes a StudySpec as a study file, by schema.py's rules backward.

What `study_text` writes, `load` and `schema` read back as an equal spec.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hermesctl.study_file.schema import MOST, begins_with_name, short_enum_name
from hermesctl.yaml_text import Data, to_yaml
from hermesd.config.labels import label
from hermesd.pb.hermes.v1.types_pb2 import Plugin, StudySpec, Value


def study_text(spec: StudySpec) -> str:
    """The file's text."""
    return to_yaml(study_data(spec))


def study_data(spec: StudySpec) -> dict[str, Data]:
    """The file's content as plain data; Client.submit takes it back."""
    return {field.name: _field(field, value) for field, value in spec.ListFields()}


def value_data(value: Value) -> Data:
    """A hyper-parameter's or setting's value as plain data."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "list_value":
        return [value_data(item) for item in value.list_value.values]
    data: Data = getattr(value, kind)
    return data


def plugin_label(policy: Plugin, placement: Plugin | None = None) -> str:
    """A policy with its settings and its placement, as the simulator reads them:
    `hermes:quantum_seconds=20,placement=homes`."""
    placed = placement or Plugin()
    settings = [(e.name, value_data(e.value)) for e in (*policy.settings, *placed.settings)]
    return label(policy.name, settings, placed.name)


def _field(field: FieldDescriptor, value: object) -> Data:
    if not field.is_repeated:
        return _single(field, value)
    items = list(value)  # type: ignore[call-overload]
    if field.message_type is not None and "name" in field.message_type.fields_by_name:
        return {item.name: _without_name(item) for item in items}
    return [_single(field, item) for item in items]


def _single(field: FieldDescriptor, value: object) -> Data:
    if field.enum_type is not None:
        assert isinstance(value, int)
        return short_enum_name(field.enum_type, value)
    if isinstance(value, Message):
        return _message(value)
    assert isinstance(value, str | int | float | bool)
    return value


def _message(message: Message) -> Data:
    if isinstance(message, Value):
        return value_data(message)
    fields = message.ListFields()
    if begins_with_name(message) and [field.name for field, _ in fields] == ["name"]:
        name: str = fields[0][1]
        return name
    data: dict[str, Data] = {}
    for field, value in fields:
        least = field.name.removeprefix(MOST)
        if least != field.name and least in data:
            data[least] = {"min": data[least], "max": _field(field, value)}
        elif field.name == "settings":
            data.update({setting.name: value_data(setting.value) for setting in value})
        else:
            data[field.name] = _field(field, value)
    return data


def _without_name(message: Message) -> Data:
    data = {f.name: _field(f, value) for f, value in message.ListFields() if f.name != "name"}
    return next(iter(data.values())) if data and len(message.DESCRIPTOR.fields) == 2 else data
