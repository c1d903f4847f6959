"""Whose a source file is: the program's, or another's.

Rule: what Python has brought, what is installed as a package, and what is ours is another's; so is
what a compiler has made of the program's own.
"""

from __future__ import annotations

import functools
import os
import sysconfig

_INSTALLED = ("site-packages", "dist-packages")
_COMPILED = "torchinductor_"
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def is_programs_own(file: str | None) -> bool:
    """Whether a source file is neither Python's, nor an installed package's, nor ours."""
    if file is None or file.startswith("<"):
        return False
    path = os.path.realpath(file)
    parts = path.split(os.sep)
    standard = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
    if any(part in _INSTALLED or part.startswith(_COMPILED) for part in parts):
        return False
    return not path.startswith((standard, _OURS))
