"""How much memory this machine lets us use: what it has, or what our cgroup may hold."""

from __future__ import annotations

import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# By version of cgroups: where our own path is, below what, and in which file.
_LIMITS = (("", "", "memory.max"), ("memory", "memory", "memory.limit_in_bytes"))


def usable_memory(groups: Path = GROUPS, own: str | None = None) -> int:
    """Bytes of memory: of the machine, or the smallest limit of our cgroup and those above it."""
    smallest = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = Path("/proc/self/cgroup").read_text() if own is None else own
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller, folder, name in _LIMITS:
            if controller not in controllers.split(","):
                continue
            root = groups / folder
            below = root / path.strip("/")
            for place in (below, *below.parents):
                if place.is_relative_to(root):
                    smallest = min(smallest, _limit(place / name) or smallest)
    return smallest


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
