"""A program's folder as the program found it: what was there at its first line, and when training
began.

What training has written was not there when the program began, so a program that is run again must
not find it if it asks whether a file exists. What the program made before training and has left
alone since, such as a download, is found, as when anybody runs the program twice. Empty folders do
not count as downloads, nor do logs: files that are open for writing or were appended to when
training begins.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection
from typing import Any

_EVENTS = ".tfevents."  # in the names of TensorBoard's logs, which it closes in between
# Of a file: size, time of its last change, and which file it is. Nothing of a folder.
Stamp = list[int]


class WorkdirBaseline:
    """What the program found in `folder`, remembered in the file `path` beside it."""

    def __init__(self, folder: str, path: str) -> None:
        self._folder = folder
        self._path = path

    def note(self, anew: bool) -> None:
        """The program has not begun; `anew` forgets what was there when it began before."""
        if anew or self._read() is None:
            self._write({"folder": self._identity(), "names": sorted(scan(self._folder))})

    def training(self, logs: Collection[str]) -> None:
        """The program is about to train, if it has not been in this folder before; `logs` are files
        that it goes on to write to, maybe only much later."""
        known = self._read()
        if known is not None and "prepared" not in known:
            there = scan(self._folder).items()
            logs = {*logs, *(name for name, _ in there if _EVENTS in name)}
            logs.difference_update(known["names"])  # an earlier program's may be left alone
            prepared = {name: stamp for name, stamp in there if name not in logs}
            self._write({**known, "prepared": prepared})

    def since(self) -> tuple[list[str], list[str]]:
        """What training has made, the outermost folders and files of it, and folders that were
        made for it and hold nothing yet; and which files it has changed that the program found."""
        known = self._read()
        if known is None or "prepared" not in known:
            return [], []
        names, prepared = set(known["names"]), known["prepared"]
        now = scan(self._folder)
        changed = [name for name, stamp in now.items() if prepared.get(name) != stamp]
        made = {_outermost(name, names) for name in changed if name not in names}
        full = [name for name, stamp in now.items() if any(stamp[:1])]
        holding = names.union(*map(_above, full))
        for name, stamp in now.items():
            if not stamp and name not in holding and _outermost(name, names) not in made:
                made.add(_outermost(name, holding))
        return sorted(made), [name for name in changed if name in names]

    def _identity(self) -> list[int]:
        """A folder that was made again is another one."""
        status = os.stat(self._folder)
        return [status.st_dev, status.st_ino]

    def _read(self) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError, ValueError), open(self._path) as file:
            known: dict[str, Any] = json.load(file)
            return known if known["folder"] == self._identity() else None
        return None

    def _write(self, known: dict[str, Any]) -> None:
        # Where there is no room for it, a re-run finds what there is; but it trains.
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w") as file:
                json.dump(known, file)
            os.replace(f"{self._path}.new", self._path)


def scan(folder: str) -> dict[str, Stamp]:
    """All that lies below `folder`, by its path there; links are not followed."""
    found: dict[str, Stamp] = {}
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, inside)) as entries:
            for entry in entries:
                name = os.path.join(inside, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    found[name] = []
                    waiting.append(name)
                    continue
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found[name] = [status.st_size, status.st_mtime_ns, status.st_ino]
    return found


def _outermost(name: str, names: set[str]) -> str:
    """The first part of a path that was not there before."""
    return next(path for path in (*_above(name), name) if path not in names)


def _above(name: str) -> list[str]:
    """The folders that a path lies in, the outermost first."""
    return [name[:place] for place, letter in enumerate(name) if letter == os.sep]
