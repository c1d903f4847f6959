"""What no scheduler can beat, not even one that knows every curve beforehand.

Rule: each figure is the least possible one given the jobs, the devices and the cost of switching.
A simulated policy that does better shows that the simulator is wrong, hence `Beaten`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from hermesd.core.model import Time
from hermesd.simulate.figures import (
    Figures,
    area,
    best_place,
    first_near,
    lowest_so_far,
    steps_to_goal,
    top_places,
)
from hermesd.simulate.orders import Order

# Sums of the same seconds in another order differ by so little.
ROUNDING = 1e-9


class Beaten(AssertionError):
    """A policy did better than is possible: a defect of the simulator."""


def bound_of(order: Order, devices: int) -> Figures:
    """The least of each figure, each by itself: no one schedule need reach them all."""
    jobs = order.jobs
    leave, ending = order.switch.leaving, order.switch.ending
    starts = [order.switch.starting + job.opening_seconds for job in jobs]
    whole = [
        start + job.steps * job.step_seconds + (leave if job.diverges else ending)
        for start, job in zip(starts, jobs, strict=True)
    ]
    reach = steps_to_goal(order)

    def mean_reach(places: Sequence[int]) -> float:
        to_goal = [starts[each] + reach[each] * jobs[each].step_seconds for each in places]
        # A device that goes on to the next trial is left by this one, or sees it to its end.
        then = [
            min(leave, whole[place] - seconds)
            for place, seconds in zip(places, to_goal, strict=True)
        ]
        ends = shortest_first([a + b for a, b in zip(to_goal, then, strict=True)], devices)
        return (sum(ends) - sum(then)) / len(places)

    times = [
        start + np.arange(1, job.steps + 1) * job.step_seconds
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
