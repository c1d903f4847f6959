"""How hermesctl was started, so that a command which it prints can be run as it stands.

It is the plain name if the shell would find it, and otherwise the path, shortened from the current
directory. The head is named if another one would be found without it.

This file must be imported before everything else: a command that is interrupted while it is still
being imported says that nothing was done.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

_NAME = "hermesctl"
_OF_NO_HEAD = ("local ", "--")

# The head that a printed command has to name; empty where it is found anyhow.
named_head: contextvars.ContextVar[str] = contextvars.ContextVar("named_head", default="")


def command(arguments: str) -> str:
    """`hermesctl ARGUMENTS`, or by its path (`.venv/bin/hermesctl ARGUMENTS`) off PATH."""
    head = named_head.get()
    if head and not arguments.startswith(_OF_NO_HEAD):
        arguments = f"--head {shlex.quote(head)} {arguments}"
    return f"{_program()} {arguments}"


def _program() -> str:
    started = Path(os.path.abspath(sys.argv[0]))
    if started.name != _NAME or shutil.which(_NAME) is not None:
        return _NAME
    here = Path.cwd()
    shown = started.relative_to(here) if started.is_relative_to(here) else started
    # A bare name would be looked for on PATH.
    return shlex.quote(str(shown) if "/" in str(shown) else f"./{shown}")


def _is_command() -> bool:
    return Path(sys.argv[0]).name == _NAME if sys.argv else False


def heed_interrupts() -> None:
    """All is imported: from now on, whoever is interrupted says what is true then."""
    if signal.getsignal(signal.SIGINT) is _end_by_it:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_by_it(number: int, _frame: object) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\nnothing was done\n")
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


# What whoever started us has ignored (nohup) stays ignored.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_by_it)
