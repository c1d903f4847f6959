"""What is wrong with an input, for people: the field, its value, what would do, what is near.

Shared by everything that checks what others wrote: the configuration and the study.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from hermesd.core.policy import nearest as nearest

VALUE_LIMIT = 80
# How pydantic and we say what a number may be.
_TYPES = frozenset({"int", "float", "str", "bool"})
_BOUNDS = (
    (r"^greater than or equal to (\S+)", r"\1 or more"),
    (r"^less than or equal to (\S+)", r"\1 or less"),
    (r"^greater than ", "above "),
    (r"^less than ", "below "),
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that is not valid."""

    field_path: str
    value: str
    expected: str
    #: A valid choice that may be meant; else empty.
    nearest: str = ""

    def __str__(self) -> str:
        hint = f" (did you mean {self.nearest}?)" if self.nearest else ""
        shown = f" = {self.value}" if self.value else ""
        return f"{self.field_path}{shown}: expected {self.expected}{hint}"


class Refused(Exception):
    """An input with at least one error; all of them are listed."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors


def shown(value: object) -> str:
    """A value as it is quoted in an error: printable, and cut at 80 characters."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= VALUE_LIMIT else text[: VALUE_LIMIT - 1] + "…"


def one_of(choices: Iterable[str]) -> str:
    """The choices, for a message."""
    return f"one of {', '.join(sorted(choices))}"


def from_pydantic(
    error: ValidationError, keys: Mapping[str, Iterable[str]] | None = None
) -> tuple[FieldError, ...]:
    """The errors of a pydantic model in our words.

    `keys` maps the dotted path of a table to the keys it may have, so that an unknown key can be
    answered with the nearest valid one.
    """
    return tuple(
        _field_error(_field(item["loc"]), item["type"], item["msg"], item["input"], keys or {})
        for item in error.errors(include_url=False)
    )


def _field(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where it is. Of an item that may be of several types, pydantic names the one, too."""
    is_type = location[-1:] and location[-1] in _TYPES and isinstance(location[-2:][0], int)
    return location[:-1] if is_type else location


def under(path: str, errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """The errors with their paths below `path`."""
    return tuple(
        replace(e, field_path=f"{path}.{e.field_path}" if e.field_path else path) for e in errors
    )


def as_options(refused: Refused, options: Iterable[str]) -> str:
    """The errors for a command line, which had some of the fields as options of their names.

    What is below a field is no option, but within the option's value: it stays as it is written.
    """
    known = set(options)
    named = (
        replace(error, field_path=f"--{field.replace('_', '-')}{' ' * bool(dot)}{below}")
        if field in known
        else error
        for error in refused.errors
        for field, dot, below in (error.field_path.partition("."),)
    )
    return "\n".join(map(str, named))


def _field_error(
    location: tuple[int | str, ...],
    kind: str,
    message: str,
    value: object,
    keys: Mapping[str, Iterable[str]],
) -> FieldError:
    path = ".".join(map(str, location))
    if kind == "extra_forbidden":
        table, _, key = path.rpartition(".")
        choices = sorted(keys.get(table, ()))
        return FieldError(path, "unknown key", one_of(choices), nearest(key, choices))
    if kind == "missing":
        return FieldError(path, "", "a value")
    expected = re.sub(
        r"^(Input|Value|Dictionary|List|Tuple|String) should (be |have )?", "", message
    )
    expected = re.sub(r" after validation, not \d+$", "", expected)
    expected = expected.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for theirs, ours in _BOUNDS:
        expected = re.sub(theirs, ours, expected)
    choices = re.findall(r"'([^']+)'", expected) if kind in ("enum", "literal_error") else []
    near = nearest(value, choices) if isinstance(value, str) else ""
    # A table that contradicts itself: what it expects says which of its values, and how.
    told = "" if isinstance(value, Mapping) else shown(value)
    return FieldError(path, told, expected, near)
