"""What Hermes costs a training that it leaves alone: a 1,000-iteration Keras fit, with and without.

Pairs of the same script are run in turn, plain and under a host; the script itself measures its
`model.fit`, by the wall and by the CPU time of its process. On a shared machine the wall's ratio
is as noisy as the neighbours, the CPU's less. `python -m benchmarks.slowdown [--pairs N]`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.report import median, publish, quantile
from tests.trainer_shim.driving import Trial, Zygote, ending, environment
from trainer_shim.agent import Agent
from trainer_shim.page import Page
from trainer_shim.wire import receive

ITERATIONS = 1_000
CALLS = 200_000
RESAMPLES = 10_000
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
AGENT_BUDGET_US = 5.0
SLOWDOWN_BUDGET = 1.01  # the upper end of the interval, from 200 pairs on

PROGRAM = f"""
import time
import keras
import numpy as np

keras.utils.set_random_seed(3)
x = np.random.default_rng(1).normal(size=({ITERATIONS} * 128, 64)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([
    keras.layers.Input((64,)), keras.layers.Dense(256, "relu"),
    keras.layers.Dense(256, "relu"), keras.layers.Dense(1),
])
model.compile("adam", "mse")
wall, cpu = time.perf_counter(), time.process_time()
model.fit(x, y, batch_size=128, epochs=1, verbose=0)
print("TOOK", time.perf_counter() - wall, time.process_time() - cpu)
"""


def took(output: str) -> tuple[float, float]:
    """Wall and CPU seconds as the script printed them."""
    found = re.search(r"^TOOK (\S+) (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return float(found[1]), float(found[2])


def plain(script: Path) -> tuple[float, float]:
    """The script as a user runs it."""
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, env=environment(**QUIET), cwd=script.parent, check=True, capture_output=True
    )
    return took(done.stdout.decode())


def hosted(script: Path, folder: Path, zygote: Zygote) -> tuple[float, float]:
    """The script as a trial."""
    trial = Trial(folder, [sys.executable, str(script)], env=environment(**QUIET))
    with ending(trial.launch(zygote)):
        trial.start()
        trial.until("completed")
        assert any(event["kind"] == "reported" for event in trial.events)
        return took(trial.output)


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % percentile-bootstrap interval of the median (Efron 1979), the same every time."""
    draws = random.Random(1)
    medians = sorted(median(draws.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return quantile(medians, 0.025), quantile(medians, 0.975)


def compare(pairs: int) -> list[list[str | float]]:
    """Ratios of Hermes to plain over interleaved pairs."""
    walls, cpus, seconds = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(PROGRAM)
        zygote = Zygote(folder / "zygote.sock", "keras")
        for number in range(pairs):
            wall, cpu = plain(script)
            wall_under, cpu_under = hosted(script, folder / f"t{number}", zygote)
            walls.append(wall_under / wall)
            cpus.append(cpu_under / cpu)
            seconds.append(wall)
        zygote.close()
    length = f"{pairs} pairs, fit of {ITERATIONS} iterations, {median(seconds):.2f} s plain"
    return [
        [f"wall time, Hermes / plain ({length})", pairs, median(walls), *interval(walls),
         SLOWDOWN_BUDGET],
        [f"CPU time, Hermes / plain ({length})", pairs, median(cpus), *interval(cpus),
         SLOWDOWN_BUDGET],
    ]  # fmt: skip


def per_step() -> tuple[float, float]:
    """CPU and wall microseconds that the agent takes of one step, its reports among them."""
    ours, hosts = socket.socketpair()

    def drain() -> None:
        while receive(hosts) is not None:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    page = Page.create()
    agent = Agent(ours, page, trial="bench/0", attempt=1, checkpoints=os.devnull)
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
    parser.add_argument("--pairs", type=int, default=10, help="plain and hosted runs (10)")
    options = parser.parse_args()
    os.environ.update(QUIET)  # a zygote serves trials of its own environment only
    rows = compare(options.pairs)
    steps = [per_step() for _ in range(5)]
    for kind, values in zip(("CPU", "wall"), zip(*steps, strict=True), strict=True):
        name = f"agent's own {kind} time, us a step ({CALLS} steps, 5 rounds; lowest, highest)"
        rows.append([name, len(steps), median(values), min(values), max(values), AGENT_BUDGET_US])
    publish("slowdown", ["what", "count", "median", "low", "high", "budget"], rows)


if __name__ == "__main__":
    main()
