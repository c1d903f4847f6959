"""Nodes and their devices, as the head sees them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermesd.core.model import DEFAULT_POOL, Device, DeviceId, NodeId, RunId, Time, TrialId


@dataclass(frozen=True, slots=True)
class Slot:
    """A device as the head sees it now. `yielded` says to whom its machine has left it for now."""

    device: Device
    run: RunId | None = None
    reserved: TrialId | None = None
    healthy: bool = True
    reason: str = ""
    busy_seconds: float = 0.0
    yielded: str = ""

    @property
    def sound(self) -> bool:
        """Whether it works and is ours to use."""
        return self.healthy and not self.yielded


@dataclass(frozen=True, slots=True)
class Node:
    """A box. `silent_since` is set while no stream to it is open.

    One that is `draining` gets nothing new, and gives up what it has: a person wants it so. So does
    one that is `resting`, at once: its machine wants it so, or its daemon ends its trials, for this
    reason. One that is `parting` as well is about to go with its files; one that has `left` is kept
    for the record alone.
    """

    id: NodeId
    boot_id: str
    devices: tuple[DeviceId, ...]
    connected: bool = True
    silent_since: Time | None = None
    facts: tuple[str, ...] = field(default=())
    version: str = ""
    draining: bool = False
    pool: str = DEFAULT_POOL
    resting: str = ""
    disk: str = ""
    parting: bool = False
    left: bool = False
    shared: str = ""
    machine: tuple[str, ...] = ()
    parked_memory_bytes: int = 0

    @property
    def open(self) -> bool:
        """Whether it may be given anything new."""
        return self.connected and not self.leaving

    @property
    def leaving(self) -> bool:
        """Whether it gives up what it has."""
        return self.draining or bool(self.resting)

    @property
    def lost(self) -> bool:
        """Whether it was silent for so long that nothing is expected of it any more."""
        return not self.boot_id
