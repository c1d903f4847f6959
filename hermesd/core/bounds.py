"""The limits of what a node may say: which numbers and which directory names are plausible.

A message beyond these limits is dropped before it becomes an event. So every number in the core can
be added up, multiplied as policies do, and sent on; and the name of a checkpoint is always that of
a directory on the node that reports it, whatever path it is joined to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
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


def _wrongs(node: NodeId, where: str, value: object) -> Iterator[str]:
    kind: type = type(value)
    for name, is_seconds, largest in _fields(kind):
        each = getattr(value, name)
        # What nearly all fields are needs no look at all cases.
        if type(each) is int and 0 <= each <= largest:
            continue
        if type(each) is float and (not is_seconds or 0.0 <= each < math.inf):
            continue
        match each:
            case str() | bool() | None:
                pass
            case int(number) if not 0 <= number <= largest:
                yield _beyond(f"{where}.{name}", number, largest)
            case float(number) if is_seconds and not 0.0 <= number < math.inf:
                yield f"{where}.{name}: {number:g}, expected seconds of 0 or more"
            case RunId(attempt=number):
                if not 0 <= number <= LARGEST_ATTEMPT:
                    yield _beyond(f"{where}.{name}.attempt", number, LARGEST_ATTEMPT)
            case Checkpoint() as checkpoint:
                yield from _of_checkpoint(node, f"{where}.{name}", checkpoint)
                yield from _wrongs(node, f"{where}.{name}", checkpoint)
            case tuple() as several:
                yield from _of_several(node, f"{where}.{name}", several)
            case _:
                pass


def _of_several(node: NodeId, where: str, several: tuple[Any, ...]) -> Iterator[str]:
    for one in several:
        if isinstance(one, tuple):  # the losses of a report, its metrics and their ranges
            for number in one:
                if type(number) is int and not 0 <= number <= LARGEST_COUNT:
                    yield _beyond(where, number, LARGEST_COUNT)
        elif isinstance(one, LiveRun | Device):
            yield from _wrongs(node, where, one)


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool, int], ...]:
    """Of each field its name, whether it is of seconds, and the largest whole number there."""
    return tuple(
        (
            field.name,
            field.name.endswith(_SECONDS),
            LARGEST_ATTEMPT if "attempt" in field.name else LARGEST_COUNT,
        )
        for field in fields(kind)
    )


def _of_checkpoint(node: NodeId, where: str, checkpoint: Checkpoint) -> Iterator[str]:
    if directory_of(checkpoint.id) is None:
        yield f"{where}.id: {checkpoint.id[:80]!r}, expected the name of a directory after the @"
    if not set(checkpoint.nodes) <= {node}:
        yield f"{where}.nodes: {checkpoint.nodes[:3]}, expected {node} alone"
    if checkpoint.image_of not in ("", node):
        yield f"{where}.image_of: {checkpoint.image_of[:80]!r}, expected {node}"
    device = checkpoint.image_device
    if device and not (checkpoint.image_of and device.startswith(f"{node}/")):
        yield f"{where}.image_device: {device[:80]!r}, expected one of {node}, of an image"


def _beyond(where: str, number: int, largest: int) -> str:
    return f"{where}: {number}, expected from 0 to {largest}"
