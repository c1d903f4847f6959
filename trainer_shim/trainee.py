"""The agent of a program that Hermes runs, or has reached; it looks after the program's files too.

A checkpoint says how long the program's logs were, and a program that is restored from it finds
them so.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Callable

from trainer_shim import checkpoint_dir
from trainer_shim.agent import NOT_SAVED, Agent
from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import Message
from trainer_shim.channel.page import ControlPage
from trainer_shim.channel.pipes import ByteStream
from trainer_shim.metrics.files import GrowingFiles
from trainer_shim.rerun import temporary_paths, wallclock_replay, workdir_rollback
from trainer_shim.rerun.workdir_rollback import WorkdirRollback
from trainer_shim.saver import Capture, Saver
from trainer_shim.side_metrics import SAMPLED
from trainer_shim.spec import Spec

_ANOTHER_FOLDER = "run again, the program has made another folder than at first: {}"


class Trainee(Agent):
    """An agent with the files of its program.

    Adapters know the agent alone: what they tell it concerns the files too, before or after.
    """

    def __init__(
        self,
        channel: ByteStream,
        page: ControlPage,
        spec: Spec,
        attempt: int,
        restore: str | None = None,
    ) -> None:
        super().__init__(channel, page, spec, attempt, restore)
        #: They lie in the trial's directory.
        self.checkpoints = checkpoints = spec.checkpoints
        self.files = WorkdirRollback(spec.files, workdir_rollback.aside(checkpoints))
        lacks = functools.partial(self.lacks, NOT_SAVED)
        self._saver = _Saver(self._mailbox, checkpoints, lacks, self.files)
        self._growing = GrowingFiles(spec.files, self._note_row)
        self._looks = threading.Lock()

    def begin(self) -> None:
        """The program's first line comes next. Ends the process if its checkpoint is damaged."""
        times: wallclock_replay.Readings = {}
        names: temporary_paths.Names = {}
        if self.restore is not None:
            try:
                manifest = checkpoint_dir.verify(self.restore)
                self.restore_step = int(manifest["step"])
                times, names = manifest.get("clock", {}), manifest.get("temporary", {})
                self.reporter.side.sources.update(manifest.get("metrics", {}))
                if "parameters" in manifest:  # older ones have none
                    self.changed_from(manifest["parameters"])
            except checkpoint_dir.CheckpointError as error:
                self.failed("restore", str(error), "")  # no error of the program's own
                os._exit(1)
            # The machine's fault: the trial is tried again, on another machine if there is one.
            except OSError as error:
                self.failed("not_started", f"its checkpoint can't be read: {error.strerror}", "")
                os._exit(1)
        wallclock_replay.begin(times, self.restore is not None)
        temporary_paths.begin(names, self.checkpoints)
        self.files.begin(self.restore)
        self._growing.begin()

    def loop(self, inside: bool) -> None:
        """Say whether boundaries are to be expected from here on."""
        if inside:
            self.passes_training()
            if not self._began and self.framework != "explicit":
                self._growing.begin()  # what it has prepared is no log of its training
        super().loop(inside)

    def passes_training(self) -> None:
        """The program trains, or has passed what it had trained before its checkpoint."""
        if self.is_aside:
            return
        wallclock_replay.trains()
        self.files.training()

    def restored(self) -> None:
        """The program is where its checkpoint was taken: its files are put back first."""
        self.see_changes()
        if not self.is_aside:
            self.files.put_back()
            self._growing.begin()
            if self.files.others:
                self.doubt(_ANOTHER_FOLDER.format(min(self.files.others)))
            wallclock_replay.returned()
            temporary_paths.returned()
        super().restored()

    def look_beside(self, is_last: bool = True) -> None:
        """Note the rows that the program has added to its files."""
        trains = self._began or self._is_blind
        # Whoever looks already, by the clock or amid noting a row, tells what there is.
        if trains and self._is_back and not self.is_aside and self._looks.acquire(blocking=False):
            try:
                self._growing.look(is_last)
            finally:
                self._looks.release()

    def _note_row(self, values: dict[str, float]) -> None:
        left_out = {name.lower() for name in self.parameters}
        self.note({k: v for k, v in values.items() if k.lower() not in left_out}, SAMPLED)


class _Saver(Saver):
    def __init__(
        self,
        mailbox: AgentChannel,
        checkpoints: str,
        lacks: Callable[[str | None], None],
        files: WorkdirRollback,
    ) -> None:
        super().__init__(mailbox, checkpoints, lacks)
        self._files = files

    def save(
        self,
        id: str,
        take: Callable[[], Capture],
        fields: Message,
        wait: bool,
        is_part: bool = False,
    ) -> None:
        def taken() -> Capture:
            written = self._files.record()
            return _WithFiles(take(), written) if written else take()

        super().save(id, taken, fields, wait, is_part)


class _WithFiles:
    """A capture, and what is known of the program's files."""

    def __init__(self, capture: Capture, written: bytes) -> None:
        self._capture = capture
        self._written = written

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        self._capture.prepare(builder)

    def write(self, builder: checkpoint_dir.Builder) -> None:
        self._capture.write(builder)
        builder.add(workdir_rollback.NAME, [self._written])
