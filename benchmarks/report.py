"""How every benchmark answers: a table for people, JSON for tools, and the machine they ran on."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
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


class Figures:
    """Figures of a long benchmark, each on the disk at once, so that what was cut short can go on.

    A file of another machine, of other settings or of other versions is not gone on with.
    """

    def __init__(
        self, name: str, settings: Mapping[str, str | int], resume: bool, out: Path | None = None
    ) -> None:
        """Raises SystemExit if `resume` is asked for and what is kept was measured otherwise."""
        self._path = (out or RESULTS) / f"{name}.figures.json"
        self._about = {**machine(), **settings}
        self._found: dict[str, dict[str, float]] = {}
        if not resume or not self._path.exists():
            return
        kept = json.loads(self._path.read_text())
        others = sorted(
            key
            for key in kept["about"].keys() | self._about.keys()
            if kept["about"].get(key) != self._about.get(key)
        )
        if others:
            was, now = (
                ", ".join(f"{key}={about.get(key)}" for key in others)
                for about in (kept["about"], self._about)
            )
            raise SystemExit(f"{self._path}: measured with {was}, now {now}; leave --resume out")
        self._found = kept["figures"]

    def get(self, key: str) -> dict[str, float] | None:
        """What was measured before under this key."""
        return self._found.get(key)

    def keep(self, key: str, figures: dict[str, float]) -> None:
        """Write down what was measured."""
        self._found[key] = figures
        beside = self._path.with_suffix(".new")
        beside.parent.mkdir(exist_ok=True)
        with beside.open("w") as file:
            json.dump({"about": self._about, "figures": self._found}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


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
