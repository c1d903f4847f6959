"""Nodes: looked at, drained, put to use again, released from quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermesd.core.events import Event, NodeLost
from hermesd.core.machine_events import (
    Forgiven,
    NodeDrained,
    NodeUndrained,
)
from hermesd.core.model import NodeId, Time
from hermesd.core.state import State
from hermesd.head import names
from hermesd.head.access import asker, node_for
from hermesd.head.loop import Head
from hermesd.head.node_views import node_view
from hermesd.head.refusals import NotNow
from hermesd.head.requests import carry_out, key_of
from hermesd.head.sessions import Sessions
from hermesd.pb.hermes.v1 import control_pb2 as pb


class Upkeep:
    """This part of the ControlService."""

    head: Head
    sessions: Sessions
    # Ends the certificate of a node, if it has one.
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
            excluded = place in [node for _, node in state.excluded]
            if not excluded and state.strikes.keys().isdisjoint(devices):
                raise NotNow(f"nothing is held against {place}")
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
