"""Which versions talk to each other: the same major, minors at most one apart."""

from __future__ import annotations

import re


def compatible(ours: str, theirs: str) -> bool:
    """Whether two versions may work together; a version that is none is not."""
    pair = [re.match(r"(\d+)\.(\d+)", version) for version in (ours, theirs)]
    if pair[0] is None or pair[1] is None:
        return False
    (major, minor), (other_major, other_minor) = (map(int, m.groups()) for m in pair if m)
    return major == other_major and abs(minor - other_minor) <= 1
