"""How much the host of one trial may say: what of it may wait for the head, how fast, and how
little of it may be nonsense.

Rule: a trial that says much waits for itself, not others for it; its host keeps its events
meanwhile, and thins its reports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from hermesd.node.clock import boottime

# Of one trial so much may wait for the head, and so much whatever waits of others (`outbox.ROOM`).
TRIAL_ROOM, ALWAYS = 500, 16
# A host says a thing or two a second; one that was not heard for long has some thousand kept.
A_SECOND, AT_ONCE = 100.0, 2_000.0
NONSENSE_LOGGED, NONSENSE_LIMIT = 10, 1_000


class Patience:
    """What was heard of one host and the head has not acknowledged. `room` waits until more of all
    trials may be added to what waits."""

    def __init__(
        self,
        room: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = boottime,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._room = room
        self._clock = clock
        self._rest = rest
        self._marks: deque[tuple[int, int]] = deque()
        self._acknowledged = asyncio.Event()
        self._may_say, self._since = AT_ONCE, clock()
        self._nonsense = 0

    async def room(self) -> None:
        """Wait until the next of its words may be heard."""
        now = self._clock()
        earned = A_SECOND * (now - self._since)
        self._may_say, self._since = min(AT_ONCE, self._may_say + earned) - 1, now
        if self._may_say < 0:
            await self._rest(-self._may_say / A_SECOND)
        while len(self._marks) >= TRIAL_ROOM:
            self._acknowledged.clear()
            await self._acknowledged.wait()
        if len(self._marks) >= ALWAYS:
            await self._room()

    def heard(self, told: int, sequence: int) -> None:
        """Its word of this number led to what the head is told up to `told`; 0 for nothing."""
        if self._marks and told <= self._marks[-1][0]:
            told, _ = self._marks.pop()
        self._marks.append((told, sequence))

    def acknowledged(self, told: int) -> int:
        """The head has everything up to `told` safe: so up to which number the host may forget."""
        forgotten = 0
        while self._marks and self._marks[0][0] <= told:
            forgotten = self._marks.popleft()[1]
        self._acknowledged.set()
        return forgotten

    def hears_nonsense(self) -> bool:
        """Note a word that makes no sense: whether it is worth a line in the log."""
        self._nonsense += 1
        return self._nonsense <= NONSENSE_LOGGED

    @property
    def is_over(self) -> bool:
        """Whether the host has said more nonsense than anybody listens to."""
        return self._nonsense >= NONSENSE_LIMIT
