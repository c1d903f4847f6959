"""`python -m tests.trainer_shim.exactness_table [FILE...]`: what was recorded, as a table.

A test that failed and tells no boundaries counts with all of its own as different.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.trainer_shim.exactness import record_path, results

TIERS = ("park", "checkpoint")


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """The markdown table of these results."""
    tested: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(TIERS, 0))
    differ: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(TIERS, 0))
    tests: dict[str, int] = defaultdict(int)
    for line in lines:
        if line["kind"] is None:
            continue  # of no matrix, only slow
        tests[line["kind"]] += 1
        for tier in TIERS:
            tested[line["kind"]][tier] += line[tier]
            if not line["passed"]:
                told = len(line["wrong"]) if tier == "checkpoint" and line["wrong"] else line[tier]
                differ[line["kind"]][tier] += told
    rows = [
        "| kind | tests | park: boundaries | differ | checkpoint: boundaries | differ |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind in sorted(tests):
        figures = [f"{tested[kind][tier]} | {differ[kind][tier]}" for tier in TIERS]
        rows.append(f"| {kind} | {tests[kind]} | {' | '.join(figures)} |")
    sums = [f"{sum(of[k][t] for k in tests)}" for t in TIERS for of in (tested, differ)]
    rows.append(f"| **all** | {sum(tests.values())} | {' | '.join(sums)} |")
    return "\n".join(rows)


def main(names: list[str]) -> None:
    """Print the table of the files named, or of this commit's."""
    lines: dict[str, dict[str, Any]] = {}
    for path in [Path(name) for name in names] or [record_path()]:
        lines |= results(path)
    print(table(lines.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
