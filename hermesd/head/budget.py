"""How much of a rate somebody has used: by so many seconds what they did is paid for in advance.

Who says what may be ahead decides what to do with who is further.
"""

from __future__ import annotations

from collections.abc import Callable

from hermesd.head.clock import boottime

# Who uses something that is journaled pays one, and as many more as there are pieces of so many
# bytes.
PIECE_BYTES = 4096


class Budget:
    """One account."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._paid_until = clock()

    @property
    def ahead_seconds(self) -> float:
        """Nothing, or less, for who owes nothing."""
        return self._paid_until - self._clock()

    def charge(self, count: float, per_second: float) -> float:
        """Use so much (give back, below 0); by how many seconds that is ahead."""
        self._paid_until = max(self._paid_until, self._clock()) + count / per_second
        return self.ahead_seconds
