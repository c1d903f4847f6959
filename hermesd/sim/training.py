"""How far a training that follows a recording has come, as arithmetic on virtual time."""

from __future__ import annotations

import math

from hermesd.core.events import Reported
from hermesd.core.losses import chunked
from hermesd.core.model import RunId, Time
from hermesd.sim.curves import Recording


class Training:
    """Iterations done, while it goes on and while it stands; `step_seconds` is what one takes."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._base = 0
        self._reported = 0
        self._since: Time | None = None
        self.step_seconds = recording.step_seconds

    def restore(self, step: int) -> None:
        """Stand at a step, all before it reported."""
        self._base = self._reported = step

    def go(self, now: Time, slowness: float) -> None:
        """Iterations are done from now on, each in so many times what was recorded."""
        self._since, self.step_seconds = now, slowness * self.recording.step_seconds

    def stand(self, now: Time) -> None:
        """No more iterations; what was begun of one is lost."""
        self._base, self._since = self.step(now), None

    def stall(self, now: Time, seconds: float) -> bool:
        """The iteration begins anew, so many seconds from now; False if none is being done."""
        if self._since is None:
            return False
        self._base, self._since = self.step(now), now + seconds
        return True

    def step(self, now: Time) -> int:
        """Iterations done by now."""
        if self._since is None:
            return self._base
        done = max(0.0, now - self._since) / self.step_seconds
        return min(self._base + math.floor(done + 1e-6), self.recording.steps)

    def over(self, now: Time) -> bool:
        return self.step(now) >= self.recording.steps

    def seconds_left(self, now: Time) -> float:
        """Until the last iteration is done."""
        assert self._since is not None
        whole = (self.recording.steps - self._base) * self.step_seconds
        return max(0.0, self._since + whole - now)

    def seconds_to_boundary(self, now: Time) -> float:
        """Until the running iteration is done."""
        assert self._since is not None
        one, gone = self.step_seconds, now - self._since
        if gone <= 0:
            return one - gone
        return one * (math.floor(gone / one + 1e-6) + 1) - gone

    def report(self, run: RunId, now: Time) -> Reported | None:
        """What was done since the last report; None if nothing was."""
        step, before = self.step(now), self._reported
        if step == before:
            return None
        self._reported = step
        losses = self.recording.losses[before:step]
        return Reported(
            run,
            step,
            chunked(before + 1, losses),
            (("loss", losses[-1]),),
            busy_seconds=(step - before) * self.step_seconds,
        )
