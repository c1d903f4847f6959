"""What machines leave to others for a while, folded into the tables.

Rule: what is on a place that is yielded is to leave it at once (see `draining`); a node says all of
it again with each Hello.
"""

from __future__ import annotations

from hermesd.core.change import replace
from hermesd.core.copies import node_changed
from hermesd.core.events import NodeJoined
from hermesd.core.machine_events import Reclaimed, Yielded
from hermesd.core.model import NodeId, Place
from hermesd.core.tables import Rejected, Tables


def fold_yield_event(state: Tables, event: Yielded | Reclaimed) -> None:
    reason = event.reason if isinstance(event, Yielded) else ""
    if event.place not in state.nodes and event.place not in state.slots:
        raise Rejected(f"no device or node {event.place!r}")
    if _reason(state, event.place) == reason:
        raise Rejected(f"{event.place!r} is so already")
    parting = isinstance(event, Yielded) and event.parting
    if parting and event.place not in state.nodes:
        raise Rejected(f"{event.place!r} is no node: only a node can part")
    _note(state, event.place, reason)
    node: NodeId = event.place.partition("/")[0]
    if parting:
        state.nodes[node] = replace(state.nodes[node], parting=True)
        node_changed(state, node)
    _touch(state, node, leaving=bool(reason) and event.place == node)


def fold_yields(state: Tables, event: NodeJoined) -> None:
    """What a node says with its Hello, whose devices are known by now."""
    yields = dict(event.yields)
    before = state.nodes[event.node].resting
    for place in (event.node, *(device.id for device in event.devices)):
        _note(state, place, yields.get(place, ""))
    if yields:
        _touch(state, event.node, leaving=event.node in yields and not before)


def _reason(state: Tables, place: Place) -> str:
    return state.nodes[place].resting if place in state.nodes else state.slots[place].yielded


def _note(state: Tables, place: Place, reason: str) -> None:
    if place in state.nodes:
        node = state.nodes[place] = replace(state.nodes[place], resting=reason)
        state.index(node.devices)
    else:
        state.put_slot(replace(state.slots[place], yielded=reason))


def _touch(state: Tables, node: NodeId, leaving: bool) -> None:
    """Have the trials of a node looked at; what was not written down is asked for again."""
    for trial in state.trials_on({node}):
        if leaving and trial.kept is not None:
            kept = replace(trial.kept, leaving=False, unwritable=False)
            trial = replace(trial, kept=kept)
        state.put(trial)
