"""What no scheduler can beat, not even one that knows every curve beforehand.

Each figure is the least that is possible with the jobs, the devices and the cost of switching. If a
simulated policy does better, the simulator is wrong, and `Beaten` is raised.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from hermesd.core.model import Time
from hermesd.sim.figures import (
    Figures,
    area,
    best_place,
    first_near,
    lowest_so_far,
    steps_to_goal,
    top_places,
)
from hermesd.sim.orders import SubmissionOrder

# Sums of the same seconds in another order differ by so little.
ROUNDING = 1e-9


class Beaten(AssertionError):
    """A policy did better than is possible: a defect of the simulator."""


def bound_of(order: SubmissionOrder, devices: int, speeds: Sequence[float] = ()) -> Figures:
    """The least of each figure, each by itself: no one schedule need reach them all.

    Of devices of unequal `speeds` the fastest counts wherever one trial decides; where all share
    them, seconds that no device shortens are taken for as much work as the slowest does in them.
    """
    if speeds and set(speeds) != {1.0}:
        return _unequal(order, speeds)
    jobs = order.jobs
    leave, ending = order.switch.leaving, order.switch.ending
    starts = [order.switch.starting + job.opening_seconds for job in jobs]
    whole = [
        start + job.seconds(0, job.steps) + (leave if job.diverges else ending)
        for start, job in zip(starts, jobs, strict=True)
    ]
    reach = steps_to_goal(order)

    def mean_reach(places: Sequence[int]) -> float:
        to_goal = [starts[each] + jobs[each].seconds(0, reach[each]) for each in places]
        # A device that goes on to the next trial is left by this one, or sees it to its end.
        then = [
            min(leave, whole[place] - seconds)
            for place, seconds in zip(places, to_goal, strict=True)
        ]
        ends = shortest_first([a + b for a, b in zip(to_goal, then, strict=True)], devices)
        return (sum(ends) - sum(then)) / len(places)

    times = [
        start + job.seconds(0, np.arange(1.0, job.steps + 1))
        for start, job in zip(starts, jobs, strict=True)
    ]
    curve = lowest_so_far(np.concatenate(times), np.concatenate([job.smoothed for job in jobs]))
    return Figures(
        time_to_good=mean_reach(order.good),
        time_to_best=whole[best_place(order)],
        top4=mean_reach(top_places(order)),
        auc=area(order, *curve),
        near_best=first_near(order, *curve),
        makespan=max(max(whole), sum(whole) / devices),
        jct=sum(shortest_first(whole, devices)) / len(jobs),
    )


def _unequal(order: SubmissionOrder, speeds: Sequence[float]) -> Figures:
    """`bound_of` on devices of unequal speeds."""
    fastest, slowest = max(speeds), min(speeds)
    alone = bound_of(replace(order, jobs=tuple(job.at(fastest) for job in order.jobs)), len(speeds))
    reach = steps_to_goal(order)
    switch = order.switch

    def work(place: int, steps: int) -> float:
        job = order.jobs[place]
        return slowest * switch.starting + job.opening_seconds + job.seconds(0, steps)

    def mean(works: Sequence[float]) -> float:
        return sum(shared(works, speeds)) / len(works)

    whole = [
        work(place, job.steps) + slowest * (switch.leaving if job.diverges else switch.ending)
        for place, job in enumerate(order.jobs)
    ]
    return replace(
        alone,
        time_to_good=mean([work(place, reach[place]) for place in order.good]),
        top4=mean([work(place, reach[place]) for place in top_places(order)]),
        makespan=max(alone.makespan, sum(whole) / sum(speeds)),
        jct=mean(whole),
    )


def shared(works: Sequence[float], speeds: Sequence[float]) -> list[Time]:
    """When jobs end on devices of unequal speeds: the shortest left on the fastest, at all times.

    The least possible sum (Gonzalez, 1977, for uniform machines with preemption).
    """
    left = sorted(works)
    by_speed = sorted(speeds, reverse=True)
    ends: list[Time] = []
    now = 0.0
    while left:
        seconds = left[0] / by_speed[0]
        now += seconds
        ends.append(now)
        done = [seconds * speed for speed in by_speed] + [0.0] * len(left)
        left = [max(0.0, one - less) for one, less in zip(left[1:], done[1:], strict=False)]
    return ends


def shortest_first(lengths: Sequence[float], devices: int) -> list[Time]:
    """When jobs end, the shortest first: the least possible sum, with preemption or without."""
    free = [0.0] * devices
    ends = []
    for length in sorted(lengths):
        ends.append(heapq.heappop(free) + length)
        heapq.heappush(free, ends[-1])
    return ends


def check(figures: Figures, bound: Figures, what: str) -> None:
    """Assert that nothing is better than possible; raises `Beaten`."""
    least = asdict(bound)
    for name, seconds in asdict(figures).items():
        if seconds < least[name] * (1 - ROUNDING):
            raise Beaten(f"{what}: {name} {seconds} s is below the bound, {least[name]} s")
