"""Nodes: shown, drained, used again, declared lost, released from quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermesd import wire
from hermesd.core.events import Event, Forgiven, NodeDrained, NodeLost, NodeUndrained
from hermesd.core.model import Node, NodeId, Place, Time
from hermesd.core.requirements import lacks
from hermesd.core.speeds import Evidence
from hermesd.core.state import State
from hermesd.head.api import names
from hermesd.head.api.requests import carry_out, key_of
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.loop import Head
from hermesd.head.refusals import NotNow
from hermesd.head.security.access import asker, node_for
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

# What people see of nodes: messages made from the state.


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
            pb.Exclusion(
                study=study, reason=why.reason if name == node.id else f"{name}: {why.reason}"
            )
            for (study, name), why in state.excluded.items()
            if name == node.id or name in node.devices
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


@dataclass(frozen=True)
class NodesService:
    """What clients ask of nodes and do with them."""

    head: Head
    sessions: NodeSessions
    #: Ends the certificate of a node that has one.
    revoke: Callable[[NodeId], object]

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:
        return pb.ListNodesResponse(
            nodes=[self._view(node.id) for node in self.head.state.nodes.values() if not node.left]
        )

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Any) -> pb.DrainNodeResponse:
        key = key_of(request, asker())

        def compose(state: State, now: Time) -> Event:
            return NodeDrained(names.node_id(state, request.node), key)

        await carry_out(self.head, key, compose)
        self.sessions.foretell()
        return pb.DrainNodeResponse(node=self._named(request.node))

    async def UndrainNode(
        self, request: pb.UndrainNodeRequest, context: Any
    ) -> pb.UndrainNodeResponse:
        key = key_of(request, asker())

        def compose(state: State, now: Time) -> Event:
            node = names.node_id(state, request.node)
            if not state.nodes[node].draining:
                raise NotNow(f"node {node} is not draining")
            return NodeUndrained(node, key)

        await carry_out(self.head, key, compose)
        return pb.UndrainNodeResponse(node=self._named(request.node))

    async def LoseNode(self, request: pb.LoseNodeRequest, context: Any) -> pb.LoseNodeResponse:
        key, gone = key_of(request, asker()), request.for_good

        def compose(state: State, now: Time) -> Event:
            node = names.node_id(state, request.node)
            if state.nodes[node].connected:
                empties = f"`hermesctl node drain {node}` empties it"
                raise NotNow(f"node {node} is connected, so it is not off; {empties}")
            if state.nodes[node].lost and not gone:
                raise NotNow(f"node {node} is lost already")
            return NodeLost(node, key, left=gone)

        await carry_out(self.head, key, compose)
        node = names.node_id(self.head.state, request.node, left=gone)
        if gone:
            self.revoke(node)
        return pb.LoseNodeResponse(node=self._view(node))

    async def ReleaseNode(
        self, request: pb.ReleaseNodeRequest, context: Any
    ) -> pb.ReleaseNodeResponse:
        key = key_of(request, asker())

        def compose(state: State, now: Time) -> Event:
            place = names.place(state, request.node, request.device)
            devices = [d for d, s in state.slots.items() if place in (d, s.device.node)]
            excluded = not {place, *devices}.isdisjoint(each for _, each in state.excluded)
            if not excluded and state.strikes.keys().isdisjoint(devices):
                raise NotNow(f"{place} is not in quarantine, and no failures count against it")
            return Forgiven(place, key)

        await carry_out(self.head, key, compose)
        return pb.ReleaseNodeResponse(node=self._named(request.node))

    def _named(self, text: str) -> pb.Node:
        return self._view(names.node_id(self.head.state, text))

    def _view(self, name: NodeId) -> pb.Node:
        state, node = self.head.state, self.head.state.nodes[name]
        session = self.sessions.find(name)
        silent = self.head.clock() - node.silent_since if node.silent_since is not None else 0.0
        usage = session.usage if session else {}
        view = node_view(state, node, usage, silent, self.sessions.warnings(name))
        return node_for(asker(), view, state)
