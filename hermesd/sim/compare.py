"""Simulates every policy on every order, spread over processes.

Each piece of work is a pure function of its description, so the number of processes, and which one
is ready first, changes nothing. Processes are spawned, never forked.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import active_children, get_context  # noqa: TID251 - only to spawn
from pathlib import Path

import numpy as np

from hermesd.core.policy import Earlier
from hermesd.refusal import FieldError, Refused
from hermesd.sim.archives import JOB_ITERATIONS, ZIP, read_archive
from hermesd.sim.bound import bound_of, check
from hermesd.sim.contenders import FIFO, Contender
from hermesd.sim.curves import Curves, Loss, Switch
from hermesd.sim.drive import Drive, SimulatedOutcome, earlier_study
from hermesd.sim.exports import read_export
from hermesd.sim.figures import Effort, Figures, effort_of, figures_of, gaps_at
from hermesd.sim.orders import Good, LossGoal, SubmissionOrder, draw, goal_of

# A file of recorded curves, whatever it is: an archive, or the export of a study.


def read(path: Path, loss: Loss = "base", iterations: int | None = JOB_ITERATIONS) -> Curves:
    """Every usable training of a file; `iterations` is `read_archive`'s.

    Raises:
        Refused: the file cannot be read, has no layout that is known, or not the loss asked for.
    """
    try:
        with path.open("rb") as file:
            begun = file.read(len(ZIP))
    except IsADirectoryError:
        raise Refused(
            FieldError("curves", str(path), "files; a folder's are named one by one")
        ) from None
    except OSError as error:
        expected = f"a file of recorded curves ({error.strerror})"
        raise Refused(FieldError("curves", str(path), expected)) from None
    if begun == ZIP or (begun and path.suffix == ".npz"):
        stock = read_archive(path, loss, iterations)
        if not stock.jobs:
            raise Refused(FieldError("curves", str(path), "at least one training with losses"))
        return stock
    curves = read_export(path)
    if loss != "base":
        raise Refused(FieldError("metric_loss", loss, f"base: {path} has the study's own signal"))
    return curves


ORDERS_PER_PIECE = 10
# Shares of the least makespan at which incumbents are compared; none is done by then.
SAMPLED = np.linspace(0.0, 1.2, 121)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of curves and how it is read."""

    path: Path
    loss: Loss
    #: None: as the file says.
    switch_seconds: float | None
    #: What makes a trial of it good.
    good: Good = "way"


@dataclass(frozen=True, slots=True)
class Scene:
    """What every policy of one comparison has in common."""

    recorded: Recorded
    devices: int
    bin_type: int
    trials: int
    orders: int
    seed: int
    #: Without any, the devices are equal.
    speeds: tuple[float, ...] = ()
    #: Files that were studies before, those of them that have the same parameters.
    history: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A policy in a scene."""

    scene: Scene
    contender: Contender


@dataclass(frozen=True, slots=True)
class OrderResult:
    """One order under one policy, beside what is the least possible."""

    figures: Figures
    effort: Effort
    bound: Figures
    #: How far the lowest loss so far stands above the lowest of all, at `SAMPLED` shares of the
    #: least makespan.
    incumbent: tuple[float, ...]


@lru_cache(maxsize=8)
def opened(recorded: Recorded) -> tuple[Curves, LossGoal]:
    """A file and its goal, read once in each process. Raises Refused."""
    curves = read(recorded.path, recorded.loss)
    if recorded.switch_seconds is not None:
        curves = replace(curves, switch=Switch.split(recorded.switch_seconds))
    return curves, goal_of(curves, recorded.good)


def order_of(scene: Scene, number: int) -> SubmissionOrder:
    """One order of a scene. Raises Refused."""
    curves, goal = opened(scene.recorded)
    return draw(curves, goal, scene.bin_type, scene.trials, number, scene.seed)


def outcome_of(case: Case, order: SubmissionOrder) -> SimulatedOutcome:
    """The order under the case's policy. Raises SimulationStalled."""
    contender = case.contender
    scene = case.scene
    loss, names = scene.recorded.loss, _names(opened(scene.recorded)[0])
    others = [path for path in scene.history if path != scene.recorded.path]
    known = tuple(filter(None, (remembered(path, loss, names) for path in others)))
    return Drive(
        order, scene.devices, contender.policy, contender.placement, scene.speeds, history=known
    ).run()


@lru_cache(maxsize=64)
def remembered(path: Path, loss: Loss, names: frozenset[str]) -> Earlier | None:
    """A file as an earlier study; None unless its trials have these parameters. Raises Refused."""
    curves = read(path, loss)
    if _names(curves) != names:
        return None
    return earlier_study(curves.name, curves.jobs)


def _names(curves: Curves) -> frozenset[str]:
    return frozenset(name for job in curves.jobs for name, _ in job.parameters)


def simulate(case: Case, first: int, last: int) -> list[OrderResult]:
    """The orders `first` to `last - 1`.

    Raises:
        SimulationStalled: the policy failed.
        Beaten: the simulator is wrong.
    """
    results = []
    for number in range(first, last):
        order = order_of(case.scene, number)
        outcome = outcome_of(case, order)
        figures = figures_of(order, outcome)
        bound = bound_of(order, case.scene.devices, case.scene.speeds)
        check(figures, bound, f"order {number} of {case}")
        sampled = gaps_at(order, outcome, SAMPLED * bound.makespan).tolist()
        results.append(OrderResult(figures, effort_of(outcome), bound, tuple(sampled)))
    return results


def cases_of(scenes: list[Scene], contenders: tuple[Contender, ...]) -> list[Case]:
    """Every policy in every scene, and FIFO in each, to which all are compared."""
    everyone = contenders if FIFO in contenders else (FIFO, *contenders)
    return [Case(scene, contender) for scene in scenes for contender in everyone]


def compare(
    cases: list[Case], processes: int, progress: Callable[[int], None]
) -> dict[Case, list[OrderResult]]:
    """All orders of all cases; `progress` is told how many more are done.

    Raises:
        SimulationStalled: a policy failed.
        Beaten: the simulator is wrong.
    """
    pieces = [
        (case, first, min(first + ORDERS_PER_PIECE, case.scene.orders))
        for case in cases
        for first in range(0, case.scene.orders, ORDERS_PER_PIECE)
    ]
    results: dict[Case, list[list[OrderResult]]] = {
        case: [[] for _ in range(0, case.scene.orders, ORDERS_PER_PIECE)] for case in cases
    }
    for (case, first, last), done in _worked(pieces, processes):
        results[case][first // ORDERS_PER_PIECE] = done
        progress(last - first)
    return {case: [one for piece in each for one in piece] for case, each in results.items()}


def _worked(
    pieces: list[tuple[Case, int, int]], processes: int
) -> Iterator[tuple[tuple[Case, int, int], list[OrderResult]]]:
    """Each piece with its results, as they come."""
    if processes == 1:
        for piece in pieces:
            yield piece, simulate(*piece)
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    futures: dict[Future[list[OrderResult]], tuple[Case, int, int]] = {}
    try:
        with _interrupts_held():
            futures.update((pool.submit(simulate, *piece), piece) for piece in pieces)
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        # A piece takes a minute: nobody waits for those that are given up.
        for worker in active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the end of it, and what is started in it never hears of one: that is the
    parent's to answer."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    # Not held by the mask alone: a thread of a library may take it, and Python then interrupts us.
    handler = (
        signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if is_main else None
    )
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt
