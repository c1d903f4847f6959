"""The stream between a node and the head: in order, with a delay, and lost whole when cut.

What is under way at a cut never arrives. Each side notices the end on its own, later. Messages
may come twice: a reconnect repeats what was not acknowledged, and this is harsher than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermesd.core.events import CopyEvent, DeviceFailed, Looked, RunEvent
from hermesd.core.model import NodeId, Time
from hermesd.sim.agenda import Agenda
from tests.sim.cluster.faults import Chance

HEAD_NOTICES_SECONDS = 5.0
NODE_NOTICES_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event with its number in the daemon's outbox."""

    sequence: int
    event: RunEvent | DeviceFailed | CopyEvent | Looked


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sent: Time


@dataclass(frozen=True, slots=True)
class Acknowledged:
    sequence: int


class Stream:
    """One stream. It is `welcome` once the head has the node's Hello safe."""

    def __init__(self, agenda: Agenda, chance: Chance, node: NodeId) -> None:
        self.node = node
        self.open = True
        self.welcome = False
        self.heard_by_head: Callable[[Any], None] = lambda message: None
        self.heard_by_node: Callable[[Any], None] = lambda message: None
        self.ended_at_head: Callable[[], None] = lambda: None
        self.ended_at_node: Callable[[], None] = lambda: None
        self._agenda = agenda
        self._chance = chance
        self._head_hears: Time = 0.0
        self._node_hears: Time = 0.0

    def to_head(self, message: Any) -> None:
        """Send a message from the node."""
        at = self._head_hears = max(self._head_hears, self._agenda.now + self._chance.latency())
        self._agenda.at(at, lambda: self.heard_by_head(message) if self.open else None)

    def to_node(self, message: Any) -> None:
        """Send a message from the head."""
        at = self._node_hears = max(self._node_hears, self._agenda.now + self._chance.latency())
        self._agenda.at(at, lambda: self.heard_by_node(message) if self.open else None)

    def cut(self) -> None:
        """End it; the two sides find out in their own time."""
        if not self.open:
            return
        self.open = False
        random = self._chance.random
        self._agenda.after(random.uniform(0, HEAD_NOTICES_SECONDS), self.ended_at_head)
        self._agenda.after(random.uniform(0, NODE_NOTICES_SECONDS), self.ended_at_node)
