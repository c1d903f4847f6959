"""Which nodes may be in which pool, and with how many devices.

A node itself says its name and what it has, and its name decides its pool. That is not enough for a
private pool, whose nodes get code and secrets that others must not have: an admin must have granted
it, by the invitation for which the node got its certificate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hermesd.core.events import NodeJoined
from hermesd.core.model import DEFAULT_POOL, NodeId, Pool, PoolId, pool_of
from hermesd.head.security.authority import NOTHING, Authority, Grant
from hermesd.head.security.guard import Forbidden
from hermesd.refusal import FieldError, Refused, nearest, one_of
from hermesd.security.identity import Identity, Role


class Admission:
    """`authority` has what was granted to whom, None where no certificates are given out."""

    def __init__(self, authority: Authority | None, pools: Iterable[Pool]) -> None:
        self._authority = authority
        self._pools = {pool.name: pool for pool in pools}

    @property
    def authority_mark(self) -> str:
        """By which nodes see whether they know the authority's roots; empty where there is none."""
        return self._authority.mark if self._authority is not None else ""

    def admitted(self, holder: Identity | None, joined: NodeJoined) -> NodeJoined:
        """The node that who calls says it is, as it was invited. Raises Forbidden."""
        if holder is None or holder.role is not Role.NODE:
            return joined  # by the socket of an embedded head, which only its own account opens
        name = joined.node
        known = self._authority.identities() if self._authority is not None else {}
        issued = known.get(Identity(Role.NODE, name))
        if not holder.name and issued is not None:
            raise Forbidden(
                f"{name} has joined this head, and attaches with its certificate, not with the"
                f" token for all nodes; `hermesctl node revoke {name}` ends that"
            )
        grant = issued.grant if issued is not None else NOTHING
        if why := self.hindrance(name, grant):
            raise Forbidden(why)
        if 0 < grant.most_devices < len(joined.devices):
            raise Forbidden(
                f"{name} says that it has {len(joined.devices)} devices, and was admitted with at"
                f" most {grant.most_devices}: start it with fewer, or have it join again by a token"
                " for more"
            )
        return replace(joined, owner=grant.owner)

    def hindrance(self, name: NodeId, grant: Grant) -> str:
        """Why a node of this name may not be in its pool by this grant; "" if it may."""
        pool = pool_of(name, self._pools.values())
        known = self._pools.get(pool)
        if grant.owner:
            if pool == DEFAULT_POOL:
                return ""
            return f"the name {name} is for nodes of the pool {pool}: give one of your own another"
        if grant.pool and grant.pool != pool:
            granted = self._pools.get(grant.pool)
            names = ", ".join(granted.nodes) if granted is not None else ""
            return (
                f"a node called {name} is in the pool {pool}; what it was granted is {grant.pool},"
                f" which has {names or 'no nodes any more'}"
            )
        if grant.named or grant.pool or known is None or not known.private:
            return ""
        return (
            f"a node called {name} is in the pool {pool}, which is private: it has to join by a"
            f" token made for that, `hermesctl node token --name {name}` or `--pool {pool}`"
        )

    def require_pool(self, pool: PoolId) -> None:
        """See that nodes can be invited to this pool. Raises Refused."""
        known = [name for name, known in self._pools.items() if known.nodes]
        if pool not in known:
            expected = (
                f"a pool that lists its nodes, {one_of(known)}"
                if known
                else "none: no pool lists its nodes"
            )
            raise Refused(FieldError("pool", pool, expected, nearest(pool, known)))
