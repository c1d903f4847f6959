"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """In the place of `boottime`: stands still but for what is slept by it, or set."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    async def rest(self, seconds: float) -> None:
        """Be that much later."""
        self.now += seconds
