"""Placements that give each waiting trial a device of its own: `homes`, and `swap` on top of it.

`homes` is Algorithms 1 and 2 of the Hermes paper (Electronics 2021, 10(3), 350); evening out the
devices of a node and equation (2) are what Hermes-v2 adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from hermesd.core.model import Device, DeviceId, NodeId, Tier
from hermesd.core.policy import Facts, require
from hermesd.core.speeds import Speeds, performance, rate, steps_ahead
from hermesd.core.tables import waits_parked
from hermesd.core.trial import SwitchCost, Trial

Rebinding: TypeAlias = tuple[Trial, DeviceId]


@dataclass(frozen=True, slots=True)
class Homesteads:
    """The homes of one study as they are."""

    devices: Mapping[DeviceId, Device]
    #: How many trials are bound to each device that can be bound to.
    load: Mapping[DeviceId, int]
    #: Those of them that wait, by number.
    waiting: Mapping[DeviceId, list[Trial]]
    #: Whether a device could be a trial's home.
    takes: Callable[[Trial, DeviceId], bool]
    #: Whether it could after the trial's process was written down on another node.
    brings: Callable[[Trial, DeviceId], bool]
    facts: Facts
    speeds: Speeds
    #: One of its trials was bound for the first time, or ended, just now.
    stirred: bool


@dataclass(frozen=True, slots=True)
class Homes:
    """The paper's placement: a trial is bound to the least loaded device that has room for it."""

    name: ClassVar[str] = "homes"
    binds: ClassVar[bool] = True
    #: A device has at most so many trials.
    G_thres: int = 4
    #: With `node`, waiting trials move to a device of the same node that has two trials fewer. With
    #: `cluster`, a device that has run dry also takes one from the fullest device of another node,
    #: if that finishes the trial sooner.
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

    Those that never ran go first, since they have no checkpoint to transfer; parked ones, which
    have to be written down, go last.
    """
    load = dict(homes.load)
    movable = {
        device: sorted(
            trials,
            key=lambda trial: (not waits_parked(trial), not trial.attempt, trial.spec.number),
        )
        for device, trials in homes.waiting.items()
    }
    for dry in sorted(device for device, count in load.items() if not count):
        for full in sorted(movable, key=lambda device: (-load[device], device)):
            goes = (t for t in reversed(movable[full]) if _gains(homes, t, full, dry, load[full]))
            trial = next(goes, None) if load[full] >= 2 else None
            if trial is not None:
                movable[full].remove(trial)
                load[full] -= 1
                yield trial, dry
                break


def _gains(homes: Homesteads, trial: Trial, full: DeviceId, dry: DeviceId, sharing: int) -> bool:
    """Whether a trial may go to a device that has run dry, and is so done sooner than where it has
    one turn in so many that share the device."""
    if not homes.takes(trial, dry) and not homes.brings(trial, dry):
        return False
    here, there = (rate(homes.speeds, trial, homes.devices[each]) for each in (full, dry))
    if not here or not there:
        return True  # it is soon measured
    steps = steps_ahead(trial)
    moving = transfer_seconds(trial, homes.devices[dry], homes.facts)
    return steps / there + moving < steps * sharing / here


def transfer_seconds(trial: Trial, device: Device, facts: Facts) -> float:
    """Seconds until a waiting trial could continue on a device of a node that has not its files: to
    write down what is parked, to fetch that, and to resume; what was never measured counts as 0.
    Where its files are, 0."""
    kept, saved = trial.kept, trial.checkpoint
    parked = kept is not None and waits_parked(trial)
    parked = parked and kept is not None and kept.device.partition("/")[0] != device.node
    if not parked and (saved is None or device.node in saved.nodes):
        return 0.0
    own = trial.costs.get(Tier.CHECKPOINT, SwitchCost())
    resuming = own.resume_seconds or facts.restore_seconds or facts.resume_seconds
    fetching = saved.size_bytes * facts.fetch_seconds_per_byte if saved else 0.0
    return (own.suspend_seconds if parked else 0.0) + fetching + resuming


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
