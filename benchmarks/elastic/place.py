"""Which nodes the workers and servers of a job go to (Optimus, EuroSys 2018).

A synchronous job is fastest on the fewest nodes that it fits on, with as many workers and as many
servers on each: then the least of what it sends leaves a node. Smallest jobs first, each on the
nodes with most room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from hermesd.core.model import NodeId, TrialId
from hermesd.policy.elastic.gain import ROUNDING, ServedJob, Split, share


def place(
    jobs: Sequence[ServedJob],
    splits: Mapping[TrialId, Split],
    nodes: Mapping[NodeId, Sequence[float]],
) -> dict[TrialId, dict[NodeId, Split]]:
    """Where each job's workers and servers run.

    Args:
        jobs: of which those without a split are passed over.
        splits: how many workers and servers each is to have.
        nodes: what each has of each resource.

    Returns:
        For each job, how many of its workers and servers each node has, as nearly the same
        everywhere as whole numbers can be; without those that fit nowhere.
    """
    total = [sum(each) for each in zip(*nodes.values(), strict=True)]
    free = {node: list(has) for node, has in nodes.items()}
    rooms = [(-_room(has, total), node) for node, has in free.items()]
    heapify(rooms)
    placed: dict[TrialId, dict[NodeId, Split]] = {}
    sizes = [
        (share(_need(job, split), total), number, job, split)
        for number, job in enumerate(jobs)
        if (split := splits.get(job.trial)) is not None
    ]
    for _, _, job, split in sorted(sizes, key=lambda each: each[:2]):
        tried: list[NodeId] = []
        while rooms and len(tried) < max(split):
            tried.append(heappop(rooms)[1])
            among = len(tried)
            if all(_fits(free[n], job, _part(split, among, at)) for at, n in enumerate(tried)):
                placed[job.trial] = {n: _part(split, among, at) for at, n in enumerate(tried)}
                break
        for node, part in placed.get(job.trial, {}).items():
            free[node] = [h - n for h, n in zip(free[node], _need(job, part), strict=True)]
        for node in tried:
            heappush(rooms, (-_room(free[node], total), node))
    return placed


def _room(free: Sequence[float], total: Sequence[float]) -> float:
    """How much is left on a node, by the resource of which least is."""
    return min(left / all_of_it for left, all_of_it in zip(free, total, strict=True))


def _part(split: Split, nodes: int, at: int) -> Split:
    """What the node at a place among so many has of a split."""
    workers, servers = (count // nodes + (at < count % nodes) for count in split)
    return Split(workers, servers)


def _need(job: ServedJob, split: Split) -> list[float]:
    workers, servers = split
    both = zip(job.worker, job.server, strict=True)
    return [workers * one + servers * other for one, other in both]


def _fits(free: Sequence[float], job: ServedJob, split: Split) -> bool:
    return all(
        needed <= there + ROUNDING for needed, there in zip(_need(job, split), free, strict=True)
    )
