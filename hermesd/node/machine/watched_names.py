"""Watches names, and reports what is found under each whenever that changes.

A question is always answered, even if the answer was reported before. A name that was asked for
only briefly, for a study that does not exist yet, is forgotten after a while, and that is reported
too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeAlias

from hermesd.core.events import Looked
from hermesd.core.model import NodeId, Time
from hermesd.core.requirements import UNSEEN
from hermesd.node.clock import boottime
from hermesd.node.outbox import Outbox

LOOK_SECONDS = 15.0
BRIEF_SECONDS = 600.0

Sight: TypeAlias = tuple[str, str]
# Looks at names, and yields why trials cannot use each; "" if they can.
Look: TypeAlias = Callable[[Sequence[str]], AsyncIterator[list[Sight]]]


class WatchedNames:
    """The names that are watched; to the head, which is told by the outbox, a name is `called`
    something else maybe."""

    def __init__(
        self,
        node: NodeId,
        outbox: Outbox,
        called: Callable[[str], str] = str,
        clock: Callable[[], Time] = boottime,
    ) -> None:
        self._node = node
        self._outbox = outbox
        self._called = called
        self._clock = clock
        self._said: dict[str, str | None] = {}
        self._until: dict[str, Time] = {}
        self._asked = asyncio.Event()

    def watch(self, names: Iterable[str], *, briefly: bool = False) -> None:
        """Look at these as well; `briefly`, unless they are watched for longer."""
        for name in names:
            if briefly and (name not in self._said or name in self._until):
                self._until[name] = self._clock() + BRIEF_SECONDS
            else:
                self._until.pop(name, None)
            self._said[name] = None
            self._asked.set()

    def forget(self) -> None:
        """Whoever asked is there no more; what is still wanted will be asked for again."""
        self._said.clear()
        self._until.clear()

    async def run(self, look: Look) -> None:
        """Look again and again, and say what has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            self._asked.clear()
            self._forget_brief()
            if self._said:
                async for sights in look(list(self._said)):
                    self._say(sights)

    def _forget_brief(self) -> None:
        now = self._clock()
        over = [name for name, until in self._until.items() if until <= now]
        for name in over:
            del self._until[name], self._said[name]
        self._told([(name, UNSEEN) for name in over])

    def _say(self, sights: Iterable[Sight]) -> None:
        fresh = [(name, why) for name, why in sights if self._said.get(name, why) != why]
        self._said.update(fresh)
        self._told(fresh)

    def _told(self, sights: Sequence[Sight]) -> None:
        if sights:
            named = tuple((self._called(name), why) for name, why in sights)
            self._outbox.tell(Looked(self._node, named))
