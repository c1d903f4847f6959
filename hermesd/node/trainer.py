"""One trial on this node: its host started, asked, listened to, and buried.

Rule: the node's machine decides, a trainer carries out. Actions are carried out in order; what
the host says is passed on in order, and acknowledged to it only when the head has it safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace

import structlog

from hermesd.core.model import RunId, Tier, Time
from hermesd.core.node_actions import Demote, End, Fence, Forget, Halt, LetGo, Save, Spawn
from hermesd.core.node_messages import Assignment, Failed, Found, Gone, Left, Saved
from hermesd.node import checkpoints, code, frames, hostlink, processes
from hermesd.node.folder import TrialFolder
from hermesd.node.frames import Frame
from hermesd.node.hostlink import HostLink
from hermesd.node.prepare import NotStarted, cores_of, prepare
from hermesd.node.reports import checkpoint_of, fact_of
from hermesd.node.site import Site

BURIAL_SECONDS = 10.0
_OUTCOMES = frozenset({"suspended", "completed", "failed"})

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Settle:
    """The head has the outcome of the newest run safe."""


Order = Spawn | LetGo | Halt | Save | Demote | End | Fence | Forget | Settle


class Trainer:
    """The host of one trial, as its node daemon sees it."""

    def __init__(self, site: Site, folder: TrialFolder) -> None:
        self._site = site
        self._folder = folder
        self._assignment: Assignment | None = None
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self._link: HostLink | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._dismissed = False
        self._worker_pid = 0
        self._seen = 0
        self._marks: deque[tuple[int, int]] = deque()

    # -- from the daemon -------------------------------------------------------------------------

    def order(self, order: Order) -> None:
        """Carry out an action, after those before it; an end also ends a start under way."""
        self._orders.put_nowait(order)
        if isinstance(order, End | Fence) and self._starting is not None:
            self._starting.cancel()

    def extend(self, expires: Time) -> None:
        """Tell the host how long it may go on."""
        if self._link is not None:
            self._link.send("lease", expires_boottime=expires)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe: so the host may forget its part."""
        host_sequence = 0
        while self._marks and self._marks[0][0] <= sequence:
            host_sequence = self._marks.popleft()[1]
        if host_sequence and self._link is not None:
            self._link.send("ack", seq=host_sequence)

    async def run(self) -> None:
        """Carry out orders until the trial is settled or forgotten and nothing more is asked."""
        while True:
            order = await self._orders.get()
            try:
                rests = await self._carry_out(order)
            except OSError as error:
                log.error("not carried out", order=str(order), error=str(error))
                continue
            if rests and self._orders.empty():
                return

    async def _carry_out(self, order: Order) -> bool:
        """Do it; whether the trial may rest now."""
        match order:
            case Spawn():
                await self._spawn(order)
            case LetGo():
                await self._let_go(order)
            case Halt(run, tier, seconds):
                if tier is Tier.KILL:
                    self._ask("kill", run)
                else:
                    self._ask("suspend", run, tier=tier.value, deadline_seconds=seconds)
            case Save(run, name):
                self._ask("checkpoint", run, id=name)
            case Demote(run, name):
                self._ask("demote", run, id=name)
            case End(run):
                self._ask("kill", run)
            case Fence():
                await self._bury(self._link)
            case Settle():
                return await self._settle()
            case Forget():
                await self.dismiss()
                await asyncio.to_thread(self._folder.forget)
                return True
        return False

    def _ask(self, kind: str, run: RunId, **fields: object) -> None:
        if self._link is not None:
            self._link.send(kind, attempt=run.attempt, **fields)

    # -- starting --------------------------------------------------------------------------------

    async def _spawn(self, order: Spawn) -> None:
        run = order.assignment.run
        self._starting = self._site.tasks.create_task(self._guarded(order))
        await asyncio.wait({self._starting})
        ended, self._starting = self._starting.cancelled(), None
        if ended:
            await self.dismiss()
            self._site.say(Left(run, Tier.KILL, 0, None, "it was ended while it started"))

    async def _guarded(self, order: Spawn) -> None:
        try:
            await self._start(order)
        except Exception as error:  # whatever it is costs this one trial, not the daemon
            known = isinstance(error, NotStarted | code.CodeError | OSError | frames.FrameError)
            text = str(error) if known else f"{type(error).__name__}: {error}"
            log.warning("not started", run=str(order.assignment.run), error=text)
            await self.dismiss()
            self._site.say(Failed(order.assignment.run, "not_started", text))

    async def _start(self, order: Spawn) -> None:
        await self.dismiss()
        assignment, folder, site = order.assignment, self._folder, self._site
        last = folder.last()
        if last is not None and last.run.attempt >= assignment.run.attempt:
            raise NotStarted(f"{last.run} was started here before")
        self._take(assignment)
        await asyncio.to_thread(folder.begin, assignment)
        folder.parked = False
        snapshot = await site.snapshot(assignment.work.program.code_sha256)
        ready = await asyncio.to_thread(prepare, site, folder, order, snapshot)
        python = assignment.work.program.python
        link = await hostlink.start(
            folder, python, ready.preload, ready.environment, site.shim, site.zygotes
        )
        self._listen_to(link)
        link.send("lease", expires_boottime=site.lease())
        link.send(
            "start",
            attempt=assignment.run.attempt,
            restore=str(ready.restore) if ready.restore else None,
            limit_step=order.limit_step,
        )

    def _take(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._seen = self._worker_pid = 0
        self._marks.clear()

    async def _let_go(self, order: LetGo) -> None:
        run, link = order.assignment.run, self._link
        self._assignment = order.assignment
        await asyncio.to_thread(self._folder.begin, order.assignment)
        self._folder.parked = False
        if link is None:
            return  # its death is being reported
        pids = self._site.cgroups.members(self._folder.cgroup) or processes.below(link.host_pid)
        processes.bind(pids, cores_of(self._site, order.assignment))
        self._ask("resume", run, limit_step=order.limit_step)

    async def adopt(self, assignment: Assignment) -> None:
        """Take over what a daemon before this one left of the run."""
        run, say = assignment.run, self._site.say
        self._take(assignment)
        link = await hostlink.attach(self._folder.socket, 0)
        if link is None:
            say(Found(assignment, "parked" if self._folder.parked else "ended", 0))
            await self._bury(None)
            await self._report_death()
            return
        said = link.attached
        self._worker_pid = int(said["worker_pid"] or 0)
        attempt, phase, step = int(said["attempt"]), str(said["phase"]), int(said["step"])
        parked = assignment.launch.parked
        if attempt == run.attempt:
            started = {"running": "running" if step else "starting", "parked": "parked"}
            say(Found(assignment, started.get(phase, "ended"), step))
            self._say_standing(link)
        elif phase == "parked" and parked is not None and parked.attempt == attempt:
            before = replace(assignment.launch, run=parked, parked=None)
            say(Found(replace(assignment, launch=before), "parked", step))
            self._say_standing(link)
            say(assignment)
        else:
            say(Found(assignment, "ended", 0))
            say(Gone(run, "the node daemon ended before it had started the run"))
        self._listen_to(link)

    def _say_standing(self, link: HostLink) -> None:
        """What a host said once and for all, of the run that it has now."""
        assert self._assignment is not None
        work, trial, node = self._assignment.work, self._folder.trial, self._site.node
        for kind in ("fidelity", "planned"):
            if isinstance(said := link.attached.get(kind), dict):
                frame = {**said, "kind": kind, "attempt": link.attached["attempt"]}
                fact = fact_of(frame, trial, work.signal_goal, work.signal, node)
                if fact is not None:
                    self._site.say(fact)

    # -- listening -------------------------------------------------------------------------------

    def _listen_to(self, link: HostLink) -> None:
        self._link = link
        self._listening = self._site.tasks.create_task(self._listen(link))

    async def _listen(self, link: HostLink) -> None:
        try:
            while (frame := await link.hear()) is not None:
                await self._heard(frame)
        except frames.FrameError as error:
            log.error("a host speaks nonsense", trial=self._folder.trial, error=str(error))
            await self._bury(link)
        finally:
            link.close()
        self._link = None
        if self._dismissed:
            return
        again = await hostlink.attach(self._folder.socket, self._seen)
        if again is not None:
            self._listen_to(again)
            return
        await self._bury(None)
        await self._report_death()

    async def _heard(self, frame: Frame) -> None:
        assert self._assignment is not None
        work, site = self._assignment.work, self._site
        try:
            sequence = int(frame["seq"])
            fact = fact_of(frame, self._folder.trial, work.signal_goal, work.signal, site.node)
        except (KeyError, TypeError, ValueError) as error:
            log.error("a host's event makes no sense", frame=frame, error=repr(error))
            return
        if sequence <= self._seen:
            return
        await site.room()
        kind = frame["kind"]
        if kind == "started":
            self._worker_pid = int(frame["worker_pid"])
        elif kind == "parked":
            self._folder.parked = True
        elif kind in _OUTCOMES:
            await site.release(self._assignment.launch.devices, frozenset({self._worker_pid}))
        self._seen = sequence
        self._marks.append((site.say(fact) if fact is not None else 0, sequence))
        if isinstance(fact, Saved | Left):
            site.tasks.create_task(asyncio.to_thread(checkpoints.prune, self._folder.checkpoints))

    async def _report_death(self) -> None:
        """The host is no more: say what it wrote down of the end, or that the run is lost."""
        assert self._assignment is not None
        run = self._assignment.run
        outcome = await asyncio.to_thread(self._folder.outcome, run.attempt)
        if outcome is not None:
            await self._heard(outcome)
            return
        newest = await asyncio.to_thread(
            lambda: next(checkpoints.newest(self._folder.checkpoints), None)
        )
        if newest is not None:
            self._site.say(Saved(run, checkpoint_of(newest.frame, run, self._site.node)))
        devices = self._assignment.launch.devices
        await self._site.release(devices, frozenset({self._worker_pid}))
        self._site.say(Gone(run, "the trial's host is gone"))

    # -- ending ----------------------------------------------------------------------------------

    async def _settle(self) -> bool:
        await self.dismiss()
        self._folder.settle()
        self._site.cgroups.remove(self._folder.cgroup)
        return True

    async def dismiss(self) -> None:
        """Have the host end itself and what it has."""
        link, listening = self._link, self._listening
        if link is None:
            return
        self._dismissed = True
        link.send("quit")
        try:
            async with asyncio.timeout(BURIAL_SECONDS):
                await processes.exited(link.host_pid)
        except TimeoutError:
            await self._bury(link)
        if listening is not None:
            await asyncio.wait({listening})
        self._link, self._dismissed = None, False

    async def _bury(self, link: HostLink | None) -> None:
        """End everything of the trial that is left, and see it gone."""
        site, name = self._site, self._folder.cgroup
        pids = site.cgroups.members(name)
        if self._worker_pid:
            pids |= processes.session(self._worker_pid)
        if link is not None:
            pids |= {link.host_pid, *processes.below(link.host_pid)}
        site.cgroups.kill(name)
        processes.kill(pids)
        try:
            async with asyncio.timeout(BURIAL_SECONDS):
                for pid in pids:
                    await processes.exited(pid)
        except TimeoutError:
            log.error("processes will not die", trial=self._folder.trial, pids=sorted(pids))
