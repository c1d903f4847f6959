"""Entries of the journal as bytes: a kind and one line of JSON. Used by journal, export and sim.

What was written is read back equal, for ever. A field that is added needs a default, which
is what older records get; an unknown kind is refused by its name, never skipped.

Numbers that are not finite are the strings "NaN", "Infinity" and "-Infinity", so that the JSON is
JSON for every reader.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from hermesd.core.commands import Command
from hermesd.core.events import Event
from hermesd.refusal import from_pydantic

Entry: TypeAlias = Event | Command
T = TypeVar("T")

_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")


class UnreadableEntry(Exception):
    """A record that this version cannot read; says which kind, which field and why."""


class Form(Generic[T]):
    """How values of one type are written and read.

    The configuration of how bytes and infinities are written only reaches a dataclass from a type
    around it, hence the list of one whose brackets are put on and taken off here.
    """

    def __init__(self, shape: Any) -> None:
        self._adapter: TypeAdapter[tuple[T]] = TypeAdapter(tuple[shape], config=_CONFIG)

    def write(self, value: T) -> str:
        """The value as one line of JSON."""
        return self._adapter.dump_json((value,))[1:-1].decode()

    def read(self, text: str) -> T:
        """The value that was written. Raises ValidationError."""
        return self._adapter.validate_json(f"[{text}]")[0]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of what is written: it changes when the type does."""
        return self._adapter.json_schema(mode="serialization")


KINDS: Mapping[str, type] = MappingProxyType(
    {kind.__name__: kind for kind in (*get_args(Event), *get_args(Command))}
)


@cache
def _form(kind: str) -> Form[Entry]:
    return Form(KINDS[kind])


def encode(entry: Entry) -> tuple[str, str]:
    """The kind and the body of an entry."""
    kind = type(entry).__name__
    return kind, _form(kind).write(entry)


# So many trials are written down at once.
PIECE = 500


def encode_in_pieces(entry: Entry, at_once: int = PIECE) -> Generator[None, None, tuple[str, str]]:
    """The same for what is about very many trials, some of them at a time."""
    kind = type(entry).__name__
    fields = []
    for name, form in _forms(kind).items():
        value = getattr(entry, name)
        if type(value) is tuple and len(value) > at_once:
            pieces = []
            for start in range(0, len(value), at_once):
                pieces.append(form.write(value[start : start + at_once])[1:-1])
                yield
            fields.append(f'"{name}":[{",".join(pieces)}]')
        else:
            fields.append(f'"{name}":{form.write(value)}')
    yield
    return kind, f"{{{','.join(fields)}}}"


def lengthened(encoded: tuple[str, str], entry: Entry, field: str) -> tuple[str, str]:
    """What was encoded of an entry, of which all is the same but that a field has more items behind
    those it had: what `entry` has there."""
    kind, body = encoded
    none: Any = {field: ()}
    first, _, rest = encode(replace(entry, **none))[1].partition(f'"{field}":[]')
    start, end = len(f'{first}"{field}":['), len(f"]{rest}")
    more = encode(entry)[1][start:-end]
    comma = "," if more and body[start] != "]" else ""
    return kind, f"{body[:-end]}{comma}{more}{body[-end:]}"


@cache
def _forms(kind: str) -> dict[str, Form[Any]]:
    """Those of the fields of a kind of entries."""
    types = get_type_hints(KINDS[kind], include_extras=True)
    return {field.name: Form(types[field.name]) for field in fields_of(KINDS[kind])}


def decode(kind: str, body: str) -> Entry:
    """The entry that was encoded. Raises UnreadableEntry."""
    if kind not in KINDS:
        raise UnreadableEntry(f"unknown kind {kind!r}: written by a newer version, or damaged")
    try:
        return _form(kind).read(body)
    except ValidationError as error:
        first = from_pydantic(error)[0]
        raise UnreadableEntry(f"{kind} with {first}") from None
