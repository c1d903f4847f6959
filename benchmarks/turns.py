"""Keras programs that take turns on one core: under a host of ours, or as the first Hermes had
them, and an account of their iterations that both keep in a page of memory."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from hermesd.node.machine import images
from tests.images.driving import NAMED, WorldTrial
from tests.trainer_shim.driving import ROOT, Trial, Zygote, ending, environment
from tests.trainer_shim.suspending import warm_zygote

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
CORES = sorted(os.sched_getaffinity(0))
SLOT = CORES[0]
# Iterations done, whether to stop, when the last one ended by the time of day, and the CPU seconds
# that the process had used by then.
_PAGE = struct.Struct("=QQdd")
_POLL_SECONDS = 0.001

# Before a program's own text, which makes `model` if `load()` gives none, and calls `train`.
PREAMBLE = """
import mmap, os, struct, sys, time
folder = sys.argv[1]
if "HERMES_TRIAL" not in os.environ:
    os.sched_setaffinity(0, {int(sys.argv[2])})
import keras
keras.utils.set_random_seed(0)
page = mmap.mmap(os.open(os.path.join(folder, "page"), os.O_RDWR), 4096)
words, times = memoryview(page).cast("Q"), memoryview(page).cast("d")
saved = os.path.join(folder, "model.keras")

class Account(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        times[2] = time.time()
        times[3] = time.process_time()
        words[0] += 1
        if words[1]:
            self.model.stop_training = True

def load():
    return keras.models.load_model(saved) if os.path.exists(saved) else None

def train(model, *data, **settings):
    model.fit(*data, epochs=1_000_000, verbose=0, callbacks=[Account()], **settings)
    model.save(saved)
"""


def time_of_day() -> float:
    """The clock of `Program.ended`: the monotonic one of a process that was brought back from an
    image does not count the time away."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def end_well_when_told_to() -> None:
    """SIGTERM and Ctrl-C end the benchmark quietly, once its programs are ended."""
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda number, frame: sys.exit(128 + number))


class Program:
    """One trial's program and what it says of itself, in a `folder` of its own."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        folder.mkdir(parents=True)
        (folder / "program.py").write_text(PREAMBLE + text)
        (folder / "page").write_bytes(bytes(4096))
        self.folder = folder
        self.argv = [
            sys.executable, str(folder / "program.py"), str(folder), str(SLOT), *arguments,
        ]  # fmt: skip
        with open(folder / "page", "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)

    @property
    def steps(self) -> int:
        """Iterations done."""
        return int(_PAGE.unpack_from(self._page)[0])

    @property
    def ended(self) -> float:
        """When the last iteration ended, by `time_of_day`."""
        return float(_PAGE.unpack_from(self._page)[2])

    @property
    def cpu_seconds(self) -> float:
        """What its present process had used of the CPU by the end of the last iteration."""
        return float(_PAGE.unpack_from(self._page)[3])

    def tell_to_stop(self, is_to: bool) -> None:
        """Whether it is to save and end after this iteration."""
        struct.pack_into("=Q", self._page, 8, is_to)

    def until(self, steps: int) -> None:
        """Wait for so many iterations."""
        while self.steps < steps:
            time.sleep(_POLL_SECONDS)


class Plain(Program):
    """Without Hermes. It gives its device back as the first Hermes did: it saves the model and
    ends; it comes back as a new process that imports, loads and goes on."""

    process: subprocess.Popen[bytes] | None = None

    def enter(self) -> None:
        """Start, and do an iteration."""
        self.tell_to_stop(False)
        before = self.steps
        self.process = subprocess.Popen(
            self.argv, cwd=self.folder, env=environment(**QUIET), start_new_session=True
        )
        while self.steps == before:
            assert self.process.poll() is None, "the program ended"
            time.sleep(_POLL_SECONDS)

    def leave(self) -> None:
        """Save and end."""
        assert self.process is not None
        self.tell_to_stop(True)
        assert self.process.wait() == 0

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """End what is left of it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def warm(folder: Path) -> AbstractContextManager[Zygote]:
    """An interpreter that has imported Keras on the slot's one core, for hosts there."""
    return warm_zygote(folder, "keras", HERMES_CPU_CORES=str(SLOT))


def criu_here(folder: Path) -> str:
    """The CRIU that HERMES_NODE_CRIU or the PATH names, if images can be made by it; else empty."""
    return asyncio.run(images.detect(NAMED, folder, ROOT)).criu


class Hosted(Program):
    """Under a host, which a warm interpreter forks; suspended in the tier that is asked for."""

    def __init__(
        self, folder: Path, zygote: Zygote | None, stack: ExitStack, text: str, *arguments: str
    ) -> None:
        super().__init__(folder, text, *arguments)
        self.saved: str | None = None
        self._zygote, self._stack = zygote, stack
        self._trial: Trial | None = None
        self._hosts = 0
        self._answers = 0
        stack.callback(self.end)

    def prepare(self, core: int) -> None:
        """Have it rebuilt from its checkpoint on this core, and held there."""
        assert self.saved is not None
        if self._trial is None:
            self._start(core, hold=True)

    def enter(self) -> None:
        """Go on, from wherever it is, and do an iteration."""
        before = self.steps
        if self._trial is None:
            self._start(SLOT, hold=False)
        else:
            self._trial.attempt += 1
            self._trial.send("resume", limit_step=None, cores=[SLOT])
        self.until(before + 1)

    def leave(self, tier: str) -> None:
        """Give the device back."""
        trial = self._trial
        assert trial is not None
        trial.suspend(tier)
        kind = "suspended" if tier == "checkpoint" else "parked"
        while (event := trial.until(kind)).get("cause") != "request":
            continue  # said when it had been rebuilt
        if tier == "checkpoint":
            assert event["tier"] == "checkpoint", event
            self.saved = event["checkpoint"]["path"]
            self.end()

    def checkpoint(self, id: str) -> None:
        """Have a durable checkpoint written while it trains; answered by `saved_as`."""
        assert self._trial is not None
        self._trial.send("checkpoint", id=id)

    def saved_as(self) -> dict[str, float]:
        """The answer: what it cost in seconds, and its size in bytes."""
        assert self._trial is not None
        written = [event for event in self._trial.events if event["kind"] == "checkpointed"]
        if len(written) == self._answers:  # else it came while something else was waited for
            written.append(self._trial.until("checkpointed"))
        event = written[self._answers]
        self._answers += 1
        return {name: float(event[name]) for name in ("seconds", "stall_seconds", "bytes")}

    def end(self) -> None:
        """End what is left of it."""
        if self._trial is not None:
            self._trial.quit()
            self._trial = None

    def _start(self, core: int, hold: bool) -> None:
        self._hosts += 1
        self._answers = 0
        env = environment(**QUIET, HERMES_CPU_CORES=str(SLOT))
        trial = self._trial = self._launched(self.folder / f"host{self._hosts}", env)
        trial.attempt += 1
        fields = {"restore": self.saved, "limit_step": None, "cores": [core], "hold": hold}
        trial.send("start", **fields)

    def _launched(self, directory: Path, env: dict[str, str]) -> Trial:
        checkpoints = str(self.folder / "checkpoints")
        trial = Trial(directory, self.argv, env=env, checkpoints=checkpoints)
        return self._stack.enter_context(ending(trial)).launch(self._zygote)


class Imaged(Hosted):
    """Under hosts in worlds of their own, each begun cold; suspended as an image."""

    def __init__(
        self, folder: Path, criu: str, stack: ExitStack, text: str, *arguments: str
    ) -> None:
        super().__init__(folder, None, stack, text, *arguments)
        self._criu = criu

    def _launched(self, directory: Path, env: dict[str, str]) -> Trial:
        checkpoints = str(self.folder / "checkpoints")
        trial = WorldTrial(directory, self.argv, env=env, checkpoints=checkpoints, criu=self._criu)
        self._stack.callback(trial.end)
        return trial.launch()

    def end(self) -> None:
        """End what is left of it."""
        world = self._trial
        super().end()
        if isinstance(world, WorldTrial):
            world.end()
