"""How long a program has held its device, and what it used of the CPU: each second told once.

Rule: the host's clock counts, from the first boundary (or from the start, of a program that shows
none) until the program holds or is frozen, and from when it is told to go on. What is told while
the program itself says nothing is missing from its next report, so that nothing counts twice.
"""

from __future__ import annotations

from trainer_shim.channel.frames import Message
from trainer_shim.host.freeze import WorkGroup

SILENT_SECONDS = 5.0


class UsageMeter:
    """The use of one training process; stands still until `go`. Times are boot-time seconds."""

    def __init__(self, group: WorkGroup) -> None:
        self._group = group
        self._since: float | None = None
        self._told_cpu_seconds = 0.0  # of all that the group has ever used
        self._ahead_cpu_seconds = 0.0  # told, but not yet by the program itself

    @property
    def due(self) -> float | None:
        """When the program has been silent for so long that its host tells what it uses."""
        return None if self._since is None else self._since + SILENT_SECONDS

    def go(self, since: float) -> None:
        """Count the device from here on."""
        self._since = since

    def stop(self) -> None:
        """The device is not computed on any more."""
        self._since = None

    def forget(self) -> None:
        """What the processor did until now is no part of the training."""
        self._told_cpu_seconds = self._group.cpu_seconds()
        self._ahead_cpu_seconds = 0.0

    def measure(self, now: float, cpu_seconds: float | None = None) -> Message | None:
        """{busy_seconds, cpu_seconds} since the last word; None while it stands still.

        `cpu_seconds` is what the group has ever used, where that cannot be looked up any more.
        """
        if self._since is None:
            return None
        total = self._group.cpu_seconds() if cpu_seconds is None else cpu_seconds
        fresh = max(0.0, total - self._told_cpu_seconds)
        self._told_cpu_seconds += fresh
        self._ahead_cpu_seconds += fresh
        return {"busy_seconds": self._lap(now), "cpu_seconds": fresh}

    def rest(self, report: Message, now: float) -> Message:
        """The program's own report, less what was told ahead of it."""
        fresh = max(0.0, report["cpu_seconds"] - self._ahead_cpu_seconds)
        self._told_cpu_seconds += fresh
        self._ahead_cpu_seconds = 0.0
        return {**report, "busy_seconds": self._lap(now), "cpu_seconds": fresh}

    def _lap(self, now: float) -> float:
        if self._since is None:
            return 0.0
        before, self._since = self._since, now
        return max(0.0, now - before)
