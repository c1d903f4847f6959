"""What the iterations computed, kept as it comes and reported to the host now and then.

Training never has to wait for a value: a tensor stays one until a report is due, at most once a
second and before every hold. An iteration leaves nothing that Python's garbage collector would
examine, since each of its rounds takes long in a process with a framework.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, TypeVar, Union

from trainer_shim.channel import frames
from trainer_shim.channel.frames import MAX_FRAME_BYTES, Message, number
from trainer_shim.side_metrics import ADAPTERS, SideMetrics

# A report: what happened in the iterations since the one before.
#
# The signal's summary covers every iteration; the points are all of them up to 256, then
# evenly thinned with the last kept.

_T = TypeVar("_T")
MAX_POINTS = 256
Point = list[Any]  # [step, {metric: value}]
Number = Union[float, str]
Values = Union[float, dict[str, float]]  # of a step: by name, or the signal alone


def thin(points: Sequence[_T]) -> list[_T]:
    """At most 256 of `points`, evenly spaced, the last kept."""
    count = len(points)
    if count <= MAX_POINTS:
        return list(points)
    return [points[(i + 1) * count // MAX_POINTS - 1] for i in range(MAX_POINTS)]


def thin_keeping_rich(points: Mapping[int, Values]) -> list[int]:
    """The steps that `thin` keeps, and those with more than the usual values (an epoch's)."""
    steps = list(points)
    if len(steps) <= MAX_POINTS:
        return steps
    sizes = [len(values) if isinstance(values, dict) else 1 for values in points.values()]
    usual = min(sizes)
    rich = [step for step, size in zip(steps, sizes) if size > usual][-MAX_POINTS:]
    return sorted({*thin(steps), *rich})


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, as floats."""
    found = {}
    for name, value in metrics.items():
        with contextlib.suppress(Exception):  # whatever a program's own kind of value raises
            found[name] = float(value)
    return found


def summarize(values: Sequence[float]) -> Message:
    """{count, first, last, min, max} of the signal; NaN spoils neither min nor max."""
    ordered = [value for value in values if value == value]
    return {
        "count": len(values),
        "first": number(values[0]) if values else None,
        "last": number(values[-1]) if values else None,
        "min": number(min(ordered)) if ordered else None,
        "max": number(max(ordered)) if ordered else None,
    }


def merge(earlier: Message, later: Message) -> Message:
    """One report for two that follow each other; it has the later one's number."""
    one, two = earlier["signal"], later["signal"]
    first = two if one["count"] == 0 else one
    last = one if two["count"] == 0 else two
    sums = ("count", "busy_seconds", "examples", "cpu_seconds")
    passes = [*earlier.get("passes", ()), *later.get("passes", ())]
    return {
        **later,
        "first_step": earlier["first_step"],
        "points": thin(earlier["points"] + later["points"]),
        "signal": {
            "count": one["count"] + two["count"],
            "first": first["first"],
            "last": last["last"],
            "min": _extreme(one["min"], two["min"], largest=False),
            "max": _extreme(one["max"], two["max"], largest=True),
        },
        **{name: earlier[name] + later[name] for name in sums},
        **({"passes": passes[-MAX_POINTS:]} if passes else {}),
    }


def _extreme(one: Number | None, two: Number | None, largest: bool) -> Number | None:
    if one is None or two is None:
        return two if one is None else one
    pair: tuple[Number, Number] = (one, two)
    return max(pair, key=float) if largest else min(pair, key=float)


# The metrics of a trial: the first that it reports, as many as the head keeps and one frame
# takes.
#
# A program may name its metrics by its steps; all that is told of one step goes in one
# frame.

MOST = 1_000  # as many as the head keeps
LONGEST_NAME = 200  # characters
_VALUE_BYTES = 32  # the longest number, and what is between two
_MOST_BYTES = MAX_FRAME_BYTES * 3 // 4  # the rest is for what is told beside them


def is_name(name: str) -> bool:
    """Whether a metric can have this name: it is shown in tables and is part of every report."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


class MetricNames:
    """The names that are told; `left_out(why)` is called for the first that is not."""

    def __init__(self, signal: str, left_out: Callable[[str], None]) -> None:
        self._told = {signal}
        self._bytes = _bytes_of(signal)
        self._left_out = left_out
        self._has_left_out = False

    def told(self, values: dict[str, float]) -> dict[str, float]:
        """What is told of these values."""
        if values.keys() <= self._told:
            return values
        return {name: value for name, value in values.items() if self._takes(name)}

    def _takes(self, name: str) -> bool:
        if name in self._told:
            return True
        size = self._bytes + _bytes_of(name)
        if not is_name(name):
            why = f"a metric's name is 1 to {LONGEST_NAME} printable characters"
        elif len(self._told) < MOST and size <= _MOST_BYTES:
            self._told.add(name)
            self._bytes = size
            return True
        else:
            why = f"a trial can have no more metrics than the first {len(self._told)}"
        if not self._has_left_out:
            self._has_left_out = True
            self._left_out(f"{why}; {name[:100]!a} is left out")
        return False


def _bytes_of(name: str) -> int:
    return len(json.dumps(name)) + _VALUE_BYTES


REPORT_SECONDS = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Metrics = dict[str, Any]


class Reporter:
    """The values since the last report."""

    def __init__(self, send: Callable[[Message], None], signal: str, names: MetricNames) -> None:
        self.last_values: dict[str, Any] = {}
        self.side = SideMetrics(signal)
        self._names = names
        #: When the next report is due, by the monotonic clock.
        self.due = 0.0
        self._tell = send
        self._signal = signal
        # Of each record the step, and its metrics by name, or the signal's value alone.
        self._steps: list[int] = []
        self._found: list[Any] = []
        self._claimed: set[str] = set()  # names of metrics that were recorded
        self._signal_step = -1  # the last one whose signal was told
        self._examples = 0
        self._passes: list[int] = []  # how many steps were done when each of them began
        self._cpu_then = time.process_time()
        # A signal handler that prints may interrupt its own thread.
        self._reporting = threading.RLock()

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
        """Send what has been recorded since the last report; if it is nothing, `at` which step.

        May be called by any thread, while none records.
        """
        with self._reporting:
            self._report(at)

    def _report(self, at: int | None) -> None:
        steps, self._steps = self._steps, []
        found, self._found = self._found, []
        examples, self._examples = self._examples, 0
        points, signal = self._points(steps, found)
        points = self._with_side(points, signal)
        steps = steps or (list(points) if at is None else [at])
        if not steps:
            return
        points = points or {steps[0]: {}}
        cpu = time.process_time() - self._cpu_then
        self.restart()
        message = {
            "kind": "reported",
            "first_step": steps[0],  # of the iterations: a point may be of the step before them
            "last_step": max(steps[-1], max(points)),
            "count": len(points),
            "signal": summarize(signal),
            "examples": examples,
            "memory_bytes": _memory_bytes(),
            "cpu_seconds": cpu,
        }
        if sampled := self.side.sampled():
            message["sampled"] = sampled
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
                    self._signal_step = step
                except Exception:  # whatever a program's own kind of value raises
                    points[step] = {}
                continue
            values = self._names.told(numbers(self._named(metrics)))
            if name in values:
                signal.append(values[name])
                self._signal_step = step
            points[step] = {**self._named(points.get(step, {})), **values}
            last.update(values)
            if not values.keys() <= self._claimed:
                self._claim(values)
        if signal and name not in self._claimed:
            self._claim([name])
        return points, signal

    def _claim(self, names: Iterable[str]) -> None:
        self._claimed.update(names)
        self.side.claim(names, ADAPTERS)

    def _with_side(self, points: dict[int, Values], signal: list[float]) -> dict[int, Values]:
        """The points with what the program has told beside, and the `signal` with it."""
        name, last = self._signal, self.last_values
        side = self.side.take()
        for step, values in side.items():
            if name in values and step <= self._signal_step:
                del values[name]  # the curve has one value a step
            values = self._names.told(values)
            if name in values:
                signal.append(values[name])
                self._signal_step = step
            if values:
                points[step] = {**values, **self._named(points.get(step, {}))}
                last.update(values)
        return {step: points[step] for step in sorted(points)} if side else points

    def _named(self, values: Any) -> dict[str, Any]:
        return values if isinstance(values, dict) else {self._signal: values}

    def _send(self, message: Message, points: list[Any]) -> None:
        """Send a report, in several frames if its points do not fit one."""
        whole = {**message, "points": points}
        if frames.fits(whole):
            self._tell(whole)
        elif len(points) < 2:
            self._tell({**message, "points": []})
        else:
            half = len(points) // 2
            nothing = {"examples": 0, "cpu_seconds": 0.0, "count": 0}
            later = {**message, **nothing, "signal": summarize([])}
            self._send({**message, "last_step": points[half - 1][0]}, points[:half])
            later.pop("passes", None)
            self._send({**later, "first_step": points[half][0]}, points[half:])


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
