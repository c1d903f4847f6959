"""A suspension on its way, from the request until the device is free.

Rule: once begun it is carried through, and ends in the tier asked for or a safer one: what
cannot be saved is parked, what reaches no boundary in time is frozen from outside, or ended. A
program that comes to its own end first has ended: it is let out until the deadline, whatever the
tier, and its outcome stands.
"""

from __future__ import annotations

from typing import Optional

from trainer_shim import snapshot
from trainer_shim.events import boottime
from trainer_shim.live import LiveTrial
from trainer_shim.wire import Message

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
        saved = self._saved or snapshot.newest_verified(self._trial.spec.checkpoints)
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
