"""What a host does with its trial: requests in, events out, one training process at a time.

Rule: a request of an older attempt, or one that is already fulfilled, changes nothing. No event
says that a device is free before every thread was seen stopped, or the process was reaped.
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from typing import Any, Callable, Optional

from trainer_shim import checkpoint_dir
from trainer_shim.channel.frames import Message
from trainer_shim.channel.page import NO_LIMIT
from trainer_shim.host.event_log import EventLog, boottime
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.output import Output
from trainer_shim.host.run import ProgramRun
from trainer_shim.host.worker import ProgramLaunch, Worker, fork_worker
from trainer_shim.rerun import temporary_paths
from trainer_shim.rerun.workdir_rollback import WorkdirRollback, aside
from trainer_shim.spec import Spec

# What a host has of its trial: files, processes, and what is known of the newest run.


class LiveTrial(ABC):
    """One trial on this node; `phase` is idle, running, parked or ended."""

    def __init__(self, spec: Spec, publish: Callable[[Message], None]) -> None:
        self.spec = spec
        self.log = EventLog(os.path.join(spec.directory, "events.jsonl"))
        self.output = Output(spec.output, spec.output_limit_bytes)
        self.group = WorkGroup(os.getpid(), spec.cgroup_work)
        self.attempt = 0
        self.phase = "idle"
        self._publish = publish
        self.run = self.new_run(None, None)

    def new_run(self, worker: Worker | None, restore: str | None) -> ProgramRun:
        """Nothing is known yet of what `worker` does."""
        hung_seconds = self.spec.hung_seconds
        return ProgramRun(worker, restore, self.group, self.output, self.emit, hung_seconds)

    @property
    def worker(self) -> Worker | None:
        """The training process, while there is one."""
        return self.run.worker

    def emit(self, kind: str, **fields: Any) -> None:
        """Number an event, keep it until acknowledged, send it to the daemon if one is there."""
        self._publish(self.log.append(kind, self.attempt, **fields))

    @abstractmethod
    def heard(self, message: Message) -> None:
        """One frame from the agent."""

    def hear_out(self) -> None:
        """Take in all that the agent has said by now."""
        if self.worker is not None:
            for message in self.worker.channel.read():
                self.heard(message)

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether a checkpoint of this program is worth anything."""
        return self.run.level != "park-only"

    def tell_save(self, id: str, wait: bool) -> None:
        """Have the agent write its progress as checkpoint `id`."""
        if self.worker is not None:
            self.worker.tell("save", id=id, wait=wait)

    def close(self) -> None:
        """Kill what is left and close the files."""
        self.group.kill()
        self.log.close()
        self.output.close()


# A suspension on its way, from the request until the device is free.
#
# Rule: once begun it is carried through, and ends in the tier asked for or a safer one: what
# cannot be saved is parked, what reaches no boundary in time is frozen from outside, or ended. A
# program that comes to its own end first has ended: it is let out until the deadline, whatever
# the tier, and its outcome stands.

_FREEZE_POLL_SECONDS = 0.001

# Attempt, limit and cores of a resume that has to wait.
Resumption = tuple[int, Optional[int], Optional[list[int]]]


class Suspension:
    """Gives the device of a trial back. `stage` is waiting (for a boundary), saving, freezing,
    frozen (it is done), or ending (the process is about to be reaped).

    `silent` is a checkpoint taken while parked: freeze again, say only that it is there.
    """

    def __init__(
        self,
        trial: LiveTrial,
        tier: str,
        cause: str,
        seconds: float,
        id: str | None = None,
        silent: bool = False,
    ) -> None:
        self.tier = tier
        self.silent = silent
        self.stage = "waiting"
        self.then_resume: Resumption | None = None
        self._trial = trial
        self._cause = cause
        self._asked_at = boottime()
        self._deadline_at = self._asked_at + seconds
        self._id = id
        self._boundary_seconds = 0.0
        self._freezing_since = 0.0
        self._saved: Message | None = None

    # -- stages ----------------------------------------------------------------------------------

    def await_boundary(self) -> None:
        """Have the agent hold at the next boundary."""
        if self._trial.worker is not None:
            self._trial.worker.tell("suspend")

    def save(self) -> None:
        """Held at a boundary: write a checkpoint."""
        trial = self._trial
        self._id = self._id or f"a{trial.attempt}-s{trial.run.step}"
        self.stage = "saving"
        trial.group.thaw()
        trial.tell_save(self._id, wait=True)

    def freeze(self) -> None:
        """Stop every thread, wherever it is."""
        self.stage = "freezing"
        self._freezing_since = boottime()
        self._look_frozen()

    def end(self, cause: str | None = None) -> None:
        """End the process; what it has not saved is lost."""
        self._cause = cause or self._cause
        self.stage = "ending"
        self._trial.group.kill()

    def _look_frozen(self) -> None:
        trial, run = self._trial, self._trial.run
        if not trial.group.freeze():
            return
        # It says no more, and of a run that was given back nothing counts that is said later.
        trial.hear_out()
        if run.worker is not None and run.worker.has_exited:
            return  # an exited process looks frozen: it is reaped next, and its outcome told
        if run.is_over and boottime() < self._deadline_at:
            self.stage = "waiting"
            trial.group.thaw()
            return
        self.stage = "frozen"
        trial.phase = "parked"
        if self.silent:
            if self._saved is not None:
                trial.emit(**self._saved)
            return
        run.frozen()
        trial.emit(
            "parked",
            step=run.worker.page.step if run.worker is not None else run.step,
            boundary_seconds=self._boundary_seconds,
            freeze_seconds=boottime() - self._freezing_since,
            at_boundary=run.at_boundary,
            memory_bytes=trial.group.memory_bytes(),
            cause=self._cause,
        )

    def say_suspended(self) -> None:
        """The process is gone: from where the trial can go on."""
        tier = "checkpoint" if self._saved is not None else "kill"
        saved = self._saved or checkpoint_dir.newest_undamaged(self._trial.spec.checkpoints)
        self._trial.emit(
            "suspended",
            tier=tier,
            step=saved["step"] if saved is not None else 0,
            checkpoint=saved,
            seconds=boottime() - self._asked_at,
            cause=self._cause,
        )

    # -- what the agent says ---------------------------------------------------------------------

    def reached_boundary(self) -> None:
        """The agent holds."""
        self._boundary_seconds = boottime() - self._asked_at
        if self.stage != "waiting":
            return
        if self.tier == "park" or not self._trial.can_be_rebuilt:
            self.freeze()
        else:
            self.save()

    def checkpointed(self, message: Message, saved: Message) -> bool:
        """A checkpoint was written; whether it was the one of this suspension."""
        if self.stage != "saving" or self._id != message["id"]:
            return False
        if self.silent:
            self._saved = message
            self.freeze()
        else:
            self._saved = saved
            self.end()
        return True

    def not_checkpointed(self, message: Message) -> None:
        """A checkpoint could not be written: if it was the one of this suspension, park."""
        if self.stage == "saving" and self._id == message["id"]:
            self._cause = f"{self._cause}: no checkpoint: {message['reason']}"
            self.freeze()

    # -- the clock -------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        if self.stage == "freezing":
            return boottime() + _FREEZE_POLL_SECONDS
        return self._deadline_at if self.stage in ("waiting", "saving") else None

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.stage == "freezing":
            self._look_frozen()
        elif self.stage in ("waiting", "saving") and now >= self._deadline_at:
            if self.tier == "park":
                self.freeze()
            else:
                self.end(f"{self._cause}: deadline missed")


_DEMOTE_SECONDS = 60.0
# How argparse, and others like it, end a program whose arguments they refuse.
_USAGE_STATUS = 2
_USAGE = re.compile(r"(^|: )error: ", re.IGNORECASE)


class Supervisor(LiveTrial):
    """The state of one trial on this node, and what changes it."""

    def __init__(self, spec: Spec, publish: Callable[[Message], None]) -> None:
        super().__init__(spec, publish)
        self.lease_expires: float | None = None
        self.lease_grace = spec.lease_grace_seconds
        self._suspension: Suspension | None = None
        # Rebuilt before its turn, it is not told that it may go on from where it was restored to:
        # what it said when it came there is kept.
        self._is_held = False
        self._restored: Message | None = None
        self._oom_before = 0

    # -- requests of the node daemon ---------------------------------------------------------

    def start(
        self,
        attempt: int,
        restore: str | None,
        limit: int | None,
        cores: list[int] | None,
        hold: bool = False,
    ) -> ProgramLaunch | None:
        """Fork a training process; in the child the answer is what it needs to become one.

        With `hold` it stops where it is restored to, until it is told to go on as a newer attempt.
        """
        if self.worker is not None or attempt <= self.attempt:
            return None
        self.attempt = attempt
        self.phase = "running"
        self._is_held, self._restored = hold and restore is not None, None
        self._oom_before = self.group.out_of_memory_kills()
        self.output.go_on_from(None if restore is None else os.path.basename(restore))
        if restore is not None:
            self.output.hold_back()
        forked = fork_worker(self.spec, attempt, restore, limit, cores, self.output)
        if isinstance(forked, ProgramLaunch):
            return forked
        self.run = self.new_run(forked, restore)
        return None

    def resume(self, attempt: int, limit: int | None, cores: list[int] | None) -> None:
        """Let the parked process go on, on these cores if any are named."""
        if self._is_held and self.worker is not None:
            self._let_go(attempt, limit, cores)
            return
        if self.phase != "parked" or self.worker is None:
            return
        if self._suspension is not None:
            if self._suspension.silent:
                self._suspension.then_resume = (attempt, limit, cores)
            return
        self.attempt = attempt
        self.phase = "running"
        self.worker.page.limit = NO_LIMIT if limit is None else limit
        at_boundary = self.run.at_boundary
        self.run.resuming()
        if cores is not None:
            self.group.pin(cores)
        self.group.thaw()
        if at_boundary:
            self.worker.tell("resume", attempt=attempt)
        else:
            self.run.say_resumed()

    def _let_go(self, attempt: int, limit: int | None, cores: list[int] | None) -> None:
        """What was rebuilt need not wait any more, whether it has come there or not."""
        if self._suspension is not None:
            self._suspension.then_resume = (attempt, limit, cores)
            return
        worker, restored = self.worker, self._restored
        assert worker is not None
        self._is_held, self._restored = False, None
        self.attempt, self.phase = attempt, "running"
        worker.page.limit = NO_LIMIT if limit is None else limit
        if cores is not None:
            self.group.pin(cores)
        self.group.thaw()
        if restored is not None:
            self.run.heard(restored)

    def suspend(self, tier: str, deadline_seconds: float, cause: str = "request") -> None:
        """Give the device back at the next boundary, by the tier asked for or a safer one."""
        if tier == "kill":
            self.kill(cause)
        elif self.phase == "parked" and tier == "checkpoint":
            self.demote(None, deadline_seconds, cause)
        elif self.phase == "running" and self.worker is not None and self._suspension is None:
            # What cannot be rebuilt is kept: a program without a snapshot is only ever parked.
            kept = tier if self.can_be_rebuilt else "park"
            self._suspension = Suspension(self, kept, cause, deadline_seconds)
            if self.run.is_over:
                pass  # it is on its way out, and needs no boundary for that
            elif kept == "park" and not (self.run.started and self.worker.page.looping):
                self._suspension.freeze()
            else:
                self._suspension.await_boundary()
            self._settle()

    def report(self, at_step: int | None = None) -> None:
        """Say what was done since the last report: the program at its next boundary, if it has any
        soon, else what can be seen from here. With `at_step`, the program once it is that far."""
        if at_step is not None:
            if self.worker is not None:
                self.worker.page.mark = at_step
            return
        if self.phase != "running" or self.worker is None or self._suspension is not None:
            return
        if self.run.started and self.worker.page.looping:
            self.worker.tell("report")
        elif self.run.started:
            self.run.say_usage()

    def checkpoint(self, id: str) -> None:
        """A durable snapshot: in the background while running, at once while parked."""
        if self.worker is None or self._suspension is not None:
            return
        if self.phase == "running" and self.run.has_boundaries:
            self.tell_save(id, wait=False)
        elif self.phase == "parked" and self.run.at_boundary:
            self._suspension = Suspension(
                self, "park", "checkpoint", _DEMOTE_SECONDS, id, silent=True
            )
            self._suspension.save()
        else:
            self.emit("checkpoint_failed", id=id, reason="the program is not at a boundary")

    def demote(self, id: str | None, seconds: float, cause: str = "request") -> None:
        """From parked to a checkpoint, if the trial can be rebuilt from one."""
        if self.phase != "parked" or self.worker is None:
            return
        suspension = self._suspension
        if suspension is not None:
            if suspension.silent and suspension.stage == "saving":
                # The checkpoint being taken serves: end with it instead of staying parked.
                suspension.tier, suspension.silent = "checkpoint", False
            return
        if not self.can_be_rebuilt:
            self.emit("checkpoint_failed", id=id, reason="the trial can only be parked")
            return
        self._suspension = Suspension(self, "checkpoint", cause, seconds, id)
        if self.run.at_boundary:
            self._suspension.save()
        else:
            self.group.thaw()
            self._suspension.await_boundary()

    def stop(self, deadline_seconds: float) -> None:
        """End the run for good, with a final checkpoint if one can be taken in time."""
        if self.can_be_rebuilt:
            self.suspend("checkpoint", deadline_seconds, "stop")
        if self._suspension is None or self._suspension.tier != "checkpoint":
            self.kill("stop")

    def kill(self, cause: str = "request") -> None:
        """End the training process now; progress since the last checkpoint is lost."""
        if self.worker is not None:
            if self._suspension is None or self._suspension.stage != "ending":
                self._suspension = Suspension(self, "kill", cause, 0.0)
            self._suspension.end()
        elif self.phase == "idle":
            Suspension(self, "kill", cause, 0.0).say_suspended()

    # -- what the agent says -----------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """One frame from the agent."""
        kind = message.get("kind")
        if kind == "at_boundary" and message["cause"] == "request" and self._suspension is None:
            # Frozen from outside, since it came too late, and let go on: it heard of that only now.
            if self.worker is not None:
                self.worker.tell("resume", attempt=self.attempt)
        elif kind == "at_boundary":
            self.run.holds(message["step"])
            if self._suspension is None:
                self._suspension = Suspension(self, "park", message["cause"], 0.0)
            self._suspension.reached_boundary()
        elif kind == "saving":
            self.log.write_down(self.attempt, message["id"])
            self.output.mark(message["id"], self.worker.pipe if self.worker else None)
        elif kind == "checkpointed":
            saved = {name: message[name] for name in ("id", "path", "step", "bytes", "sha256")}
            self.run.last_saved = saved
            if self._suspension is None or not self._suspension.checkpointed(message, saved):
                self.emit(**message)
        elif kind == "checkpoint_failed":
            self.emit("checkpoint_failed", id=message["id"], reason=message["reason"])
            if self._suspension is not None:
                self._suspension.not_checkpointed(message)
        elif kind == "restored" and self._is_held:
            self._restored = message
            if self._suspension is None:
                self._suspension = Suspension(self, "park", "rebuilt", 0.0)
                self._suspension.freeze()
        elif kind == "begun" and self._is_held:
            self.kill("it did not stop where its checkpoint was taken")
        else:
            self.run.heard(message)
        self._settle()

    def _settle(self) -> None:
        """Forget a suspension that is done, and do what had to wait for it."""
        done = self._suspension
        if done is not None and done.stage == "frozen":
            self._suspension = None
            if done.then_resume is not None:
                self.resume(*done.then_resume)

    # -- the process and the clock -------------------------------------------------------------

    def exited(self, status: int, cpu_seconds: float, memory_bytes: int) -> None:
        """The training process was reaped, having used this; what it left behind goes with it."""
        worker, run = self.worker, self.run
        if worker is None:
            return
        self.hear_out()
        suspension, self._suspension = self._suspension, None
        # What exits by itself, though it was to be killed at that moment, has come to its own end.
        own_end = run.is_over or os.WIFEXITED(status)
        was_ended = suspension is not None and suspension.stage == "ending" and not own_end
        self.group.kill()
        temporary_paths.remove_segments(temporary_paths.segments(self.spec.checkpoints))
        with contextlib.suppress(OSError):  # of a program that came to its end before it was back
            WorkdirRollback(self.spec.cwd, aside(self.spec.checkpoints)).return_all()
        if worker.pipe is not None:
            self.output.pump(worker.pipe)
        run.step = worker.page.step
        if not was_ended:
            run.say_started()
        run.say_usage(cpu_seconds, memory_bytes)
        oom = self.group.out_of_memory_kills() > self._oom_before
        worker.release()
        run.worker = None
        if suspension is not None and was_ended:
            self.output.let_through()
            self.phase = "idle"
            suspension.say_suspended()
            return
        outcome = run.ended(status, oom)
        self.output.let_through(show=outcome["kind"] == "failed")
        if outcome.get("error_kind") == "exit":
            # Of the error itself nobody knows more than what the program printed of it.
            line = self.output.last_line()
            outcome["detail"] += f": {line}" if line else ""
            if outcome["exit_code"] == _USAGE_STATUS and not run.step and _USAGE.search(line):
                outcome["error_kind"] = "usage"
        self.phase = "ended"
        self.emit(**outcome)

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        times = [self._lease_out()]
        if self.phase == "running":
            times.append(self.run.deadline())
        if self._suspension is not None:
            times.append(self._suspension.deadline())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.phase == "running":
            self.run.tick(now)
        if self._suspension is not None:
            self._suspension.tick(now)
            self._settle()
        lease_out = self._lease_out()
        if lease_out is not None and now >= lease_out:
            self.suspend("checkpoint", self.lease_grace, "lease")

    def _lease_out(self) -> float | None:
        running = self.phase == "running" and self._suspension is None
        return self.lease_expires if running else None
