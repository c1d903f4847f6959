"""Metrics that a program reports besides those of its framework's adapter, kept for the next
report.

Each belongs to the trial's step at that moment. A name has one source, the most reliable one that
has reported it: a logger's value never replaces an adapter's, nor does a printed and so rounded one
replace a logger's. Upper and lower case make no difference in names, and the
signal is known by its words however they are joined: `Val Loss`, `val-loss`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any

# How sure it is that a value is a metric, and that it is exact.
SAMPLED = -1  # read in a file, or printed by another thread: of which step is up to the clock
FOUND = 0  # looks like one, in a line that was printed
TOLD = 1  # is one: the program has given it to a logger, or to `trainer_shim.log`
ADAPTERS = 2  # is reported by a framework's adapter, or by `Trial.report`

# What programs count beside their metrics.
_COUNTERS = frozenset({"epoch", "epochs", "step", "steps", "global_step", "iteration", "iter"})


class SideMetrics:
    """The values since they were last taken, by step. May be added to by any thread. What is
    `signal`, but for how it is written, has that name."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        # Of each name, in lower case. A program that goes on from a checkpoint has it from there.
        self.sources: dict[str, int] = {}
        # A signal handler that prints may interrupt its own thread.
        self._lock = threading.RLock()
        self._kept: dict[int, dict[str, tuple[float, int]]] = {}

    def add(self, step: int, values: Mapping[str, float], source: int) -> None:
        """Keep the values of a step; of those of one name the last."""
        signal = _written(self._signal)
        values = {self._signal if _written(k) == signal else k: v for k, v in values.items()}
        with self._lock:
            self.claim(values, source)
            kept = self._kept.setdefault(step, {})
            for name, value in values.items():
                if source == self.sources[name.lower()]:
                    kept[name] = (value, source)

    def claim(self, names: Iterable[str], source: int) -> None:
        """These names are told by that source, or have a surer one."""
        for name in names:
            self.sources[name.lower()] = max(source, self.sources.get(name.lower(), source))

    def unclaimed(self, values: Mapping[str, float], source: int) -> dict[str, float]:
        """Those of the values that no surer source than this tells."""
        return {k: v for k, v in values.items() if self.sources.get(k.lower(), source) <= source}

    def sampled(self) -> list[str]:
        """The names that are known from no surer source, in lower case."""
        return sorted(name for name, source in list(self.sources.items()) if source == SAMPLED)

    def forget(self, source: int) -> None:
        """What this source, or one that is less sure, has told until now was none."""
        with self._lock:
            self.sources = {name: one for name, one in self.sources.items() if one > source}
            for step, values in self._kept.items():
                kept = {name: told for name, told in values.items() if told[1] > source}
                self._kept[step] = kept

    def gather(self, step: int) -> None:
        """All that is kept now belongs to this step; of the values of one name the last."""
        with self._lock:
            gathered: dict[str, tuple[float, int]] = {}
            for _, values in sorted(self._kept.items()):
                gathered |= values
            self._kept = {step: gathered} if gathered else {}

    def take(self) -> dict[int, dict[str, float]]:
        """What was kept of the surest source of each name, in the order of its steps."""
        with self._lock:
            kept, self._kept = self._kept, {}
            return {
                step: {
                    name: value
                    for name, (value, source) in kept[step].items()
                    if self.sources[name.lower()] == source
                }
                for step in sorted(kept)
            }


class Rounds:
    """The steps of a program that shows none, from `step` on: each begins as it tells a metric
    again."""

    def __init__(self, step: int = 0) -> None:
        self.step = step
        #: How many there will be, if the program counts them; None while nothing shows that.
        self.length: int | None = None
        self._told: set[str] = set()
        # The step at which something was first counted, and the length that follows from that.
        self._first: tuple[float, int] | None = None
        self._last_count = 0

    def step_of(self, names: Iterable[str], counter: tuple[int, int] | None = None) -> int:
        """The step to which metrics of these names belong that are told now, beside a counter of
        what may be the steps: that it is at so many of so many."""
        if not self._told or not self._told.isdisjoint(names):
            self.step += 1
            self._told.clear()
        self._told.update(names)
        if counter is not None:
            self._count(*counter)
        return self.step

    def _count(self, at: int, of: int) -> None:
        """Take the length from a counter that has gone up by one with each step, as one of batches
        does not that are told of now and then, nor one of epochs with several steps each."""
        if at > of:  # it counts on from an earlier training
            return
        length = self.step + of - at
        first_step, first_length = self._first = self._first or (self.step, length)
        if self.length is not None:
            if at < self._last_count:  # it begins anew, as for the next fold of the data
                self.length = length
        elif length != first_length:
            self._first = math.inf, 0  # it counts something else, and is not looked at again
        elif self.step > first_step:
            self.length = length
        self._last_count = at


def _written(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


def logged(values: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    """The metrics among what a program gives to a logger: its numbers, those within a mapping by
    their path (`val.accuracy`), without the step that the logger counts."""
    found: dict[str, float] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= logged(value, f"{name}.")
        elif not isinstance(value, (str, bytes)) and name.lower() not in _COUNTERS:
            with contextlib.suppress(Exception):  # an image, or whatever it has of its own
                found[name] = number_of(value)
    return found


def number_of(value: Any) -> float:
    """The number that it is now. Raises whatever a value that is none raises."""
    return float(value.detach() if hasattr(value, "detach") else value)
