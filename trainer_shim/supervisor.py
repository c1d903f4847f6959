"""What a host does with its trial: requests in, events out, one training process at a time.

Rule: a request of an older attempt, or one that is already fulfilled, changes nothing. No event
says that a device is free before every thread was seen stopped, or the process was reaped.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Callable

from trainer_shim import temporary
from trainer_shim.kept import Files, aside
from trainer_shim.live import LiveTrial
from trainer_shim.page import NO_LIMIT
from trainer_shim.spec import Spec
from trainer_shim.suspension import Suspension
from trainer_shim.wire import Message
from trainer_shim.worker import Launch, fork_worker

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
    ) -> Launch | None:
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
        if isinstance(forked, Launch):
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
        temporary.remove_segments(temporary.segments(self.spec.checkpoints))
        with contextlib.suppress(OSError):  # of a program that came to its end before it was back
            Files(self.spec.cwd, aside(self.spec.checkpoints)).return_all()
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
