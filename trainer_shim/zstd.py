"""Files compressed by the system's own libzstd, which nearly every machine has.

They are what the `zstd` command reads and writes: several pieces are worked on at a time, and each
is a frame of its own. A file is read where the system has it in memory, and each thread writes into
one buffer of its own, since copying and clearing memory took as long as compressing it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

SUFFIX = ".zst"
_LIBRARY = "libzstd.so.1"
# Measured on the memory of a Keras fit: higher levels gain little, and take twice as long.
_LEVEL = 1
_PIECE_BYTES = 4 << 20
_THREADS = 4
_own = threading.local()
Part = TypeVar("Part", bytes, memoryview)


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
    size, memory = ctypes.c_size_t, ctypes.c_void_p
    for name, kinds, result in (
        ("ZSTD_compressBound", [size], size),
        ("ZSTD_compress", [memory, size, memory, size, ctypes.c_int], size),
        ("ZSTD_findFrameCompressedSize", [memory, size], size),
        ("ZSTD_getFrameContentSize", [memory, size], ctypes.c_ulonglong),
        ("ZSTD_decompress", [memory, size, memory, size], size),
        ("ZSTD_isError", [size], ctypes.c_uint),
    ):
        function = getattr(library, name)
        function.argtypes, function.restype = kinds, result
    return library


def compressed(path: str) -> Iterator[bytes]:
    """The content of a file, compressed. Raises OSError."""
    with _content(path) as (start, size):
        pieces = range(0, size, _PIECE_BYTES)
        works = ((start + at, min(_PIECE_BYTES, size - at)) for at in pieces)
        yield from _in_turn(_compress, works)


def content(path: str) -> Iterator[memoryview]:
    """The content of the file that is compressed at `path`, in parts, each of which is good until
    the next is asked for. Raises NotZstd, OSError."""
    with _content(path) as (start, size):
        # As many as are worked on ahead, and the one that is read.
        targets = itertools.cycle(
            [ctypes.create_string_buffer(_PIECE_BYTES) for _ in range(_threads() + 1)]
        )
        works = ((at, piece, next(targets)) for at, piece in _frames(start, size))
        yield from _in_turn(_decompress, works)


@contextlib.contextmanager
def _content(path: str) -> Iterator[tuple[int, int]]:
    """Where the content of a file is in memory, and its size; it cannot be changed there."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            yield 0, 0
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as content:
            first = ctypes.c_char.from_buffer(content)
            try:
                yield ctypes.addressof(first), size
            finally:
                del first


def _threads() -> int:
    return min(_THREADS, len(os.sched_getaffinity(0)))


def _in_turn(work: Callable[..., Part], pieces: Iterator[tuple[Any, ...]]) -> Iterator[Part]:
    """What becomes of the pieces, in their order; some are worked on ahead."""
    from concurrent.futures import ThreadPoolExecutor  # which few processes need

    threads = _threads()
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[Part]] = []
        for piece in pieces:
            waiting.append(pool.submit(work, *piece))
            if len(waiting) > threads:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def _buffer() -> Any:
    """This thread's, which has room for a piece in either form."""
    if not hasattr(_own, "buffer"):
        _own.buffer = ctypes.create_string_buffer(_library().ZSTD_compressBound(_PIECE_BYTES))
    return _own.buffer


def _compress(start: int, size: int) -> bytes:
    target = _buffer()
    size = _checked(_library().ZSTD_compress(target, len(target), start, size, _LEVEL))
    return ctypes.string_at(target, size)


def _frames(start: int, size: int) -> Iterator[tuple[int, int]]:
    """Each frame's place and size."""
    library, end = _library(), start + size
    while start < end:
        size = _checked(library.ZSTD_findFrameCompressedSize(start, end - start))
        holds = library.ZSTD_getFrameContentSize(start, size)
        if holds > _PIECE_BYTES:
            raise NotZstd(f"a piece is of {holds} bytes, expected {_PIECE_BYTES} at the most")
        yield start, size
        start += size


def _decompress(start: int, size: int, target: Any) -> memoryview:
    size = _checked(_library().ZSTD_decompress(target, _PIECE_BYTES, start, size))
    return memoryview(target).cast("B")[:size]


def _checked(size: int) -> int:
    if _library().ZSTD_isError(size):
        raise NotZstd("it is not compressed by zstd")
    return size
