"""What a plain scalar of a study file means: YAML 1.2's core schema, read strictly.

Rule: never coerce. `1e-3` is a number; `no`, `010`, `12:30:45` and `1_000`, which YAML 1.1
turns into something else, are the words that they look like. Infinity and NaN are refused:
neither can be compared, stored as JSON, or meant as a bound.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

Plain: TypeAlias = bool | int | float | str | None

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# A leading zero is ambiguous (8 or 10?), so `010` stays a word.
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+\Z")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|[kKMGTP]i?B)\Z")
_BYTES = {
    "B": 1,
    **{f"{letter}B": 1000**n for n, letter in enumerate("KMGTP", start=1)},
    **{f"{letter}iB": 1024**n for n, letter in enumerate("KMGTP", start=1)},
    "kB": 1000,
    "kiB": 1024,
}


def resolve(text: str) -> Plain:
    """The value of the plain (unquoted) scalar `text`.

    Raises ValueError, whose text says what is expected, for numbers that can't be carried.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _DECIMAL.match(text):
        return _integer(text, 10)
    if _OCTAL.match(text):
        return _integer(text[2:], 8)
    if _HEXADECIMAL.match(text):
        return _integer(text[2:], 16)
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError("a number below 1.8e308")
        return value
    if _NOT_FINITE.match(text):
        raise ValueError("a finite number (quote it to pass it on as a word)")
    return text


def seconds(text: str) -> float | None:
    """The duration that `90s`, `1h30m` or `500ms` is, in seconds; None if it is none."""
    if not _DURATION.match(text):
        return None
    total = sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
    return total if math.isfinite(total) else None


def size_bytes(text: str) -> int | None:
    """The size that `8GiB` or `500 MB` is, in bytes; None if it is none."""
    match = _SIZE.match(text)
    if match is None:
        return None
    amount = float(match[1]) * _BYTES[match[2]]
    return round(amount) if amount <= INT64_MAX else None


def _integer(digits: str, base: int) -> int:
    # int() refuses thousands of digits with an error of its own, and takes its time before.
    value = int(digits, base) if len(digits) <= 70 else INT64_MAX + 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("a whole number that fits in 64 bits")
    return value
