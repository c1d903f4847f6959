"""What the iterations computed, kept as it comes and told to the host now and then.

Rule: training is never made to wait for a value: a tensor stays one until a report is due, at
most once a second and before every hold. Of an iteration nothing is made that Python's collector
of garbage would look through: in a process with a framework each of its rounds takes long.
"""

from __future__ import annotations

import os
import time
from typing import Any

from trainer_shim import wire
from trainer_shim.mailbox import Mailbox
from trainer_shim.names import Names
from trainer_shim.report import MAX_POINTS, Values, numbers, summarise, thin_keeping_rich
from trainer_shim.wire import Message, number

REPORT_SECONDS = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Metrics = dict[str, Any]


class Reporter:
    """The values since the last report; `due` is when the next one is, by the monotonic clock."""

    def __init__(self, mailbox: Mailbox, signal: str, names: Names) -> None:
        self.last_values: dict[str, Any] = {}
        self._names = names
        self.due = 0.0
        self._mailbox = mailbox
        self._signal = signal
        # Of each record the step, and its metrics by name, or the signal's value alone.
        self._steps: list[int] = []
        self._found: list[Any] = []
        self._examples = 0
        self._passes: list[int] = []  # how many steps were done when each of them began
        self._cpu_then = time.process_time()

    def restart(self) -> None:
        """The program trains from now on: what passed before was not training."""
        self._cpu_then = time.process_time()
        self.due = time.monotonic() + REPORT_SECONDS

    def begins_pass(self, step: int) -> None:
        """Another pass over the data begins after so many steps."""
        self._passes.append(step)

    def record(self, step: int, metrics: Metrics, examples: int = 0) -> None:
        """Keep the values of one iteration (or of an epoch, under its last step)."""
        self._steps.append(step)
        self._found.append(metrics)
        self._examples += examples

    def record_signal(self, step: int, value: Any, examples: int = 0) -> None:
        """Keep the signal of one iteration, which has no other values."""
        self._steps.append(step)
        self._found.append(value)
        self._examples += examples

    def report(self, at: int | None = None) -> None:
        """Send what has been recorded since the last report; if it is nothing, `at` which step."""
        steps, self._steps = self._steps, []
        found, self._found = self._found, []
        examples, self._examples = self._examples, 0
        if not steps:
            if at is None:
                return
            steps, found = [at], [{}]
        cpu = time.process_time() - self._cpu_then
        self.restart()
        points, signal = self._points(steps, found)
        message = {
            "kind": "reported",
            "first_step": steps[0],
            "last_step": steps[-1],
            "count": len(points),
            "signal": summarise(signal),
            "examples": examples,
            "memory_bytes": _memory_bytes(),
            "cpu_seconds": cpu,
        }
        if self._passes:
            message["passes"], self._passes = self._passes[-MAX_POINTS:], []
        listed = [
            [step, {name: number(value) for name, value in self._named(points[step]).items()}]
            for step in thin_keeping_rich(points)
        ]
        self._send(message, listed)

    def _points(self, steps: list[int], found: list[Any]) -> tuple[dict[int, Values], list[float]]:
        """What is known of each step, and the signal of every one that has it."""
        points: dict[int, Values] = {}
        signal: list[float] = []
        name, last = self._signal, self.last_values
        for step, metrics in zip(steps, found):
            if not isinstance(metrics, dict) and step not in points:
                try:
                    points[step] = last[name] = value = float(metrics)
                    signal.append(value)
                except Exception:  # whatever a program's own kind of value raises
                    points[step] = {}
                continue
            values = self._names.told(numbers(self._named(metrics)))
            if name in values:
                signal.append(values[name])
            points[step] = {**self._named(points.get(step, {})), **values}
            last.update(values)
        return points, signal

    def _named(self, values: Any) -> dict[str, Any]:
        return values if isinstance(values, dict) else {self._signal: values}

    def _send(self, message: Message, points: list[Any]) -> None:
        """Send a report, in several frames if its points do not fit one."""
        whole = {**message, "points": points}
        if wire.fits(whole):
            self._mailbox.send(whole)
        elif len(points) < 2:
            self._mailbox.send({**message, "points": []})
        else:
            half = len(points) // 2
            nothing = {"examples": 0, "cpu_seconds": 0.0, "count": 0}
            later = {**message, **nothing, "signal": summarise([])}
            self._send({**message, "last_step": points[half - 1][0]}, points[:half])
            later.pop("passes", None)
            self._send({**later, "first_step": points[half][0]}, points[half:])


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
