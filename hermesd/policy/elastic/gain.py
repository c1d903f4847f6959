"""Who gets how many workers and servers: marginal gain, greedily (Optimus, EuroSys 2018).

The sum of the times left, Q_j / f_j(p_j, w_j), is made small within the capacity. Every job starts
with the least that it can run with; then the worker or server with the largest marginal gain is
added, again and again:

    max{ (Q / f(p, w) - Q / f(p, w + 1)) / O,  (Q / f(p, w) - Q / f(p + 1, w)) / N }

with O and N the share of the whole cluster that a worker and a server take of their dominant
resource. It ends when nothing fits, or every gain is negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from hermesd.core.model import TrialId
from hermesd.core.policy import ElasticJob

# By what the gain of a job is multiplied whose end is hard to predict because it has just begun.
YOUNG_FACTOR = 0.95
# By how much rounding may make what is left less than it is.
ROUNDING = 1e-9


class Split(NamedTuple):
    """How many workers and parameter servers a job has."""

    workers: int
    servers: int


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job of workers and parameter servers, each of which takes some of several resources."""

    trial: TrialId
    #: As of `ElasticJob`.
    remaining_steps: float
    #: Steps a second with so many workers and servers; 0 with numbers that it cannot have.
    speed: Callable[[int, int], float]
    #: What a worker takes of each resource, in the order of the capacity.
    worker: Sequence[float]
    #: The same of a server.
    server: Sequence[float]
    least: Split
    most: Split
    #: As of `ElasticJob`.
    young: bool = False


def widths(jobs: Sequence[ElasticJob], devices: int) -> Mapping[TrialId, int]:
    """How many devices each job is to have.

    Args:
        jobs: most deserving first: if there are too few devices for all to start, those that do
            not fit have none.
        devices: how many there are in all.

    Returns:
        A width from `min` to `max` for each job that has any.
    """
    served = [
        ServedJob(
            job.trial,
            job.remaining_steps,
            _without_servers(job.speed),
            (1.0,),
            (0.0,),
            Split(job.min, 0),
            Split(job.max, 0),
            job.young,
        )
        for job in jobs
    ]
    return {trial: split.workers for trial, split in divide(served, (devices,)).items()}


def _without_servers(speed: Callable[[int], float]) -> Callable[[int, int], float]:
    return lambda workers, _: speed(workers)


def divide(jobs: Sequence[ServedJob], capacity: Sequence[float]) -> dict[TrialId, Split]:
    """How many workers and servers each job is to have.

    Args:
        jobs: most deserving first, as for `widths`.
        capacity: of each resource, in all.

    Returns:
        From `least` to `most` of each for every job that has any.
    """
    left = list(capacity)
    growing: list[_Growing] = []
    for job in jobs:
        workers, servers = job.least
        both = zip(job.worker, job.server, strict=True)
        if _take(left, [workers * one + servers * other for one, other in both]):
            growing.append(_Growing(job, capacity))
    heap = [(-one.gain, place) for place, one in enumerate(growing) if one.gain > 0]
    heapify(heap)
    while heap:
        place = heap[0][1]
        one = growing[place]
        one.grow(_take(left, one.need))
        if one.gain > 0:
            heapreplace(heap, (-one.gain, place))
        else:
            heappop(heap)
    return {one.job.trial: one.split for one in growing}


class _Growing:
    """A job with its split so far, and what is best added next."""

    __slots__ = ("_after", "_most", "_seconds", "_shares", "_then", "gain", "job", "need", "split")

    def __init__(self, job: ServedJob, capacity: Sequence[float]) -> None:
        self.job = job
        self.split = job.least
        factor = YOUNG_FACTOR if job.young else 1.0
        self._shares = [share(demand, capacity) / factor for demand in (job.worker, job.server)]
        self._most = job.most
        speed = job.speed(*job.least)
        self._seconds = job.remaining_steps / speed if speed > 0 else math.inf
        self._look()

    def grow(self, fits: bool) -> None:
        """Have what was found best; or never more of its kind, for what does not fit never will."""
        if fits:
            self.split, self._seconds = self._after, self._then
        elif self._after.workers > self.split.workers:
            self._most = Split(self.split.workers, self._most.servers)
        else:
            self._most = Split(self._most.workers, self.split.servers)
        self._look()

    def _look(self) -> None:
        """Find the worker or server that gains most; none where both gains are negative."""
        workers, servers = self.split
        most_workers, most_servers = self._most
        self.gain = 0.0
        for more in range(workers + 1, most_workers + 1):
            if self._offer(more, servers, more - workers, self._shares[0], self.job.worker):
                break
        for more in range(servers + 1, most_servers + 1):
            if self._offer(workers, more, more - servers, self._shares[1], self.job.server):
                break

    def _offer(
        self, workers: int, servers: int, added: int, share: float, demand: Sequence[float]
    ) -> bool:
        """Whether the job can have this split at all; kept if it gains more than what was seen."""
        speed = self.job.speed(workers, servers)
        if speed <= 0:
            return False
        then = self.job.remaining_steps / speed
        gain = (self._seconds - then) / (share * added)
        if gain > self.gain:  # never if both are infinite
            self.gain, self._after, self._then = gain, Split(workers, servers), then
            self.need = demand if added == 1 else [added * each for each in demand]
        return True


def share(demand: Sequence[float], capacity: Sequence[float]) -> float:
    """The largest share of a resource of the whole cluster that this is: its dominant one."""
    return max(asked / there for asked, there in zip(demand, capacity, strict=True))


def _take(left: list[float], need: Sequence[float]) -> bool:
    """Take this of each resource, if it is there."""
    after = [there - asked for there, asked in zip(left, need, strict=True)]
    if min(after) < -ROUNDING:
        return False
    left[:] = after
    return True
