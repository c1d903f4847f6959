"""What people see while something takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hermesctl.terminal import is_live, stderr

SILENT_SECONDS = 2.0


@contextmanager
def progress(words: str) -> Iterator[None]:
    """Say on a terminal what is being done, once it has taken two seconds."""
    console = stderr()
    if not is_live(console):
        yield
        return
    status = console.status(words)
    soon = asyncio.get_running_loop().call_later(SILENT_SECONDS, status.start)
    try:
        yield
    finally:
        soon.cancel()
        status.stop()
