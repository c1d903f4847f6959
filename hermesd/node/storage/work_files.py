"""The files of a working copy: which of them match a pattern, and which outlive the copy.

A file is a regular one, or a link to one within the working copy. Nothing outside counts: the
program may put a link in the place of any part of a path, at any time.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from hermesd.node import deep_trees
from hermesd.node.storage.trial_folder import TrialFolder

_LONGEST_PATH_BYTES = 4096  # that the system takes


def root_of(folder: TrialFolder, path: Path) -> Path:
    """The path of one of the trial's own directories without links: it is no link itself."""
    return folder.path.resolve() / path.name


def matching(root: Path, patterns: Collection[str]) -> list[str]:
    """The files below `root` by their paths in it: those that a pattern fits, and those in a folder
    that one does; without patterns all. A link to a folder counts as that one if it is named as it
    is, not by a pattern: it may lead to what it lies in. The path of `root` has no links."""
    found = set()
    named = [folder for pattern in patterns for folder in _links(root, _plain(pattern))]
    for top in (root, *(root / folder for folder in named)):
        for entry in deep_trees.walk(top):
            name = os.path.relpath(entry.path, root)
            if patterns and not any(_fits(name, pattern) for pattern in patterns):
                continue
            if entry.is_file(follow_symlinks=False) or _leads(root, name):
                found.add(name)
    return sorted(found)


def _links(root: Path, path: str) -> Iterator[str]:
    """Those of the folders on a path below `root` that are links and lead to a folder of it."""
    folders = (path, *map(str, PurePath(path).parents)) if len(path) < _LONGEST_PATH_BYTES else ()
    for folder in folders:
        place = root / folder
        # Which are false, too, for what is longer than the system takes.
        if os.path.islink(place) and os.path.isdir(place) and place.resolve().is_relative_to(root):
            yield folder


def opened(root: Path, name: str) -> int:
    """A descriptor to read a file below `root` by. Raises OSError if it is none any more."""
    with _held(root, name) as fd:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def set_aside(folder: TrialFolder, patterns: Sequence[str]) -> list[OSError]:
    """Have the files of the working copy that these patterns fit lie in the trial's `keep` as well,
    as the working copy is to go; why some of them cannot."""
    failed = []
    root = root_of(folder, folder.work)
    for name in matching(root, patterns) if patterns else ():
        kept = folder.keep / name
        try:
            with _held(root, name) as fd:
                deep_trees.make(kept.parent)
                kept.unlink(missing_ok=True)
                # By the descriptor, as the name may be another file's by now; it takes no space.
                os.link(f"/proc/self/fd/{fd}", kept, src_dir_fd=fd, follow_symlinks=True)
        except OSError as error:
            failed.append(error)
    return failed


@contextmanager
def _held(root: Path, name: str) -> Iterator[int]:
    """A descriptor that stands for a file below `root`, whatever becomes of its name. Raises
    OSError if there is none."""
    fd = os.open(root / name, os.O_PATH | os.O_CLOEXEC)  # which opens no device and no pipe
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        if not is_file or not os.readlink(f"/proc/self/fd/{fd}").startswith(f"{root}{os.sep}"):
            raise FileNotFoundError(2, "no file of the working copy", name)
        yield fd
    finally:
        os.close(fd)


def _leads(root: Path, name: str) -> bool:
    """Whether a link leads to a file below `root`."""
    with suppress(OSError), _held(root, name):
        return True
    return False


def _plain(pattern: str) -> str:
    return pattern.removeprefix("./").rstrip("/")


def _fits(name: str, pattern: str) -> bool:
    pattern = _plain(pattern)
    if name == pattern or name.startswith(f"{pattern}/"):
        return True
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}/*")
