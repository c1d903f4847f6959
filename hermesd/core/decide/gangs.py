"""Trials of several devices: they get all of them at once, of one node and one kind, near each
other.

If some are not free, the whole set is named at the start and kept for the trial. The trials on
these devices leave them when the last one would come free; until then their quanta are extended. So
no two trials wait for each other, and none waits longer than the longest running quantum. A device
that is free earlier takes a trial whose quantum ends in time (backfilling, as in Lifka, "The
ANL/IBM SP Scheduling System", 1995).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from functools import cache
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from hermesd.core.commands import Gather, Issue, Renew
from hermesd.core.decide.queue import Choice, Queues
from hermesd.core.decide.relocation import OVERHEAD_SHARE, expected
from hermesd.core.decide.resizing import WORTH, Resize
from hermesd.core.fast_replace import replace
from hermesd.core.model import Device, DeviceId, NodeId, Phase, Time, TrialId
from hermesd.core.placement import are_enough, fewest_on, switch_seconds
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.resume_points import (
    has_own_beginning,
    hopeless_image,
    without_image,
    without_width,
)
from hermesd.core.speeds import batch
from hermesd.core.state import State
from hermesd.core.tables import Tables, waits_parked
from hermesd.core.trial import Trial
from hermesd.core.widths import is_paced, remaining_steps, resize_seconds, straggles

# A shorter quantum is not worth being granted.
SHORTEST_SECONDS = 1.0


class _Candidate(NamedTuple):
    """A device that a trial of several devices could have."""

    #: When it could have the device.
    at: Time
    #: By another trial, until then.
    occupied: bool
    cost: tuple[float, ...]
    #: Counts its node's devices.
    place: int
    device: DeviceId
    #: The trial that occupies it is of the same user.
    own: bool
    #: Where it sits in its machine.
    seat: tuple[str, ...]
    #: How many like it the trial needs.
    needed: int


class _Window(NamedTuple):
    """Some devices of a node; the least is the best."""

    waits: tuple[tuple[Time, bool], ...]
    cost: tuple[float, ...]
    #: The fewer levels of their machine they have in common, the more.
    apart: int
    span: int
    devices: tuple[DeviceId, ...]


Launches: TypeAlias = Callable[[Choice, tuple[DeviceId, ...], Issue], None]
GivesBack: TypeAlias = Callable[[TrialId, TrialId | None, str, Issue], None]
GoesFirst: TypeAlias = Callable[[Trial, DeviceId, Collection[TrialId], DeviceQuotas, Time], bool]


def gathered(state: Tables) -> dict[DeviceId, TrialId]:
    """The devices that are kept for a trial of several, with the trial."""
    return {device: trial for trial, devices in state.gathering.items() for device in devices}


def widest(devices: Sequence[Device]) -> tuple[int, NodeId, str]:
    """The most devices of one kind that one node has, with the node and the kind."""
    counts: dict[tuple[NodeId, str], int] = {}
    for device in devices:
        counts[device.node, device.kind] = counts.get((device.node, device.kind), 0) + 1
    return max(((count, *group) for group, count in counts.items()), default=(0, "", ""))


def has_room(state: Tables, queues: Queues, trial: Trial, width: int) -> bool:
    """Whether a node that is there has so many devices for the trial, free or not."""
    there: dict[tuple[NodeId, str], int] = {}
    for device in fitting(state, queues, trial):
        group = device.node, device.kind
        there[group] = there.get(group, 0) + 1
        if there[group] >= width:
            return True
    return False


def fitting(
    state: Tables, queues: Queues, trial: Trial, nodes: Iterable[NodeId] | None = None
) -> Iterator[Device]:
    """The devices that work and could be the trial's, of all nodes or of some, node by node."""
    for node in map(state.nodes.__getitem__, state.nodes if nodes is None else nodes):
        for name in node.devices if node.open else ():
            slot = state.slots[name]
            if slot.sound and queues.fits(trial, name):
                yield slot.device


def lacks_width(
    state: Tables, queues: Queues, trial: Trial, roomy: Callable[[int], Sequence[NodeId]]
) -> bool:
    """Whether the trial waits for as many devices as its checkpoint is of, and no node has so many,
    or its user may not have them, while it could go on if it did not wait for those.

    Args:
        roomy: the nodes with so many devices, `rooms` of the state as it is. Trials that wait are
            asked of no others, as they are many.
    """
    study = state.studies[trial.spec.study]
    most = state.terms_of(study.owner).max_devices
    if most is not None and most < study.devices:
        return False
    if not misses_width(state, queues, trial, roomy):
        return False
    free = without_width(state, trial)
    if free is None or not _has_enough(state, queues, free):
        return False
    if free.checkpoint is not None or has_own_beginning(trial):
        return True
    # It would end: not for nodes that are away for a while, or failed devices.
    expected = (d for node in state.nodes.values() if not node.left for d in node.devices)
    return not are_enough(state, trial, (d for d in expected if queues.fits(trial, d)))


def misses_width(
    state: Tables, queues: Queues, trial: Trial, roomy: Callable[[int], Sequence[NodeId]]
) -> bool:
    """Whether the trial waits for as many devices as its checkpoint is of, and no node has so many,
    or its user may not have them."""
    if not state.studies[trial.spec.study].elastic:  # as most that wait with an image
        return False
    waits = trial.phase is Phase.WAITING and trial.candidate and not waits_parked(trial)
    if not (waits and (width := state.made_for(trial))):
        return False
    return not _has_enough(state, queues, trial, roomy(width))


def lacks_image(state: Tables, queues: Queues, trial: Trial) -> bool:
    """Whether the trial waits for a node that its image fits, and none does which will stay, while
    one that is there could take the trial without it."""
    return hopeless_image(state, trial) and _has_enough(state, queues, without_image(trial))


def rooms(state: Tables) -> Callable[[int], Sequence[NodeId]]:
    """The nodes that have so many sound devices of one kind, free or not, as of when that is asked
    first: each decision has it at hand, and few ask."""
    most: dict[NodeId, int] = {}
    found: dict[int, Sequence[NodeId]] = {}

    def roomy(width: int) -> Sequence[NodeId]:
        for node in () if most else state.nodes.values():
            slots = map(state.slots.__getitem__, node.devices if node.open else ())
            counts = Counter(slot.device.kind for slot in slots if slot.sound)
            most[node.id] = max(counts.values(), default=0)
        if width not in found:
            found[width] = [node for node, count in most.items() if count >= width]
        return found[width]

    return roomy


def _has_enough(
    state: Tables, queues: Queues, trial: Trial, nodes: Iterable[NodeId] | None = None
) -> bool:
    """Whether a node that is there, of all or of some, has as many devices as the trial needs, free
    or not."""
    devices = fitting(state, queues, trial, nodes)
    return are_enough(state, trial, (device.id for device in devices))


class Gangs:
    """Who gathers which devices."""

    def __init__(
        self,
        state: State,
        queues: Queues,
        launch: Launches,
        give_back: GivesBack,
        goes_first: GoesFirst,
    ) -> None:
        self.state = state
        self.queues = queues
        self._launch = launch
        self._give_back = give_back
        self._goes_first = goes_first

    def tend(
        self, ready: Callable[[Trial], bool], quotas: DeviceQuotas, issue: Issue, now: Time
    ) -> None:
        """Launch what has all of its devices, ask for those that are missing, and keep none for
        whom they are of no use any more. Whether they fit the trial is looked at when it would have
        them, or another would leave one for it."""
        for trial_id, devices in list(self.state.gathering.items()):
            trial = self.state.trials.get(trial_id)
            useful = trial is not None and ready(trial) and not quotas.over(trial)
            if trial is None or not useful or not all(map(self._works, devices)):
                issue(Gather(trial_id, ()))
                continue
            missing = [device for device in devices if device not in self.state.free]
            if missing and (others := self._free_elsewhere(trial, devices, quotas, now)):
                devices, missing = others, []
            if missing and not any(device in self.state.expired for device in missing):
                continue
            if not self._would_all_do(trial, devices):
                issue(Gather(trial_id, ()))
            elif missing:
                self._ask(trial, devices, issue, now)
            elif choice := self.queues.choice(trial, now):
                self._launch(choice, devices, issue)
            else:
                issue(Gather(trial_id, ()))

    def held(self, now: Time) -> dict[DeviceId, Time]:
        """The free devices that are kept for a trial, and until when it needs them not."""
        held: dict[DeviceId, Time] = {}
        for devices in self.state.gathering.values():
            if there := [device for device in devices if device in self.state.free]:
                held.update(dict.fromkeys(there, self._complete(devices, now)))
        return held

    def claim(
        self,
        trial: Trial,
        width: int,
        free: MutableMapping[DeviceId, None],
        occupants: MutableMapping[TrialId, DeviceId],
        quotas: DeviceQuotas,
        issue: Issue,
        now: Time,
    ) -> None:
        """A waiting trial takes so many free devices, or has some kept for it from now on: those
        that are soonest free, all of them, and of equals the nearest."""
        devices = self._best(trial, width, free, occupants, quotas, now)
        if devices is None or (choice := self.queues.choice(trial, now)) is None:
            return
        for device in devices:
            run = self.state.slots[device].run
            quotas.take(trial, None if run is None else self.state.trials[run.trial])
        if all(device in free for device in devices):
            self._launch(choice, devices, issue)
        else:
            issue(Gather(trial.id, devices))
            self._ask(trial, devices, issue, now)
        for device in devices:
            free.pop(device, None)
        for occupant in [t for t in occupants if self._is_on(t, devices)]:
            del occupants[occupant]

    def has_room(self, trial: Trial) -> bool:
        """Whether a node that is there has as many devices as the trial needs, free or not."""
        return _has_enough(self.state, self.queues, trial)

    def elsewhere(self, trial: Trial, free: MutableMapping[DeviceId, None]) -> Resize | None:
        """Have a running trial of several devices, whose quantum is over, continue on others that
        are free, if one of its own is too slow and that pays."""
        state, run = self.state, trial.run
        if run is None or not 1 < len(run.devices) <= len(free) or not trial.fidelity.restorable:
            return None
        kind, study = state.place(run).kind, trial.spec.study
        if not is_paced(trial, kind) or not (found := straggles(trial, kind, self._alike(trial))):
            return None
        here, usual = found
        saved = remaining_steps(trial, state.studies[study]) * (here - usual)
        cost = resize_seconds(trial, state.facts[study])
        if not saved > WORTH * cost:
            return None
        groups: dict[NodeId, list[DeviceId]] = {}
        for device in free:
            if state.slots[device].device.kind == kind and self.queues.fits(trial, device):
                if fewest_on(state, trial, state.slots[device].device) > len(run.devices):
                    continue
                groups.setdefault(state.slots[device].device.node, []).append(device)
        others = max(groups.values(), key=len, default=[])
        if len(others) < len(run.devices):
            return None
        for device in others[: len(run.devices)]:
            del free[device]
        words = f"it continues on other devices: on these it is {usual / here:.2g} times as fast as"
        return Resize(len(run.devices), f"{words} is usual, to save {saved:.3g} s for {cost:.2g} s")

    def _alike(self, trial: Trial) -> Iterator[Trial]:
        """The running trials of its study whose steps are as large, on as many devices of the same
        kind, where they were measured."""
        state = self.state
        assert trial.run is not None
        kind, width, size = state.place(trial.run).kind, len(trial.run.devices), batch(trial)
        for each in map(state.trials.__getitem__, state.active[trial.spec.study]):
            if each.run is None or len(each.run.devices) != width or batch(each) != size:
                continue
            if state.place(each.run).kind == kind and is_paced(each, kind):
                yield each

    def within(self, trial: Trial, until: Time, now: Time) -> Choice | None:
        """What the trial's policy gives it, to be over by then; None if that is not worth it.

        A waiting trial's own quantum is cut only if its switch is a small part of what is left.
        """
        choice = self.queues.choice(trial, now)
        if choice is None:
            return None
        quantum, wanted = choice.quantum, choice.quantum.seconds
        seconds = min(until - now, math.inf if wanted is None else wanted)
        if seconds == math.inf or seconds < SHORTEST_SECONDS:
            return None
        if trial.run is None and seconds != wanted:
            cost = switch_seconds(trial, self.state.facts[trial.spec.study])
            if not 0.0 < cost <= OVERHEAD_SHARE * seconds:
                return None
        return choice._replace(quantum=replace(quantum, seconds=seconds))

    # Those that gather.

    def _ask(self, trial: Trial, devices: tuple[DeviceId, ...], issue: Issue, now: Time) -> None:
        """Have those leave the devices whose quantum is over, once all can be had."""
        until = self._complete(devices, now)
        slots = (self.state.slots[device] for device in devices)
        for occupant_id in dict.fromkeys(slot.run.trial for slot in slots if slot.run):
            occupant = self.state.trials[occupant_id]
            if occupant.phase is not Phase.RUNNING or not occupant.candidate:
                continue
            choice = self.within(occupant, until, now)
            if choice is None or (run := occupant.run) is None:
                words = self._words(occupant, trial, len(devices))
                self._give_back(occupant_id, None, words, issue)
            else:
                reason = "its device is kept for a trial that has not all of its devices yet"
                issue(Renew(run.id, run.grant + 1, choice.quantum, reason))

    def _words(self, occupant: Trial, trial: Trial, width: int) -> str:
        if self.state.owner_of(occupant) != self.state.owner_of(trial):
            return "a trial of another user goes first"
        return f"{trial.id}{f', which needs {width} devices,' if width > 1 else ''} goes first"

    def _complete(self, devices: Sequence[DeviceId], now: Time) -> Time:
        """When all of the devices can be had, if nothing ends before its time; infinite if nobody
        knows."""
        return max(self._ends(device, now) for device in devices)

    def _ends(self, device: DeviceId, now: Time) -> Time:
        """When the quantum on a device is over; now if it is, or nothing is there."""
        slot = self.state.slots[device]
        trial = self.state.trials[slot.run.trial] if slot.run else None
        run = trial.run if trial else None
        if trial is None or run is None or run.expired or trial.phase is Phase.SUSPENDING:
            return now
        ends = math.inf if run.quantum.seconds is None else run.granted + run.quantum.seconds
        pace = trial.step_seconds.get(slot.device.kind)
        if run.quantum.until_step is not None and pace:
            ends = min(ends, now + pace * (run.quantum.until_step - trial.step))
        return max(ends, now)

    def _free_elsewhere(
        self, trial: Trial, devices: Sequence[DeviceId], quotas: DeviceQuotas, now: Time
    ) -> tuple[DeviceId, ...]:
        """As many other devices that are all free by now, kept for nobody, and within its user's
        quota in place of those which it gathers; empty if there are none."""
        state, kept = self.state, gathered(self.state)
        free = [each for each in sorted(state.free) if each not in kept]
        free = [each for each in free if not expected(state, each)]
        if not free:
            return ()
        for device in devices:
            self._count(trial, device, quotas.give)
        width = self.state.fewest(trial)
        found = self._best(trial, width, dict.fromkeys(free), {}, quotas, now)
        others = found if found and all(device in state.free for device in found) else ()
        for device in others or devices:
            self._count(trial, device, lambda each: quotas.take(each, None))
        return others

    def _count(self, trial: Trial, device: DeviceId, change: Callable[[Trial], None]) -> None:
        """Change the user's quota by a device that is not a trial's of the same user already."""
        run = self.state.slots[device].run
        other = self.state.trials[run.trial] if run else None
        if other is None or self.state.owner_of(other) != self.state.owner_of(trial):
            change(trial)

    # One that begins to.

    def _best(
        self,
        trial: Trial,
        width: int,
        free: Mapping[DeviceId, None],
        occupants: Mapping[TrialId, DeviceId],
        quotas: DeviceQuotas,
        now: Time,
    ) -> tuple[DeviceId, ...] | None:
        """The devices of one node and kind that the trial does best to have: so many, or more of
        those of which it needs more.

        One of them is open now, and it goes first of all that could take those that are not: about
        these nobody else is asked when they are.
        """
        state, slots = self.state, self.state.slots
        groups: dict[tuple[NodeId, str], list[_Candidate]] = {}
        kept = gathered(state)
        open_ones = (*free, *occupants.values())
        nodes = dict.fromkeys(slots[device].device.node for device in open_ones)
        for place, device in enumerate(fitting(state, self.queues, trial, nodes)):
            if device.id in kept:
                continue
            found = self._candidate(trial, device, place, free, occupants, now)
            if found is not None:
                groups.setdefault((device.node, device.kind), []).append(found)
        left = quotas.left(trial)

        def is_open(device: DeviceId) -> bool:
            run = slots[device].run
            return device in free or (run is not None and run.trial in occupants)

        @cache
        def may_have(device: DeviceId) -> bool:
            return is_open(device) or self._goes_first(trial, device, occupants, quotas, now)

        windows = sorted(
            (
                window
                for group in groups.values()
                for needed in {max(each.needed, width) for each in group}
                for window in _windows([e for e in group if e.needed <= needed], needed, left)
                if any(map(is_open, window.devices))
            ),
            key=lambda w: (w.waits, not set(w.devices).isdisjoint(trial.shunned), w),
        )
        return next((each.devices for each in windows if all(map(may_have, each.devices))), None)

    def _candidate(
        self,
        trial: Trial,
        device: Device,
        place: int,
        free: Mapping[DeviceId, None],
        occupants: Mapping[TrialId, DeviceId],
        now: Time,
    ) -> _Candidate | None:
        """When the device can be had; None if it is promised to another or its occupant stays."""
        state, study = self.state, trial.spec.study
        slot = state.slots[device.id]
        other = state.trials[slot.run.trial] if slot.run else None
        if other is None and device.id not in free:
            return None
        if other is not None and slot.reserved:
            return None
        over = other is not None and other.phase is Phase.RUNNING and other.candidate
        if other is not None and over and other.id not in occupants:
            return None
        cost = self.queues.placement(study).cost(
            trial, device, state.facts[study], state.speeds(study)
        )
        own = other is not None and state.owner_of(other) == state.owner_of(trial)
        at = self._ends(device.id, now)
        needed = fewest_on(state, trial, device)
        return _Candidate(at, other is not None, cost, place, device.id, own, device.seat, needed)

    def _would_do(self, trial: Trial, device: DeviceId) -> bool:
        return self._works(device) and self.queues.fits(trial, device)

    def _works(self, device: DeviceId) -> bool:
        slot = self.state.slots[device]
        return slot.sound and self.state.nodes[slot.device.node].open

    def _would_all_do(self, trial: Trial, devices: Sequence[DeviceId]) -> bool:
        state, there = self.state, [self.state.slots[device].device for device in devices]
        enough = all(0 < fewest_on(state, trial, device) <= len(devices) for device in there)
        is_one_kind = len({device.kind for device in there}) == 1
        return enough and is_one_kind and all(self._would_do(trial, each) for each in devices)

    def _is_on(self, trial_id: TrialId, devices: Sequence[DeviceId]) -> bool:
        run = self.state.trials[trial_id].run
        return run is not None and not set(run.devices).isdisjoint(devices)


def _windows(group: Sequence[_Candidate], width: int, left: float) -> Iterator[_Window]:
    """The ways to take so many of a node's devices, those alone that are soonest to be had, as they
    sit in their machine; no more than `left` that its user has not already."""
    if len(group) < width:
        return
    last = sorted((each.at, each.occupied) for each in group)[width - 1]
    soonest = [each for each in group if (each.at, each.occupied) <= last]
    soonest.sort(key=lambda each: (each.seat, each.place))
    for first in range(len(soonest) - width + 1):
        window = soonest[first : first + width]
        if sum(not each.own for each in window) > left:
            continue
        waits = sorted(((each.at, each.occupied) for each in window), reverse=True)
        places = [each.place for each in window]
        span = max(places) - min(places)
        shared = zip(window[0].seat, window[-1].seat, strict=False)
        near = sum(1 for _ in takewhile(lambda both: both[0] == both[1], shared))
        cost = max(each.cost for each in window)
        yield _Window(tuple(waits), cost, -near, span, tuple(each.device for each in window))
