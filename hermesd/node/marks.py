"""What tells this machine from every other, as far as it can be told without rights.

Rule: a machine keeps at least one of its marks over a boot, also where it has no disk; a directory
that is copied to another machine takes none along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path


def marks_of_machine(root: Path = Path("/")) -> tuple[str, ...]:
    """Hashes, since the marks themselves are for nobody else."""
    return tuple(sorted({hashlib.sha256(mark.encode()).hexdigest()[:32] for mark in _marks(root)}))


def _marks(root: Path) -> Iterator[str]:
    paths = [root / "etc/machine-id"]
    # Of real network cards: what containers are given changes from start to start.
    paths += [card.parent / "address" for card in (root / "sys/class/net").glob("*/device")]
    for path in paths:
        try:
            mark = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if mark:
            yield f"{path.name} {mark}"
