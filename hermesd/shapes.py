"""How single settings are written: sizes, names, addresses, hours, GPUs.

Rule: each takes what a file or a variable may hold, and says what was expected of what will not do.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from hermesd.hours import Hours, parse

NODE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2] not in UNITS:
        raise ValueError("a number of bytes or a size such as 512MiB or 20GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _node_name(name: str) -> str:
    if not NODE_NAME.fullmatch(name):
        raise ValueError("1 to 63 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first")
    return name


def _user_name(name: str) -> str:
    if not name or len(name) > 63 or not name.isprintable():
        raise ValueError("the name of a user, as `hermesctl user ls` has it")
    return name


def _address(address: object) -> str:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not isinstance(address, str) or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("host:port, for example 127.0.0.1:7411")
    return address


def _target(target: str) -> str:
    return target if target.startswith("unix:") and len(target) > 5 else _address(target)


def _gpu_list(value: object) -> object:
    """A list, or text with commas from the environment."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(str(each).strip() for each in entries):
        raise ValueError('a list such as [0, 1] or ["GPU-8f2b"]')
    return tuple(str(each).strip() for each in entries)


def _hours(value: object) -> object:
    """A list, or text with commas from the environment."""
    if isinstance(value, Hours | None):
        return value
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(each, str) for each in entries):
        raise ValueError('a list such as ["Mon-Fri 19:00-07:00", "Sat-Sun"]')
    return parse([entry.strip() for entry in entries])


NodeName = Annotated[str, AfterValidator(_node_name)]
UserName = Annotated[str, AfterValidator(_user_name)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**62)]
Address = Annotated[str, BeforeValidator(_address)]
Target = Annotated[str, AfterValidator(_target)]
GpuList = Annotated[tuple[str, ...], BeforeValidator(_gpu_list)]
ServiceHours = Annotated[Hours | None, BeforeValidator(_hours)]
