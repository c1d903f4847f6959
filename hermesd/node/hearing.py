"""What the host of a trial says, passed on in order.

Rule: an event is acknowledged to the host only when the head has what it led to; until then the
host keeps it. What a host says is not trusted to make sense.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import structlog

from hermesd.core.history import RESTORE
from hermesd.core.node_messages import Assignment, Gone, HostFact, Left, Progress, Saved
from hermesd.node import checkpoints, processes
from hermesd.node.folder import TrialFolder
from hermesd.node.frames import Frame
from hermesd.node.hostlink import HostLink
from hermesd.node.patience import Patience
from hermesd.node.reasons import Foreseen
from hermesd.node.reports import checkpoint_of, fact_of
from hermesd.node.site import Site

_OUTCOMES = frozenset({"suspended", "completed", "failed"})
_STANDING = ("fidelity", "planned")

log = structlog.get_logger()


class Nonsense(Foreseen):
    """An outcome that says nothing, or a host that says nothing else."""


class Hearing:
    """One assignment's events; `seen` is the last that was heard, `worker` its process."""

    def __init__(self, site: Site, folder: TrialFolder, assignment: Assignment) -> None:
        self.assignment = assignment
        self.worker: processes.Remembered | None = None
        self.seen = 0
        self._site = site
        self._folder = folder
        self._patience = Patience(site.room)

    @property
    def worker_pids(self) -> frozenset[int]:
        """The number of its process, if that is known."""
        return frozenset() if self.worker is None else frozenset({self.worker.pid})

    def acknowledged(self, sequence: int) -> int:
        """The head has everything up to this number safe: so up to which the host may forget."""
        return self._patience.acknowledged(sequence)

    async def room(self) -> None:
        """Wait until the host may be heard further."""
        await self._patience.room()

    async def hear(self, frame: Frame) -> None:
        """Pass one event on; one that was heard before is not. Raises Nonsense."""
        taken = 0
        if frame["kind"] == "reported":
            taken = await self._site.memory_taken(self.assignment.launch.devices)
        await self._pass_on(frame, taken)

    async def _pass_on(self, frame: Frame, device_memory_bytes: int = 0) -> None:
        kind, site = frame["kind"], self._site
        try:
            sequence, fact = int(frame["seq"]), self._fact(frame)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if self._patience.hears_nonsense():
                log.error("a host's event makes no sense", frame=frame, error=repr(error))
            if kind in _OUTCOMES:
                raise Nonsense(f"its outcome {kind!r} makes no sense: {error!r}") from None
            if self._patience.is_over:
                raise Nonsense(f"too much that makes no sense: {error!r}") from None
            return
        if sequence <= self.seen:
            return
        if isinstance(fact, Progress):
            report = replace(fact.report, device_memory_bytes=device_memory_bytes)
            fact = replace(fact, report=report)
        if kind == "started":
            self.worker = processes.Remembered.of(int(frame["worker_pid"]))
        elif kind == "parked":
            self._remember_parked()
        elif kind in _OUTCOMES:
            if frame.get("error_kind") == RESTORE:
                await self._refuse(frame)
            await site.release(self.assignment.launch.devices, self.worker_pids)
        self.seen = sequence
        told = site.say(fact) if fact is not None else 0
        if kind == "started":
            told = await self._say_restored(frame) or told
        self._patience.heard(told, sequence)
        if isinstance(fact, Saved | Left):
            site.tasks.create_task(self._prune())

    def hear_standing(self, link: HostLink) -> None:
        """Pass on what a host said once and for all, of the run that it has now."""
        for kind in _STANDING:
            if isinstance(said := link.attached.get(kind), dict):
                fact = self._fact({**said, "kind": kind, "attempt": link.attached["attempt"]})
                if fact is not None:
                    self._site.say(fact)

    async def hear_death(self) -> None:
        """The host is no more: what it wrote down of the end, or else that the run is lost; before
        that, what it wrote down of the run's reports.

        Raises Nonsense; OSError, with nothing said yet, while it cannot be read.
        """
        run = self.assignment.run
        words = await asyncio.to_thread(self._folder.last_words, run.attempt)
        has_ended = bool(words) and words[-1]["kind"] in _OUTCOMES
        newest = None if has_ended else await asyncio.to_thread(self._newest_backed)
        for frame in words:  # all at once: nothing leaves for the head while a daemon takes over
            await self._pass_on(frame)
        if has_ended:
            return
        if newest is not None:
            self._site.say(Saved(run, checkpoint_of(newest.frame, run, self._site.node)))
        await self._site.release(self.assignment.launch.devices, self.worker_pids)
        self._site.say(Gone(run, "the trial's host is gone"))

    def _newest_backed(self) -> checkpoints.Found | None:
        backed = self._folder.backed_checkpoints()
        found = checkpoints.newest(self._folder.checkpoints)
        return next((each for each in found if each.path.name in backed), None)

    def _fact(self, frame: Frame) -> HostFact | None:
        work = self.assignment.work
        return fact_of(frame, self._folder.trial, work.signal_goal, work.signal, self._site.node)

    async def _refuse(self, frame: Frame) -> None:
        """The next attempt is not to fail of the same checkpoint for ever. That of a result stays:
        the program was asked for something else than it came to."""
        last = bool(self.assignment.kept_parked)
        name, folder = str(frame.get("restored_from") or ""), self._folder.checkpoints
        if Path(name).name == self._held:
            return
        try:
            if await asyncio.to_thread(checkpoints.refuse, folder, name, last):
                log.error("checkpoint set aside", trial=self._folder.trial, checkpoint=name)
        except OSError as error:
            log.warning("checkpoint not set aside", trial=self._folder.trial, error=str(error))

    async def _say_restored(self, frame: Frame) -> int:
        """Where a run has begun, if that is another checkpoint than the one it was to go on from.

        Told after its start, which lets the head forget the one that could not be used.
        """
        wanted, name = self.assignment.checkpoint, Path(str(frame.get("restored_from") or "")).name
        if wanted is None or not name or name == wanted.id.rpartition("@")[2]:
            return 0
        try:
            found = await asyncio.to_thread(checkpoints.verified, self._folder.checkpoints / name)
        except checkpoints.Damaged as error:
            log.warning("checkpoint damaged", error=str(error))
            return 0
        run = self.assignment.run
        return self._site.say(Saved(run, checkpoint_of(found.frame, run, self._site.node)))

    def _remember_parked(self) -> None:
        try:
            self._folder.parked = True
        except OSError as error:
            # Missed only by a later daemon that finds the host dead: the head then hears of the
            # loss when it wants the trial to go on.
            log.warning("not written down as parked", trial=self._folder.trial, error=str(error))

    @property
    def _held(self) -> str:
        """The directory of the checkpoint that stays whatever comes of the run; or empty."""
        return self.assignment.result_checkpoint.rpartition("@")[2]

    async def _prune(self) -> None:
        try:
            await asyncio.to_thread(checkpoints.prune, self._folder.checkpoints, self._held)
        except (OSError, ValueError) as error:
            log.warning("old checkpoints stay", trial=self._folder.trial, error=str(error))
