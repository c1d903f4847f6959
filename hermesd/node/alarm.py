"""One call at a time that may be put off: when the node's machine is to look at the clock again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hermesd.node.clock import boottime


class Alarm:
    """Calls `ring` once, at the moment that was set last."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due: float | None) -> None:
        """Ring at `due`, in seconds of the clock since boot, and not before; never at None."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - boottime()), self._ring)
