"""The text of a study file as a typed tree in which every node knows its line and column.

Only YAML's events are used, and no object is ever constructed. Whatever could mean something other
than it seems to (duplicate keys, anchors, several documents, tags other than YAML's own for
scalars) is refused. All problems are collected; nothing but StudyFileError is ever raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import yaml

from hermesctl.errors import Place, Problem, StudyFileError
from hermesctl.study_file.regular_files import near_file, open_regular

# What a plain scalar of a study file means: YAML 1.2's core schema, read strictly.
#
# Never coerce. `1e-3` is a number; `no`, `010`, `12:30:45` and `1_000`, which YAML 1.1
# turns into something else, are the words that they look like. Infinity and NaN are refused:
# neither can be compared, stored as JSON, or meant as a bound.

Plain: TypeAlias = bool | int | float | str | None

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# A leading zero is ambiguous (8 or 10?), so `010` stays a word.
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+\Z")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|[kKMGTP]i?B)\Z")
_BYTES = {
    "B": 1,
    **{f"{letter}B": 1000**n for n, letter in enumerate("KMGTP", start=1)},
    **{f"{letter}iB": 1024**n for n, letter in enumerate("KMGTP", start=1)},
    "kB": 1000,
    "kiB": 1024,
}


def resolve(text: str) -> Plain:
    """The value of the plain (unquoted) scalar `text`.

    Raises ValueError, whose text says what is expected, for numbers that can't be carried.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _DECIMAL.match(text):
        return _integer(text, 10)
    if _OCTAL.match(text):
        return _integer(text[2:], 8)
    if _HEXADECIMAL.match(text):
        return _integer(text[2:], 16)
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError("a number below 1.8e308")
        return value
    if _NOT_FINITE.match(text):
        raise ValueError("a finite number (quote it to pass it on as a word)")
    return text


def seconds(text: str) -> float | None:
    """The duration that `90s`, `1h30m` or `500ms` is, in seconds; None if it is none."""
    if not _DURATION.match(text):
        return None
    total = sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
    return total if math.isfinite(total) else None


def size_bytes(text: str) -> int | None:
    """The size that `8GiB` or `500 MB` is, in bytes; None if it is none."""
    match = _SIZE.match(text)
    if match is None:
        return None
    amount = float(match[1]) * _BYTES[match[2]]
    return round(amount) if amount <= INT64_MAX else None


def _integer(digits: str, base: int) -> int:
    # int() refuses thousands of digits with an error of its own, and takes its time before.
    value = int(digits, base) if len(digits) <= 70 else INT64_MAX + 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("a whole number that fits in 64 bits")
    return value


SIZE_BYTES_MAX = 1 << 20
DEPTH_MAX = 64
UNICODE = "characters (no half of a surrogate pair)"
_STANDARD = "tag:yaml.org,2002:"
_KINDS = {
    **{"float": "a number", "int": "a whole number", "bool": "true or false"},
    **{"null": "null", "str": "text"},
}
NO_NUL = "text without NUL, which no argument of a program can hold"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf: its value, and its text as it was written (without quotes)."""

    value: Plain
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A key of a mapping and what it holds."""

    key: str
    place: Place
    node: Node


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping; keys are text as written, each there once."""

    entries: tuple[TreeEntry, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class BrokenYaml:
    """What stands where something was refused: its problem is known, so later steps skip it."""

    place: Place


Node: TypeAlias = Scalar | Items | Table | BrokenYaml


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file and the problems found on the way."""

    root: Node
    problems: tuple[Problem, ...]


def read(path: Path) -> Document:
    """Parse the file at `path`. Raises StudyFileError when it can't be read at all."""
    source = str(path)
    try:
        with open_regular(path) as stream:
            data = stream.read(SIZE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        expected = f"a readable study file ({reason})"
        problem = Problem(expected, nearest=near_file(path), place=Place(source))
        raise StudyFileError([problem]) from None
    return parse(data, source)


def parse(data: bytes, source: str) -> Document:
    """Parse `data`, named `source` in errors. Raises StudyFileError if it is not YAML."""
    document = _parse_text(_decode(data, source), source)
    if isinstance(document.root, Scalar) and document.root.value is None:
        problem = Problem("a study (the file is empty)", place=Place(source))
        raise StudyFileError([problem])
    return document


def parse_value(text: str, source: str) -> Node:
    """The value of a flag, written as in the file: `0.1`, `[1, 2]`, `{min: 0, max: 1}`.

    Raises StudyFileError; all places are `source`.
    """
    document = _parse_text(text, source, located=False)
    if document.problems:
        raise StudyFileError(document.problems)
    return document.root


def unfit(text: str) -> str:
    """What was expected in place of `text`, if no study can hold it; empty if one can."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        return UNICODE
    return NO_NUL if "\0" in text else ""


def place_of(root: Node, field_path: str) -> Place | None:
    """Where `field_path` (`parameters.lr.values[2]`) or its nearest parent was written.

    A key may hold dots, and a list's position may be written `.2` as well.
    """
    found: Place | None = None
    wanted = field_path.replace("[", ".").replace("]", "")
    for path, place in _paths(root, ""):
        if wanted == path:
            return place
        if wanted.startswith(path + "."):
            found = place
    return found


def _paths(node: Node, path: str) -> Iterator[tuple[str, Place]]:
    if isinstance(node, Table):
        children = [(entry.key, entry.place, entry.node) for entry in node.entries]
    elif isinstance(node, Items):
        children = [(str(i), item.place, item) for i, item in enumerate(node.items)]
    else:
        return
    for name, place, child in children:
        child_path = f"{path}.{name}" if path else name
        yield child_path, place
        yield from _paths(child, child_path)


def _decode(data: bytes, source: str) -> str:
    def refuse(expected: str, offset: int) -> StudyFileError:
        line = data.count(b"\n", 0, offset) + 1
        column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
        return StudyFileError([Problem(expected, place=Place(source, line, column))])

    if len(data) > SIZE_BYTES_MAX:
        problem = Problem("a study file of at most 1 MiB", place=Place(source))
        raise StudyFileError([problem])
    if b"\0" in data:
        raise refuse("text without NUL bytes", data.index(b"\0"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse("text in UTF-8", error.start) from None


def _parse_text(text: str, source: str, *, located: bool = True) -> Document:
    try:
        reader = _Reader(yaml.SafeLoader(text), source, located)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        place = Place(source, line, column) if located else Place(source)
        value = f"U+{int(error.character):04X}"
        problem = Problem("printable characters", value=value, place=place)
        raise StudyFileError([problem]) from None
    try:
        root = reader.document()
    except yaml.MarkedYAMLError as error:
        words = (error.problem or "it can't be read").strip()
        words = "a tab: indent with spaces" if "'\\t'" in words else words
        if words == "mapping values are not allowed here":
            words += '; a text that ends in a colon, or has one before a space, needs quotes: "a:"'
        place = reader.place(error.problem_mark or error.context_mark)
        problem = Problem(f"valid YAML ({words})", place=place)
        raise StudyFileError([*reader.problems, problem]) from None
    except (ValueError, OverflowError):
        # The scanner lets a few errors of its own conversions through (`"\UFFFFFFFF"`).
        problem = Problem("valid YAML (a number is out of range)", place=reader.position())
        raise StudyFileError([*reader.problems, problem]) from None
    return Document(root, tuple(reader.problems))


def _tags(event: yaml.Event) -> frozenset[str]:
    """The tags that say what a node is anyhow, or may be by its text."""
    if isinstance(event, yaml.SequenceStartEvent):
        return frozenset({f"{_STANDARD}seq"})
    if isinstance(event, yaml.MappingStartEvent):
        return frozenset({f"{_STANDARD}map"})
    return frozenset(f"{_STANDARD}{kind}" for kind in _KINDS)


def _of_kind(kind: str, value: Plain) -> Plain:
    """A value as the kind that its tag names. Raises ValueError, which says what is expected."""
    match kind, value:
        case "float", int() | float() if not isinstance(value, bool):
            return float(value)
        case ("int", int()) if not isinstance(value, bool):
            return value
        case ("bool", bool()) | ("null", None) | ("", _):
            return value
        case _:
            raise ValueError(f"{_KINDS[kind]} after !!{kind}")


class _Mark(Protocol):
    line: int
    column: int


class _Reader:
    def __init__(self, loader: yaml.SafeLoader, source: str, located: bool) -> None:
        self._loader = loader
        self._source = source
        self._located = located
        self.problems: list[Problem] = []

    def place(self, mark: _Mark | None) -> Place:
        if mark is None or not self._located:
            return Place(self._source)
        return Place(self._source, mark.line + 1, mark.column + 1)

    def position(self) -> Place:
        return self.place(self._loader.get_mark())

    def document(self) -> Node:
        self._next()  # the start of the stream
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return Scalar(None, "", self.place(event.start_mark))
        root = self._node(self._next(), "", 1)
        self._next()  # the end of the document
        extra = self._next()
        if not isinstance(extra, yaml.StreamEndEvent):
            self._refuse(extra, "a single document", value="---")
        return root

    def _next(self) -> yaml.Event:
        event: yaml.Event = self._loader.get_event()  # type: ignore[no-untyped-call]
        return event

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        place = self.place(event.start_mark)
        if depth > DEPTH_MAX:
            problem = Problem(f"at most {DEPTH_MAX} levels of nesting", path, place=place)
            raise StudyFileError([*self.problems, problem])
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, "no aliases: write it out", path, f"*{event.anchor}")
            return BrokenYaml(place)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.anchor is not None:
                self._refuse(event, "no anchors", path, f"&{event.anchor}")
            if event.tag is not None and event.tag not in _tags(event):
                known = ", ".join(f"!!{kind}" for kind in _KINDS)
                expected = f"no tags but {known}: types follow from the text"
                self._refuse(event, expected, path, event.tag)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path, place)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(path, depth, place)
        return self._table(path, depth, place)

    def _scalar(self, event: yaml.ScalarEvent, path: str, place: Place) -> Node:
        text: str = event.value
        if not self._encodable(event, text, path):
            return BrokenYaml(place)
        kind = "str" if event.style is not None else ""
        if event.tag in _tags(event):
            kind = event.tag.removeprefix(_STANDARD)
        if kind == "str":
            return Scalar(text, text, place)
        try:
            return Scalar(_of_kind(kind, resolve(text)), text, place)
        except ValueError as error:
            self._refuse(event, str(error), path, text)
            return BrokenYaml(place)

    def _items(self, path: str, depth: int, place: Place) -> Items:
        items: list[Node] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, f"{path}[{len(items)}]", depth + 1))
        return Items(tuple(items), place)

    def _table(self, path: str, depth: int, place: Place) -> Table:
        entries: dict[str, TreeEntry] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key_place = self.place(event.start_mark)
            key = self._key(event, path, depth)
            child_path = f"{path}.{key}" if path else key or ""
            node = self._node(self._next(), child_path, depth + 1)
            if key is None:
                continue
            if key in entries:
                first = entries[key].place.line
                where = f" (it is on line {first} already)" if first else ""
                self._refuse(event, f"each key once{where}", child_path)
            else:
                entries[key] = TreeEntry(key, key_place, node)
        return Table(tuple(entries.values()), place)

    def _key(self, event: yaml.Event, path: str, depth: int) -> str | None:
        if not isinstance(event, yaml.ScalarEvent):
            self._node(event, path, depth + 1)
            self._refuse(event, "a plain word as key", path)
            return None
        if event.anchor is not None or event.tag is not None:
            self._refuse(event, "a plain word as key, without anchor or tag", path, event.value)
        return event.value if self._encodable(event, event.value, path) else None

    def _encodable(self, event: yaml.Event, text: str, path: str) -> bool:
        # YAML's escapes can write a NUL, or half of a surrogate pair.
        if expected := unfit(text):
            self._refuse(event, expected, path, text)
            return False
        return True

    def _refuse(self, event: yaml.Event, expected: str, path: str = "", value: str = "") -> None:
        place = self.place(event.start_mark)
        self.problems.append(Problem(expected, path, value, place=place))
