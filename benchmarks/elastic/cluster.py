"""The Optimus paper's cluster in virtual time: its jobs under its allocation and others'.

A small simulation of its own: the production scheduler puts a trial on one node and knows no
parameter servers. What is compared is the allocation; the models are fitted to what the jobs show,
speeds and losses with noise, never told. (Y. Peng et al., EuroSys 2018.) Nine jobs of the paper's
kinds come within 12,000 s to 13 nodes; their lengths are planted here, since the paper prints none,
and so are their speeds, by the size of each model over a network of 1 Gbit/s, unless `measured` has
some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeAlias

import numpy as np

from benchmarks.elastic.measured import Measured
from hermesd.core.losses import chunked_points
from hermesd.policy.curve import InverseFit, fit_inverse
from hermesd.policy.elastic.gain import ServedJob, Split, divide
from hermesd.policy.elastic.loss import YOUNG_SHARE, settles_at, without_outliers
from hermesd.policy.elastic.speed import Exchange, Observed, SpeedModel, fit_speed

# Cores and GB of memory: 7 nodes of two processors and 6 of one; what a worker and a server take.
CAPACITY = (7 * 16.0 + 6 * 8.0, 7 * 80.0 + 6 * 48.0)
TASK = (5.0, 10.0)
ARRIVALS_SECONDS, INTERVAL_SECONDS = 12_000.0, 600.0
# What a change of its workers or servers costs a job: its checkpoint, and a start from it.
RESIZE_SECONDS = 20.0
MOST = 16
NOISE = 0.05
BYTES_PER_SECOND = 125e6
# An epoch's drop that is below a threshold, drawn from these shares of the largest loss, in so many
# epochs in a row: the job has converged.
THRESHOLDS, EPOCHS = (0.002, 0.01), 3
# Of each model, parameters in millions, and seconds that one worker computes for a global batch.
KINDS = {
    "ResNext-110": (1.7, 8.0),
    "ResNet-50": (25.0, 24.0),
    "Inception-BN": (11.3, 16.0),
    "KAGGLE": (1.4, 4.0),
    "CNN-rand": (6.0, 3.0),
    "DSSM": (1.5, 2.0),
    "RNN-LSTM": (4.7, 6.0),
    "Seq2Seq": (9.1, 14.0),
    "DeepSpeech2": (38.0, 24.0),
}
PROBES = 10
# What stands for nothing where it is to be inverted.
UNSEEN = 1e-9
NOTHING = Split(0, 0)
GRID = [Split(w, p) for w in range(1, MOST + 1) for p in range(1, MOST + 1)]

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]


def probes(exchange: Exchange, allowed: Iterable[Split], count: int = PROBES) -> list[Split]:
    """Where to measure a training before anything is known, the most telling first.

    Each is the one that makes det(X'X) of the terms the largest (D-optimal, one at a time).

    Args:
        exchange: how the workers exchange gradients.
        allowed: the numbers of workers and servers that it may have.
        count: of runs, each of some tens of seconds.

    Returns:
        All that is allowed, if that is no more.
    """
    left = list(dict.fromkeys(allowed))
    terms = len(exchange.terms(1, 1, 1.0))
    rows = np.array([exchange.terms(*split, 1.0) for split in left], dtype=float).reshape(-1, terms)
    rows = rows / rows.max(axis=0, initial=UNSEEN)
    inverse = np.eye(terms) / UNSEEN
    chosen: list[Split] = []
    while left and len(chosen) < count:
        # det(A + x x') = det(A) (1 + x' A^-1 x)
        telling = np.einsum("ij,jk,ik->i", rows, inverse, rows)
        place = int(telling.argmax())
        row = rows[place]
        through = inverse @ row
        inverse -= np.outer(through, through) / (1 + telling[place])
        chosen.append(left.pop(place))
        rows = np.delete(rows, place, axis=0)
    return chosen


@dataclass
class Course:
    """A job as it really is, and what it has shown."""

    name: str
    arrived: float
    truth: SpeedModel | Measured
    loss: InverseFit
    threshold: float
    #: Steps in an epoch.
    epoch: float
    #: So many workers, each with a server, its owner asks for.
    asked: int
    chance: np.random.Generator
    step: float = 0.0
    split: Split = NOTHING
    finished: float = math.inf
    seen: list[Observed] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)

    @property
    def length(self) -> float:
        """The steps after which it has really converged."""
        return self._converges(self.loss, self.loss.at(0.0))

    def probe(self) -> None:
        """Ten short runs, before anything else."""
        for split in probes(self.truth.exchange, GRID):
            self._observe(split)

    def train(self, seconds: float) -> None:
        """Go on, and show a speed and a loss for each epoch."""
        before, speed = self.step, self.truth(*self.split)
        self.step += seconds * speed
        for epoch in range(int(before / self.epoch) + 1, int(self.step / self.epoch) + 1):
            noisy = self.loss.at(epoch * self.epoch) * (1 + NOISE / 2 * self.chance.normal())
            self.losses.append((epoch, noisy))
        self._observe(self.split)

    def remaining(self) -> tuple[float, bool]:
        """The steps left by what it has shown, and whether it is too young for that to be sure."""
        chunks = without_outliers(chunked_points(1, self.losses))
        fit = fit_inverse(chunks, floor_from_zero=True)
        if fit is None:  # what such jobs usually take
            return max(self.epoch, 40 * self.epoch - self.step), True
        found = InverseFit(fit.slope / self.epoch, fit.offset, fit.floor)
        largest = max(loss for _, loss in self.losses)
        end = self._converges(found, largest)
        left = max(end - self.step, self.epoch)
        return left, self.step < YOUNG_SHARE * (self.step + left)

    def fitted(self) -> SpeedModel:
        """The speed model by what it has shown."""
        model = fit_speed(self.truth.exchange, self.seen)
        assert model is not None
        return model

    def _converges(self, fit: InverseFit, largest: float) -> float:
        # In epochs, of which `settles_at` wants whole numbers of steps.
        by_epoch = InverseFit(fit.slope * self.epoch, fit.offset, fit.floor)
        return (settles_at(by_epoch, self.threshold * largest, 1) + EPOCHS) * self.epoch

    def _observe(self, split: Split) -> None:
        noisy = self.truth(*split) * (1 + NOISE * self.chance.uniform(-1, 1))
        self.seen.append(Observed(split, noisy))


def drawn(seed: int, jobs: int, measured: Mapping[str, Measured]) -> list[Course]:
    """The jobs of a seed, in the order in which they come: of each kind by turns."""
    chance = np.random.default_rng(seed)
    courses = []
    for number in range(jobs):
        name = list(measured or KINDS)[number % len(measured or KINDS)]
        truth = measured[name] if measured else _planted(name, chance)
        threshold = float(chance.uniform(*THRESHOLDS))
        hours = float(np.exp(chance.uniform(math.log(0.3), math.log(4.0))))
        steps = hours * 3_600 * truth(4, 4)
        # By epoch, so that some tens of them are to be trained.
        loss = InverseFit(float(chance.uniform(0.05, 0.3)), 0.4, float(chance.uniform(0.1, 0.5)))
        epochs = settles_at(loss, threshold * loss.at(0.0), 1) + EPOCHS
        courses.append(
            Course(
                f"{name} {number}",
                float(chance.uniform(0.0, ARRIVALS_SECONDS)),
                truth,
                InverseFit(loss.slope * epochs / steps, loss.offset, loss.floor),
                threshold,
                steps / epochs,
                int(chance.integers(1, 5)),
                np.random.default_rng(chance.integers(1 << 30)),
            )
        )
    return sorted(courses, key=lambda course: course.arrived)


def _planted(name: str, chance: np.random.Generator) -> SpeedModel:
    parameters, compute = KINDS[name]
    # Gradients up and parameters down, of four bytes each.
    transfer = 2 * 4e6 * parameters / BYTES_PER_SECOND
    if chance.random() < 0.5:
        return SpeedModel(Exchange.SYNCHRONOUS, (compute, compute / 24, transfer, 0.05, 0.05))
    return SpeedModel(Exchange.ASYNCHRONOUS, (compute / 6, transfer, 0.05, 0.05))


# Allocations: the jobs that there are, in the order in which they came, to their splits.

Allocation: TypeAlias = Callable[[Sequence[Course]], Mapping[str, Split]]
PAIRS = int(min(there / 2 / each for there, each in zip(CAPACITY, TASK, strict=True)))


def optimus(courses: Sequence[Course]) -> Mapping[str, Split]:
    """By marginal gain (`hermesd/policy/elastic/gain.py`)."""
    jobs = []
    for course in courses:
        steps, young = course.remaining()
        least, most = Split(1, 1), Split(MOST, MOST)
        jobs.append(ServedJob(course.name, steps, course.fitted(), TASK, TASK, least, most, young))
    return divide(jobs, CAPACITY)


def drf(courses: Sequence[Course]) -> Mapping[str, Split]:
    """Dominant resource fairness (A. Ghodsi et al., NSDI 2011): a worker and a server to the job
    with the least share, again and again. All have tasks alike, so shares are counts of pairs."""
    pairs = dict.fromkeys((course.name for course in courses), 0)
    for _ in range(PAIRS if pairs else 0):
        pairs[min(pairs, key=lambda name: pairs[name])] += 1
    return {name: Split(count, count) for name, count in pairs.items() if count}


def drf_held(courses: Sequence[Course]) -> Mapping[str, Split]:
    """The same where a job keeps what it began with, and those that come have what is left."""
    pairs = {course.name: course.split.workers for course in courses}
    new = [name for name, count in pairs.items() if not count]
    for _ in range(PAIRS - sum(pairs.values()) if new else 0):
        pairs[min(new, key=lambda name: pairs[name])] += 1
    return {name: Split(count, count) for name, count in pairs.items() if count}


def tetris(courses: Sequence[Course]) -> Mapping[str, Split]:
    """Multi-resource packing (R. Grandl et al., SIGCOMM 2014): the least remaining work first, as
    its score comes to where all tasks are alike; each has what its owner asks for."""

    def work(course: Course) -> float:
        return course.remaining()[0] / course.fitted()(course.asked, course.asked) * course.asked

    return _in_turn(sorted(courses, key=work), lambda course: course.asked)


def fifo(courses: Sequence[Course]) -> Mapping[str, Split]:
    """First in, first out, each with what its owner asks for."""
    return _in_turn(courses, lambda course: course.asked)


def fixed(pairs: int) -> Allocation:
    """The same with so many workers and servers for all."""
    return lambda courses: _in_turn(courses, lambda _: pairs)


def _in_turn(courses: Sequence[Course], wanted: Callable[[Course], int]) -> Mapping[str, Split]:
    left, found = PAIRS, {}
    for course in courses:
        pairs = min(wanted(course), left)
        if pairs:
            found[course.name] = Split(pairs, pairs)
            left -= pairs
    return found


ALLOCATIONS: Mapping[str, Allocation] = {
    "optimus": optimus, "drf": drf, "drf held": drf_held, "tetris": tetris, "fifo": fifo,
    "width 1": fixed(1), "width 2": fixed(2), "width 4": fixed(4),
}  # fmt: skip


def simulated(
    allocation: Allocation, seed: int, jobs: int, measured: Mapping[str, Measured]
) -> tuple[float, float]:
    """The mean completion time and the makespan, in hours."""
    courses = drawn(seed, jobs, measured)
    for course in courses:
        course.probe()
    now = 0.0
    while any(course.finished == math.inf for course in courses):
        there = [c for c in courses if c.arrived <= now and c.finished == math.inf]
        splits = allocation(there)
        for course in there:
            split = splits.get(course.name, NOTHING)
            lost = RESIZE_SECONDS if split != course.split and course.step else 0.0
            course.split = split
            if split.workers == 0:
                continue
            left = (course.length - course.step) / course.truth(*split)
            if left <= INTERVAL_SECONDS - lost:
                course.finished = now + lost + left
            else:
                course.train(INTERVAL_SECONDS - lost)
        now += INTERVAL_SECONDS
    took = fmean(course.finished - course.arrived for course in courses)
    return took / 3_600, (max(c.finished for c in courses) - courses[0].arrived) / 3_600


def compared(jobs: int, seeds: int, measured: Mapping[str, Measured]) -> list[list[str | float]]:
    """A row for each allocation: means over the seeds, beside how many times as long as with
    `optimus`, and the least of that of any seed.

    Args:
        jobs: how many there are.
        seeds: of as many mixes.
        measured: how fast each kind of job is; empty: as planted.
    """
    times = {
        name: np.array([simulated(allocation, seed, jobs, measured) for seed in range(seeds)])
        for name, allocation in ALLOCATIONS.items()
    }
    rows: list[list[str | float]] = []
    for name, took in times.items():
        ratios = took / times["optimus"]
        rows.append([jobs, name, *took.mean(axis=0), *ratios.mean(axis=0), *ratios.min(axis=0)])
    return rows


COLUMNS = [
    "jobs", "allocation", "jct_h", "makespan_h", "jct_x_optimus", "makespan_x_optimus",
    "least_jct_x", "least_makespan_x",
]  # fmt: skip
