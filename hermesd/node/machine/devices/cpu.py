"""CPU slots: each is a set of cores, or a share of one, to which one trial at a time is bound."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermesd.config.slots import SlotSetting
from hermesd.core.model import Device, DeviceId, NodeId, Tier
from hermesd.node.machine.devices import DeviceUse

# A program bound to a slot must not open a GPU that is lent to somebody else.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
# Idle and waiting for a disk, among the times of a core in /proc/stat.
_IDLE = (3, 4)


def _kind(slot: SlotSetting) -> str:
    """Slots of different shares are not equally fast: to the head they are different kinds."""
    return "cpu" if slot.percent == 100 else f"cpu-{slot.percent}%"


def seat_of(
    cores: Sequence[int], system: Path = Path("/sys/devices/system/cpu")
) -> tuple[str, ...]:
    """The NUMA node of these cores; nothing if that is not known, or they are of several."""
    nodes = {path.name for core in cores for path in (system / f"cpu{core}").glob("node*")}
    return tuple(nodes) if len(nodes) == 1 else ()


class CpuSlots:
    """The slots of this machine; a parked trial takes none of a slot's time."""

    cheapest = Tier.PARK
    are_imaged = True

    def __init__(self, slots: Sequence[SlotSetting]) -> None:
        self._slots = tuple(slots)
        self._cores: dict[DeviceId, tuple[int, ...]] = {}
        self._before: dict[int, tuple[int, int]] = {}
        # Of each slot, where one is less than its core.
        self.percents: Mapping[DeviceId, int] = {}

    async def find(self, node: NodeId) -> tuple[Device, ...]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        share = memory // max(1, len(self._slots))
        named = {f"{node}/cpu{i}": slot for i, slot in enumerate(self._slots)}
        self._cores = {name: tuple(sorted(slot.cores)) for name, slot in named.items()}
        if any(slot.percent < 100 for slot in self._slots):
            self.percents = {name: slot.percent for name, slot in named.items()}
        return tuple(
            Device(name, node, _kind(slot), share, self._cores[name], seat_of(self._cores[name]))
            for name, slot in named.items()
        )

    def fact(self) -> str:
        count = len(self._slots)
        shares = ", ".join(f"{slot.percent} %" for slot in self._slots)
        words = f" ({shares} of a core)" if self.percents else ""
        return f"{count} CPU slot{'' if count == 1 else 's'}{words}"

    def environment(self, device: DeviceId) -> Mapping[str, str]:
        return _NO_GPU

    async def released(self, device: DeviceId, pids: frozenset[int]) -> str | None:
        """At once: the host speaks of a release only when every thread was seen stopped."""
        return None

    async def holders(self) -> Mapping[DeviceId, frozenset[int]]:
        """Everybody computes on cores: that makes nobody a stranger."""
        return {}

    async def use(self) -> Mapping[DeviceId, DeviceUse]:
        busy = self._busy_shares()
        return {
            name: DeviceUse(sum(busy.get(core, 0.0) for core in cores) / len(cores), 0)
            for name, cores in self._cores.items()
        }

    def warnings(self) -> tuple[str, ...]:
        return ()

    def _busy_shares(self) -> dict[int, float]:
        """The busy share of each core since the last call."""
        shares = {}
        for line in Path("/proc/stat").read_text().splitlines():
            name, *times = line.split()
            if not name.startswith("cpu") or name == "cpu":
                continue
            core, ticks = int(name[3:]), [int(time) for time in times]
            total, idle = sum(ticks), sum(ticks[i] for i in _IDLE)
            before_total, before_idle = self._before.get(core, (total, idle))
            passed = total - before_total
            shares[core] = 1 - (idle - before_idle) / passed if passed > 0 else 0.0
            self._before[core] = (total, idle)
        return shares
