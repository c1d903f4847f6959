"""Where the GPU memory of a trial's program is: on the GPU, or in the host's memory for now.

It is moved by a child process, for which the host's loop does not wait. While it is away, the
program may be stopped, and its GPU is free for others.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Sequence
from typing import Any, Callable

from trainer_shim.channel.frames import Message
from trainer_shim.host import cuda
from trainer_shim.host.event_log import boottime
from trainer_shim.host.imaging import WorkingChild

# The driver moves a gigabyte in half a second; one that takes longer than this hangs.
MOVE_SECONDS = 120.0
# Told why it was not moved, if it was not, and whether the program is lost then.
Moved = Callable[[str, bool], None]


class DeviceMemory:
    """What one trial's program has on its GPU, if it `has_gpu`."""

    def __init__(self, has_gpu: bool, moves: bool) -> None:
        self.has_gpu = has_gpu
        self._moves = has_gpu and moves
        #: Why it could not be moved, though that works here.
        self.problem = ""
        self._away: list[int] = []
        self._said: list[Message] = []
        self._child: WorkingChild | None = None
        self._then: Moved | None = None
        self._until = 0.0

    @property
    def can_leave(self) -> bool:
        """Whether it can be taken off the GPU, as far as is known."""
        return self._moves and not self.problem

    @property
    def is_away(self) -> bool:
        """Whether the program must not go on before it is put back."""
        return bool(self._away)

    @property
    def away(self) -> Sequence[int]:
        """The processes that had something there."""
        return self._away

    def arrives(self, away: Sequence[int]) -> None:
        """The program is brought back from an image that was made while it was away for these."""
        self._away = list(away)

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way."""
        return self._child is not None

    @property
    def fd(self) -> int | None:
        """Where the child at work is heard."""
        return self._child.fd if self._child is not None else None

    def take_off(self, pids: Collection[int], then: Moved) -> int:
        """Begin to move it to the host's memory; the child's process id."""
        return self._begin(lambda: cuda.take_off(pids), then)

    def put_back(self, then: Moved) -> int:
        """Begin to move it back; the child's process id."""
        return self._begin(lambda: cuda.put_back(self._away), then)

    def _begin(self, work: Callable[[], dict[str, Any]], then: Moved) -> int:
        self._child, self._then = WorkingChild(lambda tell: work()), then
        self._until = boottime() + MOVE_SECONDS
        return self._child.pid

    def hear(self) -> None:
        """Take in what the child says."""
        if self._child is not None:
            self._said += self._child.words()

    def ended(self, pid: int) -> bool:
        """Whether the process that has ended was the child; what it did is done then."""
        child, then = self._child, self._then
        if child is None or child.pid != pid:
            return False
        self.hear()
        said = self._said[-1] if self._said else {}
        os.close(child.fd)
        self._child, self._then, self._said = None, None, []
        if then is None:
            return True  # the program is gone: whatever was moved went with it
        # Whoever is killed at it leaves nobody knows what.
        ended = {"why": said.get("error", "moving its device's memory was cut short")}
        done = said.get("done", {**ended, "is_lost": True})
        if "why" not in done:
            self._away = [] if self._away else done["pids"]
        elif not done["is_lost"]:
            self.problem = done["why"]
        then(done.get("why", ""), done.get("is_lost", False))
        return True

    def forget(self) -> None:
        """The program is gone, and with it what it had."""
        self._then, self._away = None, []
        self.give_up()

    def give_up(self) -> None:
        """What is on its way is not waited for any longer."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGKILL)

    def deadline(self) -> float | None:
        """When it has taken too long, in boot-time seconds; None while nothing is moved."""
        return self._until if self.is_moving else None

    def tick(self, now: float) -> None:
        """End what has taken too long."""
        if self.is_moving and now >= self._until:
            self.give_up()
