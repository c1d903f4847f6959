"""The devices that a node lends to trials.

A device is lent again only after its release has been observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from hermesd.core.model import Device, DeviceId, NodeId, Tier


class DeviceUse(NamedTuple):
    """How busy a device is (0 to 1) and what memory is taken on it, in bytes."""

    utilization: float
    memory_bytes: int


class DeviceProvider(Protocol):
    """One kind of device on this machine."""

    @property
    def cheapest(self) -> Tier:
        """The cheapest tier that frees such a device."""

    @property
    def are_imaged(self) -> bool:
        """Whether an image of processes holds what they have on such devices."""
        ...

    async def find(self, node: NodeId) -> tuple[Device, ...]:
        """The devices there are now."""
        ...

    def fact(self) -> str:
        """What was found, for people."""
        ...

    def environment(self, device: DeviceId) -> Mapping[str, str]:
        """What a program must see in its environment to use this device and no other."""
        ...

    async def released(self, device: DeviceId, pids: frozenset[int]) -> str | None:
        """Wait until none of these processes holds the device; why not, if that never comes."""
        ...

    async def holders(self) -> Mapping[DeviceId, frozenset[int]]:
        """The processes that compute on each device now; devices that are cores, and those of
        which nothing is known, are left out."""
        ...

    async def use(self) -> Mapping[DeviceId, DeviceUse]:
        """What each device does at present."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What cannot be found out about the devices at present, for people."""
        ...
