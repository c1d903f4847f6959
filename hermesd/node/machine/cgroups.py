"""Cgroups of live trials, if the system allows them.

They are `<root>/<trial>/run/{host,work}`: parking freezes `work` alone, and fencing ends everything
in `run`. What is possible is found out by trying, and reported in words. Without cgroups, processes
are found as descendants and by session, which a program can escape from.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# What a host writes to, by version.
_HOSTS = ("cgroup.procs", "cgroup.freeze", "cgroup.kill", "freezer.state")


@dataclass(frozen=True, slots=True)
class Groups:
    """The two groups of a trial."""

    host: Path
    work: Path


class Cgroups(Protocol):
    """Where trials' processes live."""

    @property
    def fact(self) -> str:
        """What can and cannot be done here, for people."""
        ...

    def create(self, name: str, uid: int = 0) -> Groups | None:
        """The groups of the trial of this name, whose host runs as `uid`; None without cgroups."""
        ...

    def admit(self, name: str, pid: int) -> None:
        """Have the host of the trial in its group: as somebody else it cannot come there itself.
        Raises OSError."""
        ...

    def kill(self, name: str) -> None:
        """Send SIGKILL to everything of the trial, stopped or not."""
        ...

    def members(self, name: str) -> set[int]:
        """The processes of the trial."""
        ...

    def remove(self, name: str) -> None:
        """Take away the trial's groups, if they are empty."""
        ...

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Take away the empty groups of all trials but those that are `kept`."""
        ...


class NoCgroups:
    """A system that gives us none."""

    def __init__(self, reason: str) -> None:
        self.fact = f"no cgroups ({reason}): a program that leaves its session cannot be stopped"

    def create(self, name: str, uid: int = 0) -> Groups | None:
        return None

    def admit(self, name: str, pid: int) -> None:
        pass

    def kill(self, name: str) -> None:
        pass

    def members(self, name: str) -> set[int]:
        return set()

    def remove(self, name: str) -> None:
        pass

    def sweep(self, kept: Collection[str] = ()) -> None:
        pass


class Hierarchy:
    """A writable hierarchy at `root`: v2, or the v1 freezer."""

    def __init__(self, root: Path, version: int) -> None:
        self.root = root
        self.version = version
        self._v2 = version == 2
        kind = "cgroup v2" if self._v2 else "the cgroup v1 freezer"
        self.fact = f"{kind} at {root}: park, fence and kill reach every process of a trial"

    def create(self, name: str, uid: int = 0) -> Groups | None:
        run = self.root / name / "run"
        groups = Groups(run / "host", run / "work")
        for path in (groups.host, groups.work):
            path.mkdir(parents=True, exist_ok=True)
        self._thaw(groups.work)  # it may have been left frozen, and would hold the next program
        # A host moves its program from its own group to the other, stops it there, and ends it.
        for path in (path / file for path in (run, groups.host, groups.work) for file in _HOSTS):
            if path.exists() and path.stat().st_uid != uid and os.geteuid() == 0:
                os.chown(path, uid, -1)
        return groups

    def admit(self, name: str, pid: int) -> None:
        (self.root / name / "run" / "host" / "cgroup.procs").write_text(str(pid))

    def _thaw(self, path: Path) -> None:
        if self._v2:
            (path / "cgroup.freeze").write_text("0")
        else:
            (path / "freezer.state").write_text("THAWED")

    def kill(self, name: str) -> None:
        run = self.root / name / "run"
        with contextlib.suppress(FileNotFoundError):
            if self._v2:
                (run / "cgroup.kill").write_text("1")
                return
            # A v1 freezer holds back even SIGKILL; frozen first, nothing forks away from it.
            (run / "freezer.state").write_text("FROZEN")
            for pid in self.members(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for path in (run / "work", run):
                self._thaw(path)

    def members(self, name: str) -> set[int]:
        pids: set[int] = set()
        for group in ("host", "work"):
            with contextlib.suppress(FileNotFoundError):
                text = (self.root / name / "run" / group / "cgroup.procs").read_text()
                pids.update(int(pid) for pid in text.split())
        return pids

    def remove(self, name: str) -> None:
        for path in ("run/host", "run/work", "run", "."):
            with contextlib.suppress(OSError):
                (self.root / name / path).rmdir()
        with contextlib.suppress(OSError):
            self.root.rmdir()  # the last trial's

    def sweep(self, kept: Collection[str] = ()) -> None:
        inside = list(self.root.iterdir()) if self.root.is_dir() else []
        for name in (path.name for path in inside if path.is_dir()):
            # A host may be there whose program is yet to enter its own group.
            if name not in kept and not self.members(name):
                self.remove(name)


def detect(name: str) -> Cgroups:
    """What this system offers: v2, else the v1 freezer, else nothing. `name` is a group's, to be
    made below our own."""
    reasons = []
    there = mounts()
    for version, kind, option in ((2, "cgroup2", ""), (1, "cgroup", "freezer")):
        for mount in there:
            if mount[2] != kind or (option and option not in mount[3].split(",")):
                continue
            root = Path(mount[1] + own_path(option)) / name
            probe = root / ".probe"
            try:
                probe.mkdir(parents=True, exist_ok=True)
                usable = (probe / ("cgroup.kill" if version == 2 else "freezer.state")).exists()
                probe.rmdir()
                with contextlib.suppress(OSError):
                    root.rmdir()  # unless trials of an earlier daemon are in it
            except OSError as error:
                reasons.append(f"{root.parent}: {error.strerror}")
                continue
            if usable:
                return Hierarchy(root, version)
            reasons.append(f"{root.parent}: the kernel is too old")
    return NoCgroups("; ".join(reasons) or "none is mounted")


def mounts() -> list[list[str]]:
    """What is mounted, each in its fields: what, where, of which kind, how."""
    # Anybody may mount something, by names of any bytes but those that part fields and lines.
    lines = Path("/proc/self/mounts").read_bytes().split(b"\n")
    return [list(map(os.fsdecode, line.split(b" "))) for line in lines if line]


def own_path(controller: str) -> str:
    """The path of our own group in the hierarchy of this controller ("" is v2's)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.rstrip("/")
    return ""
