"""What durable checkpoints by schedule cost a training, and whether they hold up a suspend.

Pairs of stretches of the same number of iterations, one with a checkpoint asked for at its start
and long enough for it to be written, one without, in random order. The cost of one is the
difference; by a schedule of `durability_seconds` = 60 it is that share of a minute, budget 1 %. The
same in CPU seconds hardly depends on what else the machine does. Then suspends (by parking) are
asked for while a checkpoint is being written, and while none is.
Two fits on one core: the network of examples/digits, and 25.6 million parameters with momentum,
the size of ResNet50's state. `python -m benchmarks.durability [--pairs N] [--quick]`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import ExitStack

from benchmarks import goodput
from benchmarks.orphans import scratch
from benchmarks.report import median, publish, quantile
from benchmarks.turns import Hosted, end_well_when_told_to, time_of_day, warm

SCHEDULE_SECONDS = 60.0
BUDGET_PERCENT = 1.0

LARGE = """
import numpy as np
model = load()
if model is None:
    model = keras.Sequential([
        keras.Input((2048,)), keras.layers.Dense(6144, "relu"), keras.layers.Dense(2048, "relu"),
        keras.layers.Dense(200),
    ])
    model.compile(keras.optimizers.SGD(1e-4, momentum=0.9), "mse")
random = np.random.default_rng(1)
x, y = random.normal(size=(512, 2048)), random.normal(size=(512, 200))
train(model, x.astype("float32"), y.astype("float32"), batch_size=8)
"""
FITS = {"digits": (goodput.PROGRAM, goodput.DIGITS), "25.6 M parameters": (LARGE,)}


class Fit:
    """One fit under its host, always training between the calls."""

    def __init__(self, program: Hosted) -> None:
        self.program = program
        self.saves = 0

    def stretch(self, iterations: int, with_save: bool) -> tuple[float, float]:
        """Wall and CPU seconds of so many iterations, a checkpoint written meanwhile or not."""
        begun, first = time.monotonic(), self.program.steps
        used = self.program.cpu_seconds
        if with_save:
            self.ask()
        self.program.until(first + iterations)
        seconds, used = time.monotonic() - begun, self.program.cpu_seconds - used
        if with_save:
            self.program.saved_as()
        return seconds, used

    def ask(self) -> None:
        self.saves += 1
        self.program.checkpoint(f"d{self.saves}")

    def length(self, least_seconds: float) -> int:
        """How many iterations take so long, and longer than a checkpoint."""
        begun, first = time.monotonic(), self.program.steps
        self.ask()
        self.program.saved_as()
        seconds = max(least_seconds, 2 * (time.monotonic() - begun))
        time.sleep(least_seconds)
        rate = (self.program.steps - first) / (time.monotonic() - begun)
        return max(4, int(seconds * rate))

    def suspend(self, during_save: bool) -> float:
        """Seconds from the end of the iteration under way until the device is free."""
        time.sleep(random.uniform(0.2, 0.4))
        if during_save:
            self.ask()
            self.program.until(self.program.steps + 2)  # it has been copied and is being written
        asked = time_of_day()
        self.program.leave("park")
        free = time_of_day() - max(asked, self.program.ended)
        self.program.enter()
        if during_save:
            self.program.saved_as()
        return free


def rows(pairs: int, seconds: float) -> list[list[str | float]]:
    found: list[list[str | float]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        zygote = stack.enter_context(warm(folder))
        for name, (text, *arguments) in FITS.items():
            program = Hosted(folder / name.replace(" ", ""), zygote, stack, text, *arguments)
            program.enter()
            program.until(20)
            fit = Fit(program)
            iterations = fit.length(seconds)
            costs, cpu_costs, stretches = [], [], []
            for _ in range(pairs):
                order = random.sample((True, False), 2)
                taken = {with_save: fit.stretch(iterations, with_save) for with_save in order}
                costs.append(taken[True][0] - taken[False][0])
                cpu_costs.append(taken[True][1] - taken[False][1])
                stretches.append(taken[False][0])
                print(f"{name}: {costs[-1]:+.3f} s, {cpu_costs[-1]:+.3f} s of CPU, of"
                      f" {stretches[-1]:.2f} s", file=sys.stderr, flush=True)  # fmt: skip
            quiet = [fit.suspend(False) for _ in range(pairs)]
            during = [fit.suspend(True) for _ in range(pairs)]
            fit.ask()
            saved = program.saved_as()
            share = median(costs) / SCHEDULE_SECONDS * 100
            found.append(
                [name, saved["bytes"] / 1e6, len(costs), median(stretches), median(costs),
                 quantile(costs, 0.25), quantile(costs, 0.75), saved["stall_seconds"], share,
                 median(cpu_costs), median(cpu_costs) / SCHEDULE_SECONDS * 100, BUDGET_PERCENT,
                 median(quiet) * 1e3, median(during) * 1e3]
            )  # fmt: skip
            program.leave("park")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of stretches (15)")
    parser.add_argument("--seconds", type=float, default=3, help="a stretch at least (3)")
    parser.add_argument("--quick", action="store_true", help="three pairs of a second")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.seconds = 3, 1
    end_well_when_told_to()
    columns = [
        "fit", "state_MB", "pairs", "stretch_s", "cost_s", "cost_p25_s", "cost_p75_s", "stall_s",
        "percent_of_60_s", "cpu_cost_s", "cpu_percent_of_60_s", "budget_percent", "suspend_ms",
        "suspend_while_saving_ms",
    ]  # fmt: skip
    publish("durability", columns, rows(options.pairs, options.seconds))


if __name__ == "__main__":
    main()
