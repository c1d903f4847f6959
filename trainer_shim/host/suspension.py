"""A suspension on its way, from the request until the device is free.

Once begun it is carried through, and ends in the tier asked for or a safer one: what cannot be
saved is parked, what reaches no boundary in time is frozen from outside, or ended. A program that
comes to its own end first has ended: it is let out until the deadline, whatever the tier, and its
outcome stands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Optional

from trainer_shim import checkpoint_dir
from trainer_shim.channel.frames import Message
from trainer_shim.host.event_log import boottime
from trainer_shim.host.forms import CHECKPOINT, IMAGE
from trainer_shim.host.live_trial import LiveTrial

_POLL_SECONDS = 0.001
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
        self._trial.group.thaw()
        self._trial.tell_save(self._name(), wait=True)


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
        trial.run.frozen()
        self._is_stopped = True
        trial.take_image(self._name(), self.why)


class Suspension:
    """Gives the device of a trial back. `stage` is waiting (for a boundary), writing, freezing,
    frozen (it is done), or ending (the process is about to be reaped).

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
        self.stage = "waiting"
        self._writing: Writing | None = None
        self._trial = trial
        self._cause = cause
        self._asked_at = boottime()
        self._deadline_at = self._asked_at + seconds
        self._id = id
        self._boundary_seconds = 0.0
        self._freezing_since = 0.0
        self._saved: Message | None = None

    # Stages.

    def await_boundary(self) -> None:
        """Have the agent hold at the next boundary."""
        self._trial.ask_to_hold()

    def save(self) -> None:
        """Held at a boundary, or stopped: write its progress down in the form that is best."""
        form, why = self._trial.form(self._cause == "stop")
        if form == IMAGE:
            self.image(why)
            return
        self.stage = "writing"
        self._writing = ByAgent(self._trial, self._id, why)
        self._writing.go_on()

    def image(self, why: str = _NO_BOUNDARY) -> None:
        """Write an image, wherever the program is."""
        self.stage = "writing"
        self._writing = ByCriu(self._trial, self._id, why)
        self._look()

    def freeze(self) -> None:
        """Stop every thread, wherever it is."""
        self.stage, self._writing = "freezing", None
        self._freezing_since = boottime()
        self._look()

    def end(self, cause: str | None = None) -> None:
        """End the process; what it has not saved is lost."""
        self._cause = cause or self._cause
        self.stage = "ending"
        self._trial.group.kill()

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
            self.stage = "waiting"
            trial.group.thaw()
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
            freeze_seconds=boottime() - self._freezing_since,
            at_boundary=run.at_boundary,
            memory_bytes=trial.group.memory_bytes(),
            cause=self._cause,
            is_being_written=is_being_written,
        )

    def _pass(self) -> None:
        """The program goes on; what is left to write needs it no more."""
        trial = self._trial
        self.stage = "frozen"
        trial.group.thaw()
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
            self.save() if self._trial.ranks.others else self.image()
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
            trial.cannot_image(word["error"])
            trial.emit("checkpoint_failed", id=writing and writing.id, reason=word["error"])
            self._without_image(word["broken"])
        elif self.passes:
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

    def _without_image(self, is_broken: bool) -> None:
        """The next best."""
        trial = self._trial
        if is_broken:
            self.end(f"{self._cause}: its image failed")
        elif self.passes:
            self._pass()
        elif self.silent:
            self.stage = "frozen"
        elif trial.can_be_rebuilt and trial.run.at_boundary:
            self.save()
        elif trial.can_be_rebuilt:
            self.stage = "waiting"
            trial.group.thaw()
            self.await_boundary()
        else:
            self.freeze()

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
        elif self.passes or (self.stage == "waiting" and trial.images.keep(trial.run.level)):
            self.image()
        elif self.tier == "park":
            self.freeze()
        else:
            self.end(f"{self._cause}: deadline missed")
