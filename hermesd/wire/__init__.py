"""The node stream's messages, from and to the core's events and orders.

Rule: pure translation, shared by both ends. A message that carries what the core has no word
for (an unknown enum, no oneof, an attempt below 1) raises `Malformed`, naming the field.
"""

from __future__ import annotations

from hermesd.wire.codec import Malformed, named_value, scalar_of
from hermesd.wire.node_stream import (
    FIDELITIES,
    GOALS,
    TIERS,
    NodeEvent,
    checkpoint_to_proto,
    command_from_proto,
    command_to_proto,
    device_to_proto,
    event_from_proto,
    event_to_proto,
    hello_to_proto,
    launch_from_proto,
    launch_to_proto,
    plugin_to_proto,
    points_from_proto,
    points_to_proto,
    quantum_to_proto,
)

__all__ = [
    "FIDELITIES",
    "GOALS",
    "TIERS",
    "Malformed",
    "NodeEvent",
    "checkpoint_to_proto",
    "command_from_proto",
    "command_to_proto",
    "device_to_proto",
    "event_from_proto",
    "event_to_proto",
    "hello_to_proto",
    "launch_from_proto",
    "launch_to_proto",
    "named_value",
    "plugin_to_proto",
    "points_from_proto",
    "points_to_proto",
    "quantum_to_proto",
    "scalar_of",
]
