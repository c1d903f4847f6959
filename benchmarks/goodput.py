"""Goodput: what of the time eight Keras trials that take turns on one core is training.

A turn's training time is its quantum, which counts from the end of its first iteration; goodput is
the quanta over the wall time, and what a turn takes beyond its quantum is its cost. `pace` says
that a quantum is all training: iterations a second in it, over those of an uninterrupted run
without Hermes beside it.
The arms: `park`; `checkpoint` (the process ends, and a warm interpreter restores it in its turn);
`ahead` (the same, rebuilt before its turn on another core; `ahead, same core` on the slot's own);
`image` (of its processes, where CRIU works: the process ends, and a new host brings it back);
and `2021`: save the model, end the process, start Python, import, load, as the first Hermes did.
All run the network of examples/digits.
`python -m benchmarks.goodput [--quanta 1 2 5 10] [--rounds N] [--quick]`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from benchmarks.orphans import scratch
from benchmarks.report import median, publish
from benchmarks.turns import (
    CORES,
    SLOT,
    Hosted,
    Imaged,
    Plain,
    Program,
    criu_here,
    end_well_when_told_to,
    warm,
)
from tests.trainer_shim.driving import ROOT

PLAIN_SECONDS = 1.5

PROGRAM = """
import tensorflow as tf
from sklearn.datasets import load_digits
sys.path.insert(0, sys.argv[3])
from train import build_model

tf.config.threading.set_intra_op_parallelism_threads(1)
model = load()
if model is None:
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=1e-3, weight_decay=1e-3),
        loss="sparse_categorical_crossentropy", metrics=["accuracy"],
    )
digits = load_digits()
images = digits.images[..., None].astype("float32") / 16
train(model, images, digits.target, batch_size=32, validation_split=0.2)
"""
DIGITS = str(ROOT / "examples" / "digits")


class Turns:
    """Trials that take turns; `prepare` is done for the next one once one has begun."""

    def __init__(
        self,
        programs: Sequence[Program],
        enter: Callable[[int], None],
        leave: Callable[[int], None],
        prepare: Callable[[int], None] = lambda number: None,
        drop: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._programs = programs
        self._enter, self._leave, self._prepare, self._drop = enter, leave, prepare, drop
        self._turn = cycle(range(len(programs)))
        self._next = next(self._turn)

    def take(self, quantum: float, count: int) -> tuple[int, float]:
        """Iterations within the quanta, and wall seconds of so many turns."""
        self._prepare(self._next)
        time.sleep(quantum)  # the turn before the first: whoever is prepared has had as long
        steps, begun = 0, time.monotonic()
        for _ in range(count):
            present, self._next = self._next, next(self._turn)
            self._enter(present)
            before, entered = self._programs[present].steps, time.monotonic()
            self._prepare(self._next)
            time.sleep(max(0.0, entered + quantum - time.monotonic()))
            steps += self._programs[present].steps - before
            self._leave(present)
        seconds = time.monotonic() - begun
        self._drop(self._next)
        return steps, seconds


def arms(folder: Path, stack: ExitStack, trials: int) -> dict[str, Turns]:
    """Everything that is compared, ready to go on from what one trial had saved."""
    zygote = stack.enter_context(warm(folder))

    def hosted(name: str) -> list[Hosted]:
        return [
            Hosted(folder / f"{name}{i}", zygote, stack, PROGRAM, DIGITS) for i in range(trials)
        ]

    kept, parked = hosted("kept"), hosted("parked")
    kept[0].enter()
    kept[0].leave("checkpoint")
    for each in [*kept, *parked]:
        each.saved = kept[0].saved
    for park in parked:
        park.enter()
        park.leave("park")
    old = [Plain(folder / f"old{i}", PROGRAM, DIGITS) for i in range(trials)]
    for each_old in old:
        stack.callback(each_old.end)
    old[0].enter()
    old[0].leave()
    for other in old[1:]:
        shutil.copy(old[0].folder / "model.keras", other.folder)

    imaged: list[Imaged] = []
    if criu := criu_here(folder):
        imaged = [Imaged(folder / f"image{i}", criu, stack, PROGRAM, DIGITS) for i in range(trials)]
    for each_imaged in imaged:
        each_imaged.enter()
        each_imaged.leave("checkpoint")

    def ahead(core: int) -> Turns:
        def leave(number: int) -> None:
            kept[number].leave("checkpoint")

        return Turns(
            kept,
            lambda i: kept[i].enter(),
            leave,
            lambda i: kept[i].prepare(core),
            lambda i: kept[i].end(),
        )

    made = {
        "park": Turns(parked, lambda i: parked[i].enter(), lambda i: parked[i].leave("park")),
        "checkpoint": Turns(kept, lambda i: kept[i].enter(), lambda i: kept[i].leave("checkpoint")),
        "ahead, same core": ahead(SLOT),
        "2021": Turns(old, lambda i: old[i].enter(), lambda i: old[i].leave()),
    }
    if imaged:
        made["image"] = Turns(
            imaged, lambda i: imaged[i].enter(), lambda i: imaged[i].leave("checkpoint")
        )
    if len(CORES) > 1:
        made["ahead"] = ahead(CORES[1])
    return made


def measure(
    quanta: list[float], rounds: int, seconds: float, trials: int
) -> list[list[str | float]]:
    """A row for each arm and quantum."""
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        plain = Plain(folder / "plain", PROGRAM, DIGITS)
        stack.callback(plain.end)
        plain.enter()
        plain.signal(signal.SIGSTOP)
        compared = arms(folder, stack, trials)
        for quantum in quanta * rounds:
            for name in random.sample(sorted(compared), len(compared)):
                rate = _rate(plain)
                count = max(2, round(seconds / quantum))
                steps, wall = compared[name].take(quantum, count)
                trained = count * quantum
                found.setdefault((name, quantum), []).append((wall / count, steps / trained / rate))
                print(f"{name}, {quantum:g} s: {trained / wall:.3f}", file=sys.stderr, flush=True)
    rows: list[list[str | float]] = []
    for (name, quantum), blocks in sorted(found.items()):
        turns = [turn for turn, _ in blocks]
        rows.append([
            name, quantum, len(blocks), quantum / median(turns), quantum / max(turns),
            quantum / min(turns), median(turns) - quantum, median([pace for _, pace in blocks]),
        ])  # fmt: skip
    return rows


def _rate(plain: Plain) -> float:
    """Iterations a second of the uninterrupted run, now."""
    plain.signal(signal.SIGCONT)
    before, begun = plain.steps, time.monotonic()
    time.sleep(PLAIN_SECONDS)
    plain.until(before + 1)  # on a machine so busy that it took longer
    steps, seconds = plain.steps - before, time.monotonic() - begun
    plain.signal(signal.SIGSTOP)
    return steps / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quanta", type=float, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--rounds", type=int, default=2, help="blocks of each arm and quantum (2)")
    parser.add_argument("--seconds", type=float, default=10, help="training in each block (10)")
    parser.add_argument("--trials", type=int, default=8, help="trials that take turns (8)")
    parser.add_argument("--quick", action="store_true", help="3 trials, quanta of 2 s, one block")
    options = parser.parse_args()
    if options.quick:
        options.quanta, options.rounds, options.seconds, options.trials = [2], 1, 4, 3
    end_well_when_told_to()
    columns = ["arm", "quantum_s", "blocks", "goodput", "low", "high", "cost_s_per_turn", "pace"]
    rows = measure(options.quanta, options.rounds, options.seconds, options.trials)
    publish("goodput", columns, rows)


if __name__ == "__main__":
    main()
