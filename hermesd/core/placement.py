"""Where a trial runs: a filter that is the same for all placements, then the placement's own
choice.

With `free`, any device may take any trial; the fastest idle device is preferred, counting what it
costs to get there. `homes` and `swap` bind each waiting trial to a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from hermesd.core.events import RunFailed
from hermesd.core.failures import Prospects
from hermesd.core.fast_replace import replace
from hermesd.core.homes import Homes, Homesteads, Rebinding, Swap, transfer_seconds
from hermesd.core.model import Device, DeviceId, NodeId, Plugin, RetryAction, Study
from hermesd.core.policy import Facts, build
from hermesd.core.requirements import lacking
from hermesd.core.resume_points import image_misfit, to_restore
from hermesd.core.speeds import Speeds, best_rate, lead, rate, steps_ahead
from hermesd.core.tables import Tables
from hermesd.core.trial import RESTORE, Failure, Trial
from hermesd.core.widths import is_of_any_width


def asked_for(study: Study, device: Device) -> bool:
    """Whether the device is of the kind, and has the memory, that the study asks for."""
    kind = study.device_kind in ("", device.kind)
    return kind and study.memory_bytes <= device.memory_bytes


def fits(trial: Trial, study: Study, device: Device, kept_on: str | None) -> bool:
    """Whether the device can take the trial at all; `kept_on` is the node that has it parked."""
    if not asked_for(study, device):
        return False
    return kept_on is None or kept_on == device.node


def failed_on(trial: Trial, device: DeviceId) -> bool:
    """Whether the trial failed on the device before: it goes elsewhere where it can."""
    return any(old.device == device and not old.restores for old in trial.failures)


def needs_more_memory(trial: Trial, study: Study, device: Device) -> bool:
    """Whether the trial was seen to take more memory than the device has for it, of several devices
    each as much."""
    use = trial.use
    taken = use.device_memory_bytes if device.owns_memory else use.memory_bytes
    return taken > device.memory_bytes * study.widest


def failed_near(trial: Trial, device: Device) -> float:
    """How near to the device the trial failed before: on it (2), on its node (1) or not (0)."""
    if not trial.failures:
        return 0.0
    devices = {old.device for old in trial.failures if not old.restores}
    if device.id in devices:
        return 2.0
    return float(any(other.partition("/")[0] == device.node for other in devices))


def suspected(trial: Trial, device: DeviceId) -> bool:
    """Whether the trial rather waits than runs there again: a machine's fault may happen once. Of
    want of memory `fewest_on` knows more."""
    failures = (old for old in trial.failures if not (old.restores or old.outgrew))
    there = [failure for failure in failures if failure.device == device]
    return len(there) > 1 or any(not failure.machines for failure in there)


def is_suspect(state: Tables, trial: Trial, device: DeviceId) -> bool:
    """Whether the device or its node is in quarantine, or the trial suspects one of them, or needs
    more memory than there is.

    It suspects a node on two devices of which it failed.
    """
    there = state.slots[device].device
    node = there.node
    if device in state.quarantined or node in state.quarantined or suspected(trial, device):
        return True
    if needs_more_memory(trial, state.studies[trial.spec.study], there):
        return True
    if any(not old.outgrew for old in out_of_memory_failures(state, trial, there)):
        return True
    failed = {old.device for old in trial.failures if suspected(trial, old.device)}
    return sum(state.slots[other].device.node == node for other in failed) > 1


def is_excluded(state: Tables, trial: Trial, device: DeviceId) -> bool:
    """Whether its study keeps the trial from the device, by a rule or for want of something there,
    whatever else there is.

    What is parked on a node of which its study is to have no more, and can be kept in no other way,
    may still go on there.
    """
    node = state.slots[device].device.node
    if image_obstacle(state, trial, device):
        return True
    if lacking(state, state.studies[trial.spec.study], node) and state.parked_on(trial) != node:
        return True
    if (trial.spec.study, device) in state.excluded:
        return trial.fidelity.restorable or state.parked_on(trial) != node
    if (trial.spec.study, node) in state.excluded:
        return trial.fidelity.restorable or state.parked_on(trial) != node
    here = (old for old in trial.failures if old.device == device)
    if any(old.ruled is RetryAction.NOT_HERE for old in here):
        return True
    return fewest_on(state, trial, state.slots[device].device) == 0


def fewest_on(state: Tables, trial: Trial, device: Device) -> int:
    """How many devices like this one the trial needs: more than it ran out of memory on where each
    had as much, or more; 0 if it may not have so many."""
    wanted_more = (old.ruled is RetryAction.MORE_MEMORY for old in trial.warnings)
    if not any(wanted_more):
        return state.fewest(trial)
    starving = out_of_memory_failures(state, trial, device)
    full = [old.devices for old in starving if old.ruled is RetryAction.MORE_MEMORY]
    if not full:
        return state.fewest(trial)
    return state.fewest(trial, max(full)) if all(full) else 0


def narrowest(state: Tables, trial: Trial) -> int:
    """The fewest devices that the trial may continue on, wherever that is."""
    needed = (fewest_on(state, trial, slot.device) for slot in state.slots.values())
    return min(filter(None, needed), default=state.fewest(trial))


def takes_one(state: Tables, trial: Trial) -> bool:
    """Whether one device is what the trial needs, on whichever it goes on."""
    study = state.studies[trial.spec.study]
    if not study.elastic:
        return study.devices == 1
    return state.fewest(trial) == 1 and (not trial.has_outgrown or state.made_for(trial) == 1)


def are_enough(state: Tables, trial: Trial, devices: Iterable[DeviceId]) -> bool:
    """Whether some of these devices, of one node and one kind, are as many as the trial needs, and
    no more than its user may have where that is more than its study asks for."""
    study, most = state.studies[trial.spec.study], state.terms_of(state.owner_of(trial)).max_devices
    groups: dict[tuple[NodeId, str], list[int]] = {}
    for name in devices:
        device = state.slots[name].device
        needed = fewest_on(state, trial, device)
        if not needed or (needed > study.devices and most is not None and needed > most):
            continue
        group = groups.setdefault((device.node, device.kind), [])
        group.append(needed)
        if any(sum(each <= width for each in group) >= width for width in set(group)):
            return True
    return False


def image_obstacle(state: Tables, trial: Trial, device: DeviceId) -> str:
    """Why what the trial would go on from, an image of processes, is of no use to a device; "" if
    it is no image, or can be brought back there as far as is known."""
    node = state.slots[device].device.node
    if trial.checkpoint is None or state.parked_on(trial) == node:
        return ""
    saved = to_restore(state, trial)
    if saved is None:
        return ""
    if why := image_misfit(state, trial, saved, node):
        return why
    if saved.image_device in ("", device):
        return ""
    return f"its checkpoint is an image of its processes, which goes back to {saved.image_device}"


def out_of_memory_failures(state: Tables, trial: Trial, device: Device) -> Iterator[Failure]:
    """The failures for want of memory where there was as much as on the device, or less."""
    for old in trial.warnings:
        if old.starved and device.memory_bytes <= _memory(state, old.device):
            yield old


def _memory(state: Tables, device: DeviceId) -> int:
    return state.slots[device].device.memory_bytes


def avoided(state: Tables, trial: Trial, device: DeviceId) -> bool:
    """Whether the trial is barred from the device, or that is suspect and one that is not, and
    works, could take the trial."""
    if is_excluded(state, trial, device):
        return True
    return is_suspect(state, trial, device) and are_enough(
        state,
        trial,
        (
            other
            for other in _alternatives(state, trial, state.parked_on(trial))
            if not is_suspect(state, trial, other)
        ),
    )


def prospects(state: Tables, trial: Trial, event: RunFailed) -> Prospects:
    """What is left for a trial that fails where it is now."""
    here = trial.run.devices if trial.run else ()
    owns_memory = any(state.slots[device].device.owns_memory for device in here)
    study = state.studies[trial.spec.study]
    # A node of before this was counted tells none; of what others tell nothing else is used.
    width = len(here) if event.devices > 0 else 0
    if not width:
        others = [other for other in _alternatives(state, trial, None) if other not in here]
        memory = max((_memory(state, device) for device in here), default=0)
        roomier = any(_memory(state, other) > memory for other in others)
        return Prospects(untried(state, trial, False), bool(others), roomier, owns_memory)
    gone = replace(trial, run=None, kept=None)
    there = here[event.rank if event.rank < len(here) else 0]
    others = [other for other in _alternatives(state, gone, None) if other != there]
    full = Failure(0, there, "", "", "", 0, 0.0, RetryAction.MORE_MEMORY, devices=width)
    grown = replace(gone, failures=(*trial.failures, full))
    unrestored = Failure(event.run.attempt, there, RESTORE, "", "", 0, 0.0, resized=True)
    as_wide = replace(gone, failures=(*trial.failures, unrestored))
    return Prospects(
        untried(state, trial),
        are_enough(state, gone, others),
        can_go_on(state, grown),
        owns_memory,
        width,
        why_no_wider(state, grown, width),
        not study.elastic or _could_go_on(state, as_wide),
    )


def can_go_on(state: Tables, trial: Trial) -> bool:
    """Whether devices that work are as many as the trial needs, free or not."""
    return are_enough(state, trial, _alternatives(state, trial, None))


def _could_go_on(state: Tables, trial: Trial) -> bool:
    """Whether the trial could continue on devices like those of some node, if they were enough."""
    study = state.studies[trial.spec.study]
    for slot in state.slots.values():
        node = state.nodes[slot.device.node]
        suits = state.serves(slot.device, study) and asked_for(study, slot.device)
        if suits and not (node.lost or node.left) and fewest_on(state, trial, slot.device):
            return True
    return False


def why_no_wider(state: Tables, trial: Trial, width: int) -> str:
    """Why the trial, which ran out of memory on so many devices, gets no more of them."""
    study = state.studies[trial.spec.study]
    if not study.elastic:
        return ""
    wanted = state.fewest(trial, width)
    if not wanted and trial.checkpoint is not None and not is_of_any_width(trial):
        return ", and its checkpoint is of no use on more devices"
    if not wanted:
        return f", and of at most {study.widest} devices it may have no more than {width}"
    most = state.terms_of(state.owner_of(trial)).max_devices
    if most is not None and wanted > most:
        return f", and its user may have no more than {most} devices"
    return f", and no node has {wanted} devices of one kind for it"


def untried(state: Tables, trial: Trial, counted: bool = True) -> bool:
    """Whether the trial could run where another failure would tell more of whose fault it is."""
    places = {old.device for old in trial.failures if not old.restores}
    places |= set(trial.run.devices if trial.run else ())
    return untried_beyond(state, trial, places, counted)


def untried_beyond(
    state: Tables, trial: Trial, places: Collection[DeviceId], counted: bool
) -> bool:
    """Whether the trial could run where the same failure as on these devices would tell more.

    After failures on one device (the present one counts) that is any other that works and could
    take it; after failures on several, one of another node; after failures on two nodes, none. As
    many as it needs have to be there, if that is `counted`.
    """
    nodes = {state.slots[device].device.node for device in places}
    if len(nodes) > 1:
        return False
    others = (
        other
        for other in _alternatives(state, trial, None)
        if other not in places and (len(places) < 2 or state.slots[other].device.node not in nodes)
    )
    return are_enough(state, trial, others) if counted else any(True for _ in others)


def _alternatives(state: Tables, trial: Trial, kept_on: str | None) -> Iterator[DeviceId]:
    """The devices that work and could take the trial, free or not."""
    study = state.studies[trial.spec.study]
    for device, slot in state.slots.items():
        works = slot.sound and state.nodes[slot.device.node].open
        works = works and state.serves(slot.device, study)
        if (
            works
            and fits(trial, study, slot.device, kept_on)
            and not is_excluded(state, trial, device)
        ):
            yield device


class Placement(Protocol):
    """Pure: the same trial, devices and facts give the same choice."""

    name: ClassVar[str]
    binds: ClassVar[bool]

    def gain(
        self,
        trial: Trial,
        here: Device,
        there: Device,
        facts: Facts,
        speeds: Speeds,
        wanted: bool,
    ) -> float:
        """Seconds gained if a running trial continues on another device; 0 or less: none.

        `wanted`: another trial would run there, and now takes the device that this one leaves.
        """
        ...

    def cost(self, trial: Trial, device: Device, facts: Facts, speeds: Speeds) -> tuple[float, ...]:
        """The smallest is chosen; ties go to the smaller device id. No number is below 0."""
        ...

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        """The device that an unbound trial gets, from the trials bound to each; None: none yet."""
        ...

    def rebound(self, homes: Homesteads) -> Iterable[Rebinding]:
        """Waiting trials that get another home, each once."""
        ...


@dataclass(frozen=True, slots=True)
class Free:
    """Any device: the one on which the trial gets furthest, as far as speeds were measured.

    What counts is the seconds that a device costs: for iterations slower than on the fastest one,
    as many as the trial has behind it (no more than it has ahead), and for getting there. A kind
    that was not measured yet counts as the fastest, and is so measured soon. With `equal` speeds
    all devices are alike.

    A trial that runs may move inside its node. If it takes a device from another, that one loses
    what it gains, as long as both run; what is left is that both have the fast device in turn, the
    one that needs it for less time first. Of speeds r to 1 that saves 1 - r of the trial's gain.
    """

    name: ClassVar[str] = "free"
    binds: ClassVar[bool] = False
    speeds: Literal["measured", "equal"] = "measured"

    def gain(
        self,
        trial: Trial,
        here: Device,
        there: Device,
        facts: Facts,
        speeds: Speeds,
        wanted: bool,
    ) -> float:
        # It may be parked on its way, and what is parked does not leave its node.
        if not self._unequal(speeds) or failed_on(trial, there.id) or here.node != there.node:
            return 0.0
        saved = _delay(trial, here, speeds) - _delay(trial, there, speeds)
        if wanted:
            saved *= lead(speeds, trial, here, there)
        return saved - switch_seconds(trial, facts)

    def _unequal(self, speeds: Speeds) -> bool:
        return self.speeds == "measured" and speeds.unequal

    def cost(self, trial: Trial, device: Device, facts: Facts, speeds: Speeds) -> tuple[float, ...]:
        kept = trial.kept
        elsewhere = kept is not None and kept.tier.in_process and kept.device != device.id
        failed = failed_near(trial, device)
        if not self._unequal(speeds):
            return (failed, float(elsewhere))
        seconds = _delay(trial, device, speeds) + transfer_seconds(trial, device, facts)
        return (failed, seconds, elsewhere)

    def home(self, load: Mapping[DeviceId, int]) -> DeviceId | None:
        return None

    def rebound(self, homes: Homesteads) -> Iterable[Rebinding]:
        return ()


def _delay(trial: Trial, device: Device, speeds: Speeds) -> float:
    """Seconds that the iterations to come take more than on the fastest device."""
    here = rate(speeds, trial, device)
    if here is None:
        return 0.0
    steps = steps_ahead(trial)
    fastest = max(best_rate(speeds, trial), here)
    return max(steps / here - steps / fastest, 0.0)


def switch_seconds(trial: Trial, facts: Facts) -> float:
    """What it costs to suspend and resume a trial: its own measured seconds, else the usual."""
    return (trial.switch_cost.seconds if trial.switch_cost else 0.0) or facts.switch_seconds


PLACEMENTS: Mapping[str, type[Placement]] = {"free": Free, "homes": Homes, "swap": Swap}


def make_placement(plugin: Plugin) -> Placement:
    """The placement that a study asked for; raises `BadSetting` for what none of ours knows."""
    return build("placement", PLACEMENTS, plugin)
