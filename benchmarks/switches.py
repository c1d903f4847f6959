"""Switch times on one CPU slot: real Keras fits that take turns, through the host's own protocol.

Two trials share one core. A switch is: suspend asked -> device free -> the other trial's first
step begins. What was left of the iteration under way when it was asked is taken off; what the
first step itself takes is listed apart. The programs note when their iterations begin and end.
`python -m benchmarks.switches [--park N] [--checkpoint N]`.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.orphans import scratch
from benchmarks.report import median, publish, quantile
from benchmarks.turns import QUIET, SLOT, warm
from tests.trainer_shim.driving import Trial, Zygote, ending, environment

NOTE = struct.Struct("=cd")  # b(egin) or e(nd), CLOCK_MONOTONIC
PARK_BUDGET = "20 p50, 100 p99"
SAVE_BUDGET = "1000 p50"  # for a state of the size of ResNet50's
RESTORE_BUDGET = 1.5  # times the framework's own first step

PROGRAM = """
import os, struct, sys, time
import keras
import numpy as np

keras.utils.set_random_seed(3)
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Notes(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        os.write(notes, struct.pack("=cd", b"b", time.monotonic()))

    def on_train_batch_end(self, batch, logs=None):
        os.write(notes, struct.pack("=cd", b"e", time.monotonic()))

x = np.random.default_rng(1).normal(size=(20_000, 32)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([
    keras.layers.Input((32,)), keras.layers.Dense(128, "relu"),
    keras.layers.Dense(128, "relu"), keras.layers.Dense(1),
])
model.compile("adam", "mse")
model.fit(x, y, batch_size=64, epochs=1_000_000, verbose=0, callbacks=[Notes()])
"""


class Fit:
    """One trial: its notes, and the host that has it at the moment."""

    def __init__(self, folder: Path, zygote: Zygote, stack: ExitStack) -> None:
        self.folder = folder
        self.zygote = zygote
        self.stack = stack
        self.notes = folder / "notes"
        self.hosts = 0
        self.saved: str | None = None
        folder.mkdir()
        (folder / "train.py").write_text(PROGRAM)

    def start(self) -> None:
        """A host forked from the zygote, and in it the program, from its checkpoint if any."""
        self.hosts += 1
        argv = [sys.executable, str(self.folder / "train.py"), str(self.notes)]
        env = environment(**QUIET, HERMES_CPU_CORES=str(SLOT))
        trial = Trial(self.folder / f"host{self.hosts}", argv, env=env)
        self.trial = self.stack.enter_context(ending(trial))
        trial.launch(self.zygote).start(restore=self.saved)
        trial.until("started")

    def park(self) -> None:
        self.trial.suspend("park")
        self.trial.until("parked")

    def resume(self) -> None:
        self.trial.attempt += 1
        self.trial.send("resume", limit_step=None, cores=[SLOT])
        self.trial.until("resumed")

    def save(self) -> None:
        """Suspend by a checkpoint, from which the next start begins."""
        self.trial.suspend("checkpoint")
        event = self.trial.until("suspended", "parked")
        assert event["kind"] == "suspended", event
        assert event["tier"] == "checkpoint", event
        self.saved = event["checkpoint"]["path"]

    def iterations(self) -> list[tuple[float, float]]:
        """When each iteration began and ended; one that was never ended is left out."""
        marks = [(mark, at) for mark, at in NOTE.iter_unpack(self.notes.read_bytes())]
        return [(a, b) for (mark, a), (then, b) in pairwise(marks) if mark + then == b"be"]


@dataclass(slots=True)
class Times:
    """Seconds: until the device is free, until the next first step begins, and of that step."""

    free: list[float] = field(default_factory=list)
    begin: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    @property
    def switch(self) -> list[float]:
        """From one trial to the next: nothing lies between the two halves."""
        return [free + begin for free, begin in zip(self.free, self.begin, strict=True)]


class Turns:
    """Two trials on one core; notes when each suspension and each start was asked for."""

    def __init__(self, folder: Path, zygote: Zygote, stack: ExitStack) -> None:
        self.fits = [Fit(folder / name, zygote, stack) for name in "ab"]
        self._frees: list[tuple[Fit, float, float]] = []
        self._begins: list[tuple[Fit, float]] = []

    def leave(self, fit: Fit, suspend: Callable[[Fit], None]) -> None:
        """Let the fit train for a while, which its iterations have no part in, and end it."""
        time.sleep(random.uniform(0.03, 0.12))
        asked = time.monotonic()
        suspend(fit)
        self._frees.append((fit, asked, time.monotonic()))

    def enter(self, fit: Fit, begin: Callable[[Fit], None]) -> None:
        self._begins.append((fit, time.monotonic()))
        begin(fit)

    def first_starts(self, suspend: Callable[[Fit], None]) -> Times:
        """Start each trial from its first line and suspend it."""
        for fit in self.fits:
            self.enter(fit, Fit.start)
            self.leave(fit, suspend)
        return self._taken()

    def alternate(
        self, switches: int, begin: Callable[[Fit], None], suspend: Callable[[Fit], None]
    ) -> Times:
        """Switch from one trial to the other and back; both are suspended before and after."""
        running, waiting = self.fits
        begin(running)
        for _ in range(switches):
            self.leave(running, suspend)
            running, waiting = waiting, running
            self.enter(running, begin)
        time.sleep(0.1)  # the last one's first step
        suspend(running)
        return self._taken()

    def _taken(self) -> Times:
        """The times of what was noted since the last call."""
        iterations = {fit: fit.iterations() for fit in self.fits}
        times = Times()
        for fit, asked, free in self._frees:
            ended = max(end for _, end in iterations[fit] if end <= free)
            times.free.append(free - max(asked, ended))
        for fit, asked in self._begins:
            begun, ended = min(each for each in iterations[fit] if each[0] >= asked)
            times.begin.append(begun - asked)
            times.first.append(ended - begun)
        self._frees, self._begins = [], []
        return times


Row = list[str | float]


def rows(parks: int, saves: int) -> list[Row]:
    """Everything measured, in milliseconds."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        zygote = stack.enter_context(warm(folder))
        turns = Turns(folder, zygote, stack)
        cold = turns.first_starts(Fit.save)
        saved = turns.alternate(saves, Fit.start, Fit.save)
        for fit in turns.fits:
            fit.start()
            fit.park()
        parked = turns.alternate(parks, Fit.resume, Fit.park)
        usual = [end - begin for fit in turns.fits for begin, end in fit.iterations()]
    own = [begin + first for begin, first in zip(cold.begin, cold.first, strict=True)]
    restored = [begin + first for begin, first in zip(saved.begin, saved.first, strict=True)]
    limit = f"{RESTORE_BUDGET * median(own) * 1e3:.0f} p50"
    return [
        row("park: suspend -> device free", parked.free),
        row("park: resume -> first step begins", parked.begin),
        row("park: whole switch", parked.switch, PARK_BUDGET),
        row("park: first step itself", parked.first),
        row("any iteration itself", usual),
        row("checkpoint: suspend -> saved, device free", saved.free, SAVE_BUDGET),
        row("checkpoint: start -> first step begins", saved.begin),
        row("checkpoint: start -> first step done", restored, limit),
        row("checkpoint: whole switch", saved.switch),
        row("no checkpoint: start -> first step done", own),
    ]


def row(name: str, seconds: list[float], budget: str = "") -> Row:
    return [
        name, len(seconds), median(seconds) * 1e3, quantile(seconds, 0.99) * 1e3,
        max(seconds) * 1e3, budget,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--park", type=int, default=200, help="park switches (200)")
    parser.add_argument("--checkpoint", type=int, default=20, help="checkpoint switches (20)")
    options = parser.parse_args()
    columns = ["what", "count", "p50_ms", "p99_ms", "max_ms", "budget_ms"]
    publish("switches", columns, rows(options.park, options.checkpoint))


if __name__ == "__main__":
    main()
