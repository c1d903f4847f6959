"""What a follower of the journal sees: one record per event, whose kind is a word.

As in records.py, whose words for grants and metrics it uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermesctl.sdk.records import MetricValue, Quantum


class EventKind(StrEnum):
    """What happened; the journal's public events."""

    SUBMITTED = "submitted"
    LAUNCHED = "launched"
    STARTED = "started"
    REPORTED = "reported"
    QUANTUM_ENDED = "quantum-ended"
    MILESTONE_PASSED = "milestone-passed"
    RENEWED = "renewed"
    SUSPEND_ASKED = "suspend-asked"
    SUSPENDED = "suspended"
    CHECKPOINTED = "checkpointed"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    RESUMED = "resumed"
    ADDED = "added"
    EXTENDED = "extended"
    RETRIED = "retried"
    REMOVED = "removed"
    NODE_JOINED = "node-joined"
    NODE_SILENT = "node-silent"
    NODE_LOST = "node-lost"
    STUDY_FINISHED = "study-finished"
    POLICY_FAILED = "policy-failed"
    DEVICE_FAILED = "device-failed"
    NODE_DRAINED = "node-drained"
    NODE_UNDRAINED = "node-undrained"
    QUARANTINED = "quarantined"
    TRUSTED = "trusted"
    YIELDED = "yielded"
    RECLAIMED = "reclaimed"
    METRIC_CHOSEN = "metric-chosen"
    SIGNAL_CHOSEN = "signal-chosen"
    PARK_LOST = "park-lost"
    STALLED = "stalled"
    SEARCH_FAILED = "search-failed"
    ASKED = "asked"
    # An event of a newer head that this client has no word for.
    OTHER = "other"


# Each quantum makes some of these, whatever comes of it: people ask for them.
ROUTINE = frozenset({EventKind.QUANTUM_ENDED, EventKind.RENEWED, EventKind.CHECKPOINTED})

# After these a trial may be over: one that has failed is mostly tried again.
ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.STOPPED, EventKind.CANCELLED})

# What happens whenever a device goes from one trial to another: who only waits for results sees how
# far the study is instead.
SWITCHES = frozenset(
    {
        *(EventKind.LAUNCHED, EventKind.STARTED, EventKind.SUSPEND_ASKED, EventKind.SUSPENDED),
        *(EventKind.MILESTONE_PASSED, EventKind.RENEWED),
    }
)


class Plain:
    """Which events people are told unasked: none that is routine, but the renewal that a trial
    gets for a milestone."""

    def __init__(self) -> None:
        self._rewarded: set[str] = set()

    def tells(self, event: Event) -> bool:
        """Whether it is told; events are asked about in their order."""
        if event.kind is EventKind.MILESTONE_PASSED:
            self._rewarded.add(event.trial)
        elif event.kind is EventKind.RENEWED and event.trial in self._rewarded:
            self._rewarded.remove(event.trial)
            return True
        elif event.kind is not EventKind.REPORTED:
            self._rewarded.discard(event.trial)
        return event.kind not in ROUTINE


@dataclass(frozen=True, slots=True, repr=False)
class Event:
    """One entry of the journal that is for people."""

    #: Where a follower goes on.
    sequence: int
    at_unix_seconds: float
    study: str
    trial: str
    attempt: int
    device: str
    kind: EventKind
    step: int
    loss: float | None
    quantum: Quantum | None
    tier: str
    reason: str
    seconds: float | None
    successor: str
    percent: float | None
    metrics: tuple[MetricValue, ...]

    def __repr__(self) -> str:
        about = self.trial or self.study or self.device
        return f"<Event {self.sequence}: {about} {self.kind}>"
