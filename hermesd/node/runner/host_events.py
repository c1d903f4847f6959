"""What the host of a trial says, checked and passed on in order.

An event is acknowledged to the host only when the head has what followed from it; until then the
host keeps it. What a host says is not trusted to make sense.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermesd.core.bounds import LARGEST_COUNT
from hermesd.core.events import Checkpointed, FidelityKnown, Reported, RunCompleted, RunFailed
from hermesd.core.losses import Chunk, chunked_points
from hermesd.core.model import Checkpoint, DeviceId, Fidelity, Goal, NodeId, RunId, Tier
from hermesd.core.node.messages import (
    Assignment,
    HostFact,
    HostLost,
    LeftDevice,
    Parked,
    Planned,
    Progress,
    Series,
    Started,
    StepPace,
)
from hermesd.core.trial import RESTORE
from hermesd.logs import get_logger
from hermesd.node.clock import boottime
from hermesd.node.frames import Frame
from hermesd.node.machine import processes
from hermesd.node.machine.accounts import as_owner
from hermesd.node.reasons import Foreseen
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.host_link import HostLink
from hermesd.node.storage import checkpoints
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import node_pb2 as pb

# A host's words as facts of the node's machine: pure, no I/O.
#
# Losses turn "lower is better" here and nowhere else; the points stay as reported.


def fact_of(
    frame: Frame,
    trial: str,
    goal: Goal,
    signal: str,
    node: NodeId,
    devices: Sequence[DeviceId] = (),
) -> HostFact | None:
    """The fact that a host's event states; None for kinds that state none.

    `devices` are those that the run has. Raises KeyError, TypeError, ValueError or OverflowError
    when a field is missing or of the wrong kind.
    """
    run = RunId(trial, int(frame["attempt"]))
    match frame["kind"]:
        case "started" | "resumed":
            awaits_step = bool(frame.get("awaits_step", False))
            return Started(run, _count(frame["step"]), awaits_step)
        case "planned":
            return Planned(run, _count(frame["steps"]))
        case "fidelity":
            return FidelityKnown(
                run,
                Fidelity(frame["level"]),
                str(frame.get("reason") or ""),
                str(frame.get("framework") or ""),
            )
        case "reported":
            return progress(run, frame, goal, signal)
        case "parked":
            memory, cause = _count(frame.get("memory_bytes") or 0), str(frame.get("cause") or "")
            waited = float(frame.get("boundary_seconds") or 0.0)
            midway = not frame.get("at_boundary", True)
            demoting = bool(frame.get("is_being_written", False))
            return Parked(run, _count(frame["step"]), memory, cause, waited, midway, demoting)
        case "checkpointed":
            return Checkpointed(run, checkpoint_of(frame, run, node, devices))
        case "suspended":
            kept = frame.get("checkpoint")
            return LeftDevice(
                run,
                Tier(frame["tier"]),
                _count(frame["step"]),
                checkpoint_of(kept, run, node, devices) if kept else None,
                str(frame.get("cause") or ""),
            )
        case "completed":
            kept = frame.get("checkpoint")
            final = checkpoint_of(kept, run, node, devices) if kept else None
            return RunCompleted(run, _count(frame["step"]), final)
        case "failed":
            return RunFailed(
                run,
                str(frame["error_kind"]),
                str(frame.get("detail") or ""),
                str(frame.get("error_signature") or ""),
                _count(frame.get("step") or 0),
                rank=_count(frame.get("rank") or 0),
            )
        case _:
            return None


def _count(value: Any) -> int:
    """A number of things, as the head takes it."""
    if not 0 <= (number := int(value)) <= LARGEST_COUNT:
        raise ValueError(f"{number}: expected a number from 0 to {LARGEST_COUNT}")
    return number


def checkpoint_of(
    frame: Frame, run: RunId, node: NodeId, devices: Sequence[DeviceId] = ()
) -> Checkpoint:
    """A checkpoint by its global name: the trial's, then that of its directory."""
    return Checkpoint(
        f"{run.trial}@{frame['id']}",
        run.trial,
        run.attempt,
        _count(frame["step"]),
        str(frame["sha256"]),
        _count(frame["bytes"]),
        (node,),
        node if frame.get("form") == "image" else "",
        str(frame.get("why") or ""),
        devices[0] if devices and frame.get("gpu") else "",
        bool(frame.get("is_fork")),
        len(devices),
    )


def progress(run: RunId, frame: Frame, goal: Goal, signal: str) -> Progress:
    """A report: the signal as chunks, every metric as points."""
    points = [(int(step), {k: float(v) for k, v in m.items()}) for step, m in frame["points"]]
    # A program numbers its steps as it likes; what the head would not take must end here.
    steps = [step for step, _ in points]
    if steps and (steps != sorted(steps) or steps[0] < 0 or steps[-1] > LARGEST_COUNT):
        expected = f"expected rising ones, to {LARGEST_COUNT}"
        raise ValueError(f"steps {steps[0]}..{steps[-1]}: {expected}")
    sign = -1.0 if goal is Goal.MAXIMIZE else 1.0
    losses = [(step, sign * metrics[signal]) for step, metrics in points if signal in metrics]
    summary = frame["signal"]
    ends = [float(summary[key]) for key in ("min", "max") if summary.get(key) is not None]
    extremes = [sign * value for value in ends if math.isfinite(value)]
    finite = all(math.isfinite(loss) for _, loss in losses) and len(extremes) == len(ends)
    chunks: tuple[Chunk, ...] = ()
    if losses:
        first = min(_count(frame["first_step"]), losses[0][0])
        chunks = _stretched(chunked_points(first, losses), extremes)
    series = series_of(points)
    return Progress(
        Reported(
            run,
            _count(frame["last_step"]),
            chunks,
            tuple((one.metric, one.values[-1]) for one in series),
            busy_seconds=float(frame["busy_seconds"]),
            cpu_seconds=float(frame.get("cpu_seconds") or 0.0),
            examples=_count(frame.get("examples") or 0),
            memory_bytes=_count(frame.get("memory_bytes") or 0),
            not_finite=not finite,
            number=_count(frame.get("seq") or 0),
            passes=len(frame.get("passes") or ()),
        ),
        series,
        _pace(frame.get("pace") or {}),
    )


def _pace(said: Frame) -> StepPace:
    return StepPace(
        float(said.get("longest_step_seconds") or 0.0),
        float(said.get("silent_seconds") or 0.0),
        float(said.get("silent_cpu_seconds") or 0.0),
    )


def series_of(points: Iterable[tuple[int, dict[str, float]]]) -> tuple[Series, ...]:
    """The points by metric."""
    by_metric: dict[str, tuple[list[int], list[float]]] = {}
    for step, metrics in points:
        for metric, value in metrics.items():
            steps, values = by_metric.setdefault(metric, ([], []))
            steps.append(step)
            values.append(value)
    return tuple(Series(metric, tuple(s), tuple(v)) for metric, (s, v) in by_metric.items())


def _stretched(chunks: tuple[Chunk, ...], extremes: Sequence[float]) -> tuple[Chunk, ...]:
    """The chunks with the extremes of all iterations, thinned ones included, as low and high."""
    if not chunks or not extremes:
        return chunks
    made = list(chunks)
    lowest = min(range(len(made)), key=lambda i: made[i].low)
    made[lowest] = made[lowest]._replace(low=min(made[lowest].low, *extremes))
    highest = max(range(len(made)), key=lambda i: made[i].high)
    made[highest] = made[highest]._replace(high=max(made[highest].high, *extremes))
    return tuple(made)


# How much the host of one trial may say: what of it may wait for the head, how fast, and how
# little of it may be nonsense.
#
# A trial that says much waits for itself, not others for it; its host keeps its events
# meanwhile, and thins its reports.

# Of one trial so much may wait for the head, and so much whatever waits of others (`outbox.ROOM`).
TRIAL_ROOM, ALWAYS = 500, 16
# A host says a thing or two a second; one that was not heard for long has some thousand kept.
A_SECOND, AT_ONCE = 100.0, 2_000.0
NONSENSE_LOGGED, NONSENSE_LIMIT = 10, 1_000


class Backpressure:
    """What was heard of one host and the head has not acknowledged. `room` waits until more of all
    trials may be added to what waits."""

    def __init__(
        self,
        room: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = boottime,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._room = room
        self._clock = clock
        self._rest = rest
        self._marks: deque[tuple[int, int]] = deque()
        self._acknowledged = asyncio.Event()
        self._may_say, self._since = AT_ONCE, clock()
        self._nonsense = 0

    async def room(self) -> None:
        """Wait until the next of its words may be heard."""
        now = self._clock()
        earned = A_SECOND * (now - self._since)
        self._may_say, self._since = min(AT_ONCE, self._may_say + earned) - 1, now
        if self._may_say < 0:
            await self._rest(-self._may_say / A_SECOND)
        while len(self._marks) >= TRIAL_ROOM:
            self._acknowledged.clear()
            await self._acknowledged.wait()
        if len(self._marks) >= ALWAYS:
            await self._room()

    def heard(self, told: int, sequence: int) -> None:
        """Its word of this number led to what the head is told up to `told`; 0 for nothing."""
        if self._marks and told <= self._marks[-1][0]:
            told, _ = self._marks.pop()
        self._marks.append((told, sequence))

    def acknowledged(self, told: int) -> int:
        """The head has everything up to `told` safe: so up to which number the host may forget."""
        forgotten = 0
        while self._marks and self._marks[0][0] <= told:
            forgotten = self._marks.popleft()[1]
        self._acknowledged.set()
        return forgotten

    def hears_nonsense(self) -> bool:
        """Note a word that makes no sense: whether it is worth a line in the log."""
        self._nonsense += 1
        return self._nonsense <= NONSENSE_LOGGED

    @property
    def is_over(self) -> bool:
        """Whether the host has said more nonsense than anybody listens to."""
        return self._nonsense >= NONSENSE_LIMIT


# So much of why nothing could be written down is told.
REASON_CHARACTERS = 500

_OUTCOMES = frozenset({"suspended", "completed", "failed"})
_STANDING = ("fidelity", "planned")

log = get_logger()


class Nonsense(Foreseen):
    """An outcome that says nothing, or a host that says nothing else."""


class HostEvents:
    """One assignment's events."""

    def __init__(self, context: NodeContext, folder: TrialFolder, assignment: Assignment) -> None:
        self.assignment = assignment
        #: Its training process.
        self.worker: processes.Remembered | None = None
        self._ranks: frozenset[int] = frozenset()  # the others of its processes
        #: The checkpoint that the head asked for last; empty once it was told that there is none.
        self.asked_checkpoint = ""
        #: The number of the last event that was heard.
        self.seen = 0
        # Up to this one another daemon may have told the head of them before.
        self.told_before = 0.0
        self.host_pid = 0  # of the host that is listened to
        self._context = context
        self._folder = folder
        self._backpressure = Backpressure(context.driver.outbox.room)

    @property
    def worker_pids(self) -> frozenset[int]:
        """The number of its process, if that is known."""
        return self._ranks | (frozenset() if self.worker is None else {self.worker.pid})

    def acknowledged(self, sequence: int) -> int:
        """The head has everything up to this number safe: so up to which the host may forget."""
        return self._backpressure.acknowledged(sequence)

    async def room(self) -> None:
        """Wait until the host may be heard further."""
        await self._backpressure.room()

    async def hear(self, frame: Frame) -> None:
        """Pass one event on; one that was heard before is not. Raises Nonsense."""
        taken = 0
        if frame["kind"] == "reported":
            taken = await self._context.rack.memory_taken(self.assignment.launch.devices)
        await self._pass_on(frame, taken)

    async def _pass_on(self, frame: Frame, device_memory_bytes: int = 0) -> None:
        kind, context = frame["kind"], self._context
        try:
            sequence, fact = int(frame["seq"]), self._fact(frame)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if self._backpressure.hears_nonsense():
                log.error("a host's event makes no sense", frame=frame, error=repr(error))
            if kind in _OUTCOMES:
                raise Nonsense(f"its outcome {kind!r} makes no sense: {error!r}") from None
            if self._backpressure.is_over:
                raise Nonsense(f"too much that makes no sense: {error!r}") from None
            return
        if sequence <= self.seen:
            return
        if isinstance(fact, Progress):
            report = replace(fact.report, device_memory_bytes=device_memory_bytes)
            fact = replace(fact, report=report)
        if kind == "started":
            if pid := processes.numbered(int(frame["worker_pid"]), self.host_pid, self._folder.uid):
                self.worker = processes.Remembered.of(pid)
            # No more than it may have: each is looked for among all processes of the machine.
            others = len(self.assignment.launch.devices) - 1
            pids = (int(each) for each in frame.get("rank_pids", ())[:others])
            here = {processes.numbered(pid, self.host_pid, self._folder.uid) for pid in pids}
            self._ranks = frozenset(here - {0})
        elif kind == "parked":
            self._remember_parked()
            if context.rack.parks(self.assignment.launch.devices):
                await context.release(self.assignment.launch.devices, self.worker_pids)
        elif kind in _OUTCOMES:
            if frame.get("error_kind") == RESTORE:
                await self._refuse(frame)
            await context.release(self.assignment.launch.devices, self.worker_pids)
        elif kind == "checkpoint_failed":
            self._say_not_saved(frame)
        self.seen = sequence
        told = context.driver.say(fact) if fact is not None else 0
        if sequence <= self.told_before:  # The head drops what it knows, if nothing else is in it.
            context.driver.outbox.seal()
        if kind == "started":
            told = await self._say_restored(frame) or told
        self._backpressure.heard(told, sequence)
        if isinstance(fact, Checkpointed | LeftDevice):
            context.tasks.create_task(self._prune())

    def hear_standing(self, link: HostLink) -> None:
        """Pass on what a host said once and for all, of the run that it has now."""
        for kind in _STANDING:
            if isinstance(said := link.attached.get(kind), dict):
                fact = self._fact({**said, "kind": kind, "attempt": link.attached["attempt"]})
                if fact is not None:
                    self._context.driver.say(fact)

    async def hear_death(self) -> None:
        """The host is no more: what it wrote down of the end, or else that the run is lost; before
        that, what it wrote down of the run's reports.

        Raises Nonsense; OSError, with nothing said yet, while it cannot be read.
        """
        run = self.assignment.run
        outcome = await asyncio.to_thread(self._folder.outcome, run.attempt)
        reports = await asyncio.to_thread(self._folder.reports, run.attempt)
        newest = None if outcome else await asyncio.to_thread(self._newest_backed)
        # All at once: nothing leaves for the head while a daemon takes over.
        for frame in map(json.loads, reports):
            await self._pass_on(frame)
        if outcome is not None:
            await self._pass_on(outcome)
            return
        if newest is not None:
            self._context.driver.say(Checkpointed(run, self._checkpoint(newest)))
        await self._context.release(self.assignment.launch.devices, self.worker_pids)
        self._context.driver.say(HostLost(run, "the trial's host is gone"))

    def _newest_backed(self) -> checkpoints.FoundCheckpoint | None:
        backed = self._folder.backed_checkpoints()
        with as_owner(self._folder.path):
            found = checkpoints.newest(self._folder.checkpoints)
            return next((each for each in found if each.path.name in backed), None)

    def _say_not_saved(self, frame: Frame) -> None:
        """Who waits for a checkpoint learns that it was not made; nobody else needs to know.

        Once for each that the head asked for: what is told so does not wait for room.
        """
        if not self.asked_checkpoint or frame.get("id") != self.asked_checkpoint:
            return
        self.asked_checkpoint = ""
        run, why = self.assignment.run, frame.get("reason")
        cut = why[:REASON_CHARACTERS] if isinstance(why, str) else ""
        reason = cut.encode(errors="replace").decode()
        said = pb.NotSaved(trial=run.trial, attempt=run.attempt, reason=reason)
        self._context.driver.outbox.put_transient(pb.AttachRequest(not_saved=said))

    def _fact(self, frame: Frame) -> HostFact | None:
        work, trial, node = self.assignment.work, self._folder.trial, self._context.node
        devices = self.assignment.launch.devices
        return fact_of(frame, trial, work.signal_goal, work.signal, node, devices)

    def _checkpoint(self, found: checkpoints.FoundCheckpoint) -> Checkpoint:
        run, launch = self.assignment.run, self.assignment.launch
        told = checkpoint_of(found.frame, run, self._context.node, launch.devices)
        # An earlier run may have had another number of devices.
        return told if found.attempt == run.attempt else replace(told, devices=0)

    async def _refuse(self, frame: Frame) -> None:
        """The next attempt is not to fail of the same checkpoint for ever. That of a result stays:
        the program was asked for something else than it came to. So does one of another number of
        devices: the next attempt has as many as then."""
        last, wanted = bool(self.assignment.kept_parked), self.assignment.checkpoint
        if wanted is not None and wanted.is_of_other(len(self.assignment.launch.devices)):
            return
        name, folder = str(frame.get("restored_from") or ""), self._folder.checkpoints
        if Path(name).name == self._held:
            return
        try:
            owned = self._folder.as_owner
            if await asyncio.to_thread(owned, checkpoints.refuse, folder, name, last):
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
            path = self._folder.checkpoints / name
            found = await asyncio.to_thread(self._folder.as_owner, checkpoints.verified, path)
        except checkpoints.DamagedCheckpoint as error:
            log.warning("checkpoint damaged", error=str(error))
            return 0
        run = self.assignment.run
        return self._context.driver.say(Checkpointed(run, self._checkpoint(found)))

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
            # Those of its result, and those from which other trials go on.
            forks, owned = self.assignment.work.forks, self._folder.as_owner
            prune, folder = checkpoints.prune, self._folder.checkpoints
            await asyncio.to_thread(owned, prune, folder, self._held, forks)
        except (OSError, ValueError) as error:
            log.warning("old checkpoints stay", trial=self._folder.trial, error=str(error))
