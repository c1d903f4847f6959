"""What people see of nodes: messages made from the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermesd import wire
from hermesd.core.model import Place
from hermesd.core.nodes import Node
from hermesd.core.sights import lacks
from hermesd.core.speeds import Evidence
from hermesd.core.state import State
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types


def node_view(
    state: State,
    node: Node,
    usage: Mapping[str, types.Usage],
    silent_seconds: float,
    warnings: Sequence[str] = (),
) -> pb.Node:
    """A node as people see it."""
    view = pb.Node(
        id=node.id,
        connected=node.connected,
        facts=node.facts,
        version=node.version,
        silent_seconds=silent_seconds,
        draining=node.draining,
        pool=node.pool,
        resting=node.resting,
        lost=node.lost,
        warnings=warnings,
        quarantine=_quarantine(state, node.id),
        exclusions=[
            pb.Exclusion(study=study, reason=why.reason)
            for (study, name), why in state.excluded.items()
            if name == node.id
        ],
    )
    view.lacking.extend(lacks(state, node.id))
    if node.leaving:
        _add_what_is_left(view, state, node)
    for slot in state.slots.values():
        if slot.device.node != node.id:
            continue
        status = view.devices.add(
            device=wire.device_to_proto(slot.device),
            trial=slot.run.trial if slot.run else "",
            reserved_for=slot.reserved or "",
            healthy=slot.healthy,
            reason=slot.reason,
            busy_seconds=slot.busy_seconds,
            yielded=slot.yielded,
            speed=state.corrections.get(slot.device.id, 1.0),
            comparisons=state.paces.get(slot.device.id, Evidence()).count,
            quarantine=_quarantine(state, slot.device.id),
            strikes=[
                pb.Strike(
                    trial=strike.trial,
                    error_kind=strike.error_kind,
                    detail=strike.detail,
                    at_unix_seconds=strike.at,
                )
                for strike in state.strikes.get(slot.device.id, ())
            ],
        )
        if slot.device.id in usage:
            status.usage.CopyFrom(usage[slot.device.id])
    return view


def _quarantine(state: State, place: Place) -> pb.Quarantine | None:
    kept = state.quarantined.get(place)
    if kept is None:
        return None
    return pb.Quarantine(until_unix_seconds=kept.until, reason=kept.reason)


def _add_what_is_left(view: pb.Node, state: State, node: Node) -> None:
    """What keeps a node from being empty, and what only its disk has."""
    for trial in [state.trials[t] for active in state.active.values() for t in active]:
        if state.node_of(trial) == node.id:
            if trial.run is None:
                view.parked.append(trial.id)
            if not trial.fidelity.restorable:
                view.stuck.append(trial.id)
        view.only_copies += trial.checkpoint is not None and trial.checkpoint.nodes == (node.id,)
