"""Where a trial runs: a filter that is the same for all, then a placement's own choice.

`free`: any device may take any trial; staying where it is parked is preferred. `homes`: a waiting
trial is bound to the device that has the fewest trials, at most `G_thres` of them (Algorithms 1
and 2 of the Hermes paper, Electronics 2021, 10(3), 350), and stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from hermesd.core.model import Device, DeviceId, Plugin, Study, Tier
from hermesd.core.plugins import build
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial


def fits(trial: Trial, study: Study, device: Device, kept_on: str | None) -> bool:
    """Whether the device can take the trial at all; `kept_on` is the node that has it parked."""
    if study.device_kind and study.device_kind != device.kind:
        return False
    if study.memory_bytes > device.memory_bytes:
        return False
    return kept_on is None or kept_on == device.node


def failed_on(trial: Trial, device: DeviceId) -> bool:
    """Whether the trial failed on the device before: it goes elsewhere where it can."""
    return any(failure.device == device for failure in trial.failures)


def suspected(trial: Trial, device: DeviceId) -> bool:
    """Whether the trial rather waits than runs there again: a machine's fault may happen once."""
    there = [failure for failure in trial.failures if failure.device == device]
    return len(there) > 1 or any(not failure.machines for failure in there)


def avoided(state: Tables, trial: Trial, device: DeviceId) -> bool:
    """Whether the trial suspects the device, and another that works could take it."""
    return suspected(trial, device) and any(
        not suspected(trial, other) for other in _alternatives(state, trial, state.parked_on(trial))
    )


def untried(state: Tables, trial: Trial) -> bool:
    """Whether a device that works could take the trial, where it neither is nor failed before."""
    here = trial.run.devices if trial.run else ()
    return any(
        other not in here and not failed_on(trial, other)
        for other in _alternatives(state, trial, None)
    )


def _alternatives(state: Tables, trial: Trial, kept_on: str | None) -> Iterator[DeviceId]:
    """The devices that work and could take the trial, free or not."""
    study = state.studies[trial.spec.study]
    for slot in state.slots.values():
        node = state.nodes[slot.device.node]
        if slot.healthy and node.connected and fits(trial, study, slot.device, kept_on):
            yield slot.device.id


class Placement(Protocol):
    """Pure: the same trial and devices give the same choice."""

    name: ClassVar[str]
    binds: ClassVar[bool]

    def cost(self, trial: Trial, device: Device) -> tuple[float, ...]:
        """The smallest is chosen; ties go to the smaller device id. No number is below 0."""
        ...

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        """The device that an unbound trial gets, from the trials bound to each; None: none yet."""
        ...


@dataclass(frozen=True, slots=True)
class Free:
    """Any device; where the trial is parked first, then its node."""

    name: ClassVar[str] = "free"
    binds: ClassVar[bool] = False

    def cost(self, trial: Trial, device: Device) -> tuple[float, ...]:
        kept = trial.kept
        elsewhere = kept is not None and kept.tier is Tier.PARK and kept.device != device.id
        return (float(failed_on(trial, device.id)), float(elsewhere))

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        return None


@dataclass(frozen=True, slots=True)
class Homes:
    """The paper's placement: bound to the least loaded device that has fewer than `G_thres`."""

    name: ClassVar[str] = "homes"
    binds: ClassVar[bool] = True
    G_thres: int = 4

    def cost(self, trial: Trial, device: Device) -> tuple[float, ...]:
        return (float(trial.home != device.id),)

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        open_devices = [(count, device) for device, count in load.items() if count < self.G_thres]
        return min(open_devices)[1] if open_devices else None


PLACEMENTS: Mapping[str, type[Placement]] = {"free": Free, "homes": Homes}


def make_placement(plugin: Plugin) -> Placement:
    """The placement that a study asked for; raises `BadSetting` for what none of ours knows."""
    return build("placement", PLACEMENTS, plugin)
