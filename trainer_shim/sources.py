"""Whose a source file is: the program's, or another's.

Rule: what Python has brought, what is installed as a package, and what is ours is another's.
"""

from __future__ import annotations

import functools
import os
import sysconfig

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def is_programs_own(file: str | None) -> bool:
    """Whether a source file is neither Python's, nor an installed package's, nor ours."""
    if file is None or file.startswith("<"):
        return False
    path = os.path.realpath(file)
    parts = path.split(os.sep)
    standard = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
    if "site-packages" in parts or "dist-packages" in parts:
        return False
    return not path.startswith((standard, _OURS))
