"""A suspension in progress, from the request until the device is free.

Once begun it is carried through, and ends in the requested tier or a safer one: a program that
cannot be saved is parked, one that reaches no boundary in time is frozen from outside, or ended. If
a program comes to its own end first, it may end until the deadline, whatever the tier, and its
outcome counts. So may several processes of which the first has ended: nothing could bring back some
of them, so that at the deadline they are ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Callable, Optional

from trainer_shim import checkpoint_dir
from trainer_shim.agent import FORK
from trainer_shim.channel.frames import Message
from trainer_shim.host.checkpoint_forms import CHECKPOINT, IMAGE
from trainer_shim.host.event_log import boottime
from trainer_shim.host.live_trial import LiveTrial

_POLL_SECONDS = 0.001
# For a checkpoint in place of a park, which nobody waits for so long.
_SAVE_SECONDS = 60.0
_NO_BOUNDARY = "it shows no boundary between two steps"

# Attempt, limit and cores of a resume that has to wait.
Resumption = tuple[int, Optional[int], Optional[list[int]]]


class Writing(ABC):
    """The program's progress, being written down as checkpoint `id` in one of its forms."""

    form = ""
    leaves_it_stopped = False

    def __init__(self, trial: LiveTrial, id: str | None, why: str) -> None:
        self.id = id
        self.why = why
        self._trial = trial
        self._since = boottime()

    @property
    def seconds(self) -> float:
        """For how long."""
        return boottime() - self._since

    @property
    def is_stopping(self) -> bool:
        """Whether it waits for the program to stop, and is to be looked at again soon."""
        return False

    @abstractmethod
    def go_on(self) -> None:
        """Do what can be done now, without waiting."""

    def _name(self) -> str:
        self.id = self.id or f"a{self._trial.attempt}-s{self._trial.run.step}"
        return self.id


class ByAgent(Writing):
    """The program, which is held at a boundary, writes its framework's checkpoint."""

    form = CHECKPOINT

    def go_on(self) -> None:
        """See Writing."""
        trial, name = self._trial, self._name()
        trial.group.thaw()
        trial.tell_save(name, wait=True, is_fork=name == trial.run.fork_checkpoint)


class ByCriu(Writing):
    """The program is stopped wherever it is, and an image of it written."""

    form = IMAGE
    leaves_it_stopped = True
    _is_stopped = False

    @property
    def is_stopping(self) -> bool:
        """See Writing."""
        return not self._is_stopped

    def go_on(self) -> None:
        """See Writing."""
        trial = self._trial
        if trial.images.fd is not None:
            return  # one that was taken in passing is still being written
        trial.run.frozen()
        self._is_stopped = True
        trial.take_image(self._name(), self.why)


class Suspension:
    """Gives the device of a trial back.


    `silent` is a checkpoint taken while parked: freeze again, say only that it is there. With
    `passes` it is one of a program that runs, and goes on at once.
    """

    def __init__(
        self,
        trial: LiveTrial,
        tier: str,
        cause: str,
        seconds: float,
        id: str | None = None,
        silent: bool = False,
        passes: bool = False,
    ) -> None:
        self.tier = tier
        self.silent = silent
        self.passes = passes
        self.then_suspend: tuple[str, float, str] | None = None
        self.then_resume: Resumption | None = None
        #: Waiting (for a boundary), moving (what is on its device), writing, freezing, frozen (it
        #: is done), or ending (the process is about to be reaped).
        self.stage = "waiting"
        self._writing: Writing | None = None
        self._trial = trial
        self._cause = cause
        self._asked_at = boottime()
        self._deadline_at = self._asked_at + seconds
        if tier == "park" and trial.device_memory.problem:
            self._cannot_park()
        self._id = id
        self._boundary_seconds = 0.0
        self._left_since = self._asked_at
        self._saved: Message | None = None

    @property
    def awaits_fork(self) -> bool:
        """Whether the program is on its way to where others are to go on from."""
        return self._cause == FORK and self.stage == "waiting"

    @property
    def fork(self) -> str:
        """The checkpoint from which others are to go on, if the program is on its way there."""
        return self._id or "" if self.awaits_fork else ""

    @property
    def asked(self) -> tuple[str, float, str] | None:
        """What is to be done yet if something else comes first: tier, seconds, cause."""
        if self.passes:
            return self.then_suspend
        return self.tier, self._deadline_at - boottime(), self._cause

    def comes_before(self, tier: str, seconds: float, cause: str) -> None:
        """Another suspension is asked for meanwhile, and comes next.

        Where processes are waited for, until they hold at one step or have saved, both together
        take no longer than that one may: each has half of its time.
        """
        if self._trial.ranks.others and self._is_bounded:
            seconds /= 2
            self._deadline_at = min(self._deadline_at, boottime() + seconds)
        self.then_suspend = tier, seconds, cause

    # Stages.

    def await_boundary(self) -> None:
        """Have the agent hold at the next boundary."""
        self._trial.ask_to_hold()

    def save(self) -> None:
        """Held at a boundary, or stopped: write its progress down in the form that is best."""
        form, why = self._trial.form(self._cause == "stop")
        # What others go on from is beside the program: its processes' connections are not for two.
        if form == IMAGE and not (self._cause == FORK and self._trial.ranks.others):
            self.image(why)
            return
        self.stage = "writing"
        self._writing = ByAgent(self._trial, self._id, why)
        self._writing.go_on()

    def image(self, why: str = _NO_BOUNDARY) -> None:
        """Write an image, wherever the program is, with nothing of it left on a GPU."""

        def write() -> None:
            self.stage = "writing"
            self._writing = ByCriu(self._trial, self._id, why)
            self._look()

        self._leave_device(write)

    def freeze(self) -> None:
        """Stop every thread, wherever it is, with nothing of it left on a GPU."""
        memory = self._trial.device_memory
        if memory.problem:
            self.end(f"{self._cause}: {memory.problem}")
        else:
            self._leave_device(self._stop)

    def _leave_device(self, then: Callable[[], None]) -> None:
        """Have what it has on its device moved from there, if that can be, and go on."""
        trial, memory = self._trial, self._trial.device_memory
        self._left_since = boottime()
        if memory.is_away or not memory.can_leave:
            then()
            return

        def left(why: str, is_lost: bool) -> None:
            if self.stage == "moving":
                self._keeps_device(why, is_lost) if why else then()

        self.stage, self._writing = "moving", None
        trial.take_off_device(left)

    def _stop(self) -> None:
        self.stage, self._writing = "freezing", None
        self._look()

    def _keeps_device(self, why: str, is_lost: bool) -> None:
        """Its device's memory could not be moved: its progress is written down, or it ends."""
        trial = self._trial
        if trial.images.work:
            trial.cannot_image(why)
        if self.passes and not is_lost:
            trial.emit("checkpoint_failed", id=self._id, reason=why)
            self._pass()
        elif is_lost or not trial.can_be_rebuilt:
            self.end(f"{self._cause}: {why}")
        else:
            self._cannot_park()
            self.stage = "waiting"
            self.save() if trial.run.at_boundary else self.await_boundary()

    def _cannot_park(self) -> None:
        """Its program cannot leave its device: its progress is written down, which takes longer."""
        self.tier = "checkpoint"
        self._deadline_at = max(self._deadline_at, boottime() + _SAVE_SECONDS)

    def write_down(self) -> None:
        """Parked: write its progress down. For that it needs its device once more, unless it is an
        image of it."""
        trial = self._trial
        form, why = trial.form(False)
        if trial.device_memory.is_away and form == IMAGE:
            self.image(why)
        elif trial.device_memory.is_away:
            self._return(self.write_down)
        elif trial.run.at_boundary or trial.images.serve(trial.run.level):
            self.save()
        else:
            trial.group.thaw()
            self.await_boundary()

    def _return(self, then: Callable[[], None]) -> None:
        """Let it go on, with what it had on its device back there."""
        trial = self._trial
        if not trial.device_memory.is_away:
            self.stage = "waiting"
            trial.group.thaw()
            then()
            return
        self.stage = "moving"

        def back(why: str, is_lost: bool) -> None:
            if self.stage != "moving":
                return
            self.stage = "waiting"
            if why:
                self.end(f"{self._cause}: {why}")
            else:
                then()

        trial.group.thaw()
        trial.put_back_on_device(back)

    def end(self, cause: str | None = None) -> None:
        """End the process; what it has not saved is lost."""
        self._cause = cause or self._cause
        self.stage = "ending"
        self._trial.device_memory.forget()  # nobody waits for what is on its way
        self._trial.ranks.end()

    def _look(self) -> None:
        """Whether every thread has stopped by now, and if so, go on."""
        trial, run, writing = self._trial, self._trial.run, self._writing
        if not (trial.group.freeze() if writing is None else trial.group.hold()):
            return
        # It says no more, and of a run that was given back nothing counts that is said later.
        trial.hear_out()
        if run.worker is None or run.worker.has_exited:
            return  # an exited process looks frozen: it is reaped next, and its outcome told
        if run.is_over and boottime() < self._deadline_at:
            self._let_out()
        elif writing is not None:
            if writing.leaves_it_stopped and trial.phase == "running" and self._gives_back:
                self._say_parked(is_being_written=True)
            writing.go_on()
        else:
            self._park()

    @property
    def _gives_back(self) -> bool:
        """Whether the device is free before all is written: the trial goes on elsewhere, or later,
        and may be lost until then as what is parked."""
        return not (self.silent or self.passes or self._cause == "stop")

    def _let_out(self) -> None:
        """The program is about to end."""
        self._return(lambda: None)

    def first_has_ended(self) -> None:
        """The first of several processes has come to its end: let the others come to theirs."""
        memory = self._trial.device_memory
        if self.stage == "ending":
            return
        if memory.is_moving or memory.is_away:
            self.end(f"{self._cause}: rank 0 ended while its device's memory was moved")
        elif self.passes:
            self._pass()
        else:
            self._let_out()

    def _park(self) -> None:
        trial = self._trial
        self.stage = "frozen"
        if self.silent:
            trial.phase = "parked"
            if self._saved is not None:
                trial.emit(**self._saved)
            return
        self._say_parked()

    def _say_parked(self, is_being_written: bool = False) -> None:
        trial, run = self._trial, self._trial.run
        trial.phase = "parked"
        run.frozen()
        trial.emit(
            "parked",
            step=run.reached,
            boundary_seconds=self._boundary_seconds,
            at_boundary=run.at_boundary,
            memory_bytes=trial.group.memory_bytes(),
            cause=self._cause,
            is_being_written=is_being_written,
        )

    def _pass(self) -> None:
        """The program goes on; what is left to write needs it no more."""
        self._return(self._go_on)

    def _go_on(self) -> None:
        trial = self._trial
        self.stage = "frozen"
        trial.images.cost(boottime() - self._left_since)
        trial.ranks.go_on(trial.attempt, is_first_told=trial.run.at_boundary)
        trial.run.imaged()
        trial.run.go_on(trial.attempt)

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

    # What the agent says, and who writes an image.

    def reached_boundary(self) -> None:
        """The agent holds."""
        self._boundary_seconds = boottime() - self._asked_at
        if self.stage != "waiting":
            return
        if self.passes:
            trial = self._trial
            self.save() if trial.ranks.others else self.image(trial.form(False)[1])
        elif self.tier == "park" or not self._trial.can_be_rebuilt:
            self.freeze()
        else:
            self.save()

    @property
    def takes_image(self) -> bool:
        """Whether an image is being written, for which the program has stopped."""
        writing = self._writing
        is_image = writing is not None and writing.form == IMAGE and not writing.is_stopping
        return self.stage == "writing" and is_image

    def heard_image(self, word: Message) -> None:
        """Who writes the image said something."""
        if "done" in word:
            self._written({"kind": "checkpointed", **word["done"]}, word["done"])
        elif "error" in word:
            trial, writing = self._trial, self._writing
            id = writing.id if writing is not None else None
            trial.image_failed(id, word["error"], in_passing=self.passes)
            self._without_image(word["error"], word["broken"])
        elif self.passes and self._cause != FORK:  # that one has to be there, whatever comes next
            self._pass()

    def checkpointed(self, message: Message, saved: Message) -> bool:
        """A checkpoint was written; whether it was the one of this suspension."""
        if not self._is_written(message["id"]):
            return False
        self._written(message, saved)
        return True

    def not_checkpointed(self, message: Message) -> None:
        """A checkpoint could not be written: if it was the one of this suspension, park."""
        if self._is_written(message["id"]) and self.passes:
            self._pass()
        elif self._is_written(message["id"]):
            self._cause = f"{self._cause}: no checkpoint: {message['reason']}"
            self.freeze()

    def _is_written(self, id: str) -> bool:
        return self.stage == "writing" and self._writing is not None and self._writing.id == id

    def _written(self, event: Message, saved: Message) -> None:
        trial, writing = self._trial, self._writing
        assert writing is not None
        trial.forms.went(writing.form, writing.seconds)
        if self.passes:
            trial.emit(**event)
            self._pass()
        elif self.silent and writing.leaves_it_stopped:
            self.stage = "frozen"
            trial.emit(**event)
        elif self.silent:
            self._saved = event
            self.freeze()
        else:
            self._saved = {**saved, "why": writing.why} if writing.why else saved
            self.end()

    def _without_image(self, why: str, is_broken: bool) -> None:
        """The next best."""
        trial = self._trial
        if is_broken:
            self.end(f"{self._cause}: its image failed: {why}")
        elif self.passes:
            self._pass()
        elif self.silent:
            self.stage = "frozen"
        elif not trial.can_be_rebuilt or (trial.phase == "parked" and trial.device_memory.is_away):
            self.freeze()  # its device may be another's by now
        else:
            self._return(self.save if trial.run.at_boundary else self.await_boundary)

    # The clock.

    @property
    def _is_stopping(self) -> bool:
        writing = (
            self.stage == "writing" and self._writing is not None and self._writing.is_stopping
        )
        return writing or self.stage == "freezing"

    @property
    def _is_bounded(self) -> bool:
        """Whether its deadline holds: it ends a wait for the program, and no image."""
        writing = self._writing
        saves = self.stage == "writing" and writing is not None and writing.form == CHECKPOINT
        return saves or self.stage == "waiting"

    def deadline(self) -> float | None:
        """When `tick` has something to do, in boot-time seconds; None for nothing."""
        if self._is_stopping:
            return boottime() + _POLL_SECONDS
        return self._deadline_at if self._is_bounded else None

    def tick(self, now: float) -> None:
        """Do what is due."""
        trial = self._trial
        if self._is_stopping:
            self._look()
        elif not self._is_bounded or now < self._deadline_at:
            return
        elif self.passes and trial.ranks.others:
            self._pass()
        elif trial.is_left:
            self.end(f"{self._cause}: deadline missed")
        elif self.passes or (self.stage == "waiting" and trial.images.keep(trial.run.level)):
            self.image()
        elif self.tier == "park":
            self.freeze()
        else:
            self.end(f"{self._cause}: deadline missed")
