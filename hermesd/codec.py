"""Frozen values as protobuf messages and back, field by field of the same name.

A `MessageForm` says of a type which message it is and what is not plain about it; everything else
follows from the types of its fields. What a message does not carry is refused when the type is
first used, so that no field can be dropped on the way.

A message from an older or newer peer is read as far as it goes: a field that it lacks has its
zero (or what `MessageForm.absent` says), one that is not known here is passed over. What no
version would send raises `Malformed`, naming the field.
"""

from __future__ import annotations

import collections.abc
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hermesd.pb.hermes.v1 import types_pb2 as types

if TYPE_CHECKING:
    from hermesd.core.model import Scalar, Setting

Convert = Callable[[Any], Any]
Word = TypeVar("Word", bound=Enum)

_SCALARS: Mapping[type, frozenset[int]] = {
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
    float: frozenset({FieldDescriptor.TYPE_DOUBLE}),
    int: frozenset({FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}),
}


class Malformed(Exception):
    """A message that no version of this protocol sends; says which field and value."""


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How values of a type are sent, where that does not follow from their fields' names and types.

    A field for which the message has none, and whose type has a form, has its own fields in the
    same message.
    """

    #: None of a type that is only ever part of others.
    message: type[Message] | None = None
    #: What fields are called in the message.
    names: Mapping[str, str] = field(default_factory=dict)
    #: Fields that are read out of the whole message; `also` sends what they hold, if need be.
    derived: Mapping[str, Convert] = field(default_factory=dict)
    #: Fields of the message that are made from the whole value.
    also: Mapping[str, Convert] = field(default_factory=dict)
    #: What a field has that is zero in the message, because an older peer does not send it.
    absent: Mapping[str, Any] = field(default_factory=dict)
    #: The field that is not sent: the receiver's own name.
    here: str = ""
    #: Raises Malformed for a message, at a path of fields, that no peer would send.
    check: Callable[[Any, str], None] | None = None


def words(kind: type[Word], numbers: EnumDescriptor) -> dict[Word, Any]:
    """The numbers of an enum's members, by name; `UNKNOWN` is what is not specified."""
    prefix, known = _prefix(numbers), numbers.values_by_name
    named = {each: f"{prefix}{each.name}" for each in kind}
    return {
        each: known[f"{prefix}UNSPECIFIED" if each.name == "UNKNOWN" else name].number
        for each, name in named.items()
    }


def _prefix(numbers: EnumDescriptor) -> str:
    return str(numbers.values[0].name.removesuffix("UNSPECIFIED"))


def _value_fields(value: Setting) -> dict[str, Any]:
    """The fields of a Value: a text, number, truth or list of these."""
    match value:
        case bool():
            return {"bool_value": value}
        case int():
            return {"int_value": value}
        case float():
            return {"double_value": value}
        case str():
            return {"string_value": value}
        case tuple():
            return {"list_value": {"values": list(map(_value_fields, value))}}


def _named_fields(named: tuple[str, Setting]) -> dict[str, Any]:
    return {"name": named[0], "value": _value_fields(named[1])}


def named_value(name: str, value: Setting) -> types.NamedValue:
    """The message of a value and its name."""
    return types.NamedValue(**_named_fields((name, value)))


def value_of(message: types.NamedValue) -> Setting:
    """The value of a message. Raises Malformed, naming it."""
    if message.value.WhichOneof("kind") == "list_value":
        return tuple(_scalar(message.name, each) for each in message.value.list_value.values)
    return _scalar(message.name, message.value)


def _scalar(name: str, value: types.Value) -> Scalar:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "list_value":
        raise Malformed(f"{name}: {kind or 'no value'}, expected a scalar")
    found: Scalar = getattr(value, kind)
    return found


class Codec:
    """What types with a form are as messages."""

    def __init__(self, forms: Mapping[type, MessageForm]) -> None:
        self.forms = forms
        self._plans: dict[tuple[type, str], MessagePlan] = {}

    def encode(self, value: Any) -> Any:
        """The message of a value."""
        made = self._message_of(type(value))
        return made(**self.fields(value))

    def fields(self, value: Any) -> dict[str, Any]:
        """The fields of the message of a value, of which a message around it can be made."""
        return self.plan(type(value)).fields(value)

    def decode(self, kind: type, message: Message, path: str = "", here: str = "") -> Any:
        """The value of a message, which errors call `path`, at the receiver `here`. Raises
        Malformed."""
        return self.plan(kind, path).value(message, here)

    def plan(self, kind: type, path: str = "") -> MessagePlan:
        """How values of a type are sent, made once. Raises TypeError, naming a field that cannot
        be."""
        if (kind, path) not in self._plans:
            self._plans[kind, path] = MessagePlan(self, kind, self._message_of(kind), path)
        return self._plans[kind, path]

    def _message_of(self, kind: type) -> Any:
        made = self.forms[kind].message
        if made is None:
            raise TypeError(f"{kind.__name__}: it is only part of other messages")
        return made


class MessagePlan:
    """How one type is written into one type of message and read from it.

    Most fields are the same on both sides: those are taken and given all at once, without a line of
    Python for each. What is left is converted by closures, made here once.
    """

    def __init__(self, codec: Codec, kind: type, made: type[Message], path: str) -> None:
        self._codec, self._kind, self._made, self._path = codec, kind, made, path
        self._form = form = codec.forms[kind]
        self._sent: list[tuple[str, str]] = []
        self._writes: list[tuple[str, Convert]] = []
        self._inline: list[tuple[Convert, MessagePlan]] = []
        # Read are the fields of these names, of which some are converted; the others are then put
        # in where they belong, in order.
        self._raw: list[str] = []
        self._reads: list[tuple[int, Convert]] = []
        self._inserts: list[tuple[int, Convert]] = []
        self._here: int | None = None
        # An alias in quotes is resolved here, and names what its own module has imported.
        hints = get_type_hints(kind, localns=vars(collections.abc))
        for index, (name, default) in enumerate(_fields(kind)):
            self._add(index, name, hints[name], default)
        self._get = _all_of([name for name, _ in self._sent])
        self._wire_names = [name for _, name in self._sent]
        self._get_raw = _all_of(self._raw)
        self._also = list(form.also.items())
        self._check = form.check
        self._plain = not (self._reads or self._inserts) and self._here is None

    def fields(self, value: Any) -> dict[str, Any]:
        """The message's fields that a value has; those that are messages, as their fields."""
        said = dict(zip(self._wire_names, self._get(value), strict=True))
        for name, write in self._writes:
            said[name] = write(said[name])
        for part, plan in self._inline:
            said |= plan.fields(part(value))
        for name, make in self._also:
            said[name] = make(value)
        return said

    def value(self, message: Any, here: str = "") -> Any:
        """The value of a message. Raises Malformed."""
        if self._check is not None:
            self._check(message, self._path)
        if self._plain:
            return self._kind(*self._get_raw(message))
        # First, since among them is the run: what is wrong with that is named before the rest.
        inserts = [(index, read(message)) for index, read in self._inserts]
        values = list(self._get_raw(message))
        for index, read in self._reads:
            values[index] = read(values[index])
        for index, value in inserts:
            values.insert(index, value)
        if self._here is not None:
            values.insert(self._here, here)
        return self._kind(*values)

    def writer(self) -> Convert:
        """`fields`, without the steps that this type does not need: for what comes in numbers."""
        if self._writes or self._inline or self._also:
            return self.fields
        names, get = self._wire_names, self._get
        return lambda value: dict(zip(names, get(value), strict=True))

    def reader(self) -> Convert:
        """`value`, in the same way."""
        if self._check or not self._plain:
            return self.value
        kind, get = self._kind, self._get_raw
        return lambda message: kind(*get(message))

    def _add(self, index: int, name: str, hint: Any, default: Any) -> None:
        form, wire_name = self._form, self._form.names.get(name, name)
        wire = self._made.DESCRIPTOR.fields_by_name.get(wire_name)
        if name == form.here:
            self._here = index
        elif name in form.derived:
            self._inserts.append((index, form.derived[name]))
        elif wire is not None:
            self._sent.append((name, wire_name))
            self._convert(index, hint, wire, form.absent.get(name, default))
        elif hint in self._codec.forms:
            plan = MessagePlan(self._codec, hint, self._made, self._path)
            self._inline.append((attrgetter(name), plan))
            self._inserts.append((index, plan.reader()))
        else:
            there = self._made.DESCRIPTOR.name
            raise TypeError(f"{self._kind.__name__}.{name}: {there} has no field {wire_name}")

    def _convert(self, index: int, hint: Any, wire: Any, default: Any) -> None:
        """Note how a field is written and read, where it is not the same on both sides."""
        path = f"{self._path}.{wire.name}" if self._path else wire.name
        several = wire.is_repeated
        optional = NoneType in get_args(hint)
        if several != (get_origin(hint) is tuple and get_args(hint)[1:] == (...,)):
            raise self._unlike(path, hint)
        inner = get_args(hint)[0] if several or optional else hint
        if optional:
            default = None
        write, read = self._one(inner, wire, path, default)
        if several:
            write, read = _each(write), _every(read)
        elif optional and wire.has_presence:
            self._inserts.append((index, _if_there(wire.name, read)))
        elif read is None and (optional or wire.name in self._form.absent):
            read = _unless_zero(default)
        if write is not None:
            self._writes.append((wire.name, _unless_none(write) if optional else write))
        if optional and wire.has_presence:
            return
        if read is not None:
            self._reads.append((len(self._raw), read))
        self._raw.append(wire.name)

    def _unlike(self, path: str, hint: Any) -> TypeError:
        return TypeError(f"{self._kind.__name__}.{path}: the message has no {hint}")

    def _one(
        self, hint: Any, wire: Any, path: str, default: Any
    ) -> tuple[Convert | None, Convert | None]:
        """How a single value is written and read; None if it is the same on both sides."""
        if wire.type == FieldDescriptor.TYPE_ENUM:
            numbers = _numbers(hint, wire.enum_type)
            return numbers.__getitem__, _word_of(numbers, path, default)
        if wire.type != FieldDescriptor.TYPE_MESSAGE:
            if wire.type not in _SCALARS.get(hint, ()):
                raise self._unlike(path, hint)
            return None, None
        made = GetMessageClass(wire.message_type)
        if hint in self._codec.forms:
            plan = MessagePlan(self._codec, hint, made, path)
            return plan.writer(), plan.reader()
        if made is types.NamedValue:
            return _named(hint)
        return _pair(made, hint)


def _fields(kind: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass or named tuple, in order, with their defaults."""
    if dataclasses.is_dataclass(kind):
        return [(each.name, each.default) for each in dataclasses.fields(kind)]
    return [(name, kind._field_defaults.get(name, dataclasses.MISSING)) for name in kind._fields]


def _all_of(names: list[str]) -> Convert:
    """A function that gives all of these attributes at once, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda each: tuple(getattr(each, name) for name in names)


def _numbers(hint: Any, numbers: EnumDescriptor) -> dict[Any, int]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return words(hint, numbers)
    prefix = _prefix(numbers)
    return {each.name.removeprefix(prefix).lower(): each.number for each in numbers.values[1:]}


def _word_of(numbers: Mapping[Any, int], path: str, default: Any) -> Convert:
    """Raises Malformed for a number that is no word; 0 is the default, if there is one."""
    found = {number: word for word, number in numbers.items()}
    if default is not dataclasses.MISSING:
        found.setdefault(0, default)

    def read(number: int) -> Any:
        try:
            return found[number]
        except KeyError:
            known = sorted(numbers.values())
            raise Malformed(f"{path}: {number}, expected one of {known}") from None

    return read


def _named(hint: Any) -> tuple[Convert, Convert]:
    """Names with values; whose value is a text on this side is one, whatever was sent."""
    if get_args(hint)[1] is str:
        return _named_fields, lambda each: (each.name, str(value_of(each)))
    return _named_fields, lambda each: (each.name, value_of(each))


def _pair(made: Any, hint: Any) -> tuple[Convert, Convert]:
    """A pair is the first two fields of its message."""
    first, second = (each.name for each in made.DESCRIPTOR.fields[:2])
    return (lambda pair: {first: pair[0], second: pair[1]}), attrgetter(first, second)


def _each(write: Convert | None) -> Convert | None:
    return None if write is None else lambda values: list(map(write, values))


def _every(read: Convert | None) -> Convert:
    return tuple if read is None else lambda values: tuple(map(read, values))


def _unless_none(write: Convert) -> Convert:
    return lambda value: None if value is None else write(value)


def _unless_zero(default: Any) -> Convert:
    return lambda value: value or default


def _if_there(name: str, read: Convert | None) -> Convert:
    get = attrgetter(name)
    if read is None:
        return lambda message: get(message) if message.HasField(name) else None
    return lambda message: read(get(message)) if message.HasField(name) else None
