"""The end of everything that is left of a trial on this machine.

Rule: what belongs to a trial is found by its cgroup, below its host, in its program's session, and
by the mark in the environment that it was started with; so also what outlived its host and a node
daemon, where there are no cgroups. Nothing is said before all of it is gone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from hermesd.node import processes
from hermesd.node.environment import OWNER
from hermesd.node.folder import TrialFolder
from hermesd.node.site import Site

BURIAL_SECONDS = 10.0

log = structlog.get_logger()


async def bury(
    site: Site, folder: TrialFolder, host_pid: int, worker: processes.Remembered | None
) -> None:
    """End everything of the trial and see it gone; a pid of 0 is not known. Raises OSError."""
    pids = site.cgroups.members(folder.cgroup)
    if worker is not None:
        pids |= worker.session()
    if host_pid:
        pids |= {host_pid, *processes.below(host_pid)}
    site.cgroups.kill(folder.cgroup)
    processes.kill(pids)
    pids |= _kill_marked(folder.path, site.shim.parent)
    try:
        async with asyncio.timeout(BURIAL_SECONDS):
            while pids:
                for pid in pids:
                    await processes.exited(pid)
                # Again, until none is found: it may have forked while it was looked for.
                pids = _kill_marked(folder.path, site.shim.parent)
    except TimeoutError:
        log.error("processes will not die", trial=folder.trial, pids=sorted(pids))


def _kill_marked(trial: Path, node: Path) -> set[int]:
    trial, node = trial.absolute(), node.absolute()

    def belongs(pid: int) -> bool:
        owner = processes.started_with(pid, OWNER)
        if owner == str(node):  # forked from a warm interpreter, as any trial's may be
            return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(trial.resolve())
        return owner == str(trial)

    return processes.kill_those(belongs)
