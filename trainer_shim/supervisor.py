"""What a host does with its trial: requests in, events out, one training process at a time.

Rule: a request of an older attempt, or one that is already fulfilled, changes nothing. A
suspension once begun is carried through. No event says that a device is free before every
thread was seen stopped, or the process was reaped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable

from trainer_shim import snapshot
from trainer_shim.events import EventLog, boottime
from trainer_shim.freeze import WorkGroup
from trainer_shim.output import Output
from trainer_shim.page import NO_LIMIT
from trainer_shim.spec import Spec
from trainer_shim.wire import Message
from trainer_shim.worker import Launch, Worker, fork_worker, outcome_of_status

# A program that has shown no boundary by then counts as started: it may never show one.
_QUIET_START_SECONDS = 10.0
# How long a program may take to exit once it is over (threads of its own, exit handlers).
_EXIT_SECONDS = 60.0
_DEMOTE_SECONDS = 60.0
_FREEZE_POLL_SECONDS = 0.001


@dataclass
class Goal:
    """A suspension on its way. `stage` is waiting (for a boundary), saving, freezing, ending."""

    tier: str
    cause: str
    asked_at: float
    deadline_at: float
    id: str | None = None
    stage: str = "waiting"
    boundary_seconds: float = 0.0
    freezing_since: float = 0.0
    silent: bool = False  # a checkpoint taken while parked: freeze again, say only that it is there
    then_resume: tuple[int, int | None, list[int] | None] | None = None
    saved: Message | None = None


class Supervisor:
    """The state of one trial on this node, and what changes it."""

    def __init__(self, spec: Spec, publish: Callable[[Message], None]) -> None:
        self.spec = spec
        self.log = EventLog(os.path.join(spec.directory, "events.jsonl"))
        self.output = Output(spec.output, spec.output_limit_bytes)
        self.group = WorkGroup(os.getpid(), spec.cgroup_work)
        self.worker: Worker | None = None
        self.attempt = 0
        self.phase = "idle"
        self.lease_expires: float | None = None
        self._publish = publish
        self._goal: Goal | None = None
        self._forget_process(None)

    def _forget_process(self, restore: str | None) -> None:
        self.step = 0
        self._restore = restore
        self._started = False
        self._has_boundaries = False
        self._at_boundary = False
        self._fidelity = "park-only"
        self.standing: dict[str, Message | None] = {"fidelity": None, "planned": None}
        self._said: Message | None = None
        self._last_values: dict[str, Any] = {}
        self._last_saved: Message | None = None
        self._over_at: float | None = None
        self._resuming_since: float | None = None
        self._oom_before = 0

    def emit(self, kind: str, **fields: Any) -> None:
        """Number an event, keep it until acknowledged, send it to the daemon if one is there."""
        self._publish(self.log.append(kind, self.attempt, **fields))

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether a checkpoint of this program is worth anything."""
        return self._fidelity != "park-only"

    # -- requests of the node daemon ---------------------------------------------------------

    def start(
        self, attempt: int, restore: str | None, limit: int | None, cores: list[int] | None
    ) -> Launch | None:
        """Fork a training process; in the child the answer is what it needs to become one."""
        if self.worker is not None or attempt <= self.attempt:
            return None
        self.attempt = attempt
        self.phase = "running"
        self._forget_process(restore)
        self._oom_before = self.group.out_of_memory_kills()
        if restore is not None:
            self.output.hold_back()
        forked = fork_worker(self.spec, attempt, restore, limit, cores, self.output)
        if isinstance(forked, Launch):
            return forked
        self.worker = forked
        return None

    def resume(self, attempt: int, limit: int | None, cores: list[int] | None) -> None:
        """Let the parked process go on, on these cores if any are named."""
        if self.phase != "parked" or self.worker is None:
            return
        if self._goal is not None:
            if self._goal.silent:
                self._goal.then_resume = (attempt, limit, cores)
            return
        self.attempt = attempt
        self.phase = "running"
        self.worker.page.limit = NO_LIMIT if limit is None else limit
        self._resuming_since = boottime()
        if cores is not None:
            self.group.pin(cores)
        self.group.thaw()
        if self._at_boundary:
            self._at_boundary = False
            self.worker.tell("resume", attempt=attempt)
        else:
            self._say_resumed()

    def suspend(self, tier: str, deadline_seconds: float, cause: str = "request") -> None:
        """Give the device back at the next boundary, by the tier asked for or a safer one."""
        if tier == "kill":
            self.kill(cause)
        elif self.phase == "parked" and tier == "checkpoint":
            self.demote(None, deadline_seconds, cause)
        elif self.phase == "running" and self.worker is not None and self._goal is None:
            # What cannot be rebuilt is kept: a program without a snapshot is only ever parked.
            kept = tier if self.can_be_rebuilt else "park"
            now = boottime()
            self._goal = goal = Goal(kept, cause, now, now + deadline_seconds)
            if self._started and self.worker.page.looping:
                self.worker.tell("suspend")
            elif kept == "park":
                self._freeze(goal)
            else:
                self.worker.tell("suspend")

    def checkpoint(self, id: str) -> None:
        """A durable snapshot: in the background while running, at once while parked."""
        if self.worker is None or self._goal is not None:
            return
        if self.phase == "running" and self._has_boundaries:
            self._tell_save(id, wait=False)
        elif self.phase == "parked" and self._at_boundary:
            now = boottime()
            self._goal = Goal("park", "checkpoint", now, now + _DEMOTE_SECONDS, id, silent=True)
            self._save(self._goal)
        else:
            self.emit("checkpoint_failed", id=id, reason="the program is not at a boundary")

    def demote(self, id: str | None, seconds: float, cause: str = "request") -> None:
        """From parked to a checkpoint, if the trial can be rebuilt from one."""
        if self.phase != "parked" or self.worker is None:
            return
        if self._goal is not None:
            if self._goal.silent and self._goal.stage == "saving":
                # The checkpoint being taken serves: end with it instead of staying parked.
                self._goal.tier, self._goal.silent = "checkpoint", False
            return
        if not self.can_be_rebuilt:
            self.emit("checkpoint_failed", id=id, reason="the trial can only be parked")
            return
        now = boottime()
        self._goal = Goal("checkpoint", cause, now, now + seconds, id)
        if self._at_boundary:
            self._save(self._goal)
        else:
            self.group.thaw()
            self.worker.tell("suspend")

    def stop(self, deadline_seconds: float) -> None:
        """End the run for good, with a final checkpoint if one can be taken in time."""
        if self.can_be_rebuilt:
            self.suspend("checkpoint", deadline_seconds, "stop")
        if self._goal is None or self._goal.tier != "checkpoint":
            self.kill("stop")

    def kill(self, cause: str = "request") -> None:
        """End the training process now; progress since the last checkpoint is lost."""
        now = boottime()
        if self.worker is not None:
            if self._goal is None or self._goal.stage != "ending":
                self._goal = Goal("kill", cause, now, now, stage="ending")
            self.group.kill()
        elif self.phase == "idle":
            self._say_suspended(Goal("kill", cause, now, now))

    # -- what the agent says -----------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """One frame from the agent."""
        handler = getattr(self, f"_heard_{message.get('kind')}", None)
        if handler is not None:
            handler(message)

    def _heard_hello(self, message: Message) -> None:
        self._has_boundaries = True

    def _heard_begun(self, message: Message) -> None:
        self.step = message["step"]
        self._has_boundaries = True
        self._say_started()

    def _heard_executing(self, message: Message) -> None:
        self._say_started()

    def _heard_restored(self, message: Message) -> None:
        if self.worker is not None:
            if self.worker.pipe is not None:
                self.output.pump(self.worker.pipe)
            self.output.let_through()
            self.worker.tell("restored")

    def _heard_fidelity(self, message: Message) -> None:
        self._fidelity = message["level"]
        self.standing["fidelity"] = {k: v for k, v in message.items() if k != "kind"}
        self.emit(**message)

    def _heard_planned(self, message: Message) -> None:
        self.standing["planned"] = {"steps": message["steps"]}
        self.emit("planned", steps=message["steps"])

    def _heard_reported(self, message: Message) -> None:
        self.step = message["last_step"]
        for _, values in message["points"]:
            self._last_values.update(values)
        self.emit(**message)

    def _heard_at_boundary(self, message: Message) -> None:
        self.step = message["step"]
        self._at_boundary = True
        now = boottime()
        if self._goal is None:
            self._goal = Goal("park", message["cause"], now, now)
        goal = self._goal
        goal.boundary_seconds = now - goal.asked_at
        if goal.stage != "waiting":
            return
        if goal.tier == "park" or not self.can_be_rebuilt:
            self._freeze(goal)
        else:
            self._save(goal)

    def _heard_resumed(self, message: Message) -> None:
        self.step = message["step"]
        self._say_resumed()

    def _heard_checkpointed(self, message: Message) -> None:
        goal = self._goal
        saved = {name: message[name] for name in ("id", "path", "step", "bytes", "sha256")}
        self._last_saved = saved
        if goal is None or goal.stage != "saving" or goal.id != message["id"]:
            self.emit(**message)
        elif goal.silent:
            goal.saved = message
            self._freeze(goal)
        else:
            goal.saved = saved
            goal.stage = "ending"
            self.group.kill()

    def _heard_checkpoint_failed(self, message: Message) -> None:
        goal = self._goal
        self.emit("checkpoint_failed", id=message["id"], reason=message["reason"])
        if goal is not None and goal.stage == "saving" and goal.id == message["id"]:
            goal.cause = f"{goal.cause}: no checkpoint: {message['reason']}"
            self._freeze(goal)

    def _heard_completed(self, message: Message) -> None:
        self._said = message
        self._over_at = boottime()

    _heard_failed = _heard_completed

    # -- stages of a suspension ----------------------------------------------------------------

    def _tell_save(self, id: str, wait: bool) -> None:
        assert self.worker is not None
        fields = {"id": id, "wait": wait, "output_bytes": self.output.total_bytes}
        self.worker.tell("save", **fields)

    def _save(self, goal: Goal) -> None:
        goal.id = goal.id or f"a{self.attempt}-s{self.step}"
        goal.stage = "saving"
        self.group.thaw()
        self._tell_save(goal.id, wait=True)

    def _freeze(self, goal: Goal) -> None:
        goal.stage = "freezing"
        goal.freezing_since = boottime()
        self._look_frozen(goal)

    def _look_frozen(self, goal: Goal) -> None:
        if not self.group.freeze():
            return
        self._goal = None
        self.phase = "parked"
        if goal.silent:
            if goal.saved is not None:
                self.emit(**goal.saved)
            if goal.then_resume is not None:
                self.resume(*goal.then_resume)
            return
        self._say_started()
        self.emit(
            "parked",
            step=self.worker.page.step if self.worker is not None else self.step,
            boundary_seconds=goal.boundary_seconds,
            freeze_seconds=boottime() - goal.freezing_since,
            at_boundary=self._at_boundary,
            memory_bytes=self.group.memory_bytes(),
            cause=goal.cause,
        )

    def _say_started(self) -> None:
        if self._started or self.worker is None:
            return
        self._started = True
        self.emit(
            "started",
            worker_pid=self.worker.pid,
            step=self.step,
            restored_from=self._restore,
            seconds=boottime() - self.worker.started_at,
        )

    def _say_resumed(self) -> None:
        if self._resuming_since is not None:
            self.emit("resumed", step=self.step, seconds=boottime() - self._resuming_since)
            self._resuming_since = None

    def _say_suspended(self, goal: Goal) -> None:
        tier = "checkpoint" if goal.saved is not None else "kill"
        saved = goal.saved or snapshot.newest_verified(self.spec.checkpoints)
        self.emit(
            "suspended",
            tier=tier,
            step=saved["step"] if saved is not None else 0,
            checkpoint=saved,
            seconds=boottime() - goal.asked_at,
            cause=goal.cause,
        )

    # -- the process and the clock -------------------------------------------------------------

    def exited(self, status: int) -> None:
        """The training process was reaped; everything it left behind goes with it."""
        worker = self.worker
        if worker is None:
            return
        for message in worker.channel.read():
            self.heard(message)
        goal = self._goal
        self.group.kill()
        if worker.pipe is not None:
            self.output.pump(worker.pipe)
        self.step = worker.page.step
        oom = self.group.out_of_memory_kills() > self._oom_before
        worker.release()
        self.worker, self._goal = None, None
        if goal is not None and goal.stage == "ending" and self._said is None:
            self.output.let_through()
            self.phase = "idle"
            self._say_suspended(goal)
            return
        if self._said is None and status == 0:
            # A program that was exec'd: what it reported before its end is what is known.
            last = {"checkpoint": self._last_saved, "metrics": self._last_values}
            self._said = {"kind": "completed", **last}
        outcome = outcome_of_status(status, oom, self._said)
        self.output.let_through(show=outcome["kind"] == "failed")
        self.phase = "ended"
        self.emit(**{"step": self.step, **outcome})

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        due = (self._exit_by(), self._quiet_until(), self._lease_out())
        times = [time for time in due if time is not None]
        goal = self._goal
        if goal is not None and goal.stage == "freezing":
            times.append(boottime() + _FREEZE_POLL_SECONDS)
        elif goal is not None and goal.stage != "ending":
            times.append(goal.deadline_at)
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        goal = self._goal
        exit_by, quiet_until = self._exit_by(), self._quiet_until()
        lease_out = self._lease_out()
        if exit_by is not None and now >= exit_by:
            self.group.kill()
        if quiet_until is not None and now >= quiet_until:
            self._say_started()
        if lease_out is not None and now >= lease_out:
            self.suspend("checkpoint", self.spec.lease_grace_seconds, "lease")
        if goal is None:
            return
        if goal.stage == "freezing":
            self._look_frozen(goal)
        elif goal.stage != "ending" and now >= goal.deadline_at:
            if goal.tier == "park":
                self._freeze(goal)
            else:
                self.kill(f"{goal.cause}: deadline missed")

    def _exit_by(self) -> float | None:
        if self.worker is None or self._over_at is None:
            return None
        return self._over_at + _EXIT_SECONDS

    def _quiet_until(self) -> float | None:
        if self.worker is None or self._started or self._has_boundaries:
            return None
        return self.worker.started_at + _QUIET_START_SECONDS

    def _lease_out(self) -> float | None:
        return self.lease_expires if self.phase == "running" and self._goal is None else None

    def close(self) -> None:
        """Kill what is left and close the files."""
        self.group.kill()
        self.log.close()
        self.output.close()
