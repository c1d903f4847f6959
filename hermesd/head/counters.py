"""What the head's loop has done since it started, counted for monitoring."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from hermesd.core.commands import Command
from hermesd.core.events import (
    Checkpointed,
    Event,
    PolicyFailed,
    Reported,
    RunFailed,
    RunStarted,
    RunSuspended,
)

# Upper ends, in seconds.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(slots=True)
class Histogram:
    """How often something took how long, in seconds; the last count is of what took longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Counters:
    """Of all that was folded and written since this head started."""

    batches: int = 0
    entries: int = 0
    rejected: int = 0
    reports: int = 0
    failures: int = 0
    policy_failures: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    starts: int = 0
    start_seconds: float = 0.0
    suspends: int = 0
    suspend_seconds: float = 0.0
    deciding: Histogram = field(default_factory=Histogram)
    committing: Histogram = field(default_factory=Histogram)

    def note(self, entry: Event | Command) -> None:
        """An entry that is on the disk."""
        match entry:
            case Reported():
                self.reports += 1
            case RunStarted(start_seconds=seconds):
                self.starts += 1
                self.start_seconds += seconds
            case RunSuspended(release_seconds=seconds, checkpoint=checkpoint):
                self.suspends += 1
                self.suspend_seconds += seconds
                if checkpoint is not None:
                    self._saved(checkpoint.size_bytes)
            case Checkpointed(checkpoint=checkpoint):
                self._saved(checkpoint.size_bytes)
            case RunFailed():
                self.failures += 1
            case PolicyFailed():
                self.policy_failures += 1
            case _:
                pass

    def _saved(self, size_bytes: int) -> None:
        self.checkpoints += 1
        self.checkpoint_bytes += size_bytes
