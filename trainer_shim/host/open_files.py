"""What CRIU has written of the files that processes have open: in one file, an entry for each.

CRIU refuses a file whose length is another by then. That is right for what a program only reads,
but a database that it shares with others goes on growing. (CRIU's fdinfo.proto and regfile.proto
say how an entry is encoded: each has its length before it.)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator

NAME = "files.img"
_MAGIC = struct.Struct("<II")
_COMMON_MAGIC = 0x54564319
_LENGTH = struct.Struct("<I")
_REGULAR, _PATH, _SIZE = 3, 6, 8  # numbers of fields: in an entry, and in what it says there
_VARINT, _EIGHT_BYTES, _WITH_LENGTH = 0, 1, 2


def forget_sizes(file: str, paths: Collection[str]) -> None:
    """Have CRIU take the files at these paths at any length. Raises OSError."""
    if not paths:
        return
    with open(file, "rb") as before:
        data = before.read()
    if len(data) < _MAGIC.size or _MAGIC.unpack_from(data)[0] != _COMMON_MAGIC:
        return  # of a CRIU that writes it in another way: it goes on comparing
    names = {os.fsencode(path) for path in paths}
    parts, at = [data[: _MAGIC.size]], _MAGIC.size
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        entry = b"".join(_without_size(data[at : at + length], names))
        parts += [_LENGTH.pack(len(entry)), entry]
        at += length
    with open(file, "wb") as after:
        after.write(b"".join(parts))


def _without_size(entry: bytes, names: Collection[bytes]) -> Iterator[bytes]:
    """The fields of an entry."""
    for number, inside, whole in _fields(entry):
        said = list(_fields(inside)) if number == _REGULAR else []
        if any(each == _PATH and value in names for each, value, _ in said):
            kept = b"".join(field for each, _, field in said if each != _SIZE)
            yield bytes([_REGULAR << 3 | _WITH_LENGTH]) + _encoded(len(kept)) + kept
        else:
            yield whole


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field of a message: its number, what is in it if that has a length, and all of it."""
    at = 0
    while at < len(message):
        begin, inside = at, b""
        key, at = _decoded(message, at)
        if key & 7 == _VARINT:
            _, at = _decoded(message, at)
        elif key & 7 == _WITH_LENGTH:
            length, at = _decoded(message, at)
            inside = message[at : at + length]
            at += length
        else:
            at += 8 if key & 7 == _EIGHT_BYTES else 4
        yield key >> 3, inside, message[begin:at]


def _decoded(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = bits = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << bits
        bits += 7
        if byte < 0x80:
            return value, at


def _encoded(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
