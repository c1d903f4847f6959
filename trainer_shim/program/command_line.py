"""What a Python command line asks for: the interpreter's options, and the program after them.

It is read as the interpreter itself reads it: short options may be run together (`-Bu`), and take
their value from the same word or the next (`-Wignore`, `-X dev`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import NamedTuple

# With these an interpreter passes over PYTHONPATH, or over sitecustomize.
DEAF = ("-I", "-E", "-S")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*\Z")
_SHEBANG_BYTES = 512


class CommandLine(NamedTuple):
    """An interpreter's command line, taken apart."""

    #: Single letters with their hyphen.
    options: list[str]
    #: Begins with a script, `-m` and a module, or `-c` and code; empty for an interpreter that
    #: reads its standard input.
    program: list[str]


def split(arguments: Sequence[str]) -> CommandLine:
    """The command line that follows an interpreter's name."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            options.append(word)
            if word == "--check-hash-based-pycs":
                del rest[:1]
            continue
        for at, letter in enumerate(word[1:], 2):
            attached = word[at:]
            if letter in "cm":
                return CommandLine(options, [f"-{letter}", *filter(None, [attached]), *rest])
            options.append(f"-{letter}")
            if letter in "WX":
                del rest[: 0 if attached else 1]
                break
    return CommandLine(options, [] if rest[:1] == ["-"] else rest)


def shebang(path: str) -> list[str] | None:
    """The words of the first line of a script that begins with `#!`, `env` taken away; None for
    any other file."""
    try:
        with open(path, "rb") as file:
            line = file.read(_SHEBANG_BYTES).splitlines()[:1]
    except OSError:
        return None
    if not line or not line[0].startswith(b"#!"):
        return None
    words = os.fsdecode(line[0][2:]).split()
    if words and os.path.basename(words[0]) == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    return words or None


def is_python(path: str) -> bool:
    """Whether a program's name says that it is a Python interpreter."""
    return _PYTHON.match(os.path.basename(path)) is not None


def interpreter(argv: Sequence[str], path: str | None) -> tuple[str, list[str]] | None:
    """The Python that `argv` comes to, and what follows its name: of `python x.py`, and of a
    script whose first line names one. None where that is no Python, or not there."""
    program = shutil.which(argv[0], path=path)
    if program is None:
        return None
    if is_python(program):
        return os.path.abspath(program), list(argv[1:])
    words = shebang(program)
    if words is None or not is_python(words[0]):
        return None
    found = shutil.which(words[0], path=path)
    if found is None:
        return None
    return os.path.abspath(found), [*words[1:], program, *argv[1:]]
