"""Protects files that a program has written from the program when it is run again.

What training has written is out of its way when it begins again. Until it is back at its
checkpoint, whatever it would truncate, overwrite, rename or remove is set aside just before. Then
each file is put back, a log is cut to what it was at the checkpoint, and files that the program has
opened continue from there. Only files below the working directory are looked after.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import json
import mmap
import os
import shutil
import sys
from typing import Any, Callable

from trainer_shim import file_moves
from trainer_shim.rerun import databases, open_writers
from trainer_shim.rerun.external_files import ExternalFiles, Places
from trainer_shim.rerun.workdir_baseline import WorkdirBaseline

NAME = ".hermes-files.json"  # in a checkpoint; hidden, for some are their authors' own
EARLIER = ".earlier"  # what a file held that another process of the trial has begun anew
Keeping = Callable[[str, str], Any]
_NONE: set[str] = set()
_MOST_FOLDERS = 10_000
_CHANGING = set("wax+")
_CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_RELATIVE = ("dir_fd", "src_dir_fd", "dst_dir_fd")


def aside(checkpoints: str) -> str:
    """Where files wait, of the trial that has its checkpoints there."""
    return os.path.join(os.path.dirname(os.path.abspath(checkpoints)), "kept")


class WorkdirRollback:
    """What the program writes in `folder`; what a re-run must not touch waits in `aside`."""

    def __init__(self, folder: str, aside: str) -> None:
        self._folder = os.path.realpath(folder)
        self._aside = aside
        self._found = WorkdirBaseline(self._folder, f"{aside}.found")
        self._elsewhere = ExternalFiles(folder, f"{aside}.elsewhere")
        self._appended: set[str] = set()  # files that the program has opened to add to them
        self._made: set[str] = set()  # folders that the program has made
        self.others: set[str] = set()  # of its own, made by a beginning run again and not at first
        self._logs: dict[str, list[int]] = {}  # open at the checkpoint: size and position
        self._own: set[str] = set()  # of the re-run: touched by it already
        self._originals: list[tuple[Any, str, Any]] = []
        # Seen by the processes that the program forks, too.
        self._returns = mmap.mmap(-1, 1)
        self._trains = False

    @property
    def _returning(self) -> bool:
        return self._returns[0] == 1

    @_returning.setter
    def _returning(self, is_so: bool) -> None:
        self._returns[0] = is_so

    def record(self) -> bytes:
        """Have what the program has written so far reach its files, and tell how long those are
        that it has open or adds to; empty if there is nothing to tell."""
        logs: dict[str, list[int]] = {}
        for name in self._appended:
            with contextlib.suppress(OSError):
                size = os.stat(os.path.join(self._folder, name)).st_size
                logs[name] = [size, size]
        opened = open_writers.flush(self._folder, self._elsewhere.written)
        elsewhere = self._elsewhere.at(opened)
        for fd, path in opened.items():
            with contextlib.suppress(OSError):
                if path in elsewhere or databases.is_open(fd, path):
                    continue
                logs[self._named(path)] = [os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)]
        if not logs and not self._made and not elsewhere:
            return b""
        said = {"logs": logs, "folders": sorted(self._made), "appended": sorted(self._appended)}
        said |= {"elsewhere": elsewhere, "others": sorted(self.others)}
        return json.dumps(said).encode()

    # From the program's first line to its checkpoint's place.

    def clear(self, is_anew: bool) -> None:
        """Before the program, and what it is started by: have the folder look as at its beginning,
        if it is not `is_anew` that it begins."""
        if is_anew:
            file_moves.remove_tree(self._aside)
        else:
            self.return_all()  # of a re-run that came to nothing
        self._elsewhere.clear()
        self._found.note(is_anew)
        made, changed = self._found.since()
        for name in made:
            # A database that stays would be torn without what lies beside it.
            stays = databases.beside(os.path.join(self._folder, name))
            (file_moves.copy if stays else file_moves.move)(
                os.path.join(self._folder, name), os.path.join(self._aside, name)
            )
        for name in changed:
            file_moves.copy(os.path.join(self._folder, name), os.path.join(self._aside, name))

    def training(self) -> None:
        """The program trains from here on; run again, it has passed what it had trained before:
        what it may look for now is there again, if it has not made that anew."""
        if self._trains:
            return
        self._trains = True
        opened = {self._named(path) for path in open_writers.logs(self._folder)}
        self._found.training(opened | self._appended)
        if self._returning:
            self._returning = False  # this is none of the program's own doing
            self._put_back_files(missing_only=True)
            self._returning = True

    def begin(self, checkpoint: str | None) -> None:
        """Watch the folders that the program makes and the logs that it adds to; before a
        checkpoint is come to, keep what it has written."""
        told = None
        if checkpoint is not None:
            told = self._read(os.path.join(checkpoint, NAME))
            self._returning = True
        self._elsewhere.watch(told)
        self._watch_appending()
        if checkpoint is not None:
            self._hook()
        original = os.mkdir

        @functools.wraps(original)
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            name = self._named(path, anywhere=True) if kwargs.get("dir_fd") is None else ""
            if self._returning and name in self._made and os.path.isdir(path):
                return  # it made the same one before the checkpoint
            original(path, *args, **kwargs)
            if name and len(self._made) < _MOST_FOLDERS:
                if self._returning and not self._trains and not os.path.isabs(name):
                    self.others |= {name} - self._made
                self._made.add(name)

        os.mkdir = mkdir

    def put_back(self) -> None:
        """The program is back: its files are what they were at the checkpoint."""
        if not self._returning:
            return
        self._returning = False
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._elsewhere.back()
        opened = open_writers.flush(self._folder)
        self._put_back_files(set(opened.values()), open_writers.held_by_others(self._folder))
        for name, (size, _) in self._logs.items():
            file_moves.cut(os.path.join(self._folder, name), size)
        for fd, path in opened.items():
            with contextlib.suppress(OSError):  # closed since, by another thread of the program
                there = os.fstat(fd).st_size
                size, position = self._logs.get(self._named(path), (there, there))
                if open_writers.path_of(fd) == path and not databases.is_open(fd, path):
                    # Less than there was has been lost by somebody else: no hole is left then.
                    open_writers.move(fd, position if there >= size else min(position, there))

    def _read(self, path: str) -> Places:
        """What a checkpoint says; that of files outside of the folder."""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            written = json.load(file)
            self._logs, self._made = written["logs"], set(written["folders"])
            for name in list(self._logs):  # of a checkpoint of before databases were known
                places = (os.path.join(place, name) for place in (self._folder, self._aside))
                if any(databases.is_one(one) or databases.beside(one) for one in places):
                    del self._logs[name]
            self._appended = set(written.get("appended", ()))
            self.others = set(written.get("others", ()))
            elsewhere: Places = written.get("elsewhere", {})
            return elsewhere
        return {}

    def return_all(self) -> None:
        """Put back what was set aside of a program that is no more."""
        self._put_back_files()

    def _put_back_files(
        self, opened: set[str] = _NONE, held: set[str] = _NONE, missing_only: bool = False
    ) -> None:
        """Put back each file that was set aside; into the same file, where that is `opened`, and
        beside one that another process is writing to."""
        for folder, folders, names in file_moves.walk(self._aside):
            inside = os.path.normpath(
                os.path.join(self._folder, os.path.relpath(folder, self._aside))
            )
            if not os.path.isdir(inside):  # seldom, for the program has usually made it again
                os.makedirs(inside, exist_ok=True)
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for file_name in sorted((*names, *links), reverse=True):  # what is beside it first
                kept, path = os.path.join(folder, file_name), os.path.join(inside, file_name)
                if missing_only and os.path.lexists(path):
                    continue
                if databases.beside(kept):
                    continue  # it comes back with its database
                if databases.is_one(kept):
                    databases.put_back(kept, path, path in opened | held, path + EARLIER)
                    continue
                size = self._logs.get(os.path.relpath(kept, self._aside), (sys.maxsize, 0))[0]
                file_moves.cut(kept, size)
                if path in opened:
                    shutil.copyfile(kept, path)
                elif path in held:
                    with (
                        file_moves.opening(kept, "rb") as before,
                        file_moves.opening(path + EARLIER, "ab") as beside,
                    ):
                        shutil.copyfileobj(before, beside)
                else:
                    file_moves.move(kept, path)
        if not missing_only:
            file_moves.remove_tree(self._aside)

    # What a re-run does.

    def _watch_appending(self) -> None:
        """For good: such a file is longer at each checkpoint, whether it is open then or not."""
        opening, by_flags = io.open, os.open

        @functools.wraps(opening)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and "a" in mode and (name := self._named(file)):
                self._appended.add(name)
            return opening(file, mode, *args, **kwargs)

        @functools.wraps(by_flags)
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            is_relative = kwargs.get("dir_fd") is not None
            if flags & os.O_APPEND and not is_relative and (name := self._named(path)):
                self._appended.add(name)
            return by_flags(path, flags, *args, **kwargs)

        builtins.open = io.open = open
        os.open = os_open

    def _hook(self) -> None:
        opening, by_flags = io.open, os.open

        @functools.wraps(opening)
        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and not _CHANGING.isdisjoint(mode):
                self._set_aside(file, file_moves.move if mode[0] in "wx" else file_moves.copy)
            return opening(file, mode, *args, **kwargs)

        @functools.wraps(by_flags)
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & _CHANGING_FLAGS and kwargs.get("dir_fd") is None:
                makes = os.O_CREAT | (os.O_EXCL if flags & os.O_EXCL else os.O_TRUNC)
                self._set_aside(
                    path, file_moves.move if flags & makes == makes else file_moves.copy
                )
            return by_flags(path, flags, *args, **kwargs)

        for owner, name in ((builtins, "open"), (io, "open")):
            self._replace(owner, name, open)
        self._replace(os, "open", os_open)
        self._before(os, "truncate", file_moves.copy)
        for name in ("remove", "unlink"):
            self._before(os, name, file_moves.link)
        for name in ("rename", "replace"):
            self._before(os, name, file_moves.link, "src", "dst")
        self._before(shutil, "rmtree", file_moves.link)

    def _replace(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def _before(self, owner: Any, name: str, how: Keeping, *places: str) -> None:
        """Have what lies at the paths that a function is given, in these places ("path"), or below
        them, set aside before."""
        original, places = getattr(owner, name), places or ("path",)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(places, args), **kwargs)
            if all(given.get(relative) is None for relative in _RELATIVE):
                for path in (given[place] for place in places if place in given):
                    for inside in file_moves.below(path) if owner is shutil else (path,):
                        self._set_aside(inside, how)
            return original(*args, **kwargs)

        self._replace(owner, name, function)

    def _set_aside(self, path: Any, how: Keeping) -> None:
        """Keep a file that the re-run is about to change, unless that is done or it is its own."""
        name = self._named(path)
        if not name or name in self._own or not self._returning:
            return
        self._own.add(name)
        whole, kept = os.path.join(self._folder, name), os.path.join(self._aside, name)
        if os.path.isfile(whole) and not os.path.exists(kept):
            with contextlib.suppress(OSError):  # what cannot be kept is the program's to lose
                how(whole, kept)

    def _named(self, path: Any, anywhere: bool = False) -> str:
        """A path relative to the working directory; empty if it is none, or lies elsewhere (or
        whole, if it may lie `anywhere`)."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        whole = os.path.realpath(os.fsdecode(path))
        inside = whole.startswith(self._folder + os.sep)
        return whole[len(self._folder) + 1 :] if inside else whole * anywhere
