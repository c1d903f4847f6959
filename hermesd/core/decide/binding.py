"""Gives each waiting trial a home, if its placement binds trials to devices (`homes`, `swap`).

A trial loses its home when the device or the node is lost, when the node is drained, rests or
changes its pool, and when the trial has failed there and another device would do. A silent node
keeps its trials: after a restart of the head all nodes are silent, and the first one back would get
every trial. After that the placement may move waiting trials to other homes.
"""

from __future__ import annotations

from hermesd.core.commands import Bind, Issue, WriteDown
from hermesd.core.decide.queue import Queues
from hermesd.core.decide.relocation import cannot_copy, writable
from hermesd.core.homes import Homesteads
from hermesd.core.model import DeviceId, Phase, Slot, StudyId, Time
from hermesd.core.placement import Placement, avoided
from hermesd.core.state import State
from hermesd.core.trial import Trial


def bind(state: State, queues: Queues, issue: Issue, now: Time) -> None:
    """Bind the waiting trials that have no home, while there is room, and those that move."""
    binding = [study for study in state.studies if queues.placement(study).binds]
    ended = set(state.ended)
    state.ended.clear()
    for study_id in binding:
        placement = queues.placement(study_id)
        arrived = _bind(state, queues, placement, study_id, issue)
        _rebind(state, queues, placement, study_id, arrived or study_id in ended, issue, now)


def _bind(state: State, queues: Queues, placement: Placement, study: StudyId, issue: Issue) -> bool:
    """Give the homeless a home; says whether one got its first."""
    sound = _sound(state, study)
    load = {slot.device.id: 0 for slot in sound if _open(state, slot)}
    kept = {slot.device.id for slot in sound if _lasts(state, slot)}
    unbound = []
    arrived = False
    for trial in [state.trials[trial_id] for trial_id in state.active[study]]:
        lost = _is_parked_elsewhere(state, trial)
        if trial.home in kept and not lost and not avoided(state, trial, trial.home):
            if trial.home in load:
                load[trial.home] += 1
        elif trial.phase is Phase.WAITING and not trial.paused and trial.carrier is None:
            unbound.append(trial)
    for trial in unbound:
        home = placement.home({d: count for d, count in load.items() if queues.takes(trial, d)})
        if home is not None:
            load[home] += 1
            arrived = arrived or trial.home is None
            issue(Bind(trial.id, home))
        elif state.parked_on(trial) is None and not trial.failures:
            break  # for the others there is no room either
    return arrived


def _is_parked_elsewhere(state: State, trial: Trial) -> bool:
    """Whether the trial was to go to a home on another node, and could not be written down."""
    kept, node = trial.kept, state.parked_on(trial)
    if node is None or kept is None or trial.home is None or (kept.leaving and not kept.unwritable):
        return False
    return trial.home in state.slots and state.slots[trial.home].device.node != node


def _rebind(
    state: State,
    queues: Queues,
    placement: Placement,
    study: StudyId,
    stirred: bool,
    issue: Issue,
    now: Time,
) -> None:
    """Carry out what the placement wants changed in the homes."""
    devices = {slot.device.id: slot.device for slot in _sound(state, study) if _open(state, slot)}
    load = dict.fromkeys(devices, 0)
    waiting: dict[DeviceId, list[Trial]] = {}
    for trial in [state.trials[trial_id] for trial_id in state.active[study]]:
        if trial.home in load:
            load[trial.home] += 1
            if trial.phase is Phase.WAITING and not trial.paused and trial.id not in state.reserved:
                waiting.setdefault(trial.home, []).append(trial)
    if not load:
        return

    def brings(trial: Trial, device: DeviceId) -> bool:
        source, target = state.parked_on(trial), devices[device].node
        if source is None or not writable(state, trial) or cannot_copy(state, source, target, now):
            return False
        return queues.could_take(trial, device)

    facts, speeds = state.facts[study], state.speeds(study)
    homes = Homesteads(devices, load, waiting, queues.takes, brings, facts, speeds, stirred)
    for trial, device in list(placement.rebound(homes)):
        issue(Bind(trial.id, device))
        source, kept = state.parked_on(trial), trial.kept
        if source is not None and kept is not None and source != devices[device].node:
            issue(WriteDown(kept.run, source))


def _sound(state: State, study: StudyId) -> list[Slot]:
    """The devices of the study's pool that work and are ours to use."""
    slots = (slot for _, slot in sorted(state.slots.items()) if slot.sound)
    return [slot for slot in slots if state.serves(slot.device, state.studies[study])]


def _open(state: State, slot: Slot) -> bool:
    return state.nodes[slot.device.node].open


def _lasts(state: State, slot: Slot) -> bool:
    node = state.nodes[slot.device.node]
    return bool(node.boot_id) and not node.leaving
