"""What a host does with its trial: requests come in, events go out, one training process at a time.

A request of an older attempt, or one that is already fulfilled, changes nothing. No event says that
a device is free before every thread was seen stopped, or the process was reaped.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from typing import Callable, NamedTuple

from trainer_shim import checkpoint_dir
from trainer_shim.agent import FORK, NOT_FURTHER
from trainer_shim.channel.frames import Message
from trainer_shim.channel.page import NO_LIMIT
from trainer_shim.host import cuda, image
from trainer_shim.host.image import ImageError, NotHere
from trainer_shim.host.imaging import Arrival
from trainer_shim.host.live_trial import LiveTrial
from trainer_shim.host.suspension import Suspension
from trainer_shim.host.worker import ProgramLaunch, Start, fork_workers
from trainer_shim.rerun import temporary_paths
from trainer_shim.rerun.workdir_rollback import WorkdirRollback, aside
from trainer_shim.spec import Spec

_DEMOTE_SECONDS = 60.0
# For processes to come to where others are to go on from, and to write their checkpoint there.
_FORK_SECONDS = 600.0
_FULL = (cuda.FULL, *image.DISK_FULL)
_NOT_ALL = (
    "trained further, these of its processes begin with the state of rank 0, since they saved none"
    " of their own at its last step"
)
# How argparse, and others like it, end a program whose arguments they refuse.
_USAGE_STATUS = 2
_USAGE = re.compile(r"(^|: )error: ", re.IGNORECASE)


class EndedFirst(NamedTuple):
    """How the first of several processes has ended; whether badly, without a word, and before any
    other had failed."""

    status: int
    cpu_seconds: float
    memory_bytes: int
    is_cause: bool


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
        self._arrival: Arrival | None = None
        # Asked while what it has on its device was put back there.
        self._then_suspend: tuple[str, float, str] | None = None
        self._left: EndedFirst | None = None
        self._oom_before = 0

    # Requests of the node daemon.

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
        self.begins_at_once = not self._is_held
        self._oom_before = self.group.out_of_memory_kills()
        self.output.go_on_from(None if restore is None else os.path.basename(restore))
        if restore is not None and image.is_image(restore):
            self._bring_back(restore, limit, cores)
            return None
        if restore is not None:
            self.output.hold_back()
        found = self.images.lay_out(is_anew=restore is None)
        memory = self.images.memory
        known = self.ranks.environments(are_imaged=memory is not None)
        environments = [{**found, **each} for each in known or [{}]]
        first = self.spec.within(environments[0])
        starts = [Start(first, attempt, restore, limit, cores, self.output, memory)]
        starts += self.ranks.starts(environments, attempt, restore, limit, memory)
        forked = fork_workers(starts, memory)
        if isinstance(forked, ProgramLaunch):
            return forked
        self.run = self.new_run(forked[0], restore)
        self.ranks.begin(forked[0], dict(enumerate(forked[1:], 1)))
        return None

    def _bring_back(self, restore: str, limit: int | None, cores: list[int] | None) -> None:
        """Restore an image of the program, in a child."""
        self.run = self.new_run(None, restore)
        try:
            manifest = image.read(restore)
            image.see_that_it_is_sound(manifest)
            if not self.images.work:
                raise NotHere(self.images.problem or "this node makes no images")
            if why := image.why_not_restorable(manifest, self.spec.directory, self.spec.gpu):
                raise NotHere(why)
            self._see_that_it_can_be_this_trial(manifest)
            self.images.expect(manifest)
            self.run.revive(manifest["host"]["run"])
            self.device_memory.arrives(manifest.get("away", ()))
            host, memory = manifest["host"], self.images.memory
            self._arrival = Arrival(host, self.output, memory)
            self._arrival.cores = cores or self.spec.cores
            self.ranks.expect(host.get("ranks"), self._arrival.others, restore, memory)
            for each in self._arrival.all:
                each.page.limit = NO_LIMIT if limit is None else limit
            ends = self._arrival.ends
            self.group.tools.add(self.images.bring_back(restore, ends, manifest))
            self._arrival.close_theirs()
        except (OSError, ImageError) as error:
            self._not_back(str(error), is_fit=not isinstance(error, NotHere))
        except Exception as error:  # what the manifest says of the program, anybody may have said
            self.run = self.new_run(None, restore)
            said = f"its manifest says what no host has written ({type(error).__name__}: {error})"
            self._not_back(said)

    def _see_that_it_can_be_this_trial(self, manifest: Message) -> None:
        """A process that holds at a boundary is told what is another by now, and says whether it
        can be; any other has its hyper-parameters in its memory. Raises ImageError."""
        ranks = manifest["host"].get("ranks")
        if (ranks["count"] if ranks is not None else 1) != max(len(self.spec.ranks), 1):
            raise ImageError("it is of another number of processes")
        if manifest["host"]["run"]["at_boundary"] is True and ranks is None:
            return
        if manifest["parameters"] != self.spec.parameters:
            raise ImageError("its process was started with other hyper-parameters")
        if self.spec.stages and manifest.get("trial") != self.spec.trial:
            raise ImageError("it was made in the middle of an iteration, where no value can be set")

    def _not_back(self, why: str, is_fit: bool = True) -> None:
        # It is not the image's fault that others fill the disk or the GPU.
        is_full = any(words in why for words in _FULL)
        kind = "not_started" if is_full else "restore" if is_fit else "unfit"
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.close()
        self.ranks.release()
        self._then_suspend = None
        self.device_memory.forget()
        self.group.kill()  # what a CRIU that was ended has left of it, too
        if (worker := self.worker) is not None:
            worker.release()
            self.run.worker = None
        self.phase = "ended"
        detail = f"its image cannot be brought back: {why}"
        self.emit(
            "failed",
            error_kind=kind,
            detail=detail,
            error_signature="",
            exit_code=None,
            step=self.run.step,
            restored_from=self.run.restored_from,
        )

    def _is_back(self, arrival: Arrival) -> None:
        """The program is there, stopped as it was when the image was taken."""
        self._arrival = None
        if self.run.restored_from is not None:
            image.forget_names(self.run.restored_from)
        self.run.worker = worker = arrival.worker()
        self.group.is_brought_back()
        if arrival.cores is not None:
            self.group.pin(arrival.cores)
        self.ranks.are_back(worker, {n: each.worker() for n, each in arrival.others.items()})
        restored: Message = {"kind": "revived"}
        if self._is_held:
            self._restored = restored
            self._suspension = Suspension(self, "park", "rebuilt", 0.0)
            self._suspension.freeze()
            return
        self.group.thaw()
        self._then_suspend = arrival.then_suspend
        if self.device_memory.is_away:
            self.put_back_on_device(lambda why, is_lost: self._is_revived(restored, why))
        else:
            self._is_revived(restored)

    def _is_revived(self, restored: Message, why_not: str = "") -> None:
        """The program that was brought back can go on, unless its GPU does not take what it had."""
        then, self._then_suspend = self._then_suspend, None
        if self.worker is None or self._suspension is not None:
            return
        if why_not:
            self._not_back(why_not)
            return
        self._goes_on(restored)
        if then is not None:
            self.suspend(*then)

    def _goes_on(self, restored: Message) -> None:
        """From where it was restored to."""
        if restored["kind"] == "revived":
            self.ranks.go_on(self.attempt, is_first_told=self.run.at_boundary)
        self.run.heard({**restored, "attempt": self.attempt})

    def hear_image(self) -> None:
        """What the child that works on an image says."""
        before = self.images.promised
        for word in self.images.words():
            if self.images.promised != before:
                self.run.say_fidelity()
            self._heard_image(word)

    def tool_ended(self, pid: int, status: int) -> bool:
        """Whether a process that has ended was a child that worked on an image, or moved what is on
        a GPU."""
        self.group.tools.discard(pid)
        if self.device_memory.ended(pid):
            self._settle()
            return True
        self.hear_image()  # before another can be at work
        said = self.images.ended(pid, status)
        for word in said or ():
            self._heard_image(word)
        return said is not None

    def _heard_image(self, word: Message) -> None:
        suspension = self._suspension
        if self._arrival is not None:
            if "done" in word:
                self._is_back(self._arrival)
            else:
                self._not_back(word["error"], is_fit=word["error"] not in image.NOT_NOW)
        elif suspension is not None and suspension.takes_image:
            suspension.heard_image(word)
        elif "done" in word and self.worker is not None:
            self.emit("checkpointed", **word["done"])  # taken in passing, and written since
        elif "error" in word and self.worker is not None:
            self.image_failed(self.images.id, word["error"], in_passing=True)
        self._settle()

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
        at_boundary, fork = self.run.at_boundary, self.run.fork_checkpoint
        self.run.resuming()
        if cores is not None:
            self.group.pin(cores)
        self.group.thaw()
        if self.device_memory.is_away:
            self.put_back_on_device(
                lambda why, is_lost: self._is_awake(at_boundary, fork, limit, why)
            )
        else:
            self._is_awake(at_boundary, fork, limit)

    def _is_awake(self, at_boundary: bool, fork: str, limit: int | None, why_not: str = "") -> None:
        """The parked process can go on, unless what it had on its device was lost."""
        then, self._then_suspend = self._then_suspend, None
        worker = self.worker
        if worker is None or self._suspension is not None:
            return
        if why_not:
            self.kill(f"its device's memory is lost: {why_not}")
            return
        self.ranks.limit(limit)
        if at_boundary and fork:
            self._forks(fork, self.run.step)
        else:
            self.ranks.go_on(self.attempt, is_first_told=at_boundary)
            if at_boundary:
                worker.tell("resume", attempt=self.attempt)
            else:
                self.run.say_resumed()
        if then is not None:
            self.suspend(*then)

    @property
    def _is_waking(self) -> bool:
        """Whether it was told to go on, and cannot yet."""
        moving = self.device_memory.is_moving
        return self.phase == "running" and self._suspension is None and moving

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
            self._goes_on(restored)

    def suspend(self, tier: str, deadline_seconds: float, cause: str = "request") -> None:
        """Give the device back at the next boundary, by the tier asked for or a safer one."""
        if tier == "kill":
            self.kill(cause)
        elif self._arrival is not None:
            self._arrival.then_suspend = tier, deadline_seconds, cause
        elif self._suspension is not None and self._suspension.passes:
            self._suspension.comes_before(tier, deadline_seconds, cause)
        elif self._is_waking:
            self._then_suspend = tier, deadline_seconds, cause
        elif self.phase == "parked" and tier == "checkpoint":
            self.demote(None, deadline_seconds, cause)
        elif self.phase == "running" and self.worker is not None and self._suspension is None:
            # What cannot be rebuilt is kept: a program without a snapshot is only ever parked.
            kept = tier if self.can_be_rebuilt else "park"
            self._suspension = Suspension(self, kept, cause, deadline_seconds)
            if self.run.is_over or self.is_left:
                pass  # it is on its way out, and needs no boundary for that
            elif self.shows_boundaries:
                self._suspension.await_boundary()
            elif kept == "park":
                self._suspension.freeze()
            elif self.images.serve(self.run.level):
                self._suspension.image()
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
        if self._is_waking:
            return
        if self.run.started and self.worker.page.looping:
            self.worker.tell("report")
        elif self.run.started:
            self.run.say_usage()

    def checkpoint(self, id: str) -> None:
        """A durable snapshot: in the background while running, at once while parked."""
        if self.worker is None or self._suspension is not None or self._is_waking:
            return
        if self.is_left:
            return  # no checkpoint would be of all
        by_image = self.images.serve(self.run.level)
        if self.device_memory.is_away and not by_image:
            self.emit("checkpoint_failed", id=id, reason="its device is lent to others")
            return
        if self.phase == "running" and by_image:
            if self.images.is_due and self.images.fd is None and self.run.started:
                passing = Suspension(self, "park", "checkpoint", _DEMOTE_SECONDS, id, True, True)
                self._suspension = passing
                passing.await_boundary() if self.shows_boundaries else passing.image()
                self._settle()
        elif self.phase == "running" and self.run.has_boundaries and self.ranks.others:
            if self.shows_boundaries:
                self._suspension = Suspension(
                    self, "park", "checkpoint", _DEMOTE_SECONDS, id, passes=True
                )
                self._suspension.await_boundary()
                self._settle()
        elif self.phase == "running" and self.run.has_boundaries:
            self.tell_save(id, wait=False)
        elif self.phase == "parked" and (self.run.at_boundary or by_image):
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
            if suspension.silent and suspension.stage == "writing":
                # The checkpoint being taken serves: end with it instead of staying parked.
                suspension.tier, suspension.silent = "checkpoint", False
            return
        keeps_gpu = self.device_memory.has_gpu and not self.device_memory.can_leave
        if not self.can_be_rebuilt and keeps_gpu:
            self.kill(f"{cause}: it can only be parked, and would keep its GPU")
            return
        if not self.can_be_rebuilt:
            self.emit("checkpoint_failed", id=id, reason="the trial can only be parked")
            return
        self._suspension = Suspension(self, "checkpoint", cause, seconds, id)
        self._suspension.write_down()

    def stop(self, deadline_seconds: float) -> None:
        """End the run for good, with a final checkpoint if one can be taken in time."""
        if self.can_be_rebuilt:
            self.suspend("checkpoint", deadline_seconds, "stop")
        suspension = self._suspension
        later = self._then_suspend or (suspension.then_suspend if suspension else None)
        if later is not None and later[2] == "stop":
            return  # as soon as its device has what it needs, or what is taken in passing is there
        if suspension is None or suspension.tier != "checkpoint":
            self.kill("stop")

    def kill(self, cause: str = "request") -> None:
        """End the training process now; progress since the last checkpoint is lost."""
        if self._arrival is not None:
            self._arrival.close()
            self._arrival = None
            self.ranks.release()
            self.images.give_up()
            self.device_memory.forget()
            self.group.kill()
            self.phase = "idle"
            Suspension(self, "kill", cause, 0.0).say_suspended()
        elif self.worker is not None:
            if self._suspension is None or self._suspension.stage != "ending":
                self._suspension = Suspension(self, "kill", cause, 0.0)
            self._suspension.end()
        elif self.phase == "idle":
            Suspension(self, "kill", cause, 0.0).say_suspended()

    @property
    def shows_boundaries(self) -> bool:
        """Whether the program comes to an iteration boundary soon."""
        worker = self.worker
        return worker is not None and self.run.started and worker.page.looping

    # What the agent says.

    def heard(self, message: Message) -> None:
        """One frame from the agent."""
        kind = message.get("kind")
        if kind == "at_boundary":
            self._holds(message)
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

    def heard_of_rank(self, number: int) -> None:
        """Take in what the agent of another of its processes has said."""
        rank = self.ranks.others.get(number)
        for message in rank.worker.channel.read() if rank is not None else ():
            if message.get("kind") == "at_boundary":
                self._holds(message, number)
            elif message.get("kind") == "checkpoint_failed":
                self.heard(message)
            else:
                self.ranks.heard(number, message, self._is_first_gone())
        self._settle()

    def _is_first_gone(self) -> bool:
        """Whether the first process is over without a word."""
        self.hear_out()
        worker, is_known = self.worker, self._left is not None or self.run.is_over
        return worker is not None and worker.is_dying and not is_known

    def _holds(self, message: Message, rank: int = 0) -> None:
        """A process waits at a boundary. Where there are several, that counts once all of them do,
        at the same."""
        if self._left is not None:
            self.ranks.tell(rank, "resume", attempt=self.attempt)
        elif message["cause"] == FORK:
            self._forks(message["id"], message["step"], rank)
        elif message["cause"] == "request" and self._suspension is None:
            # Frozen from outside, since it came too late, and let go on: it heard of that only now.
            worker = self.ranks.others[rank].worker if rank else self.worker
            if worker is not None:
                worker.tell("resume", attempt=self.attempt)
        elif self.ranks.holds(rank, message["step"]):
            self._all_hold(message["step"], message["cause"])

    def _all_hold(self, step: int, cause: str) -> None:
        """All processes wait at the same boundary, for this reason if nobody has asked for it."""
        suspension = self._suspension or Suspension(self, "park", cause, 0.0)
        self._suspension = suspension
        self.run.holds(step, fork=suspension.fork)
        suspension.reached_boundary()

    def _forks(self, id: str, step: int, rank: int = 0) -> None:
        """The program waits where others are to go on from. What was asked before comes after; if
        the program is being stopped already, this comes when it goes on."""
        if self.ranks.others:
            self._fork_together(id, step, rank)
            return
        before = self._suspension
        self.run.holds(step, fork=id)
        if not self.images.serve_others(self.run.level):
            self.tell_save(id, wait=True, is_fork=True)
            self.run.imaged()
            self.run.go_on(self.attempt)
            if before is not None:
                self.ask_to_hold()  # it has taken that for an answer
        elif before is None or before.stage == "waiting":
            self._suspension = Suspension(self, "park", FORK, _DEMOTE_SECONDS, id, True, True)
            if before is not None:
                self._suspension.then_suspend = before.asked
            self._suspension.reached_boundary()

    def _fork_together(self, id: str, step: int, rank: int) -> None:
        """As `_forks`, of one of several processes: once all of them wait there. If some have gone
        on from there, since others came too late, there is nothing to wait for."""
        before = self._suspension
        if not self.ranks.awaits(step):
            self.ranks.tell(rank, "resume", attempt=self.attempt)
            return
        if before is None or (before.stage == "waiting" and not before.awaits_fork):
            fork = Suspension(self, "park", FORK, _FORK_SECONDS, id, passes=True)
            if before is not None and before.asked is not None:
                fork.comes_before(*before.asked)
            self._suspension = fork
        if self.ranks.holds(rank, step, for_fork=True):
            self.run.holds(step, fork=id)
            if self._suspension is not None and self._suspension.awaits_fork:
                self._suspension.reached_boundary()

    def _settle(self) -> None:
        """Forget a suspension that is done, and do what had to wait for it."""
        done = self._suspension
        if done is not None and done.stage == "frozen":
            self._suspension = None
            if done.then_suspend is not None:
                self.suspend(*done.then_suspend)
            elif done.then_resume is not None:
                self.resume(*done.then_resume)

    # The process and the clock.

    def exited(self, status: int, cpu_seconds: float, memory_bytes: int) -> None:
        """The training process was reaped, having used this; what it left behind goes with it."""
        worker, run = self.worker, self.run
        if worker is None:
            return
        self.hear_out()
        if self.ranks.are_left:
            # Nothing is said before all are gone; after a good end they may come to theirs.
            is_cause = status != 0 and not run.is_over and not self.ranks.are_ended
            self._left = EndedFirst(status, cpu_seconds, memory_bytes, is_cause)
            if status == 0 and self.ranks.failed is None:
                run.leaves()
                self.ranks.first_has_ended(self.attempt)
                if self._suspension is not None:
                    self._suspension.first_has_ended()
                    self._settle()
            else:
                self.ranks.end()
            return
        self.device_memory.forget()
        self._then_suspend = None
        # What others say of their end comes of that of the first.
        last_at = 0.0 if self._left is not None and self._left.is_cause else math.inf
        self._left = None
        suspension, self._suspension = self._suspension, None
        # What exits by itself, though it was to be killed at that moment, has come to its own end.
        own_end = run.is_over or os.WIFEXITED(status)
        # Not all of it has, if only the first of several did.
        own_end = own_end and not (run.is_well(status) and self.ranks.are_cut_off)
        was_ended = suspension is not None and suspension.stage == "ending" and not own_end
        self.group.kill()
        temporary_paths.remove_segments(temporary_paths.segments(self.spec.checkpoints))
        with contextlib.suppress(OSError):  # of a program that came to its end before it was back
            WorkdirRollback(self.spec.cwd, aside(self.spec.checkpoints)).return_all()
        if worker.pipe is not None:
            self.output.pump(worker.pipe)
        run.step = run.reached
        if not was_ended:
            run.say_started()
        cpu_seconds += self.ranks.cpu_seconds
        run.say_usage(cpu_seconds, memory_bytes + self.ranks.memory_bytes)
        oom = self.group.out_of_memory_kills() > self._oom_before
        worker.release()
        run.worker = None
        if suspension is not None and was_ended:
            self.output.let_through()
            self.phase = "idle"
            self.ranks.release()
            suspension.say_suspended()
            return
        if run.part is not None and (run.is_over or status == 0):
            self._join_parts(run.part)
        outcome = run.ended(status, oom)
        failed, failed_at = self.ranks.failed, outcome.pop("failed_at", last_at)
        is_well = outcome["kind"] != "failed"
        if failed is not None and (is_well or failed["failed_at"] < failed_at):
            outcome = {**outcome, **failed}
            del outcome["failed_at"]
        self.ranks.release()
        self.output.let_through(show=outcome["kind"] == "failed")
        if outcome.get("error_kind") == "exit":
            # Of the error itself nobody knows more than what the program printed of it.
            line = self.output.last_line()
            outcome["detail"] += f": {line}" if line else ""
            if outcome["exit_code"] == _USAGE_STATUS and not run.step and _USAGE.search(line):
                outcome["error_kind"] = "usage"
        if outcome["kind"] == "completed" or not self.images.may_need_temporary:
            self.images.clear()
        self.phase = "ended"
        self.emit(**outcome)

    def _join_parts(self, part: Message) -> None:
        """Make the trial's last checkpoint of what each process has saved as it ended."""
        others, lacking = self.ranks.parts(part["step"])
        try:
            saved = checkpoint_dir.joined(self.spec.checkpoints, part, others)
        except (OSError, checkpoint_dir.CheckpointError) as error:
            self.emit("checkpoint_failed", id=part["id"], reason=str(error))
            self.run.lacks(f"{NOT_FURTHER}: {error}")
            return
        self.run.ended_with(saved)
        if lacking:
            self.run.lacks(f"{_NOT_ALL}: {', '.join(map(str, lacking))}")
        self.emit(**{**part, **saved, "kind": "checkpointed"})

    def rank_ended(self, pid: int, status: int, cpu_seconds: float, memory_bytes: int) -> None:
        """A process was reaped that may be another of the program's, having used this."""
        is_first_gone = self.ranks.are_left and self._is_first_gone()
        if not self.ranks.ended(pid, status, cpu_seconds, memory_bytes, is_first_gone):
            return
        if (left := self._left) is not None:
            if not self.ranks.are_left:
                self.exited(left.status, left.cpu_seconds, left.memory_bytes)
            return
        is_waited_for = self.phase == "running" and not self.run.at_boundary
        step = self.ranks.all_hold_at() if self.ranks.failed is None and is_waited_for else None
        if step is not None:  # those that are left all wait
            self._all_hold(step, "limit")
            self._settle()

    @property
    def is_left(self) -> bool:
        """Whether the first process has ended, and the others are waited for."""
        return self._left is not None

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        times = [self._lease_out(), self.device_memory.deadline(), self.images.deadline()]
        if self.phase == "running":
            times.append(self.run.deadline())
        if self._suspension is not None:
            times.append(self._suspension.deadline())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.phase == "running":
            self.run.tick(now)
        self.device_memory.tick(now)
        self.images.tick(now)
        if self._suspension is not None:
            self._suspension.tick(now)
            self._settle()
        lease_out = self._lease_out()
        if lease_out is not None and now >= lease_out:
            self.suspend("checkpoint", self.lease_grace, "lease")

    def _lease_out(self) -> float | None:
        running = self.phase == "running" and self._suspension is None and not self._is_waking
        return self.lease_expires if running else None
