"""Everything that must lie on disk before a run's host is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from hermesd.core.history import NOT_FETCHED, RESTORE, UNMET
from hermesd.core.model import Checkpoint
from hermesd.core.node_actions import Rebuild, Spawn
from hermesd.core.node_messages import Assignment
from hermesd.node import checkpoints, code
from hermesd.node.environment import program_environment
from hermesd.node.folder import TrialFolder
from hermesd.node.frames import Frame
from hermesd.node.reasons import Foreseen
from hermesd.node.site import Site
from hermesd.study.lengths import is_length

OUTPUT_LIMIT_BYTES = 64 << 20
ORPHAN_SECONDS = 900

log = structlog.get_logger()


class NotStarted(Foreseen):
    """A run that can't be started here; says why, and what `kind` of failure it is, if known."""

    kind = ""


class NotRestored(NotStarted):
    """Nothing is left of what the run was to go on from, and it may not begin anew."""

    kind = RESTORE


class NotGiven(NotStarted):
    """What the run was to go on from is elsewhere, and could not be had.

    That is held against nobody: of two machines without a way between them, or with a directory
    that they share and that is away, nothing tells which one is broken.
    """

    kind = NOT_FETCHED


class Unmet(NotStarted):
    """What the study needs of a node, such as its interpreter, is not there, or not any more."""

    kind = UNMET


class Superseded(NotStarted):
    """The trial has been run here under this number or a later one, `newest`."""

    def __init__(self, newest: int) -> None:
        super().__init__(f"the head has forgotten attempts of it, up to number {newest}")
        self.newest = newest


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that may be started: what to restore, its environment, what to have imported."""

    restore: Path | None
    environment: Mapping[str, str]
    preload: str | None


def prepare(
    site: Site, folder: TrialFolder, order: Spawn | Rebuild, snapshot: Path | None
) -> Ready:
    """Make the working copy and spec.json.

    Blocks; raises NotStarted, NotRestored, CodeError or OSError.
    """
    assignment = order.assignment
    for name in assignment.launch.devices:
        if name not in site.devices:
            raise NotStarted(f"device {name!r} is not here; there are {', '.join(site.devices)}")
    program = assignment.work.program
    restore = _restorable(folder, order.checkpoint)
    if held := assignment.result_checkpoint:
        _see_that_it_goes_on(folder, order.checkpoint, restore, held.rpartition("@")[2])
    if restore is None or not folder.work.is_dir():
        code.working_copy(snapshot, folder.work, program.submit_directory, program.data)
    device: dict[str, str] = {}
    for name in assignment.launch.devices:
        device.update(site.device_environment(name))
    cores = cores_of(site, assignment)
    env = program_environment(site.environ, assignment.work, device, cores, folder.path)
    folder.write_spec(_spec(site, folder, assignment, env))
    return Ready(restore, env, code.framework_of(folder.work))


def cores_of(site: Site, assignment: Assignment) -> list[int]:
    """The cores that the devices of a run stand for."""
    devices = assignment.launch.devices
    return sorted({core for name in devices for core in site.devices[name].cores})


def _restorable(folder: TrialFolder, wanted: Checkpoint | None) -> Path | None:
    """The directory of the wanted checkpoint, or of the one before it that verifies.

    From a later one the head would not know what was reported up to there.
    """
    if wanted is None:
        return None
    path = folder.checkpoints / wanted.id.rpartition("@")[2]
    try:
        return checkpoints.verified(path).path
    except checkpoints.Damaged as error:
        log.warning("checkpoint damaged", error=str(error))
    for found in checkpoints.newest(folder.checkpoints):
        if found.step <= wanted.step and found.attempt <= wanted.attempt:
            return found.path
    log.error("no checkpoint is left: from the beginning", trial=folder.trial)
    return None


def _see_that_it_goes_on(
    folder: TrialFolder, wanted: Checkpoint | None, restore: Path | None, held: str
) -> None:
    """See that a run from a result begins there or later; raises NotRestored.

    The result's checkpoint need not be here for what goes on from a later one. What lies further
    than it, when the run begins there, is of a run that came to nothing.
    """
    result = folder.checkpoints / held
    found = wanted is not None and restore == folder.checkpoints / wanted.id.rpartition("@")[2]
    if restore is None or not (found or checkpoints.is_as_far(restore, result)):
        raise NotRestored(f"the checkpoint of its result cannot be used: {result}")
    if restore == result:
        checkpoints.drop_further(folder.checkpoints, result)


def _spec(site: Site, folder: TrialFolder, assignment: Assignment, env: Mapping[str, str]) -> Frame:
    """What the host is told."""
    work = assignment.work
    groups = site.cgroups.create(folder.cgroup)
    return {
        "trial": folder.trial,
        "argv": list(work.program.argv),
        "cwd": str(folder.work),
        "env": env,
        "signal": work.signal,
        "seed": work.seed,
        "checkpoints": str(folder.checkpoints),
        "output": str(folder.output),
        "output_limit_bytes": OUTPUT_LIMIT_BYTES,
        "lease_grace_seconds": site.lease_grace(),
        "orphan_seconds": ORPHAN_SECONDS,
        "hung_seconds": assignment.hung_seconds,
        "cgroup_work": str(groups.work) if groups else None,
        "cgroup_host": str(groups.host) if groups else None,
        "parameters": dict(work.parameters),
        "lengths": [name for name, _ in work.parameters if is_length(name)],
        "socket": str(folder.socket),
    }
