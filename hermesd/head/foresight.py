"""Tells nodes which of the trials that they keep will run soonest.

Rule: a hint, a moment after devices were given, twice a second at most; one that is lost or late
costs a node only what it could have prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermesd import wire
from hermesd.core.commands import Command, Launch, Renew
from hermesd.core.model import NodeId
from hermesd.core.node_messages import Upcoming
from hermesd.pb.hermes.v1 import node_pb2 as pb

if TYPE_CHECKING:
    from hermesd.head.loop import Head

SOON_SECONDS = 0.05
PAUSE_SECONDS = 0.5


class Foresight:
    """What was last said to each node; `send` reaches one, if it is attached."""

    def __init__(self, send: Callable[[NodeId, pb.AttachResponse], bool]) -> None:
        self._send = send
        self._said: dict[NodeId, Upcoming] = {}
        self._planned: asyncio.TimerHandle | None = None
        self._spoke = 0.0

    def note(self, command: Command, head: Head) -> None:
        """A command is on its way: with a device, the turns have moved on."""
        if isinstance(command, Launch | Renew):
            self.plan(head)

    def plan(self, head: Head) -> None:
        """Speak in a moment, if that is not planned already."""
        if self._planned is None:
            loop = asyncio.get_running_loop()
            wait = max(SOON_SECONDS, self._spoke + PAUSE_SECONDS - loop.time())
            self._planned = loop.call_later(wait, self._speak, head)

    def forget(self, node: NodeId) -> None:
        """A node came anew: it knows nothing."""
        self._said.pop(node, None)

    def _speak(self, head: Head) -> None:
        self._planned, self._spoke = None, asyncio.get_running_loop().time()
        for node, hint in head.scheduler.upcoming(head.clock()).items():
            same = self._said.get(node, Upcoming((), 0)) == hint
            if not same and self._send(node, wire.command_to_proto(hint)):
                self._said[node] = hint
