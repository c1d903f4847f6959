"""Suspending whole programs: parked, as an image of their processes, by a framework's checkpoint.

Each program runs alone. In turns it is parked and resumed in memory, and suspended as an image and
brought back by a new host. The Keras fit, whose callback makes its checkpoint exact only under a
condition, is suspended by that checkpoint too, where no images are made. The device is free when
the program has stopped, or is gone; it is away when all that it needs is kept, hashed and synced.
`python -m benchmarks.images [--rounds N]` as the user whom the node is to run as; HERMES_NODE_CRIU
names a CRIU that is not on the PATH.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.orphans import scratch
from benchmarks.report import median, publish
from tests.images.driving import NAMED, WorldTrial, criu, lay_out, missing
from tests.images.programs import PROGRAMS, Program
from tests.trainer_shim.driving import Trial, ending, environment

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
TORCH = PROGRAMS["torch with workers"].files["main.py"].replace("range(5)", "range(10**9)")
SUBJECTS = {
    "a generator": Program(
        {"main.py": PROGRAMS["generator"].files["main.py"].replace("range(70)", "range(10**9)")}
    ),
    "NumPy": Program(
        {"main.py": PROGRAMS["numpy"].files["main.py"].replace("range(70)", "range(10**9)")}
    ),
    "Keras fit": Program({"main.py": KERAS}, modules=("tensorflow",)),
    "PyTorch, 2 workers": Program({"main.py": TORCH}, modules=("torch",)),
}
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


def rows(rounds: int) -> list[Row]:
    """For each program and way: milliseconds until free, away and back, and megabytes."""
    found: list[Row] = []
    for name, program in SUBJECTS.items():
        if lacks := missing(program):
            print(f"{name}: no {lacks} here", file=sys.stderr)
            continue
        with ExitStack() as stack:
            folder = stack.enter_context(scratch())
            tool = criu(folder)
            argv, env = [sys.executable, "main.py"], environment()
            trial = WorldTrial(folder / "image", argv, env=env, criu=tool)
            stack.callback(trial.end)
            lay_out(program, trial.directory / "work")
            _begun(trial.launch())
            found.append(_row(name, "parked", _parked(trial, rounds)))
            found.append(_row(name, "image", _saved(trial, rounds)))
            trial.end()
            if name == "Keras fit":
                plain = Trial(folder / "checkpoint", argv, env=env)
                stack.enter_context(ending(plain))
                lay_out(program, plain.directory / "work")
                _begun(plain.launch())
                found.append(_row(name, "checkpoint", _saved(plain, rounds)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each program and way (10)")
    options = parser.parse_args()
    if shutil.which(NAMED) is None:
        print(f"there is no {NAMED} here: HERMES_NODE_CRIU names one")
        return
    columns = ["program", "way", "count"]
    columns += ["free_p50_ms", "away_p50_ms", "back_p50_ms", "megabytes"]
    publish("images", columns, rows(options.rounds))


if __name__ == "__main__":
    main()
