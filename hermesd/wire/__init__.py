"""The node stream's messages, from and to the core's events and orders.

Rule: pure translation, shared by both ends. A message that carries what the core has no word
for (an unknown enum, no oneof, an attempt below 1) raises `Malformed`, naming the field.
"""

from __future__ import annotations

from hermesd.wire.events import (
    NodeEvent,
    event_from_proto,
    event_to_proto,
    hello_to_proto,
)
from hermesd.wire.nouns import (
    Malformed,
    checkpoint_from_proto,
    checkpoint_to_proto,
    device_from_proto,
    device_to_proto,
    quantum_from_proto,
    quantum_to_proto,
)
from hermesd.wire.orders import (
    command_from_proto,
    command_to_proto,
    launch_from_proto,
    launch_to_proto,
)
from hermesd.wire.reports import points_from_proto, points_to_proto

__all__ = [
    "Malformed",
    "NodeEvent",
    "checkpoint_from_proto",
    "checkpoint_to_proto",
    "command_from_proto",
    "command_to_proto",
    "device_from_proto",
    "device_to_proto",
    "event_from_proto",
    "event_to_proto",
    "hello_to_proto",
    "launch_from_proto",
    "launch_to_proto",
    "points_from_proto",
    "points_to_proto",
    "quantum_from_proto",
    "quantum_to_proto",
]
