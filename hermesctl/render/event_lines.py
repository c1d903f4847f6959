"""Journal events as lines for people: who, what, then every known detail.

Pure. One event is one line.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.text import Text

from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.records import Quantum
from hermesctl.text import cut, duration, number, one_line, printable

# It says that somebody wants the node empty; that it is so, `node ls` knows.
_WORDS = {EventKind.NODE_DRAINED: "node draining"}
_STYLES = {
    EventKind.COMPLETED: "bold green",
    EventKind.STUDY_FINISHED: "bold green",
    EventKind.FAILED: "bold red",
    EventKind.NODE_LOST: "bold red",
    EventKind.NODE_SILENT: "red",
    EventKind.DEVICE_FAILED: "bold red",
    EventKind.QUARANTINED: "bold red",
    EventKind.PARK_LOST: "bold red",
    EventKind.STALLED: "bold red",
    EventKind.POLICY_FAILED: "bold red",
    EventKind.SEARCH_FAILED: "bold red",
    EventKind.MILESTONE_PASSED: "magenta",
    EventKind.SUSPENDED: "cyan",
    EventKind.LAUNCHED: "cyan",
    EventKind.REPORTED: "dim",
}
_REASON_LENGTH = 160


def event_line(event: Event) -> Text:
    """The event as one line, times in UTC."""
    clock = datetime.fromtimestamp(event.at_unix_seconds, UTC).strftime("%H:%M:%SZ")
    who = event.trial or event.study or event.device or "-"
    if event.attempt and event.trial:
        who += f"#{event.attempt}"
    line = Text(f"{event.sequence:>7} {clock} ", style="dim")
    line.append(f"{printable(who):<20} ", style="not dim")
    words = _WORDS.get(event.kind) or str(event.kind).replace("-", " ")
    line.append(f"{words:<16} ", style=f"not dim {_STYLES.get(event.kind, '')}".strip())
    line.append(" · ".join(_details(event)), style="not dim")
    return line


def quantum_text(quantum: Quantum) -> str:
    """`10.0 s`, `until step 400`, or both; `no limit`."""
    parts = []
    if quantum.seconds is not None:
        parts.append(duration(quantum.seconds))
    if quantum.until_step is not None:
        parts.append(f"until step {quantum.until_step}")
    if quantum.loss is not None:
        parts.append(f"until loss {number(quantum.loss)}")
    return " or ".join(parts) or "no limit"


def _details(event: Event) -> list[str]:
    parts: list[str] = []
    if event.step:
        parts.append(f"step {event.step}")
    elif event.kind is EventKind.STARTED and event.attempt > 1:
        parts.append("from the beginning")
    if event.loss is not None:
        parts.append(f"loss {number(event.loss)}")
    parts += [f"{printable(m.name)} {number(m.last)}" for m in event.metrics]
    if event.percent is not None:
        parts.append(f"{event.percent:g} % down")
    if event.device and event.trial:
        parts.append(f"on {printable(event.device)}")
    if event.quantum is not None:
        parts.append(f"quantum {quantum_text(event.quantum)}")
    if event.tier:
        parts.append(f"tier {event.tier}")
    if event.seconds is not None and event.kind is EventKind.STALLED:
        parts.append(f"no further step for {duration(event.seconds)}")
    elif event.seconds is not None:
        parts.append(f"in {duration(event.seconds)}")
    if event.successor:
        parts.append(f"for {printable(event.successor)}")
    if event.reason:
        parts.append(cut(printable(one_line(event.reason)), _REASON_LENGTH))
    return parts
