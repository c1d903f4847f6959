"""Suspending whole programs: parked, as an image of their processes, by a framework's checkpoint,
and as the first Hermes did in 2021.

Each program runs alone. In turns it is parked and resumed in memory, and suspended as an image and
brought back by a new host: by root, by an ordinary user, and by one who may have no namespaces,
whose CRIU has capabilities (the last two where root asks). The Keras fit and the PyTorch loop are
also suspended by their checkpoints, where no images are made, and in the way of 2021: a loop of the
same network saves its model, its process ends, and a new Python imports, loads and goes on. The
device is free when the program has stopped, or is gone; it is away when all that it needs is kept,
hashed and synced. `python -m benchmarks.images [--rounds N] [--programs LIST]`; HERMES_NODE_CRIU
names a CRIU that is not on the PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.orphans import scratch
from benchmarks.report import median, publish
from tests.images.driving import (
    NAMED,
    NOBODY,
    InNoWorld,
    Theirs,
    WorldTrial,
    criu,
    give,
    lay_out,
    make_capable,
    missing,
)
from tests.images.programs import PROGRAMS, Program
from tests.trainer_shim.driving import ROOT, Trial, ending, environment
from trainer_shim.host import world
from trainer_shim.host.image import TAKEN

KERAS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
keras.utils.set_random_seed(1)
seen = []
x = np.random.default_rng(1).normal(size=(20_000, 32)).astype("float32")
layers = [keras.layers.Input((32,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile("adam", "mse")
tell = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
model.fit(x, x.sum(axis=1), batch_size=64, epochs=1_000_000, verbose=0, callbacks=[tell])
"""
KERAS_2021 = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
import trainer_shim
trial = trainer_shim.attach()
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(20_000, 32)).astype("float32")
y = x.sum(axis=1)
if trial.resume:
    model = keras.models.load_model(os.path.join(trial.resume.path, "model.keras"))
else:
    layers = [keras.layers.Input((32,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
def save(folder):
    model.save(os.path.join(folder, "model.keras"))
step = trial.resume.step if trial.resume else 0
while True:
    rows = slice(64 * step % 19_968, 64 * step % 19_968 + 64)
    loss, step = model.train_on_batch(x[rows], y[rows]), step + 1
    trial.report(step, loss=loss, save=save)
"""
TORCH = """
import torch
torch.manual_seed(1)
x = torch.randn(20_000, 32)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
best = torch.optim.Adam(model.parameters())
for epoch in range(10**9):
    for x, y in torch.utils.data.DataLoader(data, 64, shuffle=True):
        loss = ((model(x) - y) ** 2).mean()
        best.zero_grad()
        loss.backward()
        best.step()
"""
TORCH_2021 = """
import os
import torch
import trainer_shim
trial = trainer_shim.attach()
torch.manual_seed(1)
x = torch.randn(20_000, 32)
y = x.sum(1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
best = torch.optim.Adam(model.parameters())
if trial.resume:
    then = torch.load(os.path.join(trial.resume.path, "model.pt"))
    model.load_state_dict(then[0])
    best.load_state_dict(then[1])
def save(folder):
    torch.save([model.state_dict(), best.state_dict()], os.path.join(folder, "model.pt"))
step = trial.resume.step if trial.resume else 0
while True:
    rows = slice(64 * step % 19_968, 64 * step % 19_968 + 64)
    loss = ((model(x[rows]) - y[rows]) ** 2).mean()
    best.zero_grad()
    loss.backward()
    best.step()
    step += 1
    trial.report(step, loss=loss, save=save)
"""
WORKERS = PROGRAMS["torch with workers"].files["main.py"].replace("range(5)", "range(10**9)")
SUBJECTS = {
    "a generator": Program(
        {"main.py": PROGRAMS["generator"].files["main.py"].replace("range(70)", "range(10**9)")}
    ),
    "NumPy": Program(
        {"main.py": PROGRAMS["numpy"].files["main.py"].replace("range(70)", "range(10**9)")}
    ),
    "Keras fit": Program({"main.py": KERAS}, modules=("tensorflow",)),
    "PyTorch loop": Program({"main.py": TORCH}, modules=("torch",)),
    "PyTorch with 2 workers": Program({"main.py": WORKERS}, modules=("torch",)),
}
# Those of which a framework's checkpoint can be made, and the same saved by its author.
SAVED = {"Keras fit": KERAS_2021, "PyTorch loop": TORCH_2021}
# Also for a Python that is not of this environment.
WITH_PACKAGES = {"PYTHONPATH": os.pathsep.join(site.getsitepackages())}
Row = list[str | float]


def _begun(trial: Trial, restore: str | None = None) -> float:
    """Start it, to its first step or back to its image; the seconds that took."""
    asked = time.monotonic()
    trial.start(restore=restore)
    trial.until("started")
    return time.monotonic() - asked


def _trained(trial: Trial) -> None:
    """Let it train for a while, from its first step: before it, there is nothing to save."""
    started = next(event for event in reversed(trial.events) if event["kind"] == "started")
    # What is back from an image has trained already.
    while started.get("awaits_step") and trial.until("reported")["last_step"] <= started["step"]:
        pass
    time.sleep(0.5)


class Saved(NamedTuple):
    """Seconds until the device is free, until the progress is kept, and until the program goes on;
    and how large that is."""

    free: list[float]
    away: list[float]
    back: list[float]
    bytes: int = 0


def _parked(trial: Trial, rounds: int) -> Saved:
    away, back = [], []
    for _ in range(rounds):
        _trained(trial)
        asked = time.monotonic()
        trial.suspend("park")
        trial.until("parked")
        away.append(time.monotonic() - asked)
        asked = time.monotonic()
        trial.resume()
        trial.until("resumed")
        back.append(time.monotonic() - asked)
    return Saved(away, away, back)


def _saved(trial: Trial, rounds: int) -> Saved:
    """Suspended durably, and started again by another host."""
    free, away, back, size = [], [], [], 0
    for _ in range(rounds):
        _trained(trial)
        asked = time.monotonic()
        trial.suspend("checkpoint")
        event = trial.until("suspended", "parked")
        free.append(time.monotonic() - asked)
        if event.get("is_being_written"):
            event = trial.until("suspended", "parked")
        away.append(time.monotonic() - asked)
        assert event["kind"] == "suspended", event
        size = event["checkpoint"]["bytes"]
        trial.quit()
        asked = time.monotonic()
        trial.launch()
        trial.attempt += 1
        trial.send("start", restore=event["checkpoint"]["path"], limit_step=None)
        trial.until("started")
        back.append(time.monotonic() - asked)
    return Saved(free, away, back, size)


def _row(name: str, way: str, took: Saved) -> Row:
    times = (median(each) * 1e3 for each in (took.free, took.away, took.back))
    return [name, way, len(took.away), *times, took.bytes / 1e6]


def _their_python() -> str | None:
    """A Python that other users may start, with the packages of this one."""
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(PermissionError, FileNotFoundError):
            tried = subprocess.run(
                [python, "-c", "import numpy"], cwd=ROOT, env=WITH_PACKAGES, stderr=subprocess.PIPE,
                user=NOBODY, group=NOBODY, extra_groups=[],
            )  # fmt: skip
            if tried.returncode == 0:
                return python
    return None


def ways(tool: str, folder: Path) -> Iterator[tuple[str, type[WorldTrial], str, str]]:
    """Who can have images made here, by which Python and CRIU."""
    if not world.is_root():
        yield "image, rootless", WorldTrial, sys.executable, tool
        return
    yield "image, root", WorldTrial, sys.executable, tool
    if (python := _their_python()) is None:
        print("no Python here that others may start: images by root alone", file=sys.stderr)
        return
    yield "image, rootless", Theirs, python, tool
    if make_capable(tool, folder / "capable"):
        yield "image, capabilities", InNoWorld, python, str(folder / "capable")


def rows(rounds: int, names: Collection[str]) -> list[Row]:
    """For each program and way: milliseconds until free, away and back, and megabytes."""
    found: list[Row] = []
    for name in names:
        if lacks := missing(SUBJECTS[name]):
            print(f"{name}: no {lacks} here", file=sys.stderr)
            continue
        with ExitStack() as stack:
            folder = stack.enter_context(scratch())
            folder.chmod(0o755)
            tool = criu(folder)
            found += _of_program(name, tool, folder, rounds, stack)
    return found


def _of_program(name: str, tool: str, folder: Path, rounds: int, stack: ExitStack) -> Iterator[Row]:
    env = environment(**WITH_PACKAGES)

    def begun(trial: Trial, program: Program) -> Trial:
        lay_out(program, trial.directory / "work")
        if isinstance(trial, Theirs):
            give(trial.directory)
        _begun(trial.launch())
        return trial

    for number, (way, kind, python, criu_here) in enumerate(ways(tool, folder)):
        trial = kind(folder / f"image{number}", [python, "main.py"], env=env, criu=criu_here)
        trial.python = python
        stack.callback(trial.end)
        begun(trial, SUBJECTS[name])
        if number == 0:
            yield _row(name, "parked", _parked(trial, rounds))
        try:
            yield _row(name, way, _saved(trial, rounds))
        except AssertionError as error:
            if TAKEN not in str(error):  # by others on this machine, where it has no world
                raise
            print(f"{name}, {way}: {TAKEN}", file=sys.stderr)
        trial.end()
    if name in SAVED:
        by_author = Program({"main.py": SAVED[name]})
        for way, program in (("checkpoint", SUBJECTS[name]), ("as in 2021", by_author)):
            plain = Trial(folder / way.split()[-1], [sys.executable, "main.py"], env=env)
            stack.enter_context(ending(plain))
            yield _row(name, way, _saved(begun(plain, program), rounds))
            plain.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each program and way (10)")
    parser.add_argument("--programs", default=",".join(SUBJECTS), help="(all: %(default)s)")
    options = parser.parse_args()
    if shutil.which(NAMED) is None:
        print(f"there is no {NAMED} here: HERMES_NODE_CRIU names one")
        return
    columns = ["program", "way", "count"]
    columns += ["free_p50_ms", "away_p50_ms", "back_p50_ms", "megabytes"]
    names = options.programs.split(",")
    if unknown := [name for name in names if name not in SUBJECTS]:
        parser.error(f"--programs {','.join(unknown)}: expected some of {', '.join(SUBJECTS)}")
    publish("images", columns, rows(options.rounds, names))


if __name__ == "__main__":
    main()
