"""A thousand switches in a row leave neither memory, nor files, nor threads behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from tests.trainer_shim.driving import Trial
from tests.trainer_shim.suspending import Runs, warm_zygote

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SWITCHES, SETTLED = 1000, 100

# Training without an end, of steps that are as short as they get.
_KERAS = """
import keras
import numpy as np
x = np.random.default_rng(0).normal(size=(1000, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=10, epochs=10**9, verbose=0)
"""
_TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, row):
        return torch.full((4,), float(row % 7))

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Held:
    """What a process holds: bytes of memory, open files, threads."""

    memory: int
    files: int
    threads: int


def held_by(pid: int) -> Held:
    """By a process that stands still."""
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    return Held(memory, len(os.listdir(folder / "fd")), len(os.listdir(folder / "task")))


def switched(trial: Trial, count: int) -> dict[str, list[Held]]:
    """Park it and let it go on so often; what its processes held each time it was parked."""
    trial.start()
    pids = {"trainer": trial.until("started")["worker_pid"], "host": trial.host_pid}
    held: dict[str, list[Held]] = {name: [] for name in pids}
    for _ in range(count):
        trial.suspend("park")
        trial.until("parked")
        for name, pid in pids.items():
            held[name].append(held_by(pid))
        trial.resume()
        # As a node daemon does once the head has it: until then the host keeps what it said.
        trial.send("ack", seq=trial.until("resumed")["seq"])
    return held


@pytest.mark.parametrize(
    ("preload", "program"),
    [
        pytest.param("keras", _KERAS, marks=pytest.mark.tensorflow),
        pytest.param("torch", _TORCH, marks=pytest.mark.torch),
    ],
)
def test_a_thousand_switches_leave_nothing_behind(
    tmp_path: Path, preload: str, program: str
) -> None:
    """Files and threads are counted; memory may rise by no more than it wavers from one switch to
    the next, which a page that is lost at each switch exceeds many times over."""
    with warm_zygote(tmp_path, preload) as zygote:
        runs = Runs(zygote, tmp_path, program)
        with runs.trial("switched") as trial:
            held = switched(trial, SWITCHES)
    for name, each in held.items():
        settled = each[SETTLED:]
        assert {(one.files, one.threads) for one in settled} == {
            (settled[0].files, settled[0].threads)
        }, name
        memory = [one.memory for one in settled]
        print(name, [m >> 10 for m in memory[::50]])
        first, last = memory[:SETTLED], memory[-SETTLED:]
        wavers = max(max(part) - min(part) for part in (first, last))
        assert median(last) - median(first) <= max(wavers, 1 << 20), (name, memory[::SETTLED])
