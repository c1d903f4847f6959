"""Time as the head journals it: UTC seconds that never decrease and never jump.

Setting the wall clock while the head runs must neither expire leases nor stop time. So the wall
clock is read once, and from then on seconds are counted by CLOCK_BOOTTIME, which also counts while
the machine sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hermesd.core.model import Time


def boottime() -> float:
    """Seconds since the machine started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Starts at the wall clock, or at `after` if that is later: the last entry's time."""

    def __init__(
        self,
        after: Time,
        wall: Callable[[], float] = time.time,  # noqa: TID251 - the one look at the wall
        ticks: Callable[[], float] = boottime,
    ) -> None:
        self._ticks = ticks
        self._offset = max(after, wall()) - ticks()

    def __call__(self) -> Time:
        return self._offset + self._ticks()
