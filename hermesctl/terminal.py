"""The two streams of the command line: results on stdout, everything else on stderr.

Colors, widths and movement follow the terminal (NO_COLOR, TERM=dumb, a pipe). If the reader of a
pipe goes away, the command ends quietly. A table in a pipe is never cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from hermesctl.errors import ExitCode, HermesError
from hermesctl.waiting import make_room

_PIPE_WIDTH = 240


class QuietConsole(Console):
    """A console whose reader may leave."""

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print, in the place of what says that something takes its time."""
        make_room()
        super().print(*objects, **settings)

    def on_broken_pipe(self) -> NoReturn:
        """End at once; nothing more could be read, and nothing is wrong."""
        forget_stdout()
        raise SystemExit(ExitCode.OK)


@contextmanager
def asked_to_end(leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave`, from the running event loop, when this process is asked to end, or its terminal
    is gone; Ctrl-C stays what it is. What whoever started us has ignored (nohup) stays ignored."""
    loop = asyncio.get_running_loop()
    ending = (signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in ending if signal.getsignal(number) is signal.SIG_DFL]
    for number in heeded:
        loop.add_signal_handler(number, leave)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def forget_stdout() -> None:
    """Lead stdout to nowhere: what is still buffered would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stdout() -> Console:
    """The console for results."""
    return _console(to_stderr=False)


def stderr() -> Console:
    """The console for notes, questions and errors."""
    return _console(to_stderr=True)


def say(words: str, is_code: bool = False) -> None:
    """A note beside the result, harmless text already; code has the lines that it has."""
    stderr().print(Text(words, style="dim"), soft_wrap=is_code)


def show_error(error: HermesError) -> None:
    """The error, as the last thing on stderr."""
    text = Text("error: ", style="bold red")
    text.append(str(error), style="not bold default")
    stderr().print(text, soft_wrap=True)


def write_bytes(console: Console, data: bytes) -> None:
    """Pass bytes on to stdout as they are."""
    if sys.stdout is None:
        return
    make_room()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        console.on_broken_pipe()


def _console(*, to_stderr: bool) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    piped = stream is None or not stream.isatty()
    width = _PIPE_WIDTH if piped and "COLUMNS" not in os.environ else None
    return QuietConsole(
        stderr=to_stderr,
        width=width,
        # For whoever wants no colors, nothing is dim or bold either.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )
