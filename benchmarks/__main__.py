"""Every benchmark once, in a quick form: `python -m benchmarks`, or `make bench`.

A quick form shows that a benchmark works and about what it measures. Its JSON goes to
benchmarks/results/quick, beside the results of the full runs and not over them.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
from pathlib import Path

from benchmarks import report

# A benchmark that is not listed has no slower form.
QUICK = {
    "callers": ["--trials", "5000", "--seconds", "2"],
    "cluster": ["--quick"],
    "decisions": ["1000"],
    "durability": ["--quick"],
    "fidelity": ["--epochs", "1", "--policies", "best_first"],
    "gangs": ["--seeds", "1"],
    "goodput": ["--quick"],
    "images": ["--rounds", "2"],
    "journal": ["--trials", "1000", "--points", "100000"],
    "loop_step": ["--calls", "100000"],
    "scale": ["100", "1000"],
    "searchers": ["--seeds", "2", "--trials", "24"],
    "slowdown": ["--pairs", "2"],
    "stage_tree": ["--devices", "20"],
    "starts": ["--rounds", "1"],
    "switches": ["--park", "20", "--checkpoint", "2"],
    "trace": ["--jobs", "1000"],
}
# What benchmarks share, and those that need an environment or curves of their own.
NO_BENCHMARKS = {
    "__main__", "daemons", "elastic", "gpu", "gpu_exact", "live", "orphans", "peers",
    "report", "research", "swarm", "treadmill", "turns",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.parse_args()
    report.RESULTS = report.RESULTS / "quick"
    names = {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])}
    for name in sorted(names - NO_BENCHMARKS):
        arguments = QUICK.get(name, [])
        print(f"\n== {' '.join(['python -m', f'benchmarks.{name}', *arguments])}", flush=True)
        begun = time.perf_counter()
        sys.argv = [f"benchmarks.{name}", *arguments]
        importlib.import_module(f"benchmarks.{name}").main()
        print(f"== {name} took {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
