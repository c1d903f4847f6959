"""Makes events fit for messages, whatever a program put into its texts and numbers.

What cannot be expressed exactly is expressed as closely as possible; a stream never breaks over one
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from hermesd import wire
from hermesd.core.events import Reported, RunCompleted, RunFailed, RunSuspended
from hermesd.core.node.messages import Series
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.wire import NodeEvent

# Well below what a stream takes at once (4 MiB); a host's own frames are 64 KiB.
LARGEST_BYTES = 1 << 20
TEXT_CHARACTERS = 4000

log = get_logger()


def message_of(event: NodeEvent, points: Sequence[Series] = ()) -> pb.AttachRequest | None:
    """The message of an event; None, with the reason logged, if it cannot be said at all."""
    try:
        message = wire.event_to_proto(event, points)
        if message.ByteSize() <= LARGEST_BYTES:
            return message
        reason = f"{message.ByteSize()} bytes"
    except (TypeError, ValueError) as error:
        reason = str(error)
    log.warning("not sent as it is", what=type(event).__name__, reason=reason)
    for said, beside in _nearest(event, points):
        try:
            message = wire.event_to_proto(said, beside)
        except (TypeError, ValueError):
            continue
        if message.ByteSize() <= LARGEST_BYTES:
            return message
    log.error("not sent at all", what=type(event).__name__, reason=reason)
    return None


def _nearest(
    event: NodeEvent, points: Sequence[Series]
) -> list[tuple[NodeEvent, Sequence[Series]]]:
    """What may be said instead, the best first."""
    plain = _plain(event)
    named = [series._replace(metric=_plain(series.metric)) for series in points]
    ways: list[tuple[NodeEvent, Sequence[Series]]] = [(plain, named)]
    if isinstance(event, Reported):
        ways.append((replace(plain, metrics=()), ()))
    if isinstance(event, RunSuspended | RunCompleted | RunFailed):
        # Its end must be told, or the head waits for ever.
        failed = RunFailed(event.run, "lost", "the run's outcome cannot be told", "", 0)
        ways.append((failed, ()))
    return ways


def _plain(value: Any) -> Any:
    """The same with every text short and of characters that can be encoded."""
    match value:
        case str():
            text = value.encode(errors="backslashreplace").decode()
            return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}..."
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(_plain, value))
        case tuple():
            return tuple(map(_plain, value))
        case _ if hasattr(value, "__dataclass_fields__"):
            kept = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
            return type(value)(**kept)
        case _:
            return value
