"""Keeps the node within its disk budget: code snapshots, and what is deleted when the budget is
used up.

What is deleted can be had again: snapshots and virtual environments that no trial here needs, then
the working copies of completed trials, except for what their study keeps. Checkpoints, output and
the working copies of suspended trials stay. If they are too much, users who have more than an equal
share can start nothing here. The others can until they have theirs, so all together may take twice
the budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import grpc

from hermesd.logs import get_logger
from hermesd.node import deep_trees
from hermesd.node.clock import boottime
from hermesd.node.machine import venvs
from hermesd.node.machine.accounts import owned
from hermesd.node.storage import code, work_files
from hermesd.node.storage.trial_folder import TrialFolder, TrialFolders, UnreadableFolder
from hermesd.pb.hermes.v1 import node_pb2 as pb

# Adding up what everything takes costs a walk over all files.
_LOOK_SECONDS = 30.0
_MEASURE_SECONDS = 60.0
_FETCH_AGAIN_SECONDS = 1.0
# With these the head may be had again.
_AWAY = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED}
)

log = get_logger()


class DiskBudget:
    """Code snapshots by content under `root`/code, within a budget for all of `root`."""

    def __init__(
        self,
        root: Path,
        sockets: Path,
        budget_bytes: int,
        fetch: Callable[[str], AsyncIterator[bytes]],
        is_for_all: bool = False,
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Any account can read the snapshots that are `is_for_all`; `numbers` are those of users'
        accounts, as they are at any time."""
        self.code = root / "code"
        self.folders = TrialFolders(root / "trials", sockets)
        self._root = root
        self._budget = budget_bytes
        self._fetch = fetch
        self._is_for_all = is_for_all
        self._numbers = numbers
        self._fetching: dict[str, asyncio.Lock] = {}
        self._looked = 0.0
        # While the budget is used up: who has more of it than an equal share.
        self._full: dict[str, str] = {}
        self._used: int | None = None
        self._evictions = 0
        # Of the working copies that may go, what is kept of them.
        self._keeps: dict[Path, tuple[TrialFolder, tuple[str, ...]]] = {}
        for left in self.code.glob(f"{deep_trees.PARTIAL}*"):
            deep_trees.remove(left)
        for snapshot in _whole(self.code, code.is_snapshot) if is_for_all else ():
            code.make_readable(snapshot)

    async def snapshot(self, sha256: str, user: str = "") -> Path | None:
        """The unpacked snapshot of this name, None for the empty name, for a trial of the user;
        fetched from the head, however long it is away. Raises CodeError."""
        await self.room(user)
        if not sha256:
            return None
        while True:
            try:
                async with self._fetching.setdefault(sha256, asyncio.Lock()):
                    parts = self._fetch(sha256)
                    return await code.fetch(sha256, parts, self.code, self._is_for_all)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY:
                    raise code.CodeError(f"code snapshot {sha256}: {error.details()}") from None
            await asyncio.sleep(_FETCH_AGAIN_SECONDS)

    async def measure(self) -> None:
        """Add up what everything takes, now and then, for as long as this task lives."""
        while True:
            self._used = await asyncio.to_thread(_size, self._root)
            await asyncio.sleep(_MEASURE_SECONDS)

    def usage(self) -> pb.DiskUsage | None:
        """What was found last; None if nothing was added up yet."""
        if self._used is None:
            return None
        return pb.DiskUsage(
            used_bytes=self._used, budget_bytes=self._budget, evictions=self._evictions
        )

    async def room(self, user: str = "") -> None:
        """See that the budget is kept, as far as files can be had again. Raises CodeError where it
        is not, if the user has more than an equal share of it."""
        if boottime() - self._looked >= _LOOK_SECONDS:
            await asyncio.to_thread(self._make_room)
            self._looked = boottime()
        if (reason := self._full.get(user)) is not None:
            raise code.CodeError(reason)

    def _make_room(self) -> None:
        self._full = {}
        used = self._used = _size(self._root)
        for path in self._dispensable() if used > self._budget else ():
            try:
                used -= self._evict(path)
            except OSError as error:  # a program may have put anything there
                log.warning("not removed", path=str(path), why=str(error))
            self._used = used
            if used <= self._budget:
                return
        if used > self._budget:
            words = (
                f"disk_budget_bytes = {self._budget}: {used} bytes are in use under {self._root}"
            )
            users = self._users()
            share = self._budget // max(1, len(users))
            self._full = {
                user: f"{words}, {size} of them by {user or 'one user'}, in trials, environments"
                " and the home of their programs; remove finished studies or raise the budget"
                for user, size in users.items()
                if size > share or len(users) == 1
            }

    def _evict(self, path: Path) -> int:
        """Remove what can be had again, less what is kept of it; how many bytes that has freed."""
        # What lies in a folder of a trial is removed as its program's account may.
        keeps = self._keeps.get(path)
        place = path if keeps is None else path.parent
        before = _size(place)
        if keeps is not None and (failed := owned(place, work_files.set_aside, *keeps)):
            why = str(failed[0])
            log.warning("not removed: what its study keeps is here alone", path=str(path), why=why)
            return 0
        owned(path.parent, _remove, path)
        if not _is_there(path):
            self._evictions += 1
            log.info("removed to make room", path=str(path))
        return before - _size(place)

    def _users(self) -> Counter[str]:
        """What each user takes here: in trials, and where programs run as an account of theirs in
        its environments and its home, which the programs can fill as well."""
        found: Counter[str] = Counter()
        owners = {number: user for user, number in self._numbers.items()}
        for folder in self.folders.all():
            with contextlib.suppress(UnreadableFolder):
                last = folder.last()
                found[user := last.user if last else ""] += _size(folder.path)
                owners.setdefault(folder.uid, user)
        for place in [*self._root.glob("venvs/*"), *self._root.glob("homes/*")]:
            if place.name.isdigit() and (user := owners.get(int(place.name), "")):
                found[user] += _size(place)
        return found

    def _dispensable(self) -> list[Path]:
        needed, finished = set(), []
        self._keeps.clear()
        for folder in self.folders.all():
            try:
                last, open_run = folder.last(), folder.journaled()
            except UnreadableFolder:
                continue
            if last is not None and _has_completed(folder, last.run.attempt) and not open_run:
                if _is_there(folder.work):
                    finished.append(folder.work)
                    self._keeps[folder.work] = folder, last.work.program.keep
            elif last is not None:
                needed.add(last.work.program.code_sha256)
                if (venv := last.work.program.venv) is not None:
                    needed.add(venv.name)
        made = [*_whole(self.code, is_whole=code.is_snapshot)]
        for place in venvs.places(self._root / "venvs"):
            made += _whole(place, is_whole=venvs.is_whole)
        return [path for path in made if path.name not in needed] + finished


def _has_completed(folder: TrialFolder, attempt: int) -> bool:
    """As far as it can be told: what its program has put in the place of its files concerns no
    other trial, which all wait here."""
    with contextlib.suppress(OSError):
        outcome = folder.outcome(attempt)
        return outcome is not None and outcome["kind"] == "completed"
    return False


def _whole(folder: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
    """What lies there, but for what is just being made: half of it would be taken for the whole."""
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if is_whole(path))


def _remove(path: Path) -> None:
    """Under another name, as what is left of it if we are killed is not what the name says."""
    aside = _aside(path)
    deep_trees.remove(aside)
    with contextlib.suppress(OSError):
        path.rename(aside)
    deep_trees.remove(aside)


def _aside(path: Path) -> Path:
    return path.with_name(f"{deep_trees.PARTIAL}{path.name}")


def _is_there(path: Path) -> bool:
    """Whether there is anything to remove."""
    return os.path.lexists(path) or os.path.lexists(_aside(path))


def _size(path: Path) -> int:
    """Bytes that the files below take on disk; a file of several names counts once."""
    total, linked = 0, set()
    for entry in deep_trees.walk(path):
        with contextlib.suppress(OSError):  # it went meanwhile, or nobody can tell
            found = entry.stat(follow_symlinks=False)
            if found.st_nlink > 1:
                if (file := (found.st_dev, found.st_ino)) in linked:
                    continue
                linked.add(file)
            total += found.st_blocks * 512
    return total
