"""The rows that a program adds to its CSV and JSONL files, as metrics of the trial's current step.

Only rows that are added while it trains are read, and only of a file that grows row by row or
counts epochs or steps. Data that were there before, and other tables that are written at once, are
no metrics. Files are looked at between two steps, or by the clock if there are none. The folder is
searched for new ones for a hundredth of the program's time, and whenever the program is held, saved
or ends.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import time
from collections.abc import Iterator
from typing import Callable

from trainer_shim.metrics.lines import from_json, is_metric, number_in

_KINDS = (".csv", ".jsonl", ".ndjson")
_MOST_ENTRIES, _DEEPEST = 2_000, 3  # of the folders that are looked through
_MOST_BYTES = 64 << 10  # that a log grows by between two looks
_MOST_COLUMNS = 200
# A column, or a key of a JSON object, that only a log of a training has.
_COUNTS = re.compile(
    r"""(?:^|[,"])\s*(?:epochs?|(?:global_)?steps?|iter(?:ation)?s?)\s*(?:[,"]|$)""", re.IGNORECASE
)
# All searches may take this much time, and this share of what the program takes.
_ALLOWED_SECONDS, _SHARE = 0.25, 0.01


class GrowingFiles:
    """Those below `folder`; `tell(values)` is told of each that has grown."""

    def __init__(self, folder: str, tell: Callable[[dict[str, float]], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._files: dict[str, _File] = {}
        self._spent, self._began = 0.0, time.perf_counter()

    def begin(self, began_at: float = math.inf) -> None:
        """What the files held by then, in seconds of the Epoch, was not written by the training
        that begins; without a time, what they hold by now."""
        self._files = {
            path: _File(path, there=True) for path in self._found() if _written(path) < began_at
        }

    def look(self, is_last: bool = True) -> None:
        """Tell what the newest row of each file says that has grown since the last look; new files
        may wait, unless it is the last look for now."""
        began = time.perf_counter()
        if is_last or self._spent <= _ALLOWED_SECONDS + _SHARE * (began - self._began):
            for path in self._found():
                self._files.setdefault(path, _File(path))
            self._spent += time.perf_counter() - began
        for known in self._files.values():
            with contextlib.suppress(Exception):  # training does not end for its metrics
                if values := known.grown():
                    self._tell(values)

    def _found(self) -> list[str]:
        return list(_logs(self._folder))


class _File:
    """One file; what was `there` before is passed over."""

    def __init__(self, path: str, there: bool = False) -> None:
        self._path = path
        self._read_bytes = 0
        self._has_begun = there
        if there:
            with contextlib.suppress(OSError):
                self._read_bytes = os.stat(path).st_size

    def grown(self) -> dict[str, float]:
        """The numbers of the last whole row that was added. What can't be read is passed over.

        Raises OSError, ValueError.
        """
        size = os.stat(self._path).st_size
        if size < self._read_bytes:
            self._read_bytes, self._has_begun = 0, False  # it was begun anew
        if size == self._read_bytes:
            return {}
        if size - self._read_bytes > _MOST_BYTES:
            self._read_bytes = size
            return {}
        with open(self._path, "rb") as file:
            header = file.readline(_MOST_BYTES)
            file.seek(self._read_bytes)
            whole = file.read(size - self._read_bytes).rpartition(b"\n")[0]
        if not whole:
            return {}
        is_csv = self._path.endswith(".csv")
        has_header = is_csv and self._read_bytes == 0
        grows, self._has_begun = self._has_begun, True
        self._read_bytes += len(whole) + 1
        rows = whole.decode().splitlines()[has_header:]
        if not rows:
            return {}
        # A table that is there at once may be anything, unless it counts epochs or steps; one that
        # grows is a log.
        names = header.decode() if is_csv else rows[-1]
        if len(rows) > 1 and not grows and not _COUNTS.search(names):
            return {}
        values = _cells(header.decode(), rows[-1]) if is_csv else from_json(rows[-1]) or {}
        return {name: value for name, value in values.items() if is_metric(name)}


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return math.inf


def _cells(header: str, row: str) -> dict[str, float]:
    """The numbers of a row by their columns; none if the first row names none, or is no CSV."""
    try:
        names, cells = next(csv.reader([header]), []), next(csv.reader([row]), [])
    except csv.Error:
        return {}
    if len(names) != len(cells) or len(names) > _MOST_COLUMNS:
        return {}
    if any(not name or number_in(name) is not None for name in names[1:]):
        return {}  # pandas writes the index without a name, in the first column
    numbers = ((name, number_in(cell)) for name, cell in zip(names, cells) if name)
    return {name: number for name, number in numbers if number is not None}


def _logs(folder: str, depth: int = 0) -> Iterator[str]:
    """The files of these kinds below a folder, no links, none in hidden folders."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES:
                break
            if entry.name.endswith(_KINDS) and entry.is_file(follow_symlinks=False):
                yield entry.path
            elif entry.name.startswith(".") or depth == _DEEPEST:
                continue
            elif entry.is_dir(follow_symlinks=False):
                yield from _logs(entry.path, depth + 1)
