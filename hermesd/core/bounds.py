"""What no node says: numbers that cannot be counted on, names of directories that are none.

Rule: what is beyond these bounds is no event. Every number here can be added to and multiplied
by what policies multiply with, and still be sent; a checkpoint's name is a directory's, whoever
joins it to a path, and lies on the node that speaks of it alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from hermesd.core.model import Checkpoint, CheckpointId, Device, LiveRun, NodeId, RunId

# Of steps, bytes, examples: what a double still counts.
LARGEST_COUNT = 2**53
# A trial is launched once for each.
LARGEST_ATTEMPT = 2**30

_DIRECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SECONDS = "seconds"


def directory_of(checkpoint: CheckpointId) -> str | None:
    """The directory in which nodes keep the checkpoint of this id; None if it can be none's."""
    name = checkpoint.rpartition("@")[2]
    return name if _DIRECTORY.fullmatch(name) else None


def implausible(node: NodeId, event: Any) -> str:
    """What in an event no node says of itself: field, value and what was expected; "" if all is
    well."""
    return next(_wrongs(node, type(event).__name__, event), "")


def _wrongs(node: NodeId, where: str, value: Any) -> Iterator[str]:
    for field in fields(value):
        name, each = f"{where}.{field.name}", getattr(value, field.name)
        match each:
            case bool():
                pass
            case RunId(attempt=attempt):
                yield from _beyond(f"{name}.attempt", attempt, LARGEST_ATTEMPT)
            case int():
                largest = LARGEST_ATTEMPT if "attempt" in field.name else LARGEST_COUNT
                yield from _beyond(name, each, largest)
            case float() if field.name.endswith(_SECONDS):
                if not 0.0 <= each < math.inf:
                    yield f"{name}: {each:g}, expected seconds of 0 or more"
            case Checkpoint():
                yield from _of_checkpoint(node, name, each)
                yield from _wrongs(node, name, each)
            case tuple():
                for one in each:
                    if isinstance(one, LiveRun | Device):
                        yield from _wrongs(node, name, one)
                    elif isinstance(one, tuple):  # the losses of a report
                        for number in one:
                            if type(number) is int:
                                yield from _beyond(name, number, LARGEST_COUNT)
            case _:
                pass


def _of_checkpoint(node: NodeId, where: str, checkpoint: Checkpoint) -> Iterator[str]:
    if directory_of(checkpoint.id) is None:
        yield f"{where}.id: {checkpoint.id[:80]!r}, expected the name of a directory after the @"
    if not set(checkpoint.nodes) <= {node}:
        yield f"{where}.nodes: {checkpoint.nodes[:3]}, expected {node} alone"


def _beyond(where: str, number: int, largest: int) -> Iterator[str]:
    if not 0 <= number <= largest:
        yield f"{where}: {number}, expected from 0 to {largest}"
