"""The files of a working copy: which of them a pattern is about, and which outlive it.

Only a regular file is one, and nothing behind a link.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from hermesd.node import deep_trees
from hermesd.node.storage.trial_folder import TrialFolder


def matching(root: Path, patterns: Collection[str]) -> list[str]:
    """The files below `root` by their paths in it: those that a pattern fits, and those in a folder
    that one does; without patterns all."""
    found = []
    for entry in deep_trees.walk(root):
        if entry.is_file(follow_symlinks=False):
            name = os.path.relpath(entry.path, root)
            if not patterns or any(_fits(name, pattern) for pattern in patterns):
                found.append(name)
    return sorted(found)


def set_aside(folder: TrialFolder, patterns: Sequence[str]) -> None:
    """Have the files of the working copy that these patterns fit lie in the trial's `keep`, for the
    working copy goes. Raises OSError."""
    for name in matching(folder.work, patterns) if patterns else ():
        kept = folder.keep / name
        deep_trees.make(kept.parent)
        os.replace(folder.work / name, kept)


def _fits(name: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    if name == pattern or name.startswith(f"{pattern}/"):
        return True
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}/*")
