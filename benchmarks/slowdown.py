"""What Hermes costs a training that it leaves alone: epochs of Keras fits and of a PyTorch loop.

The same script runs twice at the same time, plain and under a host; both wait, and the benchmark
lets one of them do one epoch, then the other: pairs seconds apart, in alternating order, on the
same noisy machine. The script times its own epochs, by the wall and by the CPU time of its process;
tracing happens in an epoch before the first pair. What is saved at the end is not in it: that is
once a training. What a step takes more is the difference of a pair's CPU times; steps of PyTorch
are so short that it shows. Its rows are there where PyTorch is installed.
`python -m benchmarks.slowdown [--pairs N]`.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from benchmarks.orphans import scratch
from benchmarks.report import median, publish, quantile
from tests.trainer_shim.driving import Trial, ending, environment
from trainer_shim.agent import Agent
from trainer_shim.channel.frames import receive
from trainer_shim.channel.page import ControlPage
from trainer_shim.spec import Spec

CALLS = 200_000
RESAMPLES = 10_000
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
AGENT_BUDGET_US = 5.0
SLOWDOWN_BUDGET = 1.01  # the upper end of the interval, from 200 pairs on

TURNS = """
import sys, time

turns, times = open(sys.argv[1]), open(sys.argv[2], "w")
width, iterations, epochs = map(int, sys.argv[3:])

class Clock:
    def on_epoch_begin(self, epoch, logs=None):
        turns.readline()
        self.begun = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        wall, cpu = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
        print(wall, cpu, file=times, flush=True)
"""

KERAS = (
    TURNS
    + """
import keras
import numpy as np

class Told(Clock, keras.callbacks.Callback):
    pass

keras.utils.set_random_seed(3)
x = np.random.default_rng(1).normal(size=(iterations * 128, 64)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([
    keras.layers.Input((64,)), keras.layers.Dense(width, "relu"),
    keras.layers.Dense(width, "relu"), keras.layers.Dense(1),
])
model.compile("adam", "mse")
model.fit(x, y, batch_size=128, epochs=epochs, verbose=0, callbacks=[Told()])
"""
)

TORCH = (
    TURNS
    + """
import torch

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(iterations * 8, 64)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 1),
)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
clock = Clock()
for epoch in range(epochs):
    clock.on_epoch_begin(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    clock.on_epoch_end(epoch)
"""
)


@dataclass(frozen=True)
class Size:
    """A model whose step takes about so long."""

    name: str
    #: The units of each of its layers.
    width: int
    #: The steps of an epoch.
    iterations: int
    program: str = KERAS


SIZES = (Size("small steps", 256, 1_000), Size("medium steps", 1_024, 200))
SHORT = Size("PyTorch", 32, 2_000, TORCH)


class Runner:
    """One run of the script, which does an epoch at each turn."""

    def __init__(self, turns: TextIO, times: TextIO) -> None:
        self._turns = turns
        self._times = times

    def epoch(self) -> tuple[float, float]:
        """Its wall and CPU seconds."""
        self._turns.write("\n")
        self._turns.flush()
        wall, cpu = map(float, self._times.readline().split())
        return wall, cpu


@contextmanager
def opened(folder: Path) -> Iterator[Runner]:
    """The two pipes by which a script is driven."""
    with (folder / "turns").open("w") as turns, (folder / "times").open() as times:
        yield Runner(turns, times)


def command(folder: Path, size: Size, epochs: int) -> list[str]:
    """The script with its pipes; it ends after so many epochs."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(size.program)
    for name in ("turns", "times"):
        os.mkfifo(folder / name)
    pipes = (str(folder / "turns"), str(folder / "times"))
    numbers = (str(number) for number in (size.width, size.iterations, epochs))
    return [sys.executable, str(script), *pipes, *numbers]


@contextmanager
def plain(folder: Path, size: Size, epochs: int) -> Iterator[Runner]:
    """The script as a user runs it."""
    argv = command(folder, size, epochs)
    process = subprocess.Popen(
        argv, env=environment(**QUIET), cwd=folder, stdout=subprocess.DEVNULL
    )
    with opened(folder) as runner:
        yield runner
    assert process.wait() == 0


@contextmanager
def hosted(folder: Path, size: Size, epochs: int) -> Iterator[Runner]:
    """The script as a trial."""
    trial = Trial(folder / "trial", command(folder, size, epochs), env=environment(**QUIET))
    with ending(trial.launch()):
        trial.start()
        listener = threading.Thread(target=trial.until, args=("completed",))
        listener.start()
        with opened(folder) as runner:
            yield runner
        listener.join()
        assert any(event["kind"] == "reported" for event in trial.events)


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % percentile-bootstrap interval of the median (Efron 1979), the same every time."""
    draws = random.Random(1)
    medians = sorted(median(draws.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return quantile(medians, 0.025), quantile(medians, 0.975)


@dataclass
class Pairs:
    """Wall and CPU seconds of epochs, of the script under Hermes and of the plain one."""

    size: Size
    ours: list[tuple[float, float]] = field(default_factory=list)
    theirs: list[tuple[float, float]] = field(default_factory=list)

    def ratios(self) -> list[list[str | float]]:
        """Rows: how many times as long an epoch takes under Hermes, with 95 % intervals."""
        rows: list[list[str | float]] = []
        for place, kind in enumerate(("wall", "CPU")):
            values = [a[place] / b[place] for a, b in zip(self.ours, self.theirs, strict=True)]
            what = f"{kind} time, Hermes / plain ({self._steps()})"
            rows.append([what, len(values), median(values), *interval(values), SLOWDOWN_BUDGET])
        return rows

    def difference(self) -> list[str | float]:
        """A row: the CPU microseconds that a step takes more under Hermes."""
        more = [
            (a[1] - b[1]) / self.size.iterations * 1e6
            for a, b in zip(self.ours, self.theirs, strict=True)
        ]
        what = f"CPU time more under Hermes, us a step ({self._steps()})"
        return [what, len(more), median(more), *interval(more), AGENT_BUDGET_US]

    def _steps(self) -> str:
        plain = median([wall for wall, _ in self.theirs]) / self.size.iterations * 1e3
        return f"{self.size.name}, {plain:.2f} ms plain, {self.size.iterations} an epoch"


def compare(size: Size, pairs: int) -> Pairs:
    """Interleaved epochs of the script, plain and under Hermes."""
    seen = Pairs(size)
    with scratch() as folder:
        epochs = pairs + 1
        with (
            plain(folder / "plain", size, epochs) as alone,
            hosted(folder / "hosted", size, epochs) as under,
        ):
            alone.epoch()
            under.epoch()
            for number in range(pairs):
                both = [(seen.ours, under), (seen.theirs, alone)]
                for times, runner in both[::-1] if number % 2 else both:
                    times.append(runner.epoch())
    return seen


def per_step() -> tuple[float, float]:
    """CPU and wall microseconds that the agent takes of one step, its reports among them."""
    ours, hosts = socket.socketpair()

    def drain() -> None:
        while receive(hosts) is not None:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    page = ControlPage.create()
    agent = Agent(ours, page, Spec("bench/0", [], "", {}, os.devnull, "", "", ""), attempt=1)
    agent.loop(True)
    wall, cpu = time.perf_counter(), time.thread_time()
    for step in range(1, CALLS + 1):
        agent.record(step, {"loss": 0.5}, 128)
        agent.boundary(step)
    agent.report()
    spent = (time.thread_time() - cpu, time.perf_counter() - wall)
    ours.close()
    reader.join()
    hosts.close()
    page.close()
    return spent[0] / CALLS * 1e6, spent[1] / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="epochs of each kind and size (10)")
    options = parser.parse_args()
    rows = [row for size in SIZES for row in compare(size, options.pairs).ratios()]
    if find_spec("torch"):
        rows.append(compare(SHORT, options.pairs).difference())
    steps = [per_step() for _ in range(5)]
    for kind, values in zip(("CPU", "wall"), zip(*steps, strict=True), strict=True):
        name = f"agent's own {kind} time, us a step ({CALLS} steps, 5 rounds; lowest, highest)"
        rows.append([name, len(steps), median(values), min(values), max(values), AGENT_BUDGET_US])
    publish("slowdown", ["what", "count", "median", "low", "high", "budget"], rows)


if __name__ == "__main__":
    main()
