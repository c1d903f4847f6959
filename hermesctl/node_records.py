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
    """A node daemon and its devices; `facts` are what it found out about its machine.

    Of one that is `draining`: the trials `parked` there, those on it that are `stuck` since no
    checkpoint would bring them back elsewhere, and how many unfinished trials have their
    `only_copies` of a checkpoint there.
    """

    id: str
    connected: bool
    devices: tuple[Device, ...]
    facts: tuple[str, ...]
    version: str
    silent_seconds: float
    draining: bool = False
    parked: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    only_copies: int = 0

    @property
    def running(self) -> tuple[str, ...]:
        """The trials on its devices."""
        return tuple(device.trial for device in self.devices if device.trial)

    @property
    def drained(self) -> bool:
        """Whether it was to be emptied and nothing runs or is parked there any more."""
        return self.draining and not self.running and not self.parked

    @property
    def state(self) -> str:
        """`connected`, `silent`, `draining` or `drained`; the last two also of a silent one."""
        if self.draining:
            return "drained" if self.drained else "draining"
        return "connected" if self.connected else "silent"

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.state}, {count(len(self.devices), 'device')}>"
