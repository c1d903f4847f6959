"""One training process, as far as it has reported: where it is, how exact a resume is, how it
ended.

What it says is passed on once. It counts as started at its first boundary. A program without
boundaries counts as started when that is known, when it has been quiet for long, or at its end; and
it counts as hung if it then shows no sign of life, even during its first iteration. Once its last
thread has ended, its exit may take as long as it shows signs of life.
"""

from __future__ import annotations

from typing import Any, Callable

from trainer_shim.agent import NOT_RETURNED
from trainer_shim.channel.frames import Message, number
from trainer_shim.host.agentless_metrics import AgentlessMetrics
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.output import Output
from trainer_shim.host.usage import UsageMeter
from trainer_shim.host.worker import Worker, outcome_of_status
from trainer_shim.reporting import summarize
from trainer_shim.spec import Spec

# A program that has shown no boundary by then may never show one; a framework that it has
# imported promises one, but not for how long the program prepares before.
_QUIET_START_SECONDS = 10.0
_PROMISED_START_SECONDS = 60.0
# What a program leaves to its exit may take as long as it does something, within reason.
_EXIT_IDLE_SECONDS = 60.0
_EXIT_SECONDS = 3600.0
BLIND = "the program has shown no iteration boundaries"
_NO_STEP = "the program's first iteration does not end"


# Whether a program that shows no iterations still does anything.
#
# It computes, prints, or reads and writes files; what does none of it for long has hung. Of a look
# that comes late no more counts than of one in time: a machine that slept has looked at nobody.


LOOK_SECONDS = 5.0
IDLE_CORES = 0.01
_IDLE_BYTES_A_SECOND = 1 << 16


class Liveness:
    """What one training process shows of itself; `due` is when to look, in boot-time seconds."""

    def __init__(self, group: WorkGroup, output: Output) -> None:
        self._group = group
        self._output = output
        self.begin(boottime())

    def begin(self, now: float) -> None:
        """What was idle until now does not count."""
        self.due = now + LOOK_SECONDS
        self._idle_seconds = 0.0
        self._looked_at = now
        self._seen: tuple[float, int, int] | None = None  # a resume waits for no look

    def look(self, now: float) -> float:
        """For how long there has been no sign of life."""
        before, seconds = self._seen, min(now - self._looked_at, 2 * LOOK_SECONDS)
        group = self._group
        cpu_seconds, moved_bytes, printed_bytes = self._seen = (
            group.cpu_seconds(),
            group.moved_bytes(),
            self._output.total_bytes,
        )
        self.due = now + LOOK_SECONDS
        self._looked_at = now
        is_alive = before is None or (
            cpu_seconds - before[0] >= IDLE_CORES * seconds
            or moved_bytes - before[1] >= _IDLE_BYTES_A_SECOND * seconds
            or printed_bytes != before[2]
        )
        self._idle_seconds = 0.0 if is_alive else self._idle_seconds + seconds
        return self._idle_seconds


class ProgramRun:
    """What a training process has said of itself; `worker` is None before and after it.

    `restore` is the checkpoint that it is to go on from. `emit(kind, **fields)` tells the daemon,
    and `end` kills it and all that it has started.
    Without boundaries it has hung when it has shown no sign of life for the spec's `hung_seconds`.
    """

    def __init__(
        self,
        worker: Worker | None,
        restore: str | None,
        group: WorkGroup,
        output: Output,
        emit: Callable[..., None],
        spec: Spec,
        end: Callable[[], None],
        promise: Callable[[Message], Message] = dict,
    ) -> None:
        self.worker = worker
        self.step = 0
        self.started = False
        self.has_boundaries = False
        self.at_boundary = False
        self.fork_checkpoint = ""  # that it waits for there, for others to go on from
        self.level = "park-only"
        self.standing: dict[str, Message | None] = {"fidelity": None, "planned": None}
        self.last_saved: Message | None = None
        #: What the first of several processes has saved as it ended, of a checkpoint of all.
        self.part: Message | None = None
        self._restore = restore
        self._group = group
        self._output = output
        self._emit = emit
        self._end = end
        self._promise = promise
        self._agents_word: Message | None = None  # of how true a resume is
        self._said: Message | None = None
        self._last_values: dict[str, Any] = {}
        self._over_at: float | None = None
        self._resuming_since: float | None = None
        self._is_restoring = restore is not None
        self._begun_at: int | None = None
        self._is_blind = False
        self._meter = UsageMeter(group)
        self._told_step = 0
        self._quiet_since = boottime()
        self._life = Liveness(group, output)
        self._spec = spec
        self._hung_seconds = spec.hung_seconds
        self._unseen: AgentlessMetrics | None = None
        self._born_at = boottime()

    @property
    def restored_from(self) -> str | None:
        """The checkpoint that it goes on from."""
        return self._restore

    @property
    def reached(self) -> int:
        """The step that it has come to."""
        seen = 0 if self._unseen is None else self._unseen.step
        shown = 0 if self.worker is None else self.worker.page.step
        return max(self.step, seen, shown)

    @property
    def is_over(self) -> bool:
        """Whether the program has said how it ended."""
        return self._said is not None

    def is_well(self, status: int) -> bool:
        """Whether it has come to a good end, as its word and its exit status say."""
        if self._said is not None:
            return bool(self._said["kind"] == "completed")
        return status == 0 and not self._is_restoring

    # What the agent says.

    def heard(self, message: Message) -> None:
        """One frame from the agent; unknown kinds are of a newer one."""
        if self._unseen is not None and message.get("kind") in ("hello", "begun"):
            self._unseen.end()
            self._unseen = None
        handler = getattr(self, f"_heard_{message.get('kind')}", None)
        if handler is not None:
            handler(message)

    def _heard_hello(self, message: Message) -> None:
        self.has_boundaries = True

    def _heard_begun(self, message: Message) -> None:
        self.step = message["step"]
        self.has_boundaries = True
        self._is_restoring = False
        self._begun_at = message["step"]
        if self.started:
            self.say_usage()
        self.say_started()
        # Until here it has prepared itself.
        self._meter.forget(self.step)
        self._meter.go(boottime())

    def _heard_blind(self, message: Message) -> None:
        self._is_blind = True
        if message.get("is_unseen"):
            self._look_for_itself()
        self.say_started()

    def _look_for_itself(self) -> None:
        """No agent speaks for this program: what it tells is read from outside."""
        began_at = boottime() if self.worker is None else self.worker.started_at
        self._unseen = AgentlessMetrics(
            self._spec, self._output, began_at, self.step, self._heard_unseen, self._plan
        )

    def _read_output(self) -> None:
        """Before anything is made of the program's files: what it has printed, it did before."""
        if self.worker is not None and self.worker.pipe is not None:
            self._output.pump(self.worker.pipe)

    def _heard_unseen(self, report: Message) -> None:
        """What the host has seen of a program that nobody speaks for."""
        report["cpu_seconds"] = self._meter.untold_cpu_seconds
        report["memory_bytes"] = self._group.memory_bytes()
        self._heard_reported(report)

    def _heard_restored(self, message: Message) -> None:
        if self.worker is not None:
            self._read_output()
            self._output.let_through()
            self.step = self.worker.page.step
            self._is_restoring = False
            self._quiet_since = boottime()
            self.worker.tell("restored")

    def _heard_fidelity(self, message: Message) -> None:
        self._agents_word = message
        self.level = message["level"]
        self.say_fidelity()

    def _heard_planned(self, message: Message) -> None:
        self._plan(message["steps"])

    def _plan(self, steps: int) -> None:
        self.standing["planned"] = {"steps": steps}
        self._emit("planned", steps=steps)

    def _heard_reported(self, message: Message) -> None:
        self.step = self._told_step = message["last_step"]
        for _, values in message["points"]:
            self._last_values.update(values)
        self.say_started()  # what is told of it before its first boundary is of its training, too
        self._emit(**self._meter.rest(message, boottime()))

    def _heard_resumed(self, message: Message) -> None:
        self.step = message["step"]
        self.say_resumed()

    def _heard_completed(self, message: Message) -> None:
        self._said = message
        self.leaves()

    _heard_failed = _heard_completed

    def leaves(self) -> None:
        """What is left of it is its exit, or the other processes of several."""
        self._over_at = boottime()
        self._life.begin(self._over_at)

    def _heard_part(self, message: Message) -> None:
        self.part = message

    def _heard_revived(self, message: Message) -> None:
        """It was brought back from an image, and goes on as this attempt."""
        worker = self.worker
        if worker is None:
            return
        self._is_restoring, self.started = False, True
        self._say("started", seconds=boottime() - self._born_at)
        now = boottime()
        self._meter.forget(self.step)
        self._meter.go(now)
        self._life.begin(now)
        spec = self._spec  # by now, which may be another trial's than that of the image
        said = {"trial": spec.trial, "parameters": spec.parameters, "stages": spec.stages}
        self.go_on(message["attempt"], **said, checkpoint_steps=spec.checkpoint_steps)

    def ended_with(self, saved: Message) -> None:
        """This is the checkpoint of its end."""
        self.last_saved = saved
        if self._said is not None:
            self._said = {**self._said, "checkpoint": saved}

    # What the daemon is told.

    def lacks(self, what: str) -> None:
        """Say beside the fidelity what there will not be."""
        if (word := self._agents_word) is not None:
            self._heard_fidelity({**word, "reason": f"{word['reason']}; {what}"})

    def say_fidelity(self) -> None:
        """What is promised of a resume, as far as it is known."""
        if self._agents_word is not None:
            said = self._promise(self._agents_word)
            self.standing["fidelity"] = {k: v for k, v in said.items() if k != "kind"}
            self._emit(**said)

    def say_started(self) -> None:
        """Once; not while it restores: nobody knows yet from where it goes on."""
        if self.started or self.worker is None or self._is_restoring:
            return
        self.started = True
        self._told_step = self.step
        if self.standing["fidelity"] is None:
            said = {"level": self.level, "reason": BLIND, "framework": ""}
            self._heard_fidelity({"kind": "fidelity", **said})
        # A slow start ends with the first step; of a program without steps it has ended.
        seconds = boottime() - self.worker.started_at
        self._say("started", seconds=seconds, awaits_step=not self._is_blind)
        self._meter.go(self.worker.started_at)
        self._life.begin(boottime())

    def _say(self, kind: str, **fields: Any) -> None:
        pid = self.worker.pid if self.worker is not None else 0
        self._emit(kind, worker_pid=pid, step=self.step, restored_from=self._restore, **fields)

    def holds(self, step: int, fork: str = "") -> None:
        """It waits at a boundary, and has reported what it did until there."""
        self.step, self.fork_checkpoint = step, fork
        self.at_boundary = True
        self._meter.stop()

    def frozen(self) -> None:
        """Every thread of it was stopped, wherever it was; it may have told less than it did."""
        self._read_output()  # of a program that nobody speaks for, its steps
        self.step = self._told_step = self.reached
        self.say_started()
        self.say_usage()
        self._meter.stop()

    def go_on(self, attempt: int, **more: Any) -> None:
        """Tell it so, if it waits for that."""
        if self.at_boundary and self.worker is not None:
            self.at_boundary = False
            self.worker.tell("resume", attempt=attempt, **more)

    def imaged(self) -> None:
        """It was stopped for an image of it, and is not any more."""
        self._meter.go(boottime())
        self._life.begin(boottime())

    def resuming(self) -> None:
        """It was told to go on."""
        self._resuming_since = now = boottime()
        self._meter.go(now)
        self._life.begin(now)
        self.at_boundary = False

    def say_resumed(self) -> None:
        """It goes on."""
        if self._resuming_since is not None:
            self._emit("resumed", step=self.step, seconds=boottime() - self._resuming_since)
            self._resuming_since = None

    def say_usage(self, cpu_seconds: float | None = None, memory_bytes: int | None = None) -> float:
        """Tell what it has used since it last told that itself; the CPU seconds of it.

        Both are given at its end, when there is nothing left to look at.
        """
        if self._unseen is not None:
            self._read_output()
            self._unseen.look()
        used = self._meter.measure(boottime(), cpu_seconds)
        if used is None:
            return 0.0
        self._emit(
            "reported",
            first_step=self._told_step,
            last_step=self._told_step,
            count=0,
            points=[],
            signal=summarize([]),
            examples=0,
            memory_bytes=self._group.memory_bytes() if memory_bytes is None else memory_bytes,
            **used,
        )
        return float(used["cpu_seconds"])

    # Images.

    def state(self) -> Message:
        """What is known of it, for whoever brings it back from an image."""
        return {
            "step": self.step,
            "has_boundaries": self.has_boundaries,
            "at_boundary": self.at_boundary,
            "agents_word": self._agents_word,
            "planned": self.standing["planned"],
            "last_values": {name: number(value) for name, value in self._last_values.items()},
            "begun_at": self._begun_at,
            "is_blind": self._is_blind,
            "is_unseen": self._unseen is not None,
        }

    def revive(self, state: Message) -> None:
        """It is about to be as it was when this was its `state`."""
        self.step = self._told_step = state["step"]
        self.has_boundaries, self.at_boundary = state["has_boundaries"], state["at_boundary"]
        self._begun_at, self._is_blind = state["begun_at"], state["is_blind"]
        if state.get("is_unseen"):
            self._look_for_itself()
        self._last_values = {name: float(value) for name, value in state["last_values"].items()}
        self.standing["planned"] = state["planned"]
        self._heard_fidelity(state["agents_word"])
        if state["planned"] is not None:
            self._emit("planned", **state["planned"])

    # The clock and the end.

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        unseen = None if self._unseen is None else self._unseen.due
        due = (self._look_at, self._quiet_until, self._meter.due, unseen)
        return min((time for time in due if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        look_at, quiet_until, usage_due = self._look_at, self._quiet_until, self._meter.due
        if look_at is not None and now >= look_at:
            self._look_for_life(now)
        if quiet_until is not None and now >= quiet_until:
            self.say_started()
        if usage_due is not None and now >= usage_due:
            self.say_usage()
        if self._unseen is not None and now >= self._unseen.due:
            self._read_output()
            self._unseen.tick()

    def _look_for_life(self, now: float) -> None:
        """End a program without boundaries that has hung, and one that is over but never exits."""
        idle_seconds = self._life.look(now)
        if self._over_at is not None:
            if idle_seconds >= _EXIT_IDLE_SECONDS or now >= self._over_at + _EXIT_SECONDS:
                self._end()
        elif idle_seconds >= self._hung_seconds:
            idle = f"for {self._hung_seconds:g} s (retry.hung_seconds) it has printed nothing"
            what = BLIND if self._begun_at is None else _NO_STEP
            detail = f"{what}, and {idle} and used less than {IDLE_CORES:.0%} of a core"
            said = {"error_kind": "hung", "detail": detail, "error_signature": detail}
            self._heard_failed({"kind": "failed", **said})
            self._end()

    @property
    def _has_stepped(self) -> bool:
        """Whether it has ended an iteration: how long one takes is for others to judge then."""
        begun, worker = self._begun_at, self.worker
        return begun is not None and worker is not None and worker.page.step > begun

    @property
    def _look_at(self) -> float | None:
        is_over = self._over_at is not None
        is_looked_at = is_over or (self.started and not self._has_stepped)
        return self._life.due if self.worker is not None and is_looked_at else None

    @property
    def _quiet_until(self) -> float | None:
        if self.worker is None or self.started or self._is_restoring:
            return None
        # Back at its checkpoint, a program may have nothing left to iterate over.
        promised = self.has_boundaries and self._restore is None
        return self._quiet_since + (_PROMISED_START_SECONDS if promised else _QUIET_START_SECONDS)

    def ended(self, status: int, killed_for_memory: bool) -> Message:
        """Kind and fields of the event that tells how it ended, once the process was reaped."""
        if self._said is None and status == 0 and self._is_restoring:
            said = {"detail": NOT_RETURNED, "error_signature": NOT_RETURNED}
            self._said = {"kind": "failed", "error_kind": "restore", **said}
        elif self._said is None and status == 0:
            # A program that was exec'd: what it reported before its end is what is known.
            last = {"checkpoint": self.last_saved, "metrics": self._last_values}
            self._said = {"kind": "completed", **last}
        outcome = outcome_of_status(status, killed_for_memory, self._said)
        return {"step": self.step, "restored_from": self._restore, **outcome}
