"""Ends everything that is left of a trial on this machine.

Processes of a trial are found by its cgroup, below its host, in its program's session, and by the
mark in the environment that they were started with. So even what outlived its host and a node
daemon is found without cgroups. Nothing is reported before all of it is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from hermesd.core.model import TrialId
from hermesd.node.machine import processes
from hermesd.node.machine.environment import OWNER
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.retry import until_done
from hermesd.node.storage.trial_folder import TrialFolder

BURIAL_SECONDS = 10.0
_SHARED_MEMORY = Path("/dev/shm")


async def end_everything(
    context: NodeContext, folder: TrialFolder, host_pid: int, worker: processes.Remembered | None
) -> None:
    """End everything of the trial and see it gone, however long that takes; a pid of 0 is not
    known."""

    async def end() -> None:
        await _end(context, folder, host_pid, worker)

    await until_done(end, "not ended", trial=folder.trial)


async def _end(
    context: NodeContext, folder: TrialFolder, host_pid: int, worker: processes.Remembered | None
) -> None:
    """Raises OSError; TimeoutError, which is one, when processes are told to end and do not."""
    pids = context.provisions.cgroups.members(folder.cgroup)
    if worker is not None:
        pids |= worker.session()
    if host_pid:
        pids |= {host_pid, *processes.below(host_pid)}
    context.provisions.cgroups.kill(folder.cgroup)
    pids = processes.of_user(pids, folder.uid)
    processes.kill(pids)
    pids |= _kill_marked(folder, context.shim.parent)
    try:
        async with asyncio.timeout(BURIAL_SECONDS):
            while pids:
                for pid in pids:
                    await processes.exited(pid)
                # Again, until none is found: it may have forked while it was looked for.
                pids = _kill_marked(folder, context.shim.parent)
    except TimeoutError:
        raise TimeoutError(f"processes will not die: {sorted(pids)}") from None
    forget_names(folder)


def forget_names(folder: TrialFolder) -> None:
    """Take the names away that a host has given to memory of the trial's program while an image was
    written or restored (trainer_shim.host.deleted_files), and could not take away itself."""
    whose = hashlib.sha256(os.fsencode(folder.checkpoints)).hexdigest()[:12]
    for path in _SHARED_MEMORY.glob(f"hermes-mapped-{whose}-*"):
        path.unlink(missing_ok=True)


def end_strays(trials: Path, node: Path, known: Collection[TrialId]) -> set[int]:
    """SIGKILL to what is left of trials of this node that nobody looks after; their pids.

    Raises OSError.
    """
    trials = trials.absolute()

    def is_stray(pid: int) -> bool:
        trial = _trial_of(pid, trials, node.absolute())
        return trial is not None and trial not in known

    return processes.kill_those(is_stray)


def _trial_of(pid: int, trials: Path, node: Path) -> TrialId | None:
    """Whose trial's process it is; None if it is of none of this node. Raises OSError."""
    owner = processes.started_with(pid, OWNER)
    if owner == str(node):  # forked from a warm interpreter, as any trial's may be
        place, trials = processes.folder(pid), trials.resolve()
    elif owner is not None:
        place = Path(owner)
    else:
        return None
    if not place.is_relative_to(trials):
        return None
    study_and_number = place.relative_to(trials).parts[:2]
    return "/".join(study_and_number) if len(study_and_number) == 2 else None


def _kill_marked(folder: TrialFolder, node: Path) -> set[int]:
    trials = folder.path.absolute().parents[1]

    def belongs(pid: int) -> bool:
        # A program of another user can be started with any mark, again and again.
        return _trial_of(pid, trials, node.absolute()) == folder.trial and processes.runs_as(
            pid, folder.uid
        )

    return processes.kill_those(belongs)
