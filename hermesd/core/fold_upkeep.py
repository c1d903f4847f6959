"""What people asked of machines, folded into the tables."""

from __future__ import annotations

from typing import assert_never

from hermesd.core.change import replace
from hermesd.core.copies import node_changed
from hermesd.core.events import Forgiven, NodeDrained, NodeUndrained
from hermesd.core.model import NodeId, Place
from hermesd.core.tables import Rejected, Tables


def fold_upkeep_event(state: Tables, event: NodeDrained | NodeUndrained | Forgiven) -> None:
    match event:
        case NodeDrained(node_id, request_id):
            state.node(node_id)
            state.request(request_id, ())
            _drain(state, node_id, True)
        case NodeUndrained(node_id, request_id):
            state.node(node_id)
            state.request(request_id, ())
            _drain(state, node_id, False)
        case Forgiven(place, request_id):
            if place not in state.slots and place not in state.nodes:
                raise Rejected(f"no device or node {place!r}")
            state.request(request_id, ())
            _forgive(state, place)
        case _:
            assert_never(event)


def _drain(state: Tables, node_id: NodeId, draining: bool) -> None:
    """What a node that drains has not written down, it is asked for again."""
    node = state.nodes[node_id]
    state.nodes[node_id] = replace(node, draining=draining)
    state.index(node.devices)
    node_changed(state, node_id)
    for trial in [state.trials[t] for active in state.active.values() for t in active]:
        if state.node_of(trial) == node_id:
            kept = trial.kept
            if draining and kept is not None:
                trial = replace(trial, kept=replace(kept, leaving=False))
            state.put(trial)


def _forgive(state: Tables, place: Place) -> None:
    devices = [d for d, slot in state.slots.items() if place in (d, slot.device.node)]
    state.strikes = {d: strikes for d, strikes in state.strikes.items() if d not in devices}
    state.excluded = {key: why for key, why in state.excluded.items() if key[1] != place}
    for each in (place, *devices):
        state.quarantined.pop(each, None)
