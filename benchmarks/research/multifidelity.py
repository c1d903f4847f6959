"""Policies beside published multi-fidelity methods, with what a switch costs.

These are ASHA, PASHA, Hyper-Tune and DyHPO of Syne Tune on one device
(`benchmarks.research.syne_tune_schedules`), our readings of methods that extrapolate learning
curves (`benchmarks.research.learning_curve_schedules`), and our own policies. Two searches: *few*
is an order of 16 trials of which four are good, all of them trained to the end sooner or later
(those that a method leaves paused by their last loss, the lowest first); all figures but those of
effort are times of FIFO, the more the better. *All* is the papers' own setting: the whole file in
random order and 1,000 epochs, twenty full trainings; the regret, from 1 at the usual start to 0 at
the best loss of the file, after 2, 5, 10 and 20 of these, the mean over the orders.

`python -m benchmarks.research.multifidelity --curves FILE ... [--orders N] [--orders-of-all N]
[--methods NAME ...] [--resume]`; figures are kept at once, and with `--resume` not made again. It
takes an environment with what `benchmarks/research/requirements.txt` names.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.report import Figures, publish
from hermesd.refusal import Refused
from hermesd.sim.compare import Recorded, Scene, opened, order_of
from hermesd.sim.contenders import contenders
from hermesd.sim.curves import Switch
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.figures import effort_of, figures_of, gaps_at
from hermesd.sim.orders import ALL, BINS, SubmissionOrder
from hermesd.sim.rows import geometric
from hermesd.sim.stay import RecordedStay

SWITCH_SECONDS = (0.0, 1.0, 10.0)
TRIALS, ORDERS, ORDERS_OF_ALL = 16, 10, 2
SYNE_TUNE = "syne_tune:"
READ = "read:"
THEIRS = (
    *(f"{SYNE_TUNE}{each}" for each in ("asha", "pasha", "hyper_tune", "dyhpo")),
    *(f"{READ}{each}" for each in ("dpl", "ifbo", "freeze_thaw")),
)
# Shares of all training that a method decides upon, where its later decisions take minutes.
DECIDED: Mapping[str, float] = {f"{READ}dpl": 0.25}
OURS = ("fifo", "asha", "pasha", "hyperband", "best_first", "guided")
RATIOS = ("auc", "near_best", "time_to_good", "time_to_best")
# Budgets of a search through a whole file, in full trainings.
BUDGETS = (2, 5, 10, 20)
REGRETS = tuple(f"after_{budget}" for budget in BUDGETS)
# What all decisions of a search took: of CPU time for others' methods, as measured here for ours.
EFFORT = ("overhead", "decision_seconds")
MEANS: Mapping[str, tuple[str, ...]] = {"few": EFFORT, "all": REGRETS}
COLUMNS = ["search", "method", "switch_seconds", "files", "orders", *RATIOS, *EFFORT, *REGRETS]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A trial of an order trains the steps `first + 1 .. last` on the one device."""

    trial: int
    first: int
    last: int


def timed(
    order: SubmissionOrder, stretches: Iterable[Stretch], until: float = math.inf
) -> SimulatedOutcome:
    """When all of that happens, those that begin up to a time; a trial that goes on at once is not
    suspended."""
    stays: list[RecordedStay] = []
    finished: dict[int, float] = {}
    now = overhead = 0.0
    switches = 0
    for stretch in _merged(stretches):
        if now > until:
            break
        job, taken = order.jobs[stretch.trial], now
        starting = order.switch.resuming if stretch.first else order.switch.starting
        begun = taken + starting
        ended = begun + job.seconds(stretch.first, stretch.last)
        suspended = stretch.last < job.steps
        now = ended + (order.switch.leaving if suspended else order.switch.ending)
        switches += suspended
        overhead += (starting if stretch.first else 0.0) + suspended * order.switch.leaving
        if not suspended:
            finished[stretch.trial] = now
        stays.append(
            RecordedStay(
                stretch.trial, 0, taken, begun, ended, now, stretch.first, stretch.last,
                job.step_seconds, job.passes,
            )
        )  # fmt: skip
    ends = tuple(finished.get(place, math.inf) for place in range(len(order.jobs)))
    return SimulatedOutcome(tuple(stays), ends, switches, overhead, 0, 0.0)


def _merged(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    last: Stretch | None = None
    for each in stretches:
        if last and last.trial == each.trial:
            last = replace(last, last=each.last)
            continue
        if last:
            yield last
        last = each
    if last:
        yield last


def to_the_end(order: SubmissionOrder, stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """And then every trial that is left, by its last loss."""
    yield from stretches
    done = dict.fromkeys(range(len(order.jobs)), 0)
    done.update((each.trial, each.last) for each in stretches)
    losses = {
        place: order.jobs[place].losses[step - 1] if step else math.inf
        for place, step in done.items()
    }
    for place in sorted(done, key=lambda each: (losses[each], each)):
        if done[place] < order.jobs[place].steps:
            yield Stretch(place, done[place], order.jobs[place].steps)


def theirs(method: str, order: SubmissionOrder, path: Path, seed: int, most: int) -> list[Stretch]:
    """What a method trains of an order, up to so many steps of all trials."""
    if method.startswith(SYNE_TUNE):
        from benchmarks.research.syne_tune_schedules import turns
    else:
        from benchmarks.research.learning_curve_schedules import turns

    pool = opened(Recorded(path, "base", None))[0].jobs
    stretches: list[Stretch] = []
    trained = 0
    for turn in turns(method.partition(":")[2], pool, order.jobs, seed):
        stretches.append(Stretch(*turn))
        trained += stretches[-1].last - stretches[-1].first
        if trained >= most:
            break
    return stretches


def ours(policy: str, order: SubmissionOrder, until: float = math.inf) -> SimulatedOutcome:
    """An order under one of our policies, up to a time."""
    (each,) = contenders(policy)
    drive = Drive(order, 1, each.policy, each.placement)
    if until == math.inf:
        return drive.run()
    drive.play(until)
    return SimulatedOutcome(tuple(drive.stays), (), 0, 0.0, 0, 0.0)


def of_few(order: SubmissionOrder, outcome: SimulatedOutcome) -> dict[str, float]:
    """The figures of an order that was trained to the end."""
    figures = figures_of(order, outcome)
    found = {name: float(getattr(figures, name)) for name in RATIOS}
    effort = effort_of(outcome)
    return {**found, **{name: float(getattr(effort, name)) for name in EFFORT}}


def of_all(order: SubmissionOrder, outcome: SimulatedOutcome, length: float) -> dict[str, float]:
    """The regrets of a search through a file."""
    at = np.array([budget * length for budget in BUDGETS])
    return dict(zip(REGRETS, gaps_at(order, outcome, at).tolist(), strict=True))


def with_switch(order: SubmissionOrder, seconds: float) -> SubmissionOrder:
    return replace(order, switch=Switch.split(seconds))


def measure(path: Path, number: int, search: str, methods: Sequence[str], kept: Figures) -> None:
    """These methods on one order of a file, with each cost of a switch. Raises Refused."""
    whole = search == "all"
    recorded = Recorded(path, "base", None)
    # Order 0 of all trials is the file's own, which may be sorted.
    scene = Scene(recorded, 1, ALL if whole else BINS["1"], TRIALS, number + 1, 0)
    order = order_of(scene, number + whole)
    length = float(np.median([job.seconds(0, job.steps) for job in order.jobs]))
    steps = sum(job.steps for job in order.jobs)
    # So that what is under way when the budget is spent has ended.
    until, most = math.inf, steps
    if whole:
        trainings = BUDGETS[-1] + 2
        until, most = trainings * length, trainings * steps // len(order.jobs)
    for method in methods:
        keys = {each: _key(search, method, each, path, number) for each in SWITCH_SECONDS}
        if all(kept.get(key) for key in keys.values()):
            continue
        plan: list[Stretch] = []
        began = time.process_time()
        if method in THEIRS:
            decided = most if whole else int(DECIDED.get(method, 1) * most)
            plan = theirs(method, order, path, number, decided)
            plan = plan if whole else list(to_the_end(order, plan))
        planning = time.process_time() - began
        for seconds, key in keys.items():
            at = with_switch(order, seconds)
            if plan:
                outcome = replace(timed(at, plan, until), decision_seconds=planning)
            else:
                outcome = ours(method, at, until)
            kept.keep(key, of_all(at, outcome, length) if whole else of_few(at, outcome))
    print(f"{path.stem}, {search}, order {number}: done", file=sys.stderr, flush=True)


def _key(search: str, method: str, seconds: float, path: Path, number: int) -> str:
    return f"{search} {method} {seconds:g} {path.stem} {number}"


def table(
    files: Sequence[Path], orders: Mapping[str, int], methods: Sequence[str], kept: Figures
) -> list[list[str | float]]:
    """A row for each search, method and cost of a switch."""

    def mean(name: str, search: str, method: str, seconds: float, path: Path) -> float:
        keys = [_key(search, method, seconds, path, each) for each in range(orders[search])]
        return float(np.mean([(kept.get(key) or {})[name] for key in keys]))

    rows: list[list[str | float]] = []
    wanted = [search for search, count in orders.items() if count]
    for search, method, seconds in product(wanted, methods, SWITCH_SECONDS):
        cells: dict[str, str | float] = dict.fromkeys(COLUMNS, "-")
        where = search, method, seconds
        cells.update(zip(COLUMNS, (*where, len(files), orders[search]), strict=False))
        for name in MEANS[search]:
            cells[name] = float(np.mean([mean(name, *where, path) for path in files]))
        for name in RATIOS if search == "few" else ():
            fast = [
                mean(name, search, "fifo", seconds, path) / mean(name, *where, path)
                for path in files
            ]
            cells[name] = geometric(fast)
        rows.append(list(cells.values()))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.research.multifidelity")
    parser.add_argument("--curves", nargs="+", type=Path, required=True)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--orders-of-all", type=int, default=ORDERS_OF_ALL)
    every = (*OURS, *THEIRS)
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder instead of benchmarks/results")
    words = parser.parse_args()
    # The others' times are multiples of its.
    methods = tuple(dict.fromkeys(("fifo", *words.methods)))
    kept = Figures("multifidelity", {}, words.resume, words.out)
    orders = {"few": words.orders, "all": words.orders_of_all}
    try:
        for number in range(max(orders.values())):
            for path in words.curves:
                for search, count in orders.items():
                    if number < count:
                        measure(path, number, search, methods, kept)
    except Refused as error:
        sys.exit(str(error))
    out = None if words.out is None else words.out / "multifidelity.json"
    publish("multifidelity", COLUMNS, table(words.curves, orders, methods, kept), out)


if __name__ == "__main__":
    main()
