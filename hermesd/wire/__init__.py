"""Translates the node stream's messages to and from the core's events and orders.

Pure, and shared by both ends. A message that the core cannot represent (an unknown enum value, an
unset oneof, an attempt below 1) raises `Malformed`, which names the field. No daemon may enter.
"""

from __future__ import annotations

from hermesd.wire.codec import Malformed, named_value, value_of
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
    "value_of",
]
