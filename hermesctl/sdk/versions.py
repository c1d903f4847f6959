"""This client's version, and which heads it may speak to: at most one minor version apart."""

from __future__ import annotations

import importlib.metadata
import re

from hermesctl.errors import Refused
from hermesctl.text import printable

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def client_version() -> str:
    """The installed version of this package."""
    return importlib.metadata.version("hermes-scheduler")


def check_skew(client: str, head: str) -> None:
    """Raise Refused, with both versions, when they are more than one minor version apart."""
    ours, theirs = _NUMBERS.match(client), _NUMBERS.match(head)
    if ours is None or theirs is None:
        return
    if ours[1] == theirs[1] and abs(int(ours[2]) - int(theirs[2])) <= 1:
        return
    raise Refused(
        f"the head runs version {printable(head)}, this is version {client}: more than one minor "
        "version apart; install the head's version (this one can still show and stop trials)"
    )
