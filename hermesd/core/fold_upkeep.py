"""What people asked of machines, folded into the tables."""

from __future__ import annotations

from hermesd.core.change import replace
from hermesd.core.events import NodeDrained, NodeUndrained
from hermesd.core.tables import Tables


def fold_upkeep_event(state: Tables, event: NodeDrained | NodeUndrained) -> None:
    """A node that is drained a second time is asked again for what it has not written down."""
    node = state.node(event.node)
    state.request(event.request_id, ())
    draining = isinstance(event, NodeDrained)
    state.nodes[node.id] = replace(node, draining=draining)
    state.index(node.devices)
    for trial in [state.trials[t] for active in state.active.values() for t in active]:
        if state.node_of(trial) == node.id:
            kept = trial.kept
            if draining and kept is not None:
                trial = replace(trial, kept=replace(kept, leaving=False))
            state.put(trial)
