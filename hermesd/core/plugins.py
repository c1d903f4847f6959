"""From a plug-in's name and settings to the plug-in itself, with errors that say what would do.

A plug-in is a frozen dataclass whose fields are its settings. Fields may be bool, int, float,
str, a `Literal` of strings, or a tuple of one of these; ranges are checked in `__post_init__`.
A number may be written as a fraction (`1/27`), and a list with colons (`25:50:75`), wherever
settings are written: no YAML, JSON or TOML has another meaning for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from hermesd.core.model import Plugin, Scalar, Setting
from hermesd.core.policy import BadSetting

T = TypeVar("T")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def build(noun: str, known: Mapping[str, type[T]], plugin: Plugin) -> T:
    """The plug-in that `plugin` describes; `noun` says what it is ("policy", "placement").

    Raises `BadSetting` for a name, a setting, a type or a value that is not one of ours.
    """
    if plugin.name not in known:
        raise BadSetting(noun, plugin.name, one_of(known), nearest(plugin.name, known))
    chosen = known[plugin.name]
    types = get_type_hints(chosen)
    names = [field.name for field in fields(chosen)]  # type: ignore[arg-type]
    settings: dict[str, Setting] = {}
    for name, value in plugin.settings:
        if name not in names:
            field = f"{noun}.{plugin.name}"
            raise BadSetting(field, name, one_of(names), nearest(name, names))
        settings[name] = typed(name, value, types[name])
    return chosen(**settings)


def require(holds: bool, field: str, value: Setting, expected: str) -> None:
    """Raises `BadSetting` unless a setting's value is within its range."""
    if not holds:
        raise BadSetting(field, value, expected)


def typed(field: str, value: Setting, wanted: Any) -> Setting:
    """The value in the type that a setting has; a whole number will do where a number may."""
    if get_origin(wanted) is Literal:
        choices = [str(choice) for choice in get_args(wanted)]
        if value not in choices:
            raise BadSetting(field, value, one_of(choices), nearest(str(value), choices))
        return value
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)[0]
        if isinstance(value, str) and ":" in value:
            value = read(value)
        if not isinstance(value, tuple):
            raise BadSetting(field, value, f"a list, each {WORDS[inner]}")
        return tuple(scalar(field, item, inner) for item in value)
    return scalar(field, value, wanted)


def scalar(field: str, value: Setting, wanted: type) -> Scalar:
    """A single value in its type; True and 1 are not the same here."""
    if isinstance(value, tuple):
        raise BadSetting(field, value, WORDS[wanted])
    meant = read_word(value) if isinstance(value, str) and "/" in value else value
    if wanted is float and isinstance(meant, int | float) and not isinstance(meant, bool):
        return float(meant)
    if type(value) is not wanted:
        raise BadSetting(field, value, WORDS[wanted])
    return value


def read(text: str) -> Setting:
    """What the text of a setting means: a word, or a list with colons between its items.

    A list of one item ends in a colon.
    """
    if ":" in text:
        return tuple(read_word(item) for item in filter(None, text.split(":")))
    return read_word(text)


def read_word(text: str) -> Scalar:
    """What a word means: true or false, a number, a fraction, or itself."""
    if text in ("true", "false"):
        return text == "true"
    upper, slash, lower = text.partition("/")
    try:
        if slash:
            return float(upper) / float(lower)
        return int(text)
    except (ValueError, ZeroDivisionError):
        pass
    try:
        return float(text)
    except ValueError:
        return text


def raised(error: BaseException) -> str:
    """What a plug-in raised, in one line however many its text has."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def raised_where(error: BaseException) -> str:
    """The same, and the file and line of the plug-in that raised; none if it was no plug-in's."""
    at, where = error.__traceback__, ""
    while at is not None:
        if not at.tb_frame.f_globals.get("__name__", "").startswith("hermesd."):
            where = f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})"
        at = at.tb_next
    return raised(error) + where


def one_of(choices: Iterable[str]) -> str:
    """The choices, for a message."""
    listed = ", ".join(sorted(choices))
    return f"one of {listed}" if listed else "no settings at all"


def nearest(word: str, choices: Iterable[str]) -> str:
    """The choice that a misspelt word most likely means, "" if none is near."""
    return next(iter(get_close_matches(word, sorted(choices), 1, 0.5)), "")
