"""Keys pressed while a picture moves: one at a time, without Enter, and never echoed.

Rule: the terminal is as it was when we leave, are stopped by Ctrl-Z, or are asked to end; Ctrl-C
stays what it is. Without a terminal to read from, or in its background, there are no keys.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}


@contextmanager
def pressed(tell: Callable[[str], None], leave: Callable[[], None]) -> Iterator[bool]:
    """Call `tell` with each key, `left` or `up` for an arrow, from the running event loop, and
    `leave` when this process is asked to end. Whether there are keys at all is what it yields."""
    if not _is_ours():
        yield False
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not _is_ours():  # reading from the background would stop us
            return
        data = os.read(terminal, 1024)
        if not data:
            loop.remove_reader(terminal)
        for key in keys_of(data.decode(errors="replace")):
            tell(key)

    def back() -> None:
        # After Ctrl-Z: the shell has put the terminal back meanwhile.
        if _is_ours():
            tty.setcbreak(terminal)
        tell("")

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    loop.add_signal_handler(signal.SIGCONT, back)
    loop.add_signal_handler(signal.SIGTERM, leave)
    try:
        yield True
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(terminal)
        if _is_ours():
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def keys_of(text: str) -> list[str]:
    """The keys that a terminal tells of by `text`: characters, and arrows by their names."""
    keys = []
    for key in _KEY.findall(text):
        if len(key) > 1:
            key = _ARROWS.get(key[-1], "")
        if key and key != "\x1b":
            keys.append(key)
    return keys


def _is_ours() -> bool:
    """Whether standard input is a terminal that we may read from: one whose foreground we are in,
    or that has none as it controls nobody."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError as error:
        return error.errno == errno.ENOTTY
