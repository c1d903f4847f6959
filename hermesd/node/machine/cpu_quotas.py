"""The processor time of trials on slots that are a share of a core, limited by the kernel.

Each trial has a cpu cgroup whose quota is that of its current slot, and its processes are in it
before they train. If the kernel would not hold a share, the slot is no device, and the node does
not start.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hermesd.core.model import DeviceId
from hermesd.node.machine.cgroups import Cgroups, Hierarchy, mounts, own_path

# The kernel's own: a slot of 70 % trains for 70 ms and rests for 30.
PERIOD_MICROSECONDS = 100_000


class NoQuota(Exception):
    """This system holds no quota; says why and what to do."""


class CpuQuotas(Protocol):
    """What holds the shares of this node's slots."""

    @property
    def facts(self) -> tuple[str, ...]:
        """How they are held, for people; nothing where there are none."""
        ...

    def hold(self, trial: str, devices: Sequence[DeviceId], pids: Iterable[int]) -> None:
        """Give these processes of the trial what these devices have; raises OSError."""
        ...

    def sweep(self) -> None:
        """Take away the groups that are empty."""
        ...


class NoShares:
    """A node all of whose slots are whole cores."""

    facts = ()

    def hold(self, trial: str, devices: Sequence[DeviceId], pids: Iterable[int]) -> None:
        pass

    def sweep(self) -> None:
        pass


class Bandwidth:
    """Quotas in a hierarchy of v1 at `root`, beside that in which trials are frozen."""

    def __init__(self, root: Path, percents: Mapping[DeviceId, int]) -> None:
        self._root = root
        self._percents = percents
        self.facts = (f"shares of cores are held by the cgroup v1 cpu controller at {root}",)

    def hold(self, trial: str, devices: Sequence[DeviceId], pids: Iterable[int]) -> None:
        group = self._root / trial
        group.mkdir(parents=True, exist_ok=True)
        # Beside whatever else runs here each slot counts as one program, not all of them together.
        (self._root / "cpu.shares").write_text(str(1024 * len(self._percents)))
        percent = _percent(self._percents, devices)
        quota = PERIOD_MICROSECONDS * percent // 100 if percent < 100 else -1
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))

    def sweep(self) -> None:
        # All of them: a process that was killed may be in its group a moment longer.
        for path in (*_folders(self._root), self._root):
            with contextlib.suppress(OSError):
                path.rmdir()


class Unified:
    """Quotas in the groups in which trials are frozen, those of v2 at `root`: what is in a trial's
    group is held already."""

    def __init__(self, root: Path, percents: Mapping[DeviceId, int]) -> None:
        self._root = root
        self._percents = percents
        self.facts = (f"shares of cores are held by the cgroup v2 cpu controller at {root}",)

    def hold(self, trial: str, devices: Sequence[DeviceId], pids: Iterable[int]) -> None:
        run = self._root / trial / "run"
        for path in (self._root, run.parent, run):
            (path / "cgroup.subtree_control").write_text("+cpu")
        (self._root / "cpu.weight").write_text(str(min(100 * len(self._percents), 10_000)))
        percent = _percent(self._percents, devices)
        quota = str(PERIOD_MICROSECONDS * percent // 100) if percent < 100 else "max"
        (run / "work" / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")

    def sweep(self) -> None:
        """The groups are the trials' own, and go with them."""


def detect(name: str, percents: Mapping[DeviceId, int], groups: Cgroups) -> CpuQuotas:
    """What holds the devices' shares: v1, or v2 where trials are frozen in it. Raises NoQuota."""
    if not percents:
        return NoShares()
    reasons = []
    try:
        for mount in mounts():
            if mount[2] == "cgroup" and "cpu" in mount[3].split(","):
                root = Path(mount[1] + own_path("cpu")) / name
                _try_v1(root)
                held = Bandwidth(root, percents)
                held.sweep()
                return held
        if isinstance(groups, Hierarchy) and groups.version == 2:
            _try_v2(groups.root)
            return Unified(groups.root, percents)
        reasons.append("none is mounted")
    except OSError as error:
        reasons.append(f"{error.filename}: {error.strerror}")
    raise NoQuota(
        "cpu_slots: no cgroup cpu controller can be written here"
        f" ({'; '.join(reasons)}), so that all slots would be equally fast: list cores such as"
        " [[0], [1]] in place of shares, or start the node as root or with a delegated cgroup"
    )


def _try_v1(root: Path) -> None:
    probe = root / ".probe"
    probe.mkdir(parents=True, exist_ok=True)
    try:
        (probe / "cpu.cfs_quota_us").write_text(str(PERIOD_MICROSECONDS))
    finally:
        probe.rmdir()


def _try_v2(root: Path) -> None:
    """Have the controller handed down to `root`; a group that hands it down holds no process."""
    parent, probe = root.parent, root / ".probe"
    if "cpu" not in (parent / "cgroup.controllers").read_text().split():
        raise OSError(errno.EOPNOTSUPP, "it has no cpu controller", str(parent))
    try:
        (parent / "cgroup.subtree_control").write_text("+cpu")
    except OSError:
        leaf = parent / f"{root.name}-daemon"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text("+cpu")
    root.mkdir(exist_ok=True)
    (root / "cgroup.subtree_control").write_text("+cpu")
    probe.mkdir(exist_ok=True)
    try:
        (probe / "cpu.max").write_text(f"{PERIOD_MICROSECONDS} {PERIOD_MICROSECONDS}")
    finally:
        probe.rmdir()


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _percent(percents: Mapping[DeviceId, int], devices: Sequence[DeviceId]) -> int:
    return min((percents.get(device, 100) for device in devices), default=100)
