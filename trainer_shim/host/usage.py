"""How long a program has held its device, and how much CPU it used; each second is counted once.

The host's clock counts from the first boundary (or from the start, for a program without
boundaries) until the program holds or is frozen, and again from when it is told to go on. What the
host reports while the program itself is silent is left out of the program's next report. The pace
of the program, by which a hung one is recognized, is kept here too, since the host outlives its
daemon.
"""

from __future__ import annotations

from trainer_shim.channel.frames import Message
from trainer_shim.host.freeze import WorkGroup

SILENT_SECONDS = 5.0
# A silent program is told of more often than that: what lasts longer, the machine has slept.
_AWAKE_SECONDS = 2 * SILENT_SECONDS


class UsageMeter:
    """The use of one training process; stands still until `go`. Times are boot-time seconds."""

    def __init__(self, group: WorkGroup) -> None:
        self._group = group
        self._since: float | None = None
        self._told_cpu_seconds = 0.0  # of all that the group has ever used
        self._ahead_cpu_seconds = 0.0  # told, but not yet by the program itself
        self._step: int | None = None  # the last one of this process, None before the first
        self._begun_step = 0
        self._longest_step_seconds = 0.0
        self._silent_seconds = self._silent_cpu_seconds = 0.0

    @property
    def due(self) -> float | None:
        """When the program has been silent for so long that its host tells what it uses."""
        return None if self._since is None else self._since + SILENT_SECONDS

    def go(self, since: float) -> None:
        """Count the device from here on."""
        self._since = since
        self._silent_seconds = self._silent_cpu_seconds = 0.0

    def stop(self) -> None:
        """The device is not computed on any more."""
        self._since = None

    def forget(self, step: int) -> None:
        """What the processor did until now, at `step`, is no part of the training."""
        self._begun_step = step
        self._told_cpu_seconds = self._group.cpu_seconds()
        self._ahead_cpu_seconds = 0.0

    def measure(self, now: float, cpu_seconds: float | None = None) -> Message | None:
        """{busy_seconds, cpu_seconds} since the last word, and {pace}; None while it stands still.

        `cpu_seconds` is what the group has ever used, where that cannot be looked up any more.
        """
        if self._since is None:
            return None
        total = self._group.cpu_seconds() if cpu_seconds is None else cpu_seconds
        fresh = max(0.0, total - self._told_cpu_seconds)
        self._told_cpu_seconds += fresh
        self._ahead_cpu_seconds += fresh
        busy = self._lap(now)
        self._wait(busy, fresh)
        return {"busy_seconds": busy, "cpu_seconds": fresh, "pace": self._pace}

    @property
    def untold_cpu_seconds(self) -> float:
        """What a report that the host makes for the program has to say, for `rest`."""
        fresh = max(0.0, self._group.cpu_seconds() - self._told_cpu_seconds)
        return fresh + self._ahead_cpu_seconds

    def rest(self, report: Message, now: float) -> Message:
        """The program's own report, less what was told ahead of it, and {pace}."""
        fresh = max(0.0, report["cpu_seconds"] - self._ahead_cpu_seconds)
        self._told_cpu_seconds += fresh
        self._ahead_cpu_seconds = 0.0
        busy, step = self._lap(now), report["last_step"]
        if step <= (self._begun_step if self._step is None else self._step):
            self._wait(busy, fresh)
        else:
            if self._step is not None:
                lasted = self._silent_seconds + busy
                self._longest_step_seconds = max(self._longest_step_seconds, lasted)
            self._step = step
            self._silent_seconds = self._silent_cpu_seconds = 0.0
        return {**report, "busy_seconds": busy, "cpu_seconds": fresh, "pace": self._pace}

    @property
    def _pace(self) -> Message:
        """The longest time from one step of this process to the next, and what its device and its
        cores have spent since the last step."""
        return {
            "longest_step_seconds": self._longest_step_seconds,
            "silent_seconds": self._silent_seconds,
            "silent_cpu_seconds": self._silent_cpu_seconds,
        }

    def _wait(self, busy_seconds: float, cpu_seconds: float) -> None:
        """There was no further step for so long."""
        self._silent_seconds += min(busy_seconds, _AWAKE_SECONDS)
        self._silent_cpu_seconds += cpu_seconds

    def _lap(self, now: float) -> float:
        if self._since is None:
            return 0.0
        before, self._since = self._since, now
        return max(0.0, now - before)
