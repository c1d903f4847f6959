"""How fast a node may send: what it says is journaled, and so takes the head's disk.

Nothing is refused or dropped. A node that sends more than one of its size ever has to is read more
slowly; the rest waits at the node, in order, and with the hosts of its trials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hermesd.core.model import NodeId
from hermesd.head.budget import PIECE_BYTES, Budget
from hermesd.head.clock import boottime
from hermesd.head.fleet.session import NodeSession
from hermesd.logs import get_logger

# A trial reports once a second, in at most a few frames of 64 KiB: this is several times that.
PER_SECOND = 64.0
PER_DEVICE_AND_SECOND = 16.0
# A node that says it has more is not heard faster.
DEVICES_COUNTED = 64
# What a node kept while its head was away comes all at once.
BURST_SECONDS = 60.0
# Of what makes no sense, so many have a line in the log.
NONSENSE_A_MINUTE = 10
# Not longer: who is held up is not silent.
_STEP_SECONDS = 1.0

log = get_logger()


class RateLimit:
    """One node's account, over all its streams; or one of all nodes for one user's trials, as who
    brings many is to say no more than who brings one."""

    def __init__(self, node: NodeId, clock: Callable[[], float] = boottime) -> None:
        #: Whether the node is being held up.
        self.late = False
        self.devices = 0
        self._nonsense, self._minute = 0, clock()
        self._node = node
        self._clock = clock
        self._budget = Budget(clock)

    @property
    def per_second(self) -> float:
        """What it may say for as long as it likes."""
        return PER_SECOND + PER_DEVICE_AND_SECOND * min(self.devices, DEVICES_COUNTED)

    def charge(self, size_bytes: int) -> float:
        """Count a message; for how many seconds no more is to be read."""
        ahead = self._budget.charge(1 + size_bytes // PIECE_BYTES, self.per_second)
        self._note(ahead)
        return max(0.0, ahead - BURST_SECONDS)

    def is_worth_a_line(self) -> bool:
        """Whether the log is to tell of a message that makes no sense: of the first few in a
        minute, so that nobody fills the disk with them."""
        now = self._clock()
        if now - self._minute >= 60.0:
            self._nonsense, self._minute = 0, now
        self._nonsense += 1
        return self._nonsense <= NONSENSE_A_MINUTE

    def _note(self, ahead: float) -> None:
        known = {"node": self._node, "messages_per_second": self.per_second}
        if not self.late and ahead > BURST_SECONDS:
            self.late = True
            log.warning("a node says more than it may: it is read more slowly", **known)
        elif self.late and ahead < BURST_SECONDS / 2:
            self.late = False
            log.info("a node says no more than it may", **known)

    async def collect(self, size_bytes: int, session: NodeSession) -> None:
        """Count a message of the node's stream, and wait until another may be read."""
        wait = self.charge(size_bytes)
        while wait > 0:
            step = min(wait, _STEP_SECONDS)
            await asyncio.sleep(step)
            session.heard = boottime()
            wait -= step
