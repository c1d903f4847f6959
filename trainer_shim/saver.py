"""Writes a program's progress as a checkpoint, at a boundary or in the background.

What the next iteration would change is copied before it begins. One checkpoint is written at a
time; one that the program waits for replaces one in the background, unless that is the first. A
checkpoint that cannot be made is reported and costs nothing else, whatever was raised: a program's
own way to save may meet a full disk with an error of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Callable, Protocol

from trainer_shim import checkpoint_dir
from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import Message

_SHARE = 0.01  # of a program's time


class Capture(Protocol):
    """Progress at a boundary: what changes afterward is kept by `prepare`, in the program's
    own time; the rest is written while training goes on."""

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        """Copy, or write, what the next iteration would change."""

    def write(self, builder: checkpoint_dir.Builder) -> None:
        """Write the files of the checkpoint."""


class OtherProgram(Exception):
    """Run again, the program did or made something else than before its checkpoint; says what."""


class CannotCapture(Exception):
    """The program's progress cannot be saved, from here on; the message says why."""


class CannotCaptureNow(CannotCapture):
    """It cannot be saved at this moment, and may be at another."""


# Such as too little memory for a copy, or a dictionary that a thread changed meanwhile.
_PASSING = (MemoryError, OSError, RuntimeError)


def refused(error: Exception) -> CannotCapture:
    """What is said of an error that the program or its framework raised while it was copied."""
    passes = isinstance(error, _PASSING) and not isinstance(error, NotImplementedError)
    kind = (
        CannotCaptureNow
        if passes or type(error).__name__ == "ResourceExhaustedError"
        else CannotCapture
    )
    return kind(f"{type(error).__name__}: {error}")


def rank_folder(rank: int) -> str:
    """Where in a trial's checkpoint that of another of its processes lies, whole."""
    return f"rank-{rank}"


class WithRanks:
    """A capture, and the finished checkpoints of the trial's other processes, by rank."""

    def __init__(self, capture: Capture, ranks: Sequence[tuple[int, str]]) -> None:
        self._capture = capture
        self._ranks = ranks

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        self._capture.prepare(builder)

    def write(self, builder: checkpoint_dir.Builder) -> None:
        self._capture.write(builder)
        for rank, path in self._ranks:
            builder.take_in(path, rank_folder(rank))


class Saver:
    """Makes checkpoints in the folder `checkpoints`.

    `lacks` is told why the newest one is not there though it should be, or None.
    """

    def __init__(
        self, mailbox: AgentChannel, checkpoints: str, lacks: Callable[[str | None], None]
    ) -> None:
        #: The newest checkpoint that is there.
        self.last: Message | None = None
        self._lacks = lacks
        self._mailbox = mailbox
        self._checkpoints = checkpoints
        self._writer: threading.Thread | None = None
        self._in_background: checkpoint_dir.Builder | None = None
        self._seconds = 0.0  # what the newest checkpoint has cost
        self._ended = time.monotonic()

    @property
    def is_cheap(self) -> bool:
        """Whether another checkpoint by now would take a hundredth of the time, or less."""
        is_writing = self._writer is not None and self._writer.is_alive()
        since = time.monotonic() - self._ended
        return not is_writing and since >= self._seconds / _SHARE

    def save(
        self,
        id: str,
        take: Callable[[], Capture],
        fields: Message,
        wait: bool,
        is_part: bool = False,
    ) -> None:
        """Have progress captured by `take` and written as `id`; without `wait` in the background.

        `fields` are those of the manifest (`Builder.finish`). What `is_part` of a checkpoint of
        several processes is none by itself.
        """
        began = time.monotonic()
        # The first is finished: with none on the disk a suspend that comes to its deadline would
        # leave nothing, however often it is tried.
        if wait and self._in_background is not None and self.last is not None:
            self._in_background.supersede()
        self.join()
        try:
            # A program that waits trains no more meanwhile, and goes on from this very one.
            builder = checkpoint_dir.Builder(self._checkpoints, id, wait, is_part)
            with builder.or_nothing():
                capture = take()
                capture.prepare(builder)
        except CannotCapture as error:
            self.cannot(id, str(error))
            return
        except (Exception, SystemExit) as error:  # the program's own code: it trains on
            self._failed(id, error)
            return
        stall = time.monotonic() - began
        if wait:
            self._write(builder, capture, fields, began, None, is_part)
        else:
            self._in_background = builder
            arguments = (builder, capture, fields, began, stall)
            self._writer = threading.Thread(target=self._write, args=arguments)
            self._writer.start()

    def cannot(self, id: str, reason: str) -> None:
        """Say that there will be no checkpoint `id`."""
        self._mailbox.send({"kind": "checkpoint_failed", "id": id, "reason": reason})

    def _failed(self, id: str, error: BaseException) -> None:
        # The same words each time: a path would have the checkpoint's own name in it.
        said = error.strerror if isinstance(error, OSError) else None
        if isinstance(error, checkpoint_dir.CheckpointError):
            said = str(error)
        reason = said or f"{type(error).__name__}: {error}".splitlines()[0]
        self._lacks(reason)
        self.cannot(id, reason)

    def join(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self._writer is not None:
            self._writer.join()
            self._writer = self._in_background = None

    def _write(
        self,
        builder: checkpoint_dir.Builder,
        capture: Capture,
        fields: Message,
        began: float,
        stall: float | None,
        is_part: bool = False,
    ) -> None:
        try:
            with builder.or_nothing():
                capture.write(builder)
                summary = builder.finish(fields)
        except checkpoint_dir.SaveSuperseded:
            self.cannot(builder.id, "a later one was to be written")
            return
        except Exception as error:  # whatever the framework raises: the program trains on
            self._failed(builder.id, error)
            return
        self._ended = time.monotonic()
        self._seconds = seconds = self._ended - began
        self._lacks(None)
        cost = {"seconds": seconds, "stall_seconds": seconds if stall is None else stall}
        if is_part:
            self._mailbox.send({"kind": "part", **summary, **cost})
            return
        self.last = summary
        self._mailbox.send({"kind": "checkpointed", **summary, **cost})
