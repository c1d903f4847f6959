"""Decisions per second: the production scheduler on 16 devices, a report and a quantum's end each.

See `treadmill` for what a step is. A policy is followed for 2,000 steps or two seconds, whichever
is less: what one step costs shows long before. `python -m benchmarks.decisions [trials ...]`.
"""

from __future__ import annotations

import sys
import time

from benchmarks.report import median, publish, quantile
from benchmarks.treadmill import Treadmill
from hermesd.policy import POLICIES

DEVICES = 16
STEPS, SECONDS = 2_000, 2.0


def measure(policy: str, trials: int) -> tuple[list[float], float]:
    """Seconds of each step, and of the first decisions over all trials."""
    treadmill = Treadmill(policy, trials, DEVICES)
    seconds: list[float] = []
    until = time.process_time() + SECONDS
    for step, _ in treadmill.steps():
        seconds.append(step)
        if len(seconds) == STEPS or time.process_time() > until:
            break
    return seconds, treadmill.sort_seconds + treadmill.fill_seconds


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1_000, 10_000]
    rows: list[list[str | float]] = []
    for trials in sizes:
        for policy in sorted(POLICIES):
            seconds, first = measure(policy, trials)
            rows.append(
                [
                    policy, trials, DEVICES, len(seconds), first * 1e3, median(seconds) * 1e6,
                    quantile(seconds, 0.99) * 1e6, 1 / median(seconds),
                ]
            )  # fmt: skip
    columns = [
        "policy",
        "trials",
        "devices",
        "steps",
        "first_ms",
        "step_p50_us",
        "step_p99_us",
        "steps_per_s",
    ]
    publish("decisions", columns, rows)


if __name__ == "__main__":
    main()
