"""What a decision costs against the size of the study, for every policy, and how much memory.

`python -m benchmarks.scale [trials ...]`; without sizes 100, 1,000, 10,000 and 100,000 trials, on
16 devices for each hundred. `fill_ms` is the decision in which all devices are free at once;
`sort_ms` the one before it, the first over all trials, and without a device: a head that has just
started makes both as one. `decision_us` is one at the end of a quantum, and `grows` how many times
as long that takes as for the size before. Each with trials that never ran (`new`), with trials
that all had a first quantum (`trained`), and, for policies that make use of one, with trials that
never ran after a study of 1,000 others (`recalling`). `memory_mb` is the most that the process ever
had, Python and numpy included.

Each row is measured in a process of its own, as `python -m benchmarks.scale one POLICY TRIALS STATE
[AFTER]` does with one row, after so many quanta have ended. A policy whose decision grows with the
study has a cost that is quadratic in it over the whole study; that shows in `grows`, and is not
hidden.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import islice

from benchmarks.report import median, publish, quantile
from benchmarks.treadmill import Treadmill
from hermesd.policy import POLICIES

SIZES = (100, 1_000, 10_000, 100_000)
DEVICES_PER_TRIAL = 0.16
STEPS, SECONDS = 300, 0.5
STATES, EARLIER = ("new", "trained", "recalling"), 1_000
COLUMNS = [
    "policy",
    "trials",
    "devices",
    "state",
    "sort_ms",
    "fill_ms",
    "decision_us",
    "decision_p99_us",
    "grows",
    "memory_mb",
]


def measure(policy: str, trials: int, state: str, after: int = 0) -> list[float]:
    """Devices, milliseconds of the first two decisions, microseconds of others, and megabytes.

    The others begin after so many quanta have ended.
    """
    devices = max(1, round(DEVICES_PER_TRIAL * trials))
    earlier = EARLIER if state == "recalling" else 0
    treadmill = Treadmill(policy, trials, devices, state == "trained", earlier)
    seconds: list[float] = []
    steps = treadmill.steps()
    for _ in islice(steps, after):
        pass
    until = time.process_time() + SECONDS
    for count, (_, decisions) in enumerate(steps, 1):
        seconds += decisions
        if count == STEPS or time.process_time() > until:
            break
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        devices,
        treadmill.sort_seconds * 1e3,
        treadmill.fill_seconds * 1e3,
        median(seconds) * 1e6,
        quantile(seconds, 0.99) * 1e6,
        memory,
    ]


def apart(policy: str, trials: int, state: str) -> list[float]:
    """The same, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.scale", "one", policy, str(trials), state]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["one"]:
        name, size, begun, *after = sys.argv[2:]
        print(json.dumps(measure(name, int(size), begun, *map(int, after))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", nargs="*", type=int, default=SIZES, help="sizes of a study")
    sizes = parser.parse_args().trials
    rows: list[list[str | float]] = []
    for state in STATES:
        for policy in sorted(POLICIES):
            if state == "recalling" and not hasattr(POLICIES[policy], "remembering"):
                continue
            before = 0.0
            for trials in sizes:
                devices, sort, fill, decision, p99, memory = apart(policy, trials, state)
                grows: str | float = decision / before if before else ""
                rows.append(
                    [policy, trials, int(devices), state, sort, fill, decision, p99, grows, memory]
                )
                before = decision
    publish("scale", COLUMNS, rows)


if __name__ == "__main__":
    main()
