"""Whether a program that shows no iterations still does anything.

It computes, prints, or reads and writes files; what does none of it for long has hung. Of a
look that comes late no more counts than of one in time: a machine that slept has looked at nobody.
"""

from __future__ import annotations

from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.output import Output

LOOK_SECONDS = 5.0
IDLE_CORES = 0.01
_IDLE_BYTES_A_SECOND = 1 << 16


class Liveness:
    """What one training process shows of itself; `due` is when to look, in boot-time seconds."""

    def __init__(self, group: WorkGroup, output: Output) -> None:
        self._group = group
        self._output = output
        self.begin(boottime())

    def begin(self, now: float) -> None:
        """What was idle until now does not count."""
        self.due = now + LOOK_SECONDS
        self._idle_seconds = 0.0
        self._looked_at = now
        self._seen: tuple[float, int, int] | None = None  # a resume waits for no look

    def look(self, now: float) -> float:
        """For how long there has been no sign of life."""
        before, seconds = self._seen, min(now - self._looked_at, 2 * LOOK_SECONDS)
        group = self._group
        cpu_seconds, moved_bytes, printed_bytes = self._seen = (
            group.cpu_seconds(),
            group.moved_bytes(),
            self._output.total_bytes,
        )
        self.due = now + LOOK_SECONDS
        self._looked_at = now
        is_alive = before is None or (
            cpu_seconds - before[0] >= IDLE_CORES * seconds
            or moved_bytes - before[1] >= _IDLE_BYTES_A_SECOND * seconds
            or printed_bytes != before[2]
        )
        self._idle_seconds = 0.0 if is_alive else self._idle_seconds + seconds
        return self._idle_seconds
