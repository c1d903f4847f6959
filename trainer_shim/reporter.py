"""What the iterations computed, kept as it comes and told to the host now and then.

Rule: training is never made to wait for a value: a tensor stays one until a report is due, at
most once a second and before every hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from trainer_shim import wire
from trainer_shim.mailbox import Mailbox
from trainer_shim.report import numbers, summarise, thin_keeping_rich
from trainer_shim.wire import Message, number

REPORT_SECONDS = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Metrics = Mapping[str, Any]


class Reporter:
    """The values since the last report; `due` is when the next one is, by the monotonic clock."""

    def __init__(self, mailbox: Mailbox, signal: str) -> None:
        self.last_values: dict[str, Any] = {}
        self.due = 0.0
        self._mailbox = mailbox
        self._signal = signal
        self._waiting: list[tuple[int, Metrics]] = []
        self._examples = 0
        self._cpu_then = time.process_time()

    def restart(self) -> None:
        """The program trains from now on: what passed before was not training."""
        self._cpu_then = time.process_time()
        self.due = time.monotonic() + REPORT_SECONDS

    def record(self, step: int, metrics: Metrics, examples: int = 0) -> None:
        """Keep the values of one iteration (or of an epoch, under its last step)."""
        self._waiting.append((step, metrics))
        self._examples += examples

    def report(self, at: int | None = None) -> None:
        """Send what has been recorded since the last report; if it is nothing, `at` which step."""
        waiting, self._waiting = self._waiting, []
        examples, self._examples = self._examples, 0
        if not waiting:
            if at is None:
                return
            waiting = [(at, {})]
        cpu = time.process_time() - self._cpu_then
        self.restart()
        points: dict[int, dict[str, float]] = {}
        signal: list[float] = []
        for step, metrics in waiting:
            values = numbers(metrics)
            if self._signal in values:
                signal.append(values[self._signal])
            points.setdefault(step, {}).update(values)
            self.last_values.update(values)
        message = {
            "kind": "reported",
            "first_step": waiting[0][0],
            "last_step": waiting[-1][0],
            "count": len(points),
            "signal": summarise(signal),
            "examples": examples,
            "memory_bytes": _memory_bytes(),
            "cpu_seconds": cpu,
        }
        listed = [
            [step, {name: number(value) for name, value in found.items()}]
            for step, found in points.items()
        ]
        self._send(message, thin_keeping_rich(listed))

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
            self._send({**later, "first_step": points[half][0]}, points[half:])


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
