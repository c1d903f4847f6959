"""What tells this node's state directory from any other that it ever has.

Rule: made once, with the directory; who finds another one knows that all files are gone.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def disk_of(state: Path) -> str:
    """The directory's own name; it is made if there is none. Raises OSError."""
    path = state / "disk"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with open(partial, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(16))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    return path.read_text(encoding="ascii")
