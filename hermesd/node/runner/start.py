"""Starts a trial's host: what must be on disk, the process, and its first request.

A run is journaled once, before anything of it is started. A trial that is only rebuilt ahead of its
turn is no run; it is just marked, so that the next daemon knows to end it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hermesd.core.lengths import is_length
from hermesd.core.model import Checkpoint, Processes, Program
from hermesd.core.node.actions import Rebuild, Spawn
from hermesd.core.node.messages import Assignment, ProcessStarted, Work
from hermesd.core.tree import ending_at
from hermesd.core.trial import NOT_FETCHED, RESTORE, UNMET
from hermesd.logs import get_logger
from hermesd.node.frames import Frame
from hermesd.node.machine.accounts import UnixAccount, as_owner
from hermesd.node.machine.conda import NoConda
from hermesd.node.machine.environment import names_temporary, program_environment
from hermesd.node.machine.requirement_watch import reason_against
from hermesd.node.machine.venvs import NotMade
from hermesd.node.reasons import Foreseen
from hermesd.node.runner import host_link
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.host_link import HostLink
from hermesd.node.runner.imports_ahead import imports_ahead
from hermesd.node.storage import checkpoints, code
from hermesd.node.storage.checkpoints import FoundCheckpoint
from hermesd.node.storage.fetching import NotFetched
from hermesd.node.storage.trial_folder import TrialFolder

# Everything that must lie on disk before a run's host is started.

OUTPUT_LIMIT_BYTES = 64 << 20
ORPHAN_SECONDS = 900

log = get_logger()


class NotStarted(Foreseen):
    """A run that can't be started here, and why."""

    #: What kind of failure it is; empty where that is not known.
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


class RunSuperseded(NotStarted):
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
    context: NodeContext,
    folder: TrialFolder,
    order: Spawn | Rebuild,
    snapshot: Path | None,
    account: UnixAccount,
) -> Ready:
    """Make the working copy and spec.json.

    Blocks; raises NotStarted, NotRestored, CodeError or OSError.
    """
    assignment = order.assignment
    for name in assignment.launch.devices:
        if name not in context.rack.devices:
            raise NotStarted(
                f"device {name!r} is not here; there are {', '.join(context.rack.devices)}"
            )
    program = assignment.work.program
    with as_owner(folder.path):
        restore = _restorable(folder, order.checkpoint, dict(assignment.work.parameters))
        if held := assignment.result_checkpoint:
            _see_that_it_goes_on(folder, order.checkpoint, restore, held.rpartition("@")[2])
        if restore is None or not folder.work.is_dir():
            code.working_copy(snapshot, folder.work, program.submit_directory, program.data)
        # In a world that others are in, too, the numbers of an image's processes may be taken.
        preload = None if restore and restore.is_image else imports_ahead(folder.work)
    device = context.rack.environment(assignment.launch.devices)
    cores = cores_of(context, assignment)
    env = program_environment(context.environ, assignment.work, device, cores, folder.path, account)
    folder.write_spec(_spec(context, folder, assignment, env))
    return Ready(restore.path if restore else None, env, preload)


def cores_of(context: NodeContext, assignment: Assignment) -> list[int]:
    """The cores that the devices of a run stand for."""
    devices = assignment.launch.devices
    return sorted({core for name in devices for core in context.rack.devices[name].cores})


def _restorable(
    folder: TrialFolder, wanted: Checkpoint | None, parameters: Mapping[str, Any]
) -> FoundCheckpoint | None:
    """The wanted checkpoint, or of the one before it that verifies and that a
    program with these hyper-parameters can go on from; an image of other ones, if that is all.

    From a later one the head would not know what was reported up to there.
    """
    if wanted is None:
        return None
    path = folder.checkpoints / wanted.id.rpartition("@")[2]
    image = None
    try:
        found = checkpoints.verified(path)
        if found.can_be_gone_on_from(parameters):
            return found
        image = found if found.is_image else None
    except checkpoints.DamagedCheckpoint as error:
        log.warning("checkpoint damaged", error=str(error))
    for found in checkpoints.newest(folder.checkpoints):
        is_known = found.step <= wanted.step and found.attempt <= wanted.attempt
        if is_known and found.can_be_gone_on_from(parameters):
            return found
    if image is not None:
        return image
    log.error("no checkpoint is left", trial=folder.trial)
    return None


def _see_that_it_goes_on(
    folder: TrialFolder, wanted: Checkpoint | None, restore: FoundCheckpoint | None, held: str
) -> None:
    """See that a run from a result begins there or later; raises NotRestored.

    The result's checkpoint need not be here for what goes on from a later one. What lies further
    than it, when the run begins there, is of a run that came to nothing.
    """
    result = folder.checkpoints / held
    name = wanted.id.rpartition("@")[2] if wanted else None
    goes_on = restore is not None and (
        restore.path.name == name or checkpoints.is_as_far(restore.path, result)
    )
    if restore is None or not goes_on:
        raise NotRestored(f"the checkpoint of its result cannot be used: {result}")
    if restore.path == result:
        checkpoints.drop_further(folder.checkpoints, result)


def spec_of(folder: TrialFolder, work: Work, env: Mapping[str, str]) -> Frame:
    """What any host is told of a trial's program and files."""
    return {
        "trial": folder.trial,
        "argv": list(work.program.argv),
        "cwd": str(folder.work),
        "env": env,
        "signal": work.signal,
        "seed": work.seed,
        "checkpoints": str(folder.checkpoints),
        "output": str(folder.output),
        "parameters": dict(work.parameters),
        "lengths": [name for name, _ in work.parameters if is_length(name)],
        "stages": [
            [stage.until_step, dict(stage.values), stage.until_step in work.forks]
            for stage in ending_at(work.stages, work.forks)
        ],
        "socket": str(folder.socket),
        "temporary": "" if names_temporary(work, env) else str(folder.temporary),
    }


def _spec(
    context: NodeContext, folder: TrialFolder, assignment: Assignment, env: Mapping[str, str]
) -> Frame:
    """What the host is told."""
    devices = assignment.launch.devices
    groups = context.provisions.cgroups.create(folder.cgroup, folder.uid)
    return {
        **spec_of(folder, assignment.work, env),
        "metrics": dict(assignment.work.program.metrics),
        "output_limit_bytes": OUTPUT_LIMIT_BYTES,
        "lease_grace_seconds": context.driver.lease_grace,
        "orphan_seconds": ORPHAN_SECONDS,
        "hung_seconds": assignment.terms.hung_seconds,
        "cgroup_work": str(groups.work) if groups else None,
        "cgroup_host": str(groups.host) if groups and folder.uid == os.geteuid() else None,
        "checkpoint_steps": assignment.terms.checkpoint_steps,
        "criu": context.provisions.images.criu,
        "moves_device_memory": context.rack.parks(devices),
        "images_hold_device_memory": context.rack.are_imaged(devices),
        "ranks": _ranks(context, assignment),
    }


def _ranks(context: NodeContext, assignment: Assignment) -> list[dict[str, str]]:
    """What each of its processes finds in its environment besides, in the order of its devices;
    empty for one process that is none of several."""
    devices, processes = assignment.launch.devices, assignment.terms.processes
    if processes is Processes.ONE or (processes is None and len(devices) == 1):
        return []
    ranks = []
    for name in devices:
        rank = context.rack.environment([name]) if processes is Processes.WORKERS else {}
        if cores := context.rack.devices[name].cores:
            rank["HERMES_CPU_CORES"] = ",".join(map(str, cores))
        ranks.append(rank)
    return ranks


async def start(
    context: NodeContext, folder: TrialFolder, order: Spawn | Rebuild
) -> tuple[HostLink, Ready]:
    """Journal and start; the host waits for its request. Raises NotStarted, CodeError, OSError."""
    account = context.accounts.of(order.assignment.user)
    await asyncio.to_thread(_begin, folder, order, account)
    order = await _in_its_environment(context, order, account)
    program = order.assignment.work.program
    snapshot = await context.disk.snapshot(program.code_sha256, order.assignment.user)
    wanted, assignment = order.checkpoint, order.assignment
    if wanted is not None and not folder.as_owner(
        checkpoints.was_refused, folder.checkpoints, wanted.id
    ):
        try:
            await context.fetching.bring(
                wanted, assignment.sources, folder.checkpoints, assignment.identity
            )
        except NotFetched as error:
            raise NotGiven(str(error)) from None
    ready = await asyncio.to_thread(prepare, context, folder, order, snapshot, account)
    if isinstance(order, Rebuild) and ready.restore is None:
        raise NotStarted("no checkpoint is left to rebuild it from")
    if wanted is not None and ready.restore is None and assignment.never_anew:
        # The head then knows that what it is to go on from has to come from elsewhere.
        await context.replicas.doubt(wanted.trial, wanted.id)
        raise NotRestored(f"{wanted.id} cannot be used, and nothing before it is here")
    try:
        link = await host_link.start(
            folder, program.python, ready.preload, ready.environment, context.shim, context.zygotes,
            context.provisions.images.world, account,
        )  # fmt: skip
        if not account.is_own:
            context.provisions.cgroups.admit(folder.cgroup, link.host_pid)
    except OSError:
        for path in program.interpreter:
            if reason := await asyncio.to_thread(reason_against, path):
                raise Unmet(f"{path}: {reason}") from None
        raise
    devices = order.assignment.launch.devices if isinstance(order, Spawn) else ()
    context.provisions.quotas.hold(folder.cgroup, devices, {link.host_pid})
    return link, ready


async def _in_its_environment(
    context: NodeContext, order: Spawn | Rebuild, account: UnixAccount
) -> Spawn | Rebuild:
    """The order with the interpreter that its program's own environment has here."""
    work = order.assignment.work
    try:
        program = await _found(context, work.program, account)
    except (NotMade, NoConda) as error:
        raise Unmet(f"{work.program.environment_need}: {error}") from None
    return replace(order, assignment=replace(order.assignment, work=replace(work, program=program)))


async def _found(context: NodeContext, program: Program, account: UnixAccount) -> Program:
    """Raises NotMade, NoConda."""
    if program.conda:
        prefix = await context.requirements.condas.prefix(program.conda)
        # What its activation says; as in other environments, `python` is found on the PATH.
        says = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": program.conda}
        environment = tuple({**dict(program.environment), **says}.items())
        python = str(prefix / "bin" / "python")
        return replace(program, python=python, environment=environment, conda="")
    if program.venv is not None:
        python = await context.requirements.venvs.interpreter(program.venv, account)
        # `python` of its command line is the environment's, too.
        argv = tuple(python if word == program.python else word for word in program.argv)
        return replace(program, argv=argv, python=python, requirements="")
    return program


def request(context: NodeContext, link: HostLink, order: Spawn | Rebuild, ready: Ready) -> None:
    """Have the host start the program, or put it where it was and hold it there."""
    driver = context.driver
    link.send("lease", expires_boottime=driver.machine.lease, grace_seconds=driver.lease_grace)
    fields = {
        "attempt": order.assignment.run.attempt,
        "restore": str(ready.restore) if ready.restore else None,
    }
    match order:
        case Spawn(assignment, _, limit):
            link.send("start", **fields, limit_step=limit)
            driver.say(ProcessStarted(assignment.run))
        case Rebuild(_, _, cores):
            link.send("start", **fields, limit_step=None, cores=cores, hold=True)


def _begin(folder: TrialFolder, order: Spawn | Rebuild, account: UnixAccount) -> None:
    if isinstance(order, Rebuild):
        folder.settle()
        folder.rebuilt = True
    else:
        _journal(folder, order.assignment, account)


def _journal(folder: TrialFolder, assignment: Assignment, account: UnixAccount) -> None:
    for damaged in folder.set_aside():
        log.error("the journal of a run cannot be read", kept=str(damaged))
    last = folder.last()
    attempt, identity = assignment.run.attempt, assignment.identity
    if last and last.identity == identity and last.run.attempt >= attempt:
        raise RunSuperseded(last.run.attempt)
    folder.begin(assignment, account)
