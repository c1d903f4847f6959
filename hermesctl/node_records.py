"""What the SDK hands out about machines: nodes, their devices, and how much of these is used.

Rule: as in records.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesctl.text import count


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used over one interval: a share of the device, and memory."""

    utilization: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node, and who is on it."""

    id: str
    node: str
    kind: str
    memory_bytes: int
    cores: tuple[int, ...]
    trial: str
    reserved_for: str
    healthy: bool
    reason: str
    usage: Usage
    busy_seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """A node daemon and its devices; `facts` are what it found out about its machine."""

    id: str
    connected: bool
    devices: tuple[Device, ...]
    facts: tuple[str, ...]
    version: str
    silent_seconds: float

    def __repr__(self) -> str:
        state = "connected" if self.connected else "silent"
        return f"<Node {self.id}: {state}, {count(len(self.devices), 'device')}>"
