"""What files contain, regardless of when, and in which order, it was written.

Nothing that is read is executed. What cannot be read as what it seems to be counts by its bytes. A
file whose parts have names (columns, keys, TensorBoard's tags) is compared part by part, so a time
in one of them hides nothing in the others.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hermesd.node import deep_trees

EVENTS = ".tfevents."
_MOST_READ_BYTES = 64 << 20  # of what is read as a whole
_MOST_TEXT_BYTES = 1 << 20
_MOST_TEXTS = 200
_MOST_PARTS = 64
_GZIP, _ZIP, _PICKLE = b"\x1f\x8b", b"PK\x03\x04", b"\x80"
_CHUNK_BYTES = 1 << 20
_SETS = ("builtins.set", "builtins.frozenset", "__builtin__.set", "__builtin__.frozenset")
# The last word of what measures time, or how fast it goes: epoch_time, time/fps, steps_per_second.
_TIMED = re.compile(
    r"(?:^|[\W_])(?:time|timestamp|secs?|seconds?|minutes?|hours?|ms|duration|elapsed|runtime|eta"
    r"|fps|throughput|latency|date_saved)$|time_per_\w+$|per_sec(?:ond)?$",
    re.IGNORECASE,
)

# Where an object was in memory, by which Keras says that two parts of a model share it.
_SHARED = re.compile(rb'("shared_object_id": )(\d+)')
_HDF = b"\x89HDF"

Parts = dict[str, str]  # sums by the names of parts; that of a whole has none


def is_timed(name: str) -> bool:
    """Whether what has this name is, by its name, a time or a speed."""
    return _TIMED.search(name) is not None


def parts_of(path: Path) -> Parts:
    """What a file holds. Raises OSError."""
    with path.open("rb") as file:
        for read in _READERS:
            # Whatever a program has written: it may look like anything and be broken anyhow.
            with contextlib.suppress(_Other, ValueError, EOFError, zlib.error, RecursionError):
                return read(path.name, file)
            file.seek(0)
        return {"": _said(_sum_of(file))}


def sum_of(path: Path) -> str:
    """One sum of all that a file holds. Raises OSError."""
    parts = sorted(parts_of(path).items())
    return _said(_sum(*(one.encode("utf-8", "surrogatepass") for part in parts for one in part)))


def look(folder: Path, has_ended: bool) -> tuple[Parts, dict[str, str]]:
    """What the files below a folder hold, by their names and those of their parts; and the texts of
    the short ones. Of a program that `has_ended` not, nobody knows which events it holds back."""
    sums: Parts = {}
    texts: dict[str, str] = {}
    events: dict[str, set[str]] = {}
    for path in (Path(entry.path) for entry in deep_trees.walk(folder)):
        name = str(path.relative_to(folder))
        if "__pycache__" in path.parts:
            continue
        with contextlib.suppress(OSError):  # nobody may read it, or it has just gone
            if path.is_symlink():
                sums[name] = f"a link to {os.readlink(path)}"
            elif EVENTS in path.name:
                whole = str(path.parent.relative_to(folder) / "events")
                sums[whole] = "events"
                for tag, values in events_of(path).items() if has_ended else ():
                    events.setdefault(f"{whole}, {tag}", set()).update(values)
            elif path.is_file():
                parts = parts_of(path)
                sums.update({f"{name}, {part}" if part else name: parts[part] for part in parts})
                if (text := text_of(path)) is not None and len(texts) < _MOST_TEXTS:
                    texts[name] = text
    for name, steps in events.items():
        sums[name] = f"{len(steps)} values, {_said(_sum(*sorted(one.encode() for one in steps)))}"
    return sums, texts


def text_of(path: Path) -> str | None:
    """The text of a short file; None of any other. Raises OSError."""
    if path.stat().st_size > _MOST_TEXT_BYTES:
        return None
    content = path.read_bytes()
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def events_of(path: Path) -> dict[str, set[str]]:
    """By TensorBoard's tags, each step with the sum of its value. Raises OSError."""
    found: dict[str, set[str]] = {}
    content = path.read_bytes()
    with contextlib.suppress(_Other, UnicodeDecodeError):  # its end may be missing
        for event in _records(content):
            fields = list(_fields(event))
            step = next((value for number, value in fields if number == 2), 0)
            for summary in (value for number, value in fields if number == 5):
                for value in (value for number, value in _fields(summary) if number == 1):
                    _note(found, step, value)
    return found


class _Other(Exception):
    """It is not what it looked like."""


def _said(digest: bytes) -> str:
    return f"sha256 {digest.hex()[:16]}"


def _sum_of(file: IO[bytes] | gzip.GzipFile) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.digest()


def _sum(*values: bytes) -> bytes:
    digest = hashlib.sha256()
    for value in values:
        digest.update(len(value).to_bytes(8, "big") + value)
    return digest.digest()


def _whole(file: IO[bytes]) -> bytes:
    content = file.read(_MOST_READ_BYTES + 1)
    if len(content) > _MOST_READ_BYTES:
        raise _Other
    return content


def _without_addresses(text: bytes) -> bytes:
    """With objects that are shared counted in the order in which they are named first."""
    numbers: dict[bytes, int] = {}
    return _SHARED.sub(
        lambda found: b"%b%d" % (found[1], numbers.setdefault(found[2], len(numbers))), text
    )


# Archives.


def _tar(_: str, file: IO[bytes]) -> Parts:
    try:
        with tarfile.open(fileobj=file) as archive:
            members = []
            for one in archive:
                held = archive.extractfile(one) if one.isreg() else None
                content = b"" if held is None else _sum_of(held)
                about = f"{one.name} {one.type!r} {one.linkname}".encode("utf-8", "surrogateescape")
                members.append(_sum(about, content))
    except tarfile.TarError:
        raise _Other from None
    if not members:
        raise _Other
    return {"": _said(_sum(*sorted(members)))}


def _gzip(_: str, file: IO[bytes]) -> Parts:
    if file.read(2) != _GZIP:
        raise _Other
    file.seek(0)
    with gzip.GzipFile(fileobj=file) as inner:
        return {"": _said(_sum_of(inner))}


def _zip(_: str, file: IO[bytes]) -> Parts:
    """Of numpy and Keras, say; of PyTorch, whose pickle leads to the other entries."""
    if file.read(4) != _ZIP:
        raise _Other
    try:
        with zipfile.ZipFile(file) as archive:
            names = sorted(archive.namelist())
            pickled = [name for name in names if re.fullmatch("[^/]+/data[.]pkl", name)]
            if len(pickled) == 1:
                return _torch(archive, pickled[0])
            sums = {name: _entry(archive, name) for name in names}
    except (zipfile.BadZipFile, KeyError, RuntimeError):
        raise _Other from None
    if len(sums) > _MOST_PARTS:
        return {"": _said(_sum(*(_sum(name.encode(), one) for name, one in sums.items())))}
    return {"": ", ".join(names), **{name: _said(one) for name, one in sums.items()}}


def _entry(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as held:
        if name != "metadata.json":
            is_config = name == "config.json"
            return _sum(_without_addresses(_whole(held))) if is_config else _sum_of(held)
        try:
            said = json.loads(held.read(_MOST_TEXT_BYTES))
        except ValueError:
            raise _Other from None
    if type(said) is dict:
        said = {key: value for key, value in said.items() if not is_timed(key)}
    return _Sums().of(said)


def _torch(archive: zipfile.ZipFile, name: str) -> Parts:
    folder = name.removesuffix("data.pkl")

    def storage(said: Any) -> Any:
        if not (isinstance(said, tuple) and len(said) == 5 and said[0] == "storage"):
            raise _Other
        _, kind, key, place, size = said
        with archive.open(f"{folder}data/{key}") as held:
            return "storage", kind, place, size, _sum_of(held)

    if archive.getinfo(name).file_size > _MOST_READ_BYTES:
        raise _Other
    return _by_key(_unpickled(io.BytesIO(archive.read(name)), storage))


# Pickles and JSON.


class _Stub:
    """Stands for an object of any class, with what it would have been made of."""

    name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Stub:
        made = super().__new__(cls)
        made.held = [args, kwargs]
        made.items, made.pairs = [], {}
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    held: list[Any]
    items: list[Any]
    pairs: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        self.held.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs[key] = value

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    add = append


class _ValueUnpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], storage: Callable[[Any], Any] | None) -> None:
        super().__init__(file)
        self._storage = storage
        self._stubs: dict[str, type[_Stub]] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        whole = f"{module}.{name}"
        if whole not in self._stubs:
            self._stubs[whole] = type("_Stub", (_Stub,), {"name": whole})
        return self._stubs[whole]

    def persistent_load(self, pid: Any) -> Any:
        if self._storage is None:
            raise _Other
        return self._storage(pid)


def _unpickled(file: IO[bytes], storage: Callable[[Any], Any] | None = None) -> Any:
    try:
        value = _ValueUnpickler(file, storage).load()
    except _Other:
        raise
    except Exception:  # a broken pickle raises whatever it likes
        raise _Other from None
    if file.read(1):
        raise _Other
    return value


def _pickle(_: str, file: IO[bytes]) -> Parts:
    if file.read(1) != _PICKLE:
        raise _Other
    file.seek(0)
    return _by_key(_unpickled(io.BytesIO(_whole(file))))


def _json(name: str, file: IO[bytes]) -> Parts:
    if not name.endswith(".json"):
        raise _Other
    return _by_key(json.loads(_without_addresses(_whole(file))))


def _hdf(_: str, file: IO[bytes]) -> Parts:
    """Of Keras, with its model's configuration as a text among the arrays."""
    if file.read(len(_HDF)) != _HDF:
        raise _Other
    file.seek(0)
    return {"": _said(_sum(_without_addresses(_whole(file))))}


def _by_key(value: Any) -> Parts:
    """A dictionary by its keys, if they are few."""
    if type(value) is not dict or len(value) > _MOST_PARTS:
        return {"": _said(_Sums().of(value))}
    if not all(type(key) is str and key for key in value):
        return {"": _said(_Sums().of(value))}
    sums = _Sums()
    keys = _said(sums.of(set(value)))
    timeless = {key: one for key, one in value.items() if not is_timed(key)}
    return {"": keys, **{f"key {key}": _said(sums.of(one)) for key, one in timeless.items()}}


class _Sums:
    """Sums of values: dictionaries and sets in any order, and the same whether what is equal in
    them is one object or several."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._kept: list[Any] = []  # so that no other object comes to have its address

    def of(self, value: Any) -> bytes:
        """The sum of a value."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str, complex):
            return _sum(kind.__name__.encode(), repr(value).encode("utf-8", "surrogatepass"))
        if isinstance(value, (bytes, bytearray)):
            return _sum(b"bytes", bytes(value))
        if isinstance(value, type):
            return _sum(b"class", getattr(value, "name", "").encode())
        if id(value) not in self._known:
            self._kept.append(value)
            self._known[id(value)] = b"within itself"
            self._known[id(value)] = self._of_many(kind, value)
        return self._known[id(value)]

    def _of_many(self, kind: type, value: Any) -> bytes:
        if kind is dict:
            return _sum(b"dict", *self._pairs(value))
        if kind in (set, frozenset):
            return _sum(b"set", *sorted(map(self.of, value)))
        if kind in (list, tuple):
            return _sum(kind.__name__.encode(), *map(self.of, value))
        if not isinstance(value, _Stub):
            raise _Other
        if value.name in _SETS:  # made of a list, in its order of that process
            arguments = value.held[0]
            return _sum(b"set", *sorted(map(self.of, arguments[0] if arguments else ())))
        held, items = map(self.of, value.held), map(self.of, value.items)
        return _sum(value.name.encode(), *held, b"", *items, b"", *self._pairs(value.pairs))

    def _pairs(self, value: dict[Any, Any]) -> list[bytes]:
        return sorted(_sum(self.of(key), self.of(one)) for key, one in value.items())


# Tables.


def _table(name: str, file: IO[bytes]) -> Parts:
    """The columns of a table with a header, but for those of times."""
    if not name.endswith((".csv", ".tsv")):
        raise _Other
    text = io.StringIO(_whole(file).decode(), newline="")
    try:
        rows = list(csv.reader(text, delimiter="\t" if name.endswith(".tsv") else ","))
    except csv.Error:
        raise _Other from None
    header = rows[0] if rows else []
    is_table = header and len(set(header)) == len(header) <= _MOST_PARTS and all(header)
    if not is_table or any(len(row) != len(header) for row in rows):
        raise _Other
    columns = zip(*rows, strict=True)
    sums = {f"column {one[0]}": _sum(*(cell.encode() for cell in one)) for one in columns}
    named = {name: _said(found) for name, found in sums.items() if not is_timed(name)}
    return {"": f"{len(rows) - 1} rows of {', '.join(header)}", **named}


# TensorBoard's events.


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        if at + 16 + size > len(content):
            return
        yield content[at + 12 : at + 12 + size]
        at += 16 + size


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of Protocol Buffers: numbers and bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise _Other
            size, at = _varint(message, at)
        if at + size > len(message):
            raise _Other
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise _Other


def _note(found: dict[str, set[str]], step: int, value: bytes) -> None:
    fields = list(_fields(value))
    tag = next((one.decode() for number, one in fields if number == 1), "")
    if tag and not is_timed(tag):
        # What a tag is displayed as (9) is written once by each writer.
        held = [_sum(bytes([number]), bytes(one)) for number, one in fields if number not in (1, 9)]
        found.setdefault(tag, set()).add(f"{step} {_sum(*held).hex()[:16]}")


_READERS = (_table, _json, _hdf, _zip, _pickle, _tar, _gzip)
