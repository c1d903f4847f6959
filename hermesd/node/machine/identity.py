"""What distinguishes this machine from every other, as far as an ordinary user can tell.

A machine keeps at least one of its marks over a reboot, even if it has no disk; a directory that is
copied to another machine takes none along.
"""

from __future__ import annotations

import hashlib
import os
import secrets
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


# What tells this node's state directory from any other that it ever has.
#
# Made once, with the directory; who finds another one knows that all files are gone. It
# begins with a mark of where the directory was made: a daemon ends what ran of one that was in
# the same place, and leaves alone what is in another.


def disk_of(state: Path) -> str:
    """The directory's own name; it is made if there is none. Raises OSError."""
    path = state / "disk"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with open(partial, "w", encoding="ascii") as file:
            place = hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:8]
            file.write(f"{place}.{secrets.token_hex(16)}")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    return path.read_text(encoding="ascii")
