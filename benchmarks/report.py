"""How every benchmark answers: a table for people, JSON for tools, and the machine they ran on."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
MOST_COLUMNS = 1_000


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def publish(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | float]],
    out: Path | None = None,
) -> None:
    """Print the table and the JSON, and keep the JSON in `out`, else in benchmarks/results/."""
    here = machine()
    table = Table(title=f"{name}  ({here['cpu']}, {here['cores']} cores)")
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    # A table is never cut: figures that people copy are whole.
    widest = Console(width=MOST_COLUMNS).measure(table).maximum
    Console(width=max(Console().width, widest)).print(table)
    result = {
        "benchmark": name,
        "machine": here,
        "rows": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    text = json.dumps(result, indent=1)
    print(text)
    out = out or RESULTS / f"{name}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(text + "\n")
