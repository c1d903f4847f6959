"""Placements that give each waiting trial a device of its own: `homes`, and `swap` on top of it.

`homes` is Algorithms 1 and 2 of the Hermes paper (Electronics 2021, 10(3), 350); evening out the
devices of a node and equation (2) are what Hermes-v2 adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from hermesd.core.model import Device, DeviceId, NodeId
from hermesd.core.plugins import require
from hermesd.core.policy import Facts
from hermesd.core.speeds import Speeds, performance
from hermesd.core.tables import waits_parked
from hermesd.core.trial import Trial

Rebinding: TypeAlias = tuple[Trial, DeviceId]


@dataclass(frozen=True, slots=True)
class Homesteads:
    """The homes of one study as they are.

    `load` counts the trials bound to each device that can be bound to, `waiting` lists those of
    them that wait, by number. `takes` says whether a device could be a trial's home. A study is
    `stirred` when one of its trials was bound for the first time, or ended, just now.
    """

    devices: Mapping[DeviceId, Device]
    load: Mapping[DeviceId, int]
    waiting: Mapping[DeviceId, list[Trial]]
    takes: Callable[[Trial, DeviceId], bool]
    speeds: Speeds
    stirred: bool


@dataclass(frozen=True, slots=True)
class Homes:
    """The paper's placement: bound to the least loaded device that has fewer than `G_thres`.

    A trial keeps its home, unless `rebalance` is `node`: then waiting trials move to a device of
    the same node that has two trials fewer. With `cluster` a device that has run dry also takes
    one from the fullest device of another node.
    """

    name: ClassVar[str] = "homes"
    binds: ClassVar[bool] = True
    G_thres: int = 4
    rebalance: Literal["none", "node", "cluster"] = "none"

    def __post_init__(self) -> None:
        require(self.G_thres >= 1, "G_thres", self.G_thres, "1 or more")

    def gain(
        self,
        trial: Trial,
        here: Device,
        there: Device,
        facts: Facts,
        speeds: Speeds,
        wanted: bool,
    ) -> float:
        return 0.0

    def cost(self, trial: Trial, device: Device, facts: Facts, speeds: Speeds) -> tuple[float, ...]:
        return (float(trial.home != device.id),)

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        open_devices = [(count, device) for device, count in load.items() if count < self.G_thres]
        return min(open_devices)[1] if open_devices else None

    def rebound(self, homes: Homesteads) -> Iterator[Rebinding]:
        moved = [] if self.rebalance == "none" else list(_evened(homes))
        if not moved and self.rebalance == "cluster":
            moved = list(_refilled(homes))
        yield from moved


@dataclass(frozen=True, slots=True)
class Swap(Homes):
    """`homes`, and a trial that never ran may change places with one of another device.

    Looked at when a trial arrives or ends and the devices have unequal numbers of trials: a trial
    of the device that has the fewest is compared with all others, and the one swap that gains
    most by equation (2) is made, if any gains.
    """

    name: ClassVar[str] = "swap"

    def rebound(self, homes: Homesteads) -> Iterator[Rebinding]:
        swapped = list(_swapped(homes)) if homes.stirred else []
        yield from swapped or Homes.rebound(self, homes)


def _evened(homes: Homesteads) -> Iterator[Rebinding]:
    """Waiting trials of the fullest device of a node go to its emptiest, while that evens out.

    Those that never ran go first, the latest of them before the others.
    """
    nodes: dict[NodeId, list[DeviceId]] = {}
    for device in homes.load:
        nodes.setdefault(homes.devices[device].node, []).append(device)
    for devices in nodes.values():
        load = {device: homes.load[device] for device in devices}
        movable = {
            device: sorted(
                homes.waiting.get(device, ()),
                key=lambda trial: (not trial.attempt, trial.spec.number),
            )
            for device in devices
        }
        while True:
            empty = min(devices, key=lambda device: (load[device], device))
            full = max(
                (device for device in devices if movable[device]),
                key=lambda device: load[device],
                default=empty,
            )
            if load[full] - load[empty] < 2:
                break
            trial = movable[full].pop()
            if homes.takes(trial, empty):
                load[full] -= 1
                load[empty] += 1
                yield trial, empty


def _refilled(homes: Homesteads) -> Iterator[Rebinding]:
    """A waiting trial of the fullest device for each device that has run dry, whatever its node.

    Those that never ran go first, since they have no checkpoint to transfer. A parked process
    cannot go to another node, so its trial stays.
    """
    load = dict(homes.load)
    movable = {
        device: sorted(
            (trial for trial in trials if not waits_parked(trial)),
            key=lambda trial: (not trial.attempt, trial.spec.number),
        )
        for device, trials in homes.waiting.items()
    }
    for dry in sorted(device for device, count in load.items() if not count):
        for full in sorted(movable, key=lambda device: (-load[device], device)):
            trial = next((t for t in reversed(movable[full]) if homes.takes(t, dry)), None)
            if load[full] >= 2 and trial is not None:
                movable[full].remove(trial)
                load[full] -= 1
                yield trial, dry
                break


def _swapped(homes: Homesteads) -> Iterator[Rebinding]:
    """Both halves of the swap that gains most; nothing if none gains or nothing was measured."""
    fewest, most = min(homes.load.values()), max(homes.load.values())
    if fewest == most:
        return
    fresh = {
        device: [trial for trial in homes.waiting.get(device, ()) if not trial.attempt]
        for device in homes.load
    }
    mine = next((d for d, count in homes.load.items() if count == fewest and fresh[d]), None)
    if mine is None:
        return
    trial = fresh[mine][0]
    swaps = [
        (gain, -other.spec.number, other, theirs)
        for theirs, others in fresh.items()
        if theirs != mine
        for other in others
        if (gain := _gain(homes, trial, mine, other, theirs)) > 0.0
        and homes.takes(trial, theirs)
        and homes.takes(other, mine)
    ]
    if swaps:
        _, _, other, theirs = max(swaps, key=lambda swap: swap[:2])
        yield trial, theirs
        yield other, mine


def _gain(homes: Homesteads, a: Trial, at_a: DeviceId, b: Trial, at_b: DeviceId) -> float:
    """Equation (2): (P_Gb(a) + P_Ga(b)) - (P_Ga(a) + P_Gb(b)); 0 while a kind is unmeasured."""
    on_a, on_b = homes.devices[at_a], homes.devices[at_b]
    crossed = performance(homes.speeds, a, on_b), performance(homes.speeds, b, on_a)
    straight = performance(homes.speeds, a, on_a), performance(homes.speeds, b, on_b)
    if None in crossed or None in straight:
        return 0.0
    return sum(filter(None, crossed)) - sum(filter(None, straight))
