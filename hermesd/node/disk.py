"""What tells this node's state directory from any other that it ever has.

Rule: made once, with the directory; who finds another one knows that all files are gone. It begins
with a mark of where the directory was made: a daemon ends what ran of one that was in the same
place, and leaves alone what is in another.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path


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
