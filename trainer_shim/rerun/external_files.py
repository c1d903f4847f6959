"""Protects files outside of the working directory that the program writes from its re-run.

Others may write to them too, so none is moved, and none that is appended to is cut. When the
program is run again, it gets a scratch file in place of each file that it had opened for writing
before its checkpoint. Once it is back there, what it has open is the file itself, at its earlier
position.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import functools
import hashlib
import io
import os
import shutil
from typing import Any, Callable

from trainer_shim.rerun import open_writers

# At the checkpoint: size and position of a file that was open, none of one that was not there.
Places = dict[str, "list[int] | None"]

MOST = 1_000
_CHANGING = set("wax+")
_LARGEST_COPY_BYTES = 64 << 20
_PLACES = {"remove": 1, "unlink": 1, "truncate": 1, "rename": 2, "replace": 2, "rmtree": 1}
_NAMES = (("path",), ("src", "dst"))


class ExternalFiles:
    """Those files of a program that works in `folder`; `scratch` is a folder that may be made."""

    def __init__(self, folder: str, scratch: str) -> None:
        self.written: Places = {}
        self._folder = os.path.realpath(folder)
        self._scratch = os.path.realpath(scratch)
        self._told: Places = {}
        self._reals: dict[str, str] = {}  # by their scratch files
        self._process = os.getpid()
        self._replaced: list[tuple[Any, str, Any]] = []

    def clear(self) -> None:
        """Forget what a re-run that came to nothing has written."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def watch(self, told: Places | None) -> None:
        """The program begins; `told` is what `written` was at its checkpoint, None without one."""
        self._process, self._told = os.getpid(), dict(told or {})
        self.written.update(self._told)
        opening, by_flags = io.open, os.open

        @functools.wraps(opening)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            path = self._outside(file) if isinstance(mode, str) else ""
            if not path:
                return opening(file, mode, *args, **kwargs)
            changes = not _CHANGING.isdisjoint(mode)
            instead = self._instead(path, changes, begins=mode[0] in "wx")
            opened = opening(instead or file, mode, *args, **kwargs)
            if changes:
                self._note(path)
            return opened

        @functools.wraps(by_flags)
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            is_plain = kwargs.get("dir_fd") is None and flags & os.O_TMPFILE != os.O_TMPFILE
            whole = self._outside(path) if is_plain else ""
            if not whole:
                return by_flags(path, flags, *args, **kwargs)
            changes = flags & os.O_ACCMODE != os.O_RDONLY
            begins = bool(flags & (os.O_TRUNC | os.O_EXCL))
            instead = self._instead(whole, changes, begins)
            fd = by_flags(instead or path, flags, *args, **kwargs)
            if changes:
                self._note(whole)
            return fd

        builtins.open = io.open = open
        os.open = os_open
        for name in ("rename", "replace"):
            setattr(os, name, self._noting(getattr(os, name)))
        if self._told:
            for name, count in _PLACES.items():
                self._guard(shutil if name == "rmtree" else os, name, _NAMES[count - 1])

    def at(self, opened: dict[int, str]) -> Places:
        """What was written so far; the places of those that are `opened`, by their descriptors."""
        said: Places = {one: None if os.path.isfile(one) else [] for one in self.written}
        for fd, path in opened.items():
            if path in said:
                with contextlib.suppress(OSError):
                    said[path] = [os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)]
        return said

    def back(self) -> None:
        """The program is where its checkpoint was taken."""
        told, self._told = self._told, {}
        for owner, name, original in self._replaced:
            setattr(owner, name, original)
        for fd, path in open_writers.flush(self._scratch).items():
            real = self._reals.get(path)
            with contextlib.suppress(OSError):
                if real is not None:
                    _become(fd, real, told.get(real))
        self.clear()

    def _noting(self, renaming: Callable[..., None]) -> Callable[..., None]:
        """A file that was written under another name, to be whole at once, is written, too."""

        @functools.wraps(renaming)
        def function(src: Any, dst: Any, **kwargs: Any) -> None:
            renaming(src, dst, **kwargs)
            if not kwargs and self._outside(src) in self.written:
                self._note(self._outside(dst))

        return function

    def _guard(self, owner: Any, name: str, places: tuple[str, ...]) -> None:
        """Have a function that changes files change the scratch files instead."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for at, place in enumerate(places):
                if at < len(given):
                    given[at] = self._guarded(given[at])
                elif place in kwargs:
                    kwargs[place] = self._guarded(kwargs[place])
            if owner is shutil and self._is_above(*given[:1], **kwargs):
                return None  # it holds what training has written: it is as good as anew
            return original(*given, **kwargs)

        self._replaced.append((owner, name, original))
        setattr(owner, name, function)

    def _guarded(self, path: Any) -> Any:
        whole = self._outside(path)
        return (self._instead(whole, True, begins=False) if whole else None) or path

    def _is_above(self, path: Any = "", **_: Any) -> bool:
        whole = self._outside(path)
        return bool(whole) and any(one.startswith(whole + os.sep) for one in self._told)

    def _instead(self, path: str, changes: bool, begins: bool) -> str | None:
        """The scratch file in place of this one; None if it may be had itself."""
        if path not in self._told:
            return None
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        scratch = os.path.join(self._scratch, f"{name}-{os.path.basename(path)}"[:200])
        if os.path.lexists(scratch):
            return scratch
        is_there = os.path.isfile(path)
        if not changes or not (is_there or self._told[path] == []):
            return None
        os.makedirs(self._scratch, exist_ok=True)
        self._reals[scratch] = path
        if is_there and not begins:
            with _opening(path, "rb") as source, _opening(scratch, "wb") as target:
                if os.path.getsize(path) <= _LARGEST_COPY_BYTES:
                    shutil.copyfileobj(source, target)
        return scratch

    def _note(self, path: str) -> None:
        if path not in self.written and len(self.written) < MOST and os.path.isfile(path):
            self.written[path] = None

    def _outside(self, path: Any) -> str:
        """The whole path of what lies neither in the working directory nor in ours; else empty."""
        if os.getpid() != self._process or not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        whole = os.path.realpath(os.fsdecode(path))
        ours = (self._folder, os.path.dirname(self._scratch), "/dev", "/proc", "/sys")
        return "" if whole.startswith(tuple(one + os.sep for one in ours)) else whole


# As it is before a program is run.
_opening = io.open


def _become(fd: int, real: str, place: list[int] | None) -> None:
    """Have a descriptor, and what Python has made on it, be this file at this place, or its end."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
    opened = os.open(real, flags | os.O_CLOEXEC)
    try:
        os.dup2(opened, fd, inheritable=os.get_inheritable(fd))
    finally:
        os.close(opened)
    size = position = os.fstat(fd).st_size
    if place and not flags & os.O_APPEND:
        position = min(place[1], size)
        if size > place[0]:
            os.ftruncate(fd, place[0])  # it has begun this file itself
    open_writers.move(fd, position)
