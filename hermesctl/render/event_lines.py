"""Journal events as lines for people: who, what, then every known detail.

Pure. One event is one line; in a terminal that is too narrow, the details go on below themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
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
# A terminal with fewer columns has no room for numbers of entries and wide gaps.
_ROOMY = 110
# What details need beside who and what, to begin on the same line.
_LEAST_DETAILS = 24


def event_line(event: Event) -> Text:
    """The event as one line, times in UTC."""
    return _begin(event, narrow=False).append(_said(event))


class EventLines:
    """The event as in `event_line`, in lines that a terminal has room for."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_ROOMY, options.max_width), options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        begin, said = _begin(self._event, narrow=room < _ROOMY), Text(_said(self._event))
        indent = min(begin.cell_len, room // 2)
        if said and begin.cell_len + min(said.cell_len, _LEAST_DETAILS) > room:
            yield begin
            begin = Text(" " * indent)
        lines = said.wrap(console, max(1, room - max(indent, begin.cell_len)))
        for place, line in enumerate(lines or [said]):
            line.rstrip()
            yield Text.assemble(begin if place == 0 else " " * indent, line)


def print_event(console: Console, event: Event) -> None:
    """Print an event: one line, but in a terminal that is too narrow for it."""
    if console.is_terminal:
        console.print(EventLines(event), soft_wrap=False)
    else:
        console.print(event_line(event), soft_wrap=True)


def _begin(event: Event, *, narrow: bool) -> Text:
    """When, who and what."""
    clock = datetime.fromtimestamp(event.at_unix_seconds, UTC).strftime("%H:%M:%SZ")
    who = event.trial or event.study or event.device or "-"
    if event.attempt and event.trial:
        who += f"#{event.attempt}"
    line = Text(f"{clock} " if narrow else f"{event.sequence:>7} {clock} ", style="dim")
    line.append(f"{printable(who):<{12 if narrow else 20}} ", style="not dim")
    words = _WORDS.get(event.kind) or str(event.kind).replace("-", " ")
    style = f"not dim {_STYLES.get(event.kind, '')}".strip()
    return line.append(f"{words:<{13 if narrow else 16}} ", style=style)


def _said(event: Event) -> str:
    return " · ".join(_details(event))


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
    elif event.seconds is not None and event.kind is EventKind.SEARCH_FAILED:
        parts.append(f"asked again in {duration(event.seconds)}")
    elif event.seconds is not None:
        parts.append(f"in {duration(event.seconds)}")
    if event.successor and not event.reason.startswith(f"{event.successor} "):
        parts.append(f"for {printable(event.successor)}")
    if event.reason:
        parts.append(cut(printable(one_line(event.reason)), _REASON_LENGTH))
    return parts
