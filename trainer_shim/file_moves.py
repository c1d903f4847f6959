"""Moves, copies and cuts the files of a program.

It uses functions as they were before the program began, since the calls of a program that is run
again go through hooks.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterator
from typing import Any

_replace, _make_link, _remove, opening = os.replace, os.link, os.remove, io.open
_scan, _remove_shallow = os.scandir, shutil.rmtree


def move(source: str, target: str) -> None:
    """Have a file, or a folder, in another place, whose folders are made."""
    try:
        _replace(source, _with_folder(target))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)


def copy(source: str, target: str) -> None:
    """Have it in another place, too."""
    shutil.copy2(source, _with_folder(target), follow_symlinks=False)


def link(source: str, target: str) -> None:
    """Have a second name for a file; a copy where that cannot be."""
    _with_folder(target)
    try:
        _make_link(source, target)
    except OSError:
        shutil.copy2(source, target)


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        _remove(path)


def cut(path: str, size: int) -> None:
    """Shorten a file that is longer."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        if os.path.getsize(path) > size:
            os.truncate(path, size)


def below(path: Any) -> list[str]:
    """The files of a folder."""
    return [os.path.join(folder, name) for folder, _, names in walk(path) for name in names]


def walk(root: Any) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, which before Python 3.12 can't go deeper than the stack."""
    pending = [os.fsdecode(root)]
    while pending:
        path = pending.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with _scan(path) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else names).append(entry.name)
        except OSError:
            continue  # it went meanwhile, or nobody can look into it
        yield path, folders, names
        inside = (os.path.join(path, name) for name in reversed(folders))
        pending += (each for each in inside if not os.path.islink(each))


def remove_tree(path: str) -> None:
    """Remove a folder, however deep it is, as far as that is possible."""
    with contextlib.suppress(RecursionError):
        _remove_shallow(path, ignore_errors=True)
    if os.path.isdir(path):  # too deep for the stack, or for a descriptor for each level
        quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        with contextlib.suppress(OSError):
            command = ["rm", "-rf", "--", path]
            os.waitpid(os.posix_spawnp("rm", command, os.environ, file_actions=quiet), 0)


def free(path: str) -> str:
    """The path, or the first with a number after it that nothing lies at."""
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = f"{path}-{number}"
    return found


def _with_folder(path: str) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path
