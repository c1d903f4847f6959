"""Files compressed by the system's own libzstd, which package managers bring nearly everywhere.

They are what the `zstd` command reads and writes: pieces, several of which are worked on at a time,
each a frame of its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

SUFFIX = ".zst"
_LIBRARY = "libzstd.so.1"
# Measured on the memory of a Keras fit: higher levels gain little, and take twice as long.
_LEVEL = 1
_PIECE_BYTES = 4 << 20
_THREADS = 4


class NotZstd(OSError):
    """A file is not what `compressed` has made."""


def is_here() -> bool:
    """Whether the library is on this machine."""
    return _library() is not None


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    size, text = ctypes.c_size_t, ctypes.c_char_p
    for name, kinds, result in (
        ("ZSTD_compressBound", [size], size),
        ("ZSTD_compress", [text, size, text, size, ctypes.c_int], size),
        ("ZSTD_findFrameCompressedSize", [text, size], size),
        ("ZSTD_getFrameContentSize", [text, size], ctypes.c_ulonglong),
        ("ZSTD_decompress", [text, size, text, size], size),
        ("ZSTD_isError", [size], ctypes.c_uint),
    ):
        function = getattr(library, name)
        function.argtypes, function.restype = kinds, result
    return library


def compressed(path: str) -> Iterator[bytes]:
    """The content of a file, compressed. Raises OSError."""
    with open(path, "rb") as file:
        yield from _in_turn(_compress, iter(lambda: file.read(_PIECE_BYTES), b""))


def restore(path: str, target: str) -> None:
    """Write the file whose compressed content is at `path`. Raises NotZstd, OSError."""
    with open(path, "rb") as file, open(target, "xb") as out:
        for piece in _in_turn(_decompress, _frames(file)):
            out.write(piece)


def _in_turn(work: Any, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What becomes of the pieces, in their order; some are worked on ahead."""
    threads = min(_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[bytes]] = []
        for piece in pieces:
            waiting.append(pool.submit(work, piece))
            if len(waiting) > threads:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def _compress(piece: bytes) -> bytes:
    library = _library()
    room = library.ZSTD_compressBound(len(piece))
    target = ctypes.create_string_buffer(room)
    size = _checked(library.ZSTD_compress(target, room, piece, len(piece), _LEVEL))
    return ctypes.string_at(target, size)


def _frames(file: BinaryIO) -> Iterator[bytes]:
    most = _library().ZSTD_compressBound(_PIECE_BYTES)
    rest = file.read(most)
    while rest:
        size = _checked(_library().ZSTD_findFrameCompressedSize(rest, len(rest)))
        yield rest[:size]
        rest = rest[size:] + file.read(size)


def _decompress(frame: bytes) -> bytes:
    library = _library()
    size = library.ZSTD_getFrameContentSize(frame, len(frame))
    if size > _PIECE_BYTES:
        raise NotZstd(f"a piece is of {size} bytes, expected {_PIECE_BYTES} at the most")
    target = ctypes.create_string_buffer(size)
    return ctypes.string_at(
        target, _checked(library.ZSTD_decompress(target, size, frame, len(frame)))
    )


def _checked(size: int) -> int:
    if _library().ZSTD_isError(size):
        raise NotZstd("it is not compressed by zstd")
    return size
