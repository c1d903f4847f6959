"""A tree from a study file -> StudySpec. The proto is the schema: its descriptor drives all.

Six rules turn the proto's shape into a pleasant file, for every message alike:
- a repeated message with a `name` is a mapping from the name to the rest (`parameters`);
- what such a mapping has one other field of may be that field alone (`metrics`);
- a message that begins with `name` may be written as the bare name (`metric: loss`);
- a message with `settings` takes every key that it doesn't know as a setting (`policy`);
- an enum is written by its short name in lower case (`minimize`);
- a number of which the most may be told, too, is that or a mapping of `min` and `max` (`devices`).
All problems are collected, each with its place, what is allowed and the nearest name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hermesctl.errors import Place, Problem
from hermesctl.study_file import load
from hermesctl.study_file.load import BrokenYaml, Items, Node, Scalar, Table, TreeEntry
from hermesctl.text import nearest
from hermesd.pb.hermes.v1.types_pb2 import NamedValue, Parameter, StudySpec, Value

# The field of the most of a number is called like that of the number, with this before it.
MOST = "max_"

# What a field of the study file wants, in words, and what a wrong value was meant to be.


def with_unit(name: str, text: str) -> float | int | None:
    """`text` in the unit that the field's name ends in; None if it is no such measure."""
    if name.endswith("_seconds"):
        return load.seconds(text)
    if name.endswith("_bytes"):
        return load.size_bytes(text)
    return None


def expectation(field: FieldDescriptor) -> str:
    """What a field's value must be, in words."""
    if field.name.endswith("_seconds"):
        return "a duration such as 90, 90s or 10m"
    if field.name.endswith("_bytes"):
        return "a size such as 8GiB or a number of bytes"
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return "text"
        case FieldDescriptor.CPPTYPE_BOOL:
            return "true or false"
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return "a number"
        case _:
            return "a whole number"


def near_value(field: FieldDescriptor, node: Scalar) -> str:
    """The valid value that a wrong one was probably meant to be; empty if none is near."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if node.text.lower() in ("yes", "on", "y", "true", "1"):
            return "true"
        return "false" if node.text.lower() in ("no", "off", "n", "false", "0") else ""
    if isinstance(node.value, float) and node.value.is_integer():
        return str(int(node.value))
    near = near_number(node.text)
    if field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE:
        return near if near.removeprefix("-").isdigit() else ""
    return near


def near_number(text: str) -> str:
    """The number that `1_000`, `010` or `1,5` was probably meant to be."""
    candidate = text.replace("_", "").replace(",", ".").strip().lstrip("0") or "0"
    try:
        value = load.resolve(candidate)
    except ValueError:
        return ""
    return candidate if isinstance(value, int | float) and not isinstance(value, bool) else ""


# What others call a distribution whose bounds are values: those of log_uniform are exponents.
_NEAREST = {"loguniform": "log_uniform_values", "qloguniform": "q_log_uniform_values"}
# What a W&B sweep file may say in other words, and what of it means nothing here.
ENUM_ALIASES = {"categorical_w_probabilities": "categorical", "bayes": "tpe"}
_IGNORED = {
    "apiVersion": "apiVersion is not needed and was ignored",
    "controller": "controller is not needed and was ignored: the head decides",
    "kind": "kind is not needed and was ignored",
    "metric.target": "metric.target was ignored: use stop.target to end a trial at a value",
}
# Of a long list of keys, those that are looked for.
_OFTEN = (
    *("name", "program", "command", "method", "parameters", "run_cap", "metric", "signal"),
    *("schedule", "stop", "resources", "retry"),
)
_LISTED_MAX = 16
# Where a key belongs that stands too high.
BELOW = {
    key: f"{above}.{key}"
    for above in ("signal", "metric", "resources", "retry", "schedule", "stop", "suspend")
    for key in getattr(StudySpec(), above).DESCRIPTOR.fields_by_name
}
_WITH_SETTING = "policy: {name: hermes, quantum_seconds: 10}"
_NUMBERS_ONLY = frozenset({"hermes.v1.Parameter.min", "hermes.v1.Parameter.max"})
# Elements of an argument list are text whatever they look like.
_ARGUMENTS = frozenset({"hermes.v1.StudySpec.command"})
# The wire can't tell an empty list from none, which would be another mistake.
_NOT_EMPTY = {
    "hermes.v1.Parameter.values": "at least one value",
    "hermes.v1.StudySpec.command": "a program to run (leave the key out for the default)",
}
_TEXT_AS_VALUE = "text, a number, true or false"
_INT_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (load.INT32_MIN, load.INT32_MAX),
    FieldDescriptor.CPPTYPE_INT64: (load.INT64_MIN, load.INT64_MAX),
}


def build_spec(root: Node) -> tuple[StudySpec, list[Problem], list[str]]:
    """The spec that the tree stands for, the problems found, and notes on what was ignored."""
    builder = _Builder()
    spec = StudySpec()
    if isinstance(root, Table):
        builder.message(spec, root, "")
    elif not isinstance(root, BrokenYaml):
        builder.refuse(root, "a mapping with keys such as `program` and `parameters`", "")
    return spec, builder.problems, builder.notes


def build_values(parameters: Table) -> tuple[list[NamedValue], list[Problem]]:
    """The values of hyper-parameters that a tree stands for, and the problems found."""
    builder = _Builder()
    values = [NamedValue(name=entry.key) for entry in parameters.entries]
    for value, entry in zip(values, parameters.entries, strict=True):
        builder.submessage(value.value, entry.node, f"parameters.{entry.key}")
    return values, builder.problems


def build_parameters(axes: Table) -> tuple[list[Parameter], list[Problem]]:
    """The axes that a tree stands for, as a study file has them, and the problems found. A bare
    value is the only one of its axis, a list all of them."""
    builder = _Builder()
    spec = StudySpec()
    entries = tuple(replace(entry, node=_axis(entry.node, entry.place)) for entry in axes.entries)
    field = _fields(spec)["parameters"]
    builder.repeated(spec, field, Table(entries, axes.place), "parameters")
    return list(spec.parameters), builder.problems


def setting_keys() -> Iterator[str]:
    """All that a study file may set, with dots, but what goes by names that its author gives."""
    for key in _fields(StudySpec()).values():
        if key.message_type is None:
            yield key.name
        elif not key.is_repeated:
            names = key.message_type.fields_by_name
            ends = {f"{MOST}{name}" for name in names}  # of a range, which is one setting
            yield from (f"{key.name}.{name}" for name in names if name not in ends)


def range_path(field_path: str) -> str:
    """The path as a study file has it: `resources.devices.max` of `resources.max_devices`."""
    *parents, name = field_path.split(".")
    fields: Mapping[str, FieldDescriptor] = _fields(StudySpec())
    for parent in parents:
        if (field := fields.get(parent)) is None or field.message_type is None:
            return field_path
        fields = field.message_type.fields_by_name
    least = name.removeprefix(MOST)
    return ".".join((*parents, least, "max")) if least != name and least in fields else field_path


def _axis(node: Node, place: Place) -> Node:
    if isinstance(node, Table | BrokenYaml):
        return node
    key = "values" if isinstance(node, Items) else "value"
    return Table((TreeEntry(key, place, node),), place)


def short_enum_name(enum: EnumDescriptor, number: int) -> str:
    """How the file writes the enum value `number`: without the prefix, in lower case."""
    name = enum.values_by_number[number].name
    return name.removeprefix(_enum_prefix(enum)).lower()


def begins_with_name(message: Message) -> bool:
    """Whether this message may be written as the bare name."""
    return message.DESCRIPTOR.fields[0].name == "name"


def _enum_prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _fields(message: Message) -> dict[str, FieldDescriptor]:
    # The stubs name the C implementation's descriptor beside the public one.
    fields = cast(Iterable[FieldDescriptor], message.DESCRIPTOR.fields)
    return {field.name: field for field in fields}


class _Builder:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def refuse(self, node: Node, expected: str, path: str, near: str = "") -> None:
        match node:
            case Scalar(text=text):
                value = text or "nothing"
            case Items(items=items):
                value = "a list" if items else "[]"
            case _:
                value = "a mapping" if isinstance(node, Table) else ""
        self.problems.append(Problem(expected, path, value, near, node.place))

    def message(self, message: Message, table: Table, path: str) -> None:
        message.SetInParent()
        fields = _fields(message)
        for entry in table.entries:
            child_path = f"{path}.{entry.key}" if path else entry.key
            if entry.key in fields and entry.key != "settings":
                self.field(message, fields[entry.key], entry.node, child_path)
            elif child_path in _IGNORED:
                self.notes.append(_IGNORED[child_path])
            elif "settings" in fields:
                self.setting(message, entry, child_path)
            else:
                self.unknown(entry, child_path, fields)
        if "settings" in fields and message.settings and not message.name:  # type: ignore[attr-defined]
            named = "a name beside the settings, such as {name: asha, eta: 2}"
            self.problems.append(Problem(named, f"{path}.name", place=table.place))

    def unknown(self, entry: TreeEntry, path: str, known: Iterable[str]) -> None:
        names = sorted(known)
        often = [name for name in _OFTEN if name in names]
        listed = ", ".join(names)
        if len(names) > _LISTED_MAX and often:
            listed = f"{', '.join(often)} or {len(names) - len(often)} others"
        expected = f"one of the keys {listed}"
        above = path.removesuffix(entry.key)
        near = nearest(entry.key, names if above else [*names, *BELOW])
        if not above and near not in names:
            near = BELOW.get(near, "")
        if not near and above == "schedule.":
            # Which settings a policy takes, only the head knows.
            expected += f" (a policy's settings go beside its name: {_WITH_SETTING})"
        elif not above:
            expected += f" (a hyper-parameter goes below parameters: parameters.{entry.key}.value)"
        self.problems.append(Problem(expected, path, "unknown key", near, entry.place))

    def field(self, message: Message, field: FieldDescriptor, node: Node, path: str) -> None:
        if isinstance(node, BrokenYaml):
            return
        if field.is_repeated:
            self.repeated(message, field, node, path)
        elif isinstance(node, Table) and f"{MOST}{field.name}" in _fields(message):
            self.bounds(message, field, node, path)
        elif field.message_type is not None:
            child = getattr(message, field.name)
            self.submessage(child, node, path, field.full_name in _NUMBERS_ONLY)
        else:
            value = self.scalar(field, node, path)
            if value is not None:
                setattr(message, field.name, value)

    def bounds(self, message: Message, field: FieldDescriptor, table: Table, path: str) -> None:
        bounds = {"min": field, "max": _fields(message)[f"{MOST}{field.name}"]}
        for entry in table.entries:
            if entry.key in bounds:
                self.field(message, bounds[entry.key], entry.node, f"{path}.{entry.key}")
            else:
                self.unknown(entry, f"{path}.{entry.key}", bounds)
        if not message.HasField(bounds["max"].name):
            self.problems.append(Problem("the most", f"{path}.max", place=table.place))

    def repeated(self, message: Message, field: FieldDescriptor, node: Node, path: str) -> None:
        values = getattr(message, field.name)
        if field.message_type is not None and "name" in field.message_type.fields_by_name:
            if not isinstance(node, Table):
                self.refuse(node, "a mapping from names to their values", path)
                return
            for entry in node.entries:
                self.named(values.add(name=entry.key), entry, f"{path}.{entry.key}")
            return
        if field.full_name in _ARGUMENTS and isinstance(node, Scalar):
            node = self.split(node, path)
        if isinstance(node, BrokenYaml):
            return
        if not isinstance(node, Items):
            written = node.text if isinstance(node, Scalar) else "…"
            self.refuse(node, "a list", path, f"[{written}]")
            return
        if not node.items and field.full_name in _NOT_EMPTY:
            self.refuse(node, _NOT_EMPTY[field.full_name], path)
        for position, item in enumerate(node.items):
            self.item(values, field, item, f"{path}[{position}]")

    def item(self, values: object, field: FieldDescriptor, node: Node, path: str) -> None:
        if isinstance(node, BrokenYaml):
            return
        if field.message_type is not None:
            self.submessage(values.add(), node, path)  # type: ignore[attr-defined]
            return
        if field.full_name in _ARGUMENTS and isinstance(node, Scalar):
            node = Scalar(node.text, node.text, node.place)
        value = self.scalar(field, node, path)
        if value is not None:
            values.append(value)  # type: ignore[attr-defined]

    def split(self, node: Scalar, path: str) -> Node:
        try:
            words = shlex.split(node.text)
        except ValueError as error:
            self.refuse(node, f"a command line ({error})".lower(), path)
            return BrokenYaml(node.place)
        if not words:
            self.refuse(node, _NOT_EMPTY["hermes.v1.StudySpec.command"], path)
            return BrokenYaml(node.place)
        return Items(tuple(Scalar(w, w, node.place) for w in words), node.place)

    def named(self, message: Message, entry: TreeEntry, path: str) -> None:
        if isinstance(entry.node, BrokenYaml):
            return
        known = {name: f for name, f in _fields(message).items() if name != "name"}
        if len(known) == 1 and isinstance(entry.node, Scalar | Items):
            (only,) = known.values()
            node = entry.node
            if only.is_repeated and isinstance(node, Scalar):
                node = Items((node,), node.place)
            self.field(message, only, node, path)
            return
        if not isinstance(entry.node, Table):
            example = "a mapping such as {value: 0.1} or {values: [0.1, 0.2]}"
            self.refuse(entry.node, example, path)
            return
        for child in entry.node.entries:
            child_path = f"{path}.{child.key}"
            if child.key in known:
                self.field(message, known[child.key], child.node, child_path)
            else:
                self.unknown(child, child_path, known)

    def submessage(
        self, message: Message, node: Node, path: str, numbers_only: bool = False
    ) -> None:
        if isinstance(node, BrokenYaml):
            return
        if isinstance(message, Value):
            self.value(message, node, path, numbers_only)
        elif isinstance(node, Table):
            self.message(message, node, path)
        elif isinstance(node, Scalar) and begins_with_name(message):
            self.field(message, _fields(message)["name"], node, path)
        else:
            keys = ", ".join(_fields(message))
            name = "a name, or " if begins_with_name(message) else ""
            self.refuse(node, f"{name}a mapping with the keys {keys}", path)

    def setting(self, message: Message, entry: TreeEntry, path: str) -> None:
        node = entry.node
        if isinstance(node, BrokenYaml):
            return
        if isinstance(node, Scalar) and isinstance(node.value, str):
            # A setting's unit is in its name, like a field's; there is no descriptor to ask.
            converted = with_unit(entry.key, node.value)
            if converted is not None:
                node = Scalar(converted, node.text, node.place)
        named = NamedValue(name=entry.key)
        self.value(named.value, node, path)
        message.settings.append(named)  # type: ignore[attr-defined]

    def value(self, message: Value, node: Node, path: str, numbers_only: bool = False) -> None:
        match node:
            case Scalar(value=bool() as truth) if not numbers_only:
                message.bool_value = truth
            case Scalar(value=int() as whole) if not isinstance(whole, bool):
                message.int_value = whole
            case Scalar(value=float() as real):
                message.double_value = real
            case Scalar(value=str() as word) if not numbers_only:
                message.string_value = word
            case Items(items=items) if not numbers_only:
                message.list_value.SetInParent()
                for position, item in enumerate(items):
                    child = message.list_value.values.add()
                    self.submessage(child, item, f"{path}[{position}]")
            case Scalar(text=text) if numbers_only:
                self.refuse(node, "a number", path, near_number(text))
            case _:
                self.refuse(node, "a number" if numbers_only else _TEXT_AS_VALUE, path)

    def scalar(
        self, field: FieldDescriptor, node: Node, path: str
    ) -> str | int | float | bool | None:
        """The value for a field that is no message; None when it was refused."""
        if not isinstance(node, Scalar):
            self.refuse(node, expectation(field), path)
            return None
        if field.enum_type is not None:
            return self.enum(field.enum_type, node, path)
        value = self._measured(field, node.value)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return self.text(node, path)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            if isinstance(value, bool):
                return value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
                return float(value)
            low, high = _INT_RANGES[field.cpp_type]
            if isinstance(value, int) and low <= value <= high:
                return value
            if isinstance(value, int):
                self.refuse(node, f"a whole number from {low} to {high}", path)
                return None
        self.refuse(node, expectation(field), path, near_value(field, node))
        return None

    def text(self, node: Scalar, path: str) -> str | None:
        if isinstance(node.value, str) and node.value:
            return node.value
        if node.value is None or node.value == "":
            self.refuse(node, "text (leave the key out for the default)", path)
        else:
            self.refuse(node, "text, in quotes", path, f'"{node.text}"')
        return None

    def enum(self, enum: EnumDescriptor, node: Scalar, path: str) -> int | None:
        names = [short_enum_name(enum, v.number) for v in enum.values if v.number]
        word = ENUM_ALIASES.get(node.text, node.text)
        if isinstance(node.value, str) and word in names:
            return enum.values_by_name[_enum_prefix(enum) + word.upper()].number
        expected = f"one of {', '.join(names)}"
        near = _NEAREST.get(node.text.replace("-", "").lower()) or nearest(node.text, names)
        self.refuse(node, expected, path, near)
        return None

    @staticmethod
    def _measured(field: FieldDescriptor, value: load.Plain) -> load.Plain:
        if not isinstance(value, str):
            return value
        converted = with_unit(field.name, value)
        return value if converted is None else converted
