"""Directories within each other, deeper than a path may be long or Python's own functions go."""

from __future__ import annotations

import os
from pathlib import Path

# More than the levels at which a function that calls itself for each gives up.
TOO_DEEP = 1500


def dig(root: Path, depth: int, file: str = "leaf.py") -> None:
    """Make `root`/d/d/d/..., `depth` times, with a file at its end."""
    root.mkdir(parents=True, exist_ok=True)
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
