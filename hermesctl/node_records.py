"""What the SDK hands out about machines: nodes, their devices, and how much of these is used.

Rule: as in records.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesctl.text import count

# Of the nodes that no other pool claims, and of the studies that name none.
DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used over one interval: a share of the device, and memory."""

    utilization: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A device or node that is kept from trials that can run elsewhere: until when, and why."""

    until_unix_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A study that runs nothing more on a node, by a rule of its own, and why."""

    study: str
    reason: str


@dataclass(frozen=True, slots=True)
class Strike:
    """A trial's failure on a device, as it is held against it."""

    trial: str
    kind: str
    detail: str
    at_unix_seconds: float


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node, and who is on it: a trial of `others` is not named.

    `yielded` says to whom its machine left it for now. `speed` is its speed beside that of its
    kind, by `comparisons` of what trials took on it and on another device of the kind.
    """

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
    quarantine: Quarantine | None = None
    strikes: tuple[Strike, ...] = ()
    others: bool = False
    yielded: str = ""
    speed: float = 1.0
    comparisons: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """A node daemon and its devices; `facts` are what it found out about its machine.

    `resting` says why its machine wants it back for now. Of such a one, and of one that is
    `draining`: the trials `parked` there, those on it that are `stuck` since no
    checkpoint would bring them back elsewhere, and how many unfinished trials have their
    `only_copies` of a checkpoint there. `lacking` is what studies require and it has not, with the
    reasons; `warnings` are what those who look after it should know of its daemon. One that is
    `lost` is not waited for any more.
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
    quarantine: Quarantine | None = None
    exclusions: tuple[Exclusion, ...] = ()
    pool: str = DEFAULT_POOL
    resting: str = ""
    lacking: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    lost: bool = False

    @property
    def running(self) -> tuple[str, ...]:
        """The trials on its devices."""
        return tuple(device.trial for device in self.devices if device.trial)

    @property
    def drained(self) -> bool:
        """Whether it was to be emptied and nothing runs or is parked there any more."""
        taken = any(device.trial or device.others for device in self.devices)
        return self.draining and not taken and not self.parked

    @property
    def state(self) -> str:
        """`connected`, `resting`, `quarantined`, `silent` or `lost`; `draining` or `drained` also
        of one that is not connected."""
        if self.draining:
            return "drained" if self.drained else "draining"
        if self.connected and self.resting:
            return "resting"
        if self.connected and self.quarantine is not None:
            return "quarantined"
        if self.connected:
            return "connected"
        return "lost" if self.lost else "silent"

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.state}, {count(len(self.devices), 'device')}>"
