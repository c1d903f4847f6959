"""What can go wrong, in words that people understand, each with its stable exit code.

Everything that hermesctl raises on purpose is a HermesError, whose text is complete by itself and
safe for a terminal. No HermesError means a bug in Hermes, except for the class itself.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from hermesctl.text import cut, printable


class ExitCode(enum.IntEnum):
    """The exit codes of the command line; scripts may rely on them."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    TRIALS_FAILED = 6
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it says, in a line."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.INTERNAL: "a fault of Hermes itself; verify-resume: not equal",
    ExitCode.USAGE: "a mistake in a flag, an argument or a study file",
    ExitCode.NOT_FOUND: "no such study, trial, node, metric or checkpoint",
    ExitCode.REFUSED: "understood and refused; doctor: something needs fixing",
    ExitCode.UNREACHABLE: "no head answers",
    ExitCode.TRIALS_FAILED: "waited (--wait, --follow) for trials that failed or were cancelled",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; the trials go on",
}


# So many characters are read at a glance.
_SHORT_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: a file with line and column from 1, or a flag."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        numbers = [str(n) for n in (self.line, self.column) if n is not None]
        return ":".join([printable(self.source), *numbers])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, the field, its value, what is allowed, what is near."""

    expected: str
    field_path: str = ""
    value: str = ""
    nearest: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        parts = [str(self.place)] if self.place else []
        if self.field_path:
            parts.append(printable(self.field_path))
        if self.value:
            parts.append(cut(printable(self.value)))
        expected, hint = printable(self.expected), f"did you mean {printable(self.nearest)}?"
        if not self.nearest:
            words = f"expected {expected}"
        elif len(expected) <= _SHORT_CHARACTERS:
            words = f"expected {expected}; {hint}"
        else:  # what is meant is not to be looked for behind a long list
            words = f"{hint} Expected {expected}"
        return ": ".join([*parts, words])


class HermesError(Exception):
    """The base of all errors of this package; by itself: Hermes failed, not its user."""

    exit_code = ExitCode.INTERNAL


class UsageError(HermesError):
    """What was asked can't be meant: a flag, an argument or a file named by one has no meaning,
    whoever found that out. `problems` name the fields, where fields are meant."""

    exit_code = ExitCode.USAGE

    def __init__(self, words: str, problems: Sequence[Problem] = ()) -> None:
        told = "\n".join(str(problem) for problem in problems) or printable(words, keep="\n")
        super().__init__(told)
        self.problems = tuple(problems)


class StudyFileError(UsageError):
    """A study file, or a study given as a dict, is not one. `problems` are all there are."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("expected a study", problems)


class SnapshotError(UsageError):
    """The directory of the program can't be sent as it is."""


class NotFound(HermesError):
    """The head knows no such study, trial, node or checkpoint (or it is not yours)."""

    exit_code = ExitCode.NOT_FOUND


class Refused(HermesError):
    """The head understood and said no: not now, not you, not so much."""

    exit_code = ExitCode.REFUSED


class Unreachable(HermesError):
    """No head answers at the address; the text names it and says what to do."""

    exit_code = ExitCode.UNREACHABLE
