"""One trial on this node: starts its host, sends it requests, listens to it, and cleans up after
it.

The node's state machine decides, and a runner carries out, in order. Whatever goes wrong with it,
such as a full disk, costs this one trial: it is ended, and the head is told why.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial

from hermesd.core.events import RunFailed
from hermesd.core.model import RunId, Tier, Time
from hermesd.core.node.actions import (
    AskReport,
    ContinueRun,
    DeleteTrialFiles,
    EndProcess,
    KillUnresponsive,
    Rebuild,
    ResumeRun,
    Spawn,
    SuspendRun,
    WriteCheckpoint,
    WriteCheckpointAndExit,
)
from hermesd.core.node.messages import Assignment, HostLost, LeftDevice, RunFound
from hermesd.logs import get_logger
from hermesd.node.machine import processes
from hermesd.node.reasons import is_foreseen, words_of
from hermesd.node.runner import host_link
from hermesd.node.runner import start as starting
from hermesd.node.runner.cleanup import BURIAL_SECONDS, end_everything
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.host_events import HostEvents
from hermesd.node.runner.host_link import HostLink
from hermesd.node.runner.retry import until_done
from hermesd.node.runner.start import NotStarted, RunSuperseded, cores_of
from hermesd.node.storage.code import BadCode
from hermesd.node.storage.trial_folder import TrialFolder

log = get_logger()


@dataclass(frozen=True, slots=True)
class Settle:
    """The head has the outcome of the newest run safe."""


Order = (
    Spawn
    | Rebuild
    | ResumeRun
    | ContinueRun
    | SuspendRun
    | AskReport
    | WriteCheckpoint
    | WriteCheckpointAndExit
    | EndProcess
    | KillUnresponsive
    | DeleteTrialFiles
    | Settle
)


class TrialRunner:
    """The host of one trial, as its node daemon sees it."""

    def __init__(self, context: NodeContext, folder: TrialFolder) -> None:
        self._context = context
        self._folder = folder
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self._hearing: HostEvents | None = None
        self._link: HostLink | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._dismissed = False

    @property
    def worker_pids(self) -> frozenset[int]:
        """The numbers of its training processes; none while its host is not listened to."""
        return self._hearing.worker_pids if self._hearing and self._link else frozenset()

    # From the daemon.

    def order(self, order: Order) -> None:
        """Carry out an action, after those before it; an end also ends a start under way."""
        self._orders.put_nowait(order)
        if isinstance(order, EndProcess | KillUnresponsive) and self._starting is not None:
            self._starting.cancel()

    def extend(self, expires: Time) -> None:
        """Tell the host how long it may go on."""
        if self._link is not None:
            grace = self._context.driver.lease_grace
            self._link.send("lease", expires_boottime=expires, grace_seconds=grace)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe: so the host may forget its part."""
        forgotten = self._hearing.acknowledged(sequence) if self._hearing else 0
        if forgotten and self._link is not None:
            self._link.send("ack", seq=forgotten)

    async def run(self) -> None:
        """Carry out orders until the trial is settled or forgotten and nothing more is asked."""
        while True:
            order = await self._orders.get()
            rests = isinstance(order, Settle | DeleteTrialFiles)
            try:
                await self._carry_out(order)
            except Exception as error:  # it costs this trial, and nobody else's
                if rests or self._hearing is None:  # nothing of it is here but files
                    log.warning("not tidied up", trial=self._folder.trial, error=words_of(error))
                else:
                    kind = "not_started" if isinstance(order, ResumeRun) else "lost"
                    await self._give_up(self._hearing, error, kind)
            if rests and self._orders.empty():
                return

    async def _carry_out(self, order: Order) -> None:
        match order:
            case Spawn() | Rebuild():
                await self._spawn(order)
            case ResumeRun():
                await self._let_go(order)
            case ContinueRun(run, limit):
                self._ask("resume", run, limit_step=limit)
            case SuspendRun(run, tier, seconds):
                if tier is Tier.KILL:
                    self._ask("kill", run)
                else:
                    self._ask("suspend", run, tier=tier.value, deadline_seconds=seconds)
            case AskReport(run, step):
                self._ask("report", run, at_step=step)
            case WriteCheckpoint(run, name, is_asked):
                if is_asked and self._hearing is not None:
                    self._hearing.asked_checkpoint = name
                self._ask("checkpoint", run, id=name)
            case WriteCheckpointAndExit(run, name):
                self._ask("demote", run, id=name)
            case EndProcess(run):
                self._ask("kill", run)
            case KillUnresponsive():
                await self._bury(self._link)
            case Settle():
                await self.dismiss()
                self._context.provisions.cgroups.remove(self._folder.cgroup)
                self._context.provisions.quotas.sweep()
                self._folder.settle()
            case DeleteTrialFiles():
                await self.dismiss()
                self._context.provisions.cgroups.remove(self._folder.cgroup)
                self._context.unshare(self._folder.trial, self._folder.identity)
                await asyncio.to_thread(self._folder.forget)

    def _ask(self, kind: str, run: RunId, **fields: object) -> None:
        if self._link is not None:
            self._link.send(kind, attempt=run.attempt, **fields)

    # Starting.

    async def _spawn(self, order: Spawn | Rebuild) -> None:
        run = order.assignment.run
        self._hearing = HostEvents(self._context, self._folder, order.assignment)
        start = self._guarded(
            self._hearing, partial(self._start, order, self._hearing), "not_started"
        )
        self._starting = self._context.tasks.create_task(start)
        await asyncio.wait({self._starting})
        ended, self._starting = self._starting.cancelled(), None
        if ended:
            await self.dismiss()
            self._context.driver.say(
                LeftDevice(run, Tier.KILL, 0, None, "it was ended while it started")
            )

    async def _start(self, order: Spawn | Rebuild, hearing: HostEvents) -> None:
        await self.dismiss()
        link, ready = await starting.start(self._context, self._folder, order)
        self._listen_to(link, hearing)
        starting.request(self._context, link, order, ready)

    async def _let_go(self, order: ResumeRun) -> None:
        assert self._hearing is not None
        self._hearing.assignment = order.assignment
        account = self._context.accounts.of(order.assignment.user)
        await asyncio.to_thread(self._folder.begin, order.assignment, account)
        if self._link is None:
            return  # its death is being reported
        self._hold(self._link, order.assignment)
        # The host binds it: who is not of its program's account needs rights for that.
        cores = cores_of(self._context, order.assignment) or None
        self._ask("resume", order.assignment.run, limit_step=order.limit_step, cores=cores)

    def _hold(self, link: HostLink, assignment: Assignment) -> None:
        """See that the trial has what its devices have, maybe less than the last ones had."""
        devices = assignment.launch.devices
        pids = processes.of_user({link.host_pid, *self._program(link)}, self._folder.uid)
        self._context.provisions.quotas.hold(self._folder.cgroup, devices, pids)

    def _program(self, link: HostLink) -> set[int]:
        """The processes that the trial's program has become."""
        members = self._context.provisions.cgroups.members(self._folder.cgroup)
        return (members or processes.below(link.host_pid)) - {link.host_pid}

    # After another daemon.

    async def adopt(self, assignment: Assignment) -> None:
        """Take over what a daemon before this one left of the run."""
        self._hearing = hearing = HostEvents(self._context, self._folder, assignment)
        hearing.told_before = math.inf
        try:
            await self._adopt(assignment, hearing)
        except Exception as error:  # whatever another daemon left behind
            self._context.driver.say(RunFound(assignment, "ended", 0))
            await self._give_up(hearing, error, "lost")

    async def _adopt(self, assignment: Assignment, hearing: HostEvents) -> None:
        run, say = assignment.run, self._context.driver.say
        link = await self._reach_host(0)
        if link is None:
            say(RunFound(assignment, "parked" if self._folder.parked else "ended", 0))
            await self._bury(None)
            await self._hear_death(hearing)
            return
        self._link, said = link, link.attached
        hearing.told_before = int(said["last_seq"])
        self._hold(link, assignment)
        if pid := link.worker_pid:
            hearing.worker = processes.Remembered.of(pid)
        attempt, phase, step = int(said["attempt"]), str(said["phase"]), int(said["step"])
        memory = processes.resident_bytes(self._program(link))
        parked = assignment.launch.parked
        if attempt == run.attempt:
            started = {"running": "running" if step else "starting", "parked": "parked"}
            say(RunFound(assignment, started.get(phase, "ended"), step, memory))
            hearing.hear_standing(link)
        elif phase in ("parked", "ended") and parked is not None and parked.attempt == attempt:
            # It was not told to go on yet; if it has ended since, its outcome follows.
            before = replace(assignment.launch, run=parked, parked=None)
            say(RunFound(replace(assignment, launch=before), "parked", step, memory))
            hearing.hear_standing(link)
            say(assignment)
        else:
            say(RunFound(assignment, "ended", 0))
            say(HostLost(run, "the node daemon ended before it had started the run"))
        self._listen_to(link, hearing)

    async def abandon(self) -> None:
        """End what is left of a run that its journal no longer names: for the head it is lost."""
        try:
            self._link = await self._reach_host(0)
            await self.dismiss()
            await self._bury(None)
            for kept in self._folder.set_aside():
                log.error("a run is lost: its journal is damaged", kept=str(kept))
        except Exception as error:  # whatever is left of it; the other trials go on
            log.error("not ended", trial=self._folder.trial, error=words_of(error))
        self.order(Settle())

    # Listening.

    def _listen_to(self, link: HostLink, hearing: HostEvents) -> None:
        self._link, hearing.host_pid = link, link.host_pid
        listening = self._guarded(hearing, partial(self._listen, link, hearing), "lost")
        self._listening = self._context.tasks.create_task(listening)

    async def _listen(self, link: HostLink, hearing: HostEvents) -> None:
        try:
            while (frame := await link.hear()) is not None:
                await hearing.room()
                await hearing.hear(frame)
        finally:
            link.close()
        self._link = None
        if self._dismissed:
            return
        again = await self._reach_host(hearing.seen)
        if again is not None:
            self._listen_to(again, hearing)
            if self._dismissed:
                again.send("quit")
            return
        await self._bury(None)
        await self._hear_death(hearing)

    async def _reach_host(self, after: int) -> HostLink | None:
        """The link to the trial's host; None where there is none, as far as the system can say."""

        async def attach() -> HostLink | None:
            return await host_link.attach(self._folder.socket, after, self._folder.uid)

        return await until_done(attach, "its host cannot be asked", trial=self._folder.trial)

    async def _hear_death(self, hearing: HostEvents) -> None:
        await until_done(hearing.hear_death, "its end cannot be read", trial=self._folder.trial)

    # Ending.

    async def dismiss(self) -> None:
        """Have the host end itself and what it has."""
        self._dismissed = True
        if (link := self._link) is not None:
            link.send("quit")
            try:
                async with asyncio.timeout(BURIAL_SECONDS):
                    await processes.exited(link.host_pid)
            except OSError:  # in time it has not ended, or it cannot be seen whether it has
                await self._bury(link)
        await self._heard_all()

    async def _heard_all(self) -> None:
        """Wait until nobody listens to the host any more, and hang up."""
        while (task := self._listening) and task is not asyncio.current_task() and not task.done():
            await asyncio.wait({task})
        if self._link is not None:
            self._link.close()
        self._link, self._dismissed = None, False

    async def _bury(self, link: HostLink | None) -> None:
        worker = self._hearing.worker if self._hearing else None
        await end_everything(self._context, self._folder, link.host_pid if link else 0, worker)

    # When it goes wrong.

    async def _guarded(
        self, hearing: HostEvents, work: Callable[[], Coroutine[None, None, None]], kind: str
    ) -> None:
        try:
            await work()
        except Exception as error:  # it costs this trial, and nobody else's
            await self._give_up(hearing, error, kind)

    async def _give_up(self, hearing: HostEvents, error: Exception, kind: str) -> None:
        """End the trial's run here and say why; whatever it is costs nobody else."""
        run, devices = hearing.assignment.run, hearing.assignment.launch.devices
        unforeseen = None if is_foreseen(error) else error
        kind = (isinstance(error, NotStarted | BadCode) and error.kind) or kind
        log.error("given up", run=str(run), error=words_of(error), exc_info=unforeseen)
        self._dismissed = True
        await self._bury(self._link)
        if self._link is not None:
            self._link.close()
        await self._heard_all()
        await self._context.release(devices, hearing.worker_pids)
        newest = error.newest if isinstance(error, RunSuperseded) else 0
        self._context.driver.say(RunFailed(run, kind, words_of(error), newest_attempt=newest))
