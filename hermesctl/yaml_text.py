"""Plain data as YAML that study_file reads back as exactly the same data.

A word is unquoted only if YAML 1.1 and 1.2 both read it as that word; everything doubtful is quoted
with YAML's escapes. Mappings are blocks, and a list of scalars is on one line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, TypeGuard

Data: TypeAlias = "bool | int | float | str | Sequence[Data] | Mapping[str, Data] | None"

_SAFE_WORD = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*\Z")
_SPECIAL_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_yaml(data: Mapping[str, Data]) -> str:
    """A YAML document; floats must be finite where study_file is to read them back."""
    return "\n".join(_mapping(data, 0)) + "\n" if data else "{}\n"


def _mapping(data: Mapping[str, Data], indent: int) -> Iterator[str]:
    pad = "  " * indent
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield f"{pad}{_word(key)}:"
            yield from _mapping(value, indent + 1)
        elif _is_list(value) and any(isinstance(item, Mapping) for item in value):
            yield f"{pad}{_word(key)}:"
            yield from _blocks(value, indent + 1)
        else:
            yield f"{pad}{_word(key)}: {_flow(value)}"


def _blocks(items: Sequence[Data], indent: int) -> Iterator[str]:
    pad = "  " * indent
    for item in items:
        if isinstance(item, Mapping) and item:
            lines = _mapping(item, indent + 1)
            yield f"{pad}- {next(lines).lstrip(' ')}"
            yield from lines
        else:
            yield f"{pad}- {_flow(item)}"


def _flow(value: Data) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_word(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _word(value)
        case _:
            return repr(value)


def _is_list(value: Data) -> TypeGuard[Sequence[Data]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _word(text: str) -> str:
    if _SAFE_WORD.match(text) and text.lower() not in _SPECIAL_WORDS:
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character == " " or unicodedata.category(character)[0] not in "CZ":
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
