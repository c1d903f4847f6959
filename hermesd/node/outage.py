"""What the log says while the head is away: each reason at once, and again ever more seldom."""

from __future__ import annotations

from collections.abc import Callable

from hermesd.node.clock import boottime

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0


class Outage:
    """The time since the head was last attached to."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._said: dict[tuple[str, ...], _Said] = {}

    def tell(self, log: Callable[..., object], event: str, **known: str) -> None:
        """Log why there is no stream, unless the very same was logged a short while ago."""
        now = self._clock()
        said = self._said.setdefault((event, *known.values()), _Said(now))
        said.tries += 1
        if now >= said.due:
            again = {"tries": said.tries, "for_seconds": round(now - said.first)}
            log(event, **known, **(again if said.tries > 1 else {}))
            said.put_off(now)

    def end(self) -> None:
        """The head is there: what comes next is news."""
        self._said.clear()


class _Said:
    """One reason: since when, how often, and when it is to be told again."""

    def __init__(self, now: float) -> None:
        self.first = self.due = now
        self.tries = 0
        self._pause = FIRST_SECONDS

    def put_off(self, now: float) -> None:
        self.due = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_SECONDS)
