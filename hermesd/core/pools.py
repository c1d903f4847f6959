"""Pools: named sets of nodes, each with a policy and a placement of its own.

Rule: a node belongs to one pool. A pool that names it outright goes before one whose pattern fits,
and among those the one that was written first; a node that none claims is of the pool `default`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from hermesd.core.model import DEFAULT_POOL, NodeId, Plugin

PoolId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes by name or by pattern (`a100-*`), and how their devices are shared.

    The policy and the placement hold for all studies of the pool, since its devices have one order;
    without them each study has those that it asks for. What is `private` gives no copies of its
    studies' checkpoints to nodes of other pools, and takes none of theirs.
    """

    name: PoolId
    nodes: tuple[str, ...] = ()
    policy: Plugin | None = None
    placement: Plugin | None = None
    private: bool = False


def pool_of(node: NodeId, pools: Iterable[Pool]) -> PoolId:
    """The pool to which a node of this name belongs."""
    pools = tuple(pools)
    named = (pool.name for pool in pools if node in pool.nodes)
    fitting = (
        pool.name for pool in pools if any(fnmatchcase(node, pattern) for pattern in pool.nodes)
    )
    return next(named, None) or next(fitting, DEFAULT_POOL)
