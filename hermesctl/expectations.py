"""What a field of the study file wants, in words, and what a wrong value was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from google.protobuf.descriptor import FieldDescriptor

from hermesctl import scalars
from hermesctl.study_file import Scalar


def nearest(word: str, known: Iterable[str]) -> str:
    """The one of `known` that was most likely meant by `word`; empty if none is near."""
    matches = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else ""


def with_unit(name: str, text: str) -> float | int | None:
    """`text` in the unit that the field's name ends in; None if it is no such measure."""
    if name.endswith("_seconds"):
        return scalars.seconds(text)
    if name.endswith("_bytes"):
        return scalars.size_bytes(text)
    return None


def expectation(field: FieldDescriptor) -> str:
    """What a field's value must be, in words."""
    if field.name.endswith("_seconds"):
        return "a duration such as 90, 90s or 10m"
    if field.name.endswith("_bytes"):
        return "a size such as 8GiB or a number of bytes"
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return "text"
        case FieldDescriptor.CPPTYPE_BOOL:
            return "true or false"
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return "a number"
        case _:
            return "a whole number"


def near_value(field: FieldDescriptor, node: Scalar) -> str:
    """The valid value that a wrong one was probably meant to be; empty if none is near."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if node.text.lower() in ("yes", "on", "y", "true", "1"):
            return "true"
        return "false" if node.text.lower() in ("no", "off", "n", "false", "0") else ""
    if isinstance(node.value, float) and node.value.is_integer():
        return str(int(node.value))
    near = near_number(node.text)
    if field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE:
        return near if near.removeprefix("-").isdigit() else ""
    return near


def near_number(text: str) -> str:
    """The number that `1_000`, `010` or `1,5` was probably meant to be."""
    candidate = text.replace("_", "").replace(",", ".").strip().lstrip("0") or "0"
    try:
        value = scalars.resolve(candidate)
    except ValueError:
        return ""
    return candidate if isinstance(value, int | float) and not isinstance(value, bool) else ""
