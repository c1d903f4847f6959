"""Gives waiting trials a home, where their placement binds (`homes`), and another once it is gone.

A home is gone with its device or its node, and when the trial failed there and need not again.
That of a silent node is kept: when the head was restarted all nodes are silent, and the first one
back would get every trial.
"""

from __future__ import annotations

from hermesd.core.assignment import Issue
from hermesd.core.commands import Bind
from hermesd.core.model import Phase, Slot
from hermesd.core.placement import Placement, avoided
from hermesd.core.queues import Queues
from hermesd.core.state import State
from hermesd.core.trial import Trial


def bind(state: State, queues: Queues, issue: Issue) -> None:
    """Bind the waiting trials that have no home, while there is room."""
    for study_id in state.studies:
        placement = queues.placement(study_id)
        if placement.binds:
            active = [state.trials[trial_id] for trial_id in state.active[study_id]]
            _bind(state, queues, placement, active, issue)


def _bind(
    state: State, queues: Queues, placement: Placement, active: list[Trial], issue: Issue
) -> None:
    sound = [slot for _, slot in sorted(state.slots.items()) if slot.healthy]
    load = {slot.device.id: 0 for slot in sound if _connected(state, slot)}
    kept = {slot.device.id for slot in sound if state.nodes[slot.device.node].boot_id}
    unbound = []
    for trial in active:
        if trial.home in kept and not avoided(state, trial, trial.home):
            if trial.home in load:
                load[trial.home] += 1
        elif trial.phase is Phase.WAITING and not trial.paused:
            unbound.append(trial)
    for trial in unbound:
        home = placement.home({d: count for d, count in load.items() if queues.takes(trial, d)})
        if home is not None:
            load[home] += 1
            issue(Bind(trial.id, home))
        elif state.parked_on(trial) is None and not trial.failures:
            break  # for the others there is no room either


def _connected(state: State, slot: Slot) -> bool:
    return state.nodes[slot.device.node].connected
