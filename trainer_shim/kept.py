"""Files that a program has written, kept from the program run again from its first line.

Rule: until it is back at its checkpoint, what it would truncate, overwrite, rename or remove is set
aside just before; then each file is put back, a log cut to what it was at the checkpoint, and what
the program has opened goes on from there. Only files below the working directory are looked after.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import json
import os
import shutil
from typing import Any, Callable

from trainer_shim import writers

NAME = ".hermes-files.json"  # in a checkpoint; hidden, for some are their authors' own
_CHANGING = set("wax+")
_CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_RELATIVE = ("dir_fd", "src_dir_fd", "dst_dir_fd")


class Files:
    """What the program writes in `folder`; what a re-run must not touch waits in `aside`."""

    def __init__(self, folder: str, aside: str) -> None:
        self._folder = os.path.realpath(folder)
        self._aside = aside
        self._made: set[str] = set()  # folders that the program has made
        self._logs: dict[str, list[int]] = {}  # open at the checkpoint: size and position
        self._own: set[str] = set()  # of the re-run: touched by it already
        self._originals: list[tuple[Any, str, Any]] = []
        self._returning = False

    def record(self) -> bytes:
        """Have what the program has written so far reach its files, and tell how long those are
        that it has open; empty if there is nothing to tell."""
        logs: dict[str, list[int]] = {}
        for fd, path in writers.flush(self._folder).items():
            with contextlib.suppress(OSError):
                logs[self._named(path)] = [os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)]
        if not logs and not self._made:
            return b""
        return json.dumps({"logs": logs, "folders": sorted(self._made)}).encode()

    # -- from the program's first line to its checkpoint's place ----------------------------------

    def begin(self, checkpoint: str | None) -> None:
        """Watch the folders that the program makes; before a checkpoint is come to, keep what it
        has written."""
        if checkpoint is None:
            shutil.rmtree(self._aside, ignore_errors=True)
        else:
            self._put_back_files()  # of a re-run that came to nothing
            self._read(os.path.join(checkpoint, NAME))
            self._returning = True
            self._hook()
        original = os.mkdir

        @functools.wraps(original)
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            name = self._named(path) if kwargs.get("dir_fd") is None else ""
            if self._returning and name in self._made and os.path.isdir(path):
                return  # it made the same one before the checkpoint
            original(path, *args, **kwargs)
            if name:
                self._made.add(name)

        os.mkdir = mkdir

    def put_back(self) -> None:
        """The program is back: its files are what they were at the checkpoint."""
        if not self._returning:
            return
        self._returning = False
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        opened = writers.flush(self._folder)
        self._put_back_files(set(opened.values()))
        for name, (size, _) in self._logs.items():
            path = os.path.join(self._folder, name)
            if os.path.isfile(path) and os.path.getsize(path) > size:
                os.truncate(path, size)
        for fd, path in opened.items():
            _, position = self._logs.get(self._named(path), (0, os.fstat(fd).st_size))
            writers.move(fd, position)

    def _read(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            written = json.load(file)
            self._logs, self._made = written["logs"], set(written["folders"])

    def _put_back_files(self, opened: set[str] | None = None) -> None:
        """Put back each file that was set aside; into the same file, where that is open."""
        for folder, _, names in os.walk(self._aside):
            for file_name in names:
                kept = os.path.join(folder, file_name)
                name = os.path.relpath(kept, self._aside)
                path = os.path.join(self._folder, name)
                if name in self._logs and os.path.getsize(kept) > self._logs[name][0]:
                    os.truncate(kept, self._logs[name][0])
                if path in (opened or ()):
                    shutil.copyfile(kept, path)
                    os.unlink(kept)
                else:
                    _move(kept, path)
        shutil.rmtree(self._aside, ignore_errors=True)

    # -- what a re-run does ------------------------------------------------------------------------

    def _hook(self) -> None:
        opening, by_flags = io.open, os.open

        @functools.wraps(opening)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and not _CHANGING.isdisjoint(mode):
                self._set_aside(file, _move if mode[0] in "wx" else shutil.copy2)
            return opening(file, mode, *args, **kwargs)

        @functools.wraps(by_flags)
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & _CHANGING_FLAGS and kwargs.get("dir_fd") is None:
                makes = os.O_CREAT | (os.O_EXCL if flags & os.O_EXCL else os.O_TRUNC)
                self._set_aside(path, _move if flags & makes == makes else shutil.copy2)
            return by_flags(path, flags, *args, **kwargs)

        for owner, name in ((builtins, "open"), (io, "open")):
            self._replace(owner, name, open)
        self._replace(os, "open", os_open)
        self._before(os, "truncate", lambda path: self._set_aside(path, shutil.copy2))
        for name in ("remove", "unlink"):
            self._before(os, name, lambda path: self._set_aside(path, _link))
        for name in ("rename", "replace"):
            self._before(os, name, self._both_aside)
        self._before(shutil, "rmtree", self._tree_aside)

    def _replace(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def _before(self, owner: Any, name: str, first: Callable[..., None]) -> None:
        """Have `first(path, ...)` called before a function that takes paths first."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            if not any(
                key.endswith("dir_fd") and value is not None for key, value in kwargs.items()
            ):
                first(*args[: 2 if first == self._both_aside else 1])
            return original(*args, **kwargs)

        self._replace(owner, name, function)

    def _both_aside(self, *paths: Any) -> None:
        for path in paths:
            self._set_aside(path, _link)

    def _tree_aside(self, *paths: Any) -> None:
        for path in paths:
            for folder, _, names in os.walk(path):
                for name in names:
                    self._set_aside(os.path.join(folder, name), _link)

    def _set_aside(self, path: Any, how: Callable[[str, str], Any]) -> None:
        """Keep a file that the re-run is about to change, unless that is done or it is its own."""
        name = self._named(path)
        if not name or name in self._own or not self._returning:
            return
        self._own.add(name)
        whole, kept = os.path.join(self._folder, name), os.path.join(self._aside, name)
        if os.path.isfile(whole) and not os.path.exists(kept):
            with contextlib.suppress(OSError):  # what cannot be kept is the program's to lose
                how(whole, _with_folder(kept))

    def _named(self, path: Any) -> str:
        """A path relative to the working directory; empty if it is none, or lies elsewhere."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        whole = os.path.realpath(os.fsdecode(path))
        inside = whole.startswith(self._folder + os.sep)
        return whole[len(self._folder) + 1 :] if inside else ""


# As they are before a program is run: a re-run's own changes go through what is hooked.
_replace, _make_link, _unlink = os.replace, os.link, os.unlink


def _with_folder(path: str) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _move(source: str, target: str) -> None:
    try:
        _replace(source, _with_folder(target))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)
        _unlink(source)


def _link(source: str, target: str) -> None:
    try:
        _make_link(source, target)
    except OSError:
        shutil.copy2(source, target)
