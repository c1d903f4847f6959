"""Directory trees made by programs, which may be deeper than Python's own functions can handle."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PARTIAL = "partial-"  # begins the name of a tree that is not whole yet, or no more


def walk(root: str | Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `root` but the directories themselves; links are not followed, and what
    can't be listed is left out. (`os.walk` and `rglob` call themselves for each level.)"""
    pending = [os.fspath(root)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry


def make(path: Path) -> None:
    """Have a directory and those above it. (`mkdir(parents=True)` calls itself for each level.)

    Raises OSError.
    """
    missing: list[Path] = []
    for folder in (path, *path.parents):
        if folder.is_dir():
            break
        missing.append(folder)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Remove a tree as far as that is possible; blocks. Raises OSError if nothing can be run."""
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    # What is left is too deep for a stack, or for a descriptor for each level.
    if path.is_dir() and not path.is_symlink():
        subprocess.run(
            ["rm", "-rf", "--", path], check=False, stdin=subprocess.DEVNULL, capture_output=True
        )
