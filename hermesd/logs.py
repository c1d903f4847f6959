"""How the daemons log: one line an event on stderr, which systemd's journal takes as it is.

What is said never ends a daemon. What cannot be written, on a full disk for example, is
dropped and counted, and the count is told once stderr takes lines again.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def _as_if_missing(package: str) -> Iterator[None]:
    """Imports of a package that nobody has imported yet fail in the block."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # how Python marks one as missing
    try:
        yield
    finally:
        del sys.modules[package]


# It would color tracebacks on a terminal with rich, which no daemon does, and to import that takes
# a tenth of a second, more than all else that it needs.
with _as_if_missing("rich"):
    import structlog

STDERR = 2
get_logger = structlog.get_logger


class LossyFile(io.RawIOBase):
    """A descriptor that is written to as long as it takes anything."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._dropped = 0
        self._reason = ""

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether somebody reads along."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Always; nothing that it is given is refused."""
        return True

    def write(self, content: ReadableBuffer) -> int:
        """Write it all, after the count of what was dropped before it, or drop it too."""
        left = bytes(content)
        if self._dropped:
            told = f"\nlevel=warning event='log lines were dropped' lines={self._dropped}"
            left = f"{told} reason={self._reason!r}\n".encode() + left
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self._dropped += 1
            self._reason = error.strerror or str(error)
        else:
            self._dropped = 0
        return len(bytes(content))


def configure() -> None:
    """Set structlog and stderr up; lines carry the time only where nobody else adds it."""
    _hold_standard_descriptors()
    if sys.stderr is sys.__stderr__:  # else somebody has put another in its place
        sys.stderr = io.TextIOWrapper(
            LossyFile(STDERR), encoding="utf-8", errors="backslashreplace", write_through=True
        )
    times = [] if "JOURNAL_STREAM" in os.environ else [structlog.processors.TimeStamper("iso")]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *times,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], drop_missing=True
            ),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _hold_standard_descriptors() -> None:
    """Of a daemon that was begun without a stderr the journal could become the descriptor 2."""
    for descriptor in range(STDERR + 1):
        with suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
