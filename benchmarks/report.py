"""How every benchmark answers: a table for people, JSON for tools, and the machine they ran on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import packages_distributions, version
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
        **_gpu(),
    }


def _gpu() -> dict[str, str]:
    """The first GPU, if there is one."""
    try:
        import pynvml

        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
        return {"gpu": f"{name}, driver {pynvml.nvmlSystemGetDriverVersion()}"}
    except Exception:  # the library's own errors have no common type, and it may not be there
        return {}


def software(*modules: str) -> dict[str, str]:
    """The version of what provides each module that is installed, under the module's name."""
    providers = packages_distributions()
    return {module: version(providers[module][0]) for module in modules if module in providers}


def digest(text: str) -> str:
    """A short name for a program's text: another text has another."""
    return sha256(text.encode()).hexdigest()[:12]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there after a crash as it was before, or as it is to be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def must_agree(
    path: Path, was: Mapping[str, str | int], now: Mapping[str, str | int], advice: str
) -> None:
    """Raises SystemExit, naming what differs, if what is kept was measured otherwise than now."""
    others = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
    if others:
        then, today = (
            ", ".join(f"{key}={about.get(key)}" for key in others) for about in (was, now)
        )
        raise SystemExit(f"{path}: measured with {then}, now {today}; {advice}")


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
        if not self._path.exists():
            return
        if not resume:
            # Said before the first of them is replaced, which may be an hour from now.
            print(f"{self._path}: measured anew, as --resume was not given", file=sys.stderr)
            return
        kept = json.loads(self._path.read_text())
        advice = "leave --resume out to measure everything again, or move the file away to keep it"
        must_agree(self._path, kept["about"], self._about, advice)
        self._found = kept["figures"]

    def under(self, start: str) -> dict[str, dict[str, float]]:
        """All that were measured whose keys begin so, whenever that was."""
        return {key: each for key, each in self._found.items() if key.startswith(start)}

    def get(self, key: str) -> dict[str, float] | None:
        """What was measured before under this key."""
        return self._found.get(key)

    def keep(self, key: str, figures: dict[str, float]) -> None:
        """Write down what was measured."""
        self._found[key] = figures
        kept = {"about": self._about, "figures": self._found}
        write_whole(self._path, (json.dumps(kept, indent=1) + "\n").encode())


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
    write_whole(out, (text + "\n").encode())
