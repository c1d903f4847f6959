"""H1's Figure 7 and Table 2 anew: what a suspend and a resume cost four large networks.

For each network one process trains 40 iterations at batch 2 on one core between two suspends; a
pair is a suspend and the resume after it, up to the end of the first iteration, less what a usual
one takes. The tiers are measured in turn in one run: `park`; `checkpoint` (a warm interpreter
restores it); `image` of its processes, where CRIU works (a new host brings it back); `2021`: save
the model, end the process, start Python, import, load, as the first Hermes did. The share is of the
time with one pair in 40 iterations; that for 1,000 iterations is computed from it, unless
`--iterations 1000` measures it. Networks have the sizes of their papers, random weights, random
images and plain SGD (Adam would treble the state of VGG19). `python -m benchmarks.research.table2
[--models googlenet ...] [--pairs N] [--quick] [--resume]`. Table 2 as printed takes a night on two
cores, `--pairs 1 --iterations 1000`; what `--resume` finds measured in benchmarks/results/ is not
measured again, so it may be cut short at any time. The table is of all networks and pairs that were
measured, also in earlier calls.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product

from benchmarks.orphans import scratch
from benchmarks.report import Figures, digest, median, publish, software
from benchmarks.turns import (
    PREAMBLE,
    Hosted,
    Imaged,
    Plain,
    Program,
    criu_here,
    end_well_when_told_to,
    time_of_day,
    warm,
)

MODELS = ("googlenet", "resnet50", "vgg16", "vgg19")
# What must be free of memory for a network and its copies, in bytes.
MEMORY = {"googlenet": 2 << 30, "resnet50": 3 << 30, "vgg16": 6 << 30, "vgg19": 6 << 30}
TIERS = ("park", "checkpoint", "image", "2021")
ITERATIONS = 40  # of H1, between two suspends

PROGRAM = """
import numpy as np
from keras import layers

def conv(x, filters, size, strides=1):
    return layers.Conv2D(filters, size, strides, "same", activation="relu")(x)

def inception(x, one, three_in, three, five_in, five, pool):
    pooled = layers.MaxPooling2D(3, 1, "same")(x)
    return layers.Concatenate()([
        conv(x, one, 1), conv(conv(x, three_in, 1), three, 3), conv(conv(x, five_in, 1), five, 5),
        conv(pooled, pool, 1),
    ])

def googlenet():
    # Szegedy et al., Going deeper with convolutions, 2014, table 1, without the side exits and with
    # unit length over channels in place of local response normalization.
    pool = lambda x: layers.MaxPooling2D(3, 2, "same")(x)
    norm = lambda x: layers.UnitNormalization(axis=-1)(x)
    inputs = keras.Input((224, 224, 3))
    x = norm(pool(conv(inputs, 64, 7, 2)))
    x = pool(norm(conv(conv(x, 64, 1), 192, 3)))
    x = inception(x, 64, 96, 128, 16, 32, 32)
    x = pool(inception(x, 128, 128, 192, 32, 96, 64))
    x = inception(x, 192, 96, 208, 16, 48, 64)
    x = inception(x, 160, 112, 224, 24, 64, 64)
    x = inception(x, 128, 128, 256, 24, 64, 64)
    x = inception(x, 112, 144, 288, 32, 64, 64)
    x = pool(inception(x, 256, 160, 320, 32, 128, 128))
    x = inception(x, 256, 160, 320, 32, 128, 128)
    x = inception(x, 384, 192, 384, 48, 128, 128)
    x = layers.Dropout(0.4)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(1000, activation="softmax")(x))

MAKERS = {
    "googlenet": googlenet,
    "resnet50": lambda: keras.applications.ResNet50(weights=None),
    "vgg16": lambda: keras.applications.VGG16(weights=None),
    "vgg19": lambda: keras.applications.VGG19(weights=None),
}
model = load()
if model is None:
    model = MAKERS[sys.argv[3]]()
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="sparse_categorical_crossentropy")
random = np.random.default_rng(1)
images = random.normal(size=(40, 224, 224, 3)).astype("float32")
train(model, images, random.integers(0, 1000, 40), batch_size=2)
"""


class Tier:
    """One way to suspend and resume a network."""

    def __init__(
        self, program: Program, enter: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        self.program = program
        self._enter, self._leave = enter, leave

    def pair(self, iterations: int) -> dict[str, float]:
        """Train for so many iterations, suspend, and resume: what each took, in seconds."""
        program = self.program
        self._enter()
        begun, first = time.monotonic(), program.steps
        program.until(first + iterations)
        usual = (time.monotonic() - begun) / iterations
        asked = time_of_day()
        self._leave()
        # What was left of the iteration under way is training.
        suspend = time_of_day() - max(asked, program.ended)
        asked = time_of_day()
        self._enter()
        resume = program.ended - asked - usual
        self._leave()  # makes room for another tier: a process that is parked takes no time
        return {"usual": usual, "suspend": suspend, "resume": resume}


def tiers_of(model: str, stack: ExitStack) -> dict[str, Tier]:
    """The ways that are compared, each with a process of the network that stands still."""
    folder = stack.enter_context(scratch())
    zygote = stack.enter_context(warm(folder))
    hosted = Hosted(folder / "hosted", zygote, stack, PROGRAM, model)
    old = Plain(folder / "old", PROGRAM, model)
    stack.callback(old.end)
    imaged = Imaged(folder / "imaged", criu_here(folder), stack, PROGRAM, model)
    return {
        "image": Tier(imaged, imaged.enter, lambda: imaged.leave("checkpoint")),
        "park": Tier(hosted, hosted.enter, lambda: hosted.leave("park")),
        "checkpoint": Tier(hosted, hosted.enter, lambda: hosted.leave("checkpoint")),
        "2021": Tier(old, old.enter, old.leave),
    }


def measure(model: str, pairs: int, iterations: int, kept: Figures) -> None:
    """Measure what is missing of one network."""
    with ExitStack() as stack:
        tiers: dict[str, Tier] = {}
        here = [
            name for name in TIERS if name != "image" or criu_here(stack.enter_context(scratch()))
        ]
        for number, name in product(range(pairs), here):
            key = f"{model}/{name}/{number}"
            said = f"{model}, {name}, pair {number + 1} of {pairs}"
            pair = kept.get(key)
            if pair is None:
                print(f"{said}: {iterations} iterations ...", file=sys.stderr, flush=True)
                tiers = tiers or tiers_of(model, stack)
                pair = tiers[name].pair(iterations)
                kept.keep(key, pair)
            else:
                said += ", measured before"
            print(f"{said}: suspend {pair['suspend']:.3f} s,"
                  f" resume {pair['resume']:.3f} s", file=sys.stderr, flush=True)  # fmt: skip


def rows(iterations: int, kept: Figures) -> list[list[str | float]]:
    """A row for each tier of each network of which anything was measured, now or before."""
    return [
        row(model, name, list(pairs.values()), iterations)
        for model, name in product(MODELS, TIERS)
        if (pairs := kept.under(f"{model}/{name}/"))
    ]


def row(model: str, name: str, pairs: list[dict[str, float]], iterations: int) -> list[str | float]:
    suspend, resume, usual = (
        median([pair[what] for pair in pairs]) for what in ("suspend", "resume", "usual")
    )
    cost = suspend + max(0.0, resume)

    def share(count: int) -> float:
        return cost / (cost + count * usual) * 100

    return [
        model, name, len(pairs), usual, suspend, resume, share(iterations), share(1000),
    ]  # fmt: skip


def settings(iterations: int) -> dict[str, str | int]:
    """What else than the machine has to be the same for figures to stand in one table."""
    frameworks = software("keras", "tensorflow", "numpy")
    return {"iterations": iterations, "program": digest(PREAMBLE + PROGRAM), **frameworks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--pairs", type=int, default=3, help="pairs of each network and tier (3)")
    parser.add_argument(
        "--iterations", type=int, default=ITERATIONS, help="between two suspends (40)"
    )
    parser.add_argument("--quick", action="store_true", help="one pair of GoogLeNet, 5 iterations")
    parser.add_argument("--resume", action="store_true", help="go on where it was cut short")
    options = parser.parse_args()
    if options.quick:
        options.models, options.pairs, options.iterations = ["googlenet"], 1, 5
    end_well_when_told_to()
    share = f"share_{options.iterations}_percent"
    columns = ["network", "tier", "pairs", "iteration_s", "suspend_s", "resume_s", share]
    columns.append("share_1000_percent_computed")
    name = "table2" if options.iterations == ITERATIONS else f"table2_{options.iterations}"
    kept = Figures(name, settings(options.iterations), options.resume)
    for model in options.models:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if free < MEMORY[model]:
            print(f"{model} left out: {free >> 20} MiB are free", file=sys.stderr)
            continue
        measure(model, options.pairs, options.iterations, kept)
        publish(name, columns, rows(options.iterations, kept))


if __name__ == "__main__":
    main()
