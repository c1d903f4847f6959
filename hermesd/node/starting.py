"""The start of a trial's host: what must be on disk, the process, and its first request.

Rule: a run is journalled before anything of it is started, once; what is only rebuilt ahead of its
turn is no run, and only marked, so that whoever comes next knows to end it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from hermesd.core.node_actions import Rebuild, Spawn
from hermesd.core.node_messages import Assignment, Begun
from hermesd.core.program import Program
from hermesd.node import checkpoints, hostlink
from hermesd.node.condas import NoConda
from hermesd.node.fetching import NotFetched
from hermesd.node.folder import TrialFolder
from hermesd.node.hostlink import HostLink
from hermesd.node.prepare import NotGiven, NotStarted, Ready, Superseded, Unmet, prepare
from hermesd.node.sights import reason_against
from hermesd.node.site import Site
from hermesd.node.venvs import NotMade

log = structlog.get_logger()


async def start(site: Site, folder: TrialFolder, order: Spawn | Rebuild) -> tuple[HostLink, Ready]:
    """Journal and start; the host waits for its request. Raises NotStarted, CodeError, OSError."""
    await asyncio.to_thread(_begin, folder, order)
    order = await _in_its_environment(site, order)
    program = order.assignment.work.program
    snapshot = await site.snapshot(program.code_sha256)
    wanted, assignment = order.checkpoint, order.assignment
    if wanted is not None and not checkpoints.was_refused(folder.checkpoints, wanted.id):
        try:
            await site.bring(wanted, assignment.sources, folder.checkpoints, assignment.identity)
        except NotFetched as error:
            raise NotGiven(str(error)) from None
    ready = await asyncio.to_thread(prepare, site, folder, order, snapshot)
    if isinstance(order, Rebuild) and ready.restore is None:
        raise NotStarted("no checkpoint is left to rebuild it from")
    try:
        link = await hostlink.start(
            folder, program.python, ready.preload, ready.environment, site.shim, site.zygotes
        )
    except OSError:
        for path in program.interpreter:
            if reason := await asyncio.to_thread(reason_against, path):
                raise Unmet(f"{path}: {reason}") from None
        raise
    devices = order.assignment.launch.devices if isinstance(order, Spawn) else ()
    site.quotas.hold(folder.cgroup, devices, {link.host_pid})
    return link, ready


async def _in_its_environment(site: Site, order: Spawn | Rebuild) -> Spawn | Rebuild:
    """The order with the interpreter that its program's own environment has here."""
    work = order.assignment.work
    try:
        program = await _found(site, work.program)
    except (NotMade, NoConda) as error:
        raise Unmet(f"{work.program.environment_need}: {error}") from None
    return replace(order, assignment=replace(order.assignment, work=replace(work, program=program)))


async def _found(site: Site, program: Program) -> Program:
    """Raises NotMade, NoConda."""
    if program.conda:
        prefix = await site.conda(program.conda)
        # What its activation says; as in other environments, `python` is found on the PATH.
        says = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": program.conda}
        environment = tuple({**dict(program.environment), **says}.items())
        python = str(prefix / "bin" / "python")
        return replace(program, python=python, environment=environment, conda="")
    if program.venv is not None:
        python = await site.interpreter(program.venv)
        # `python` of its command line is the environment's, too.
        argv = tuple(python if word == program.python else word for word in program.argv)
        return replace(program, argv=argv, python=python, requirements="")
    return program


def request(site: Site, link: HostLink, order: Spawn | Rebuild, ready: Ready) -> None:
    """Have the host start the program, or put it where it was and hold it there."""
    link.send("lease", expires_boottime=site.lease(), grace_seconds=site.lease_grace())
    fields = {
        "attempt": order.assignment.run.attempt,
        "restore": str(ready.restore) if ready.restore else None,
    }
    match order:
        case Spawn(assignment, _, limit):
            link.send("start", **fields, limit_step=limit)
            site.say(Begun(assignment.run))
        case Rebuild(_, _, cores):
            link.send("start", **fields, limit_step=None, cores=cores, hold=True)


def _begin(folder: TrialFolder, order: Spawn | Rebuild) -> None:
    if isinstance(order, Rebuild):
        folder.settle()
        folder.rebuilt = True
    else:
        _journal(folder, order.assignment)


def _journal(folder: TrialFolder, assignment: Assignment) -> None:
    for damaged in folder.set_aside():
        log.error("the journal of a run cannot be read", kept=str(damaged))
    last = folder.last()
    attempt, identity = assignment.run.attempt, assignment.identity
    if last and last.identity == identity and last.run.attempt >= attempt:
        raise Superseded(last.run.attempt)
    folder.begin(assignment)
