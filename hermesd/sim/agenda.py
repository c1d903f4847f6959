"""Virtual time: what is due when, in an order that a seed decides completely."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from hermesd.core.model import Time

Deed: TypeAlias = Callable[[], None]


class Agenda:
    """Deeds by time; those of one time are done in the order in which they were put down."""

    def __init__(self) -> None:
        self.now: Time = 0.0
        self._deeds: list[tuple[Time, int, Deed]] = []
        self._count = 0

    def at(self, time: Time, deed: Deed) -> None:
        """Do something at a time, at once if that is past."""
        self._count += 1
        heapq.heappush(self._deeds, (max(time, self.now), self._count, deed))

    def after(self, seconds: float, deed: Deed) -> None:
        """Do something when so many seconds are over."""
        self.at(self.now + seconds, deed)

    def step(self) -> bool:
        """Do the next deed; False if there is none."""
        if not self._deeds:
            return False
        self.now, _, deed = heapq.heappop(self._deeds)
        deed()
        return True
