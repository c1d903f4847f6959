"""All devices of a machine, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermesd.core.model import Device, DeviceId, NodeId, Tier
from hermesd.node.machine.devices import DeviceProvider, DeviceUse


class Rack:
    """The devices that some providers found, each known by its id."""

    def __init__(self, providers: Sequence[DeviceProvider]) -> None:
        self._providers = providers
        self._of: dict[DeviceId, DeviceProvider] = {}
        self.devices: dict[DeviceId, Device] = {}

    async def find(self, node: NodeId) -> None:
        """Look what there is."""
        for provider in self._providers:
            for device in await provider.find(node):
                self.devices[device.id] = device
                self._of[device.id] = provider

    @property
    def cheapest(self) -> Mapping[DeviceId, Tier]:
        """The cheapest tier that frees each device."""
        return {name: provider.cheapest for name, provider in self._of.items()}

    def parks(self, devices: Sequence[DeviceId]) -> bool:
        """Whether a parked trial takes nothing of these devices."""
        return all(self.cheapest.get(name) is Tier.PARK for name in devices)

    def are_imaged(self, devices: Sequence[DeviceId]) -> bool:
        """Whether an image of a trial's processes holds what they have on these devices."""
        return all(self._of[name].are_imaged for name in devices)

    def beside(self, usable: Sequence[int]) -> Mapping[DeviceId, tuple[int, ...]]:
        """For each device of cores, as many others of the usable ones that no device has; devices
        for which there are not enough are left out."""
        taken = {core for device in self.devices.values() for core in device.cores}
        spare = [core for core in usable if core not in taken]
        counts = {name: len(device.cores) for name, device in self.devices.items()}
        return {name: tuple(spare[:n]) for name, n in counts.items() if 0 < n <= len(spare)}

    def facts(self) -> tuple[str, ...]:
        """What was found, for people."""
        return tuple(provider.fact() for provider in self._providers)

    def environment(self, devices: Sequence[DeviceId]) -> dict[str, str]:
        """What a program must see to use these devices and no others, in this order. KeyError for
        no device here."""
        each = [self._of[device].environment(device) for device in devices]
        names = dict.fromkeys(name for one in each for name in one)
        return {name: ",".join(dict.fromkeys(one.get(name, "") for one in each)) for name in names}

    async def released(
        self, devices: Sequence[DeviceId], pids: frozenset[int]
    ) -> Mapping[DeviceId, str]:
        """Wait until these processes hold none of the devices; those that stay held, and why."""
        held = {}
        for name in devices:
            provider = self._of.get(name)
            reason = await provider.released(name, pids) if provider else None
            if reason is not None:
                held[name] = reason
        return held

    async def holders(self) -> Mapping[DeviceId, frozenset[int]]:
        """The processes that compute on the devices of which that is known."""
        holders: dict[DeviceId, frozenset[int]] = {}
        for provider in self._providers:
            holders.update(await provider.holders())
        return holders

    async def use(self) -> Mapping[DeviceId, DeviceUse]:
        """What each device does at present."""
        use: dict[DeviceId, DeviceUse] = {}
        for provider in self._providers:
            use.update(await provider.use())
        return use

    def warnings(self) -> tuple[str, ...]:
        """What cannot be found out about them at present, for people."""
        return tuple(words for provider in self._providers for words in provider.warnings())

    async def memory_taken(self, devices: Sequence[DeviceId]) -> int:
        """Bytes that are taken on those of the devices that have memory of their own."""
        there = (self.devices[name] for name in devices if name in self.devices)
        own = [device.id for device in there if device.owns_memory]
        use: dict[DeviceId, DeviceUse] = {}
        # Not of all: how busy CPU slots are is counted from one asking to the next.
        for provider in dict.fromkeys(self._of[name] for name in own):
            use.update(await provider.use())
        return sum(use[name].memory_bytes for name in own if name in use)
