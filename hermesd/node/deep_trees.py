"""Directory trees made by programs, which may be deeper than Python's own functions can handle."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PARTIAL = "partial-"  # begins the name of a tree that is not whole yet, or no more


def walk(root: str | Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `root` but the directories themselves; links are not followed, and what
    can't be listed is left out. (`os.walk` and `rglob` call themselves for each level.)"""
    pending = [os.fspath(root)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry


def make(path: Path) -> None:
    """Have a directory and those above it. (`mkdir(parents=True)` calls itself for each level.)

    Raises OSError.
    """
    missing: list[Path] = []
    for folder in (path, *path.parents):
        if folder.is_dir():
            break
        missing.append(folder)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Remove a tree as far as that is possible; blocks."""
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    # What is left is too deep for a stack, or for a descriptor for each level.
    with suppress(OSError, RecursionError):
        _flatten(path)
        shutil.rmtree(path, ignore_errors=True)


def _flatten(root: Path) -> None:
    """Have every directory of a tree lie in `root` itself, and remove it once it is empty. Whatever
    becomes of names meanwhile, nothing outside is touched. Raises OSError."""
    top = os.open(root, _FOLDER)
    try:
        pending = [entry.name for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
        while pending:
            folder = pending.pop()
            with suppress(OSError):
                pending += _emptied(folder, top)
            with suppress(OSError):
                os.rmdir(folder, dir_fd=top)
    finally:
        os.close(top)


def _emptied(folder: str, top: int) -> list[str]:
    """Remove the files in a directory of `top`; its directories lie in `top` then, by these names.
    Raises OSError."""
    moved = []
    inner = os.open(folder, _FOLDER, dir_fd=top)
    try:
        for entry in list(os.scandir(inner)):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    name = secrets.token_hex(8)
                    os.rename(entry.name, name, src_dir_fd=inner, dst_dir_fd=top)
                    moved.append(name)
                else:
                    os.unlink(entry.name, dir_fd=inner)
    finally:
        os.close(inner)
    return moved
