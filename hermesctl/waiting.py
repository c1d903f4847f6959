"""What people see while something takes its time: a line on standard error, and only on a terminal.

It appears once nothing was printed for two seconds, and disappears before anything else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

SILENT_SECONDS = 2.0


class _Line:
    """The words, and the timer by which they appear."""

    def __init__(self, words: str, console: Console) -> None:
        self._status = Status(words, console=console)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def show_later(self) -> None:
        self.hide()
        self._timer = self._loop.call_later(SILENT_SECONDS, self._status.start)

    def hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._status.stop()


# What is being done, and within it something of its own: the last is what is shown.
_lines: list[_Line] = []


@contextmanager
def progress(words: str) -> Iterator[None]:
    """Say what is being done while it is; needs a running event loop."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if not words or not is_live(console):
        yield
        return
    make_room()
    line = _Line(words, console)
    _lines.append(line)
    line.show_later()
    try:
        yield
    finally:
        line.hide()
        _lines.remove(line)
        make_room()


def make_room() -> None:
    """Take the line away for what is to be printed now; it comes back if that was not all."""
    for line in _lines:
        line.hide()
    for line in _lines[-1:]:
        line.show_later()


def is_live(console: Console) -> bool:
    """Whether a picture may be redrawn in place."""
    return console.is_terminal and not console.is_dumb_terminal
