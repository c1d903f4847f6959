"""What an operator does with nodes, and an admin with people, on asyncio.

Rule: as in async_client.py.
"""

from __future__ import annotations

import asyncio

from hermesctl.errors import NotFound
from hermesctl.sdk import from_wire, records
from hermesctl.sdk.async_reader import AsyncReader
from hermesctl.sdk.connection import new_request_id
from hermesctl.sdk.records import Invited, Member, Node, User
from hermesctl.sdk.requests import asked, refused
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.security.identity import Role

PERSON_ROLES = (Role.USER, Role.OPERATOR, Role.ADMIN)
_LOOK_SECONDS = 1.0
_DAY_SECONDS = 86_400.0


class AsyncUpkeep(AsyncReader):
    """Changes of nodes; they need an operator's or admin's certificate, or the head's token."""

    async def users(self) -> list[User]:
        """What each user has, has used lately and may have; to a user themselves alone."""
        return await records.users(self.connection)

    async def members(self) -> list[Member]:
        """The nodes and people with a certificate, by name; to a user themselves alone."""
        return await records.members(self.connection)

    async def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """A token, good once and for so many days, by which a person may log in: a `user`, an
        `operator` or an `admin`. Raises UsageError, and Refused by a head without certificates."""
        return await records.invite(self.connection, _person(role), name, days * _DAY_SECONDS)

    async def revoke(self, name: str, role: str | None = None) -> None:
        """End a person's access at once, in one role or in all. Raises NotFound where they have
        none."""
        roles = [_person(each) for each in ([role] if role else PERSON_ROLES)]
        await records.revoke(self.connection, roles, name)

    async def drain(self, node: str) -> Node:
        """Give a node nothing new and have it give up what it has; the node, as it is now.

        Each run goes on to the end of its quantum and is then written down, and what is parked is
        written down at once. Again for a draining node: it tries again what it could not write.
        """
        request = asked(pb.DrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.DrainNode, request)
        return from_wire.node(answer.node)

    async def undrain(self, node: str) -> Node:
        """Put a draining node to use again. Raises Refused for one that is not draining."""
        request = asked(pb.UndrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.UndrainNode, request)
        return from_wire.node(answer.node)

    async def lose(self, node: str, for_good: bool = False) -> Node:
        """Have a silent node's trials go on elsewhere now, instead of when its lease is out.

        Only for a machine that is off: what runs there still would run a second time elsewhere
        until its own lease ends it. With `for_good` it is not expected back: its files count as
        gone, and it is listed no more. Raises NotFound, and Refused for a node that is connected.
        """
        request = asked(
            pb.LoseNodeRequest, request_id=new_request_id(), node=node, for_good=for_good
        )
        answer = await self.connection.call(self.connection.stub.LoseNode, request)
        return from_wire.node(answer.node)

    async def release(self, place: str) -> Node:
        """Take a node (with all its devices) or a device (`gpu2/cpu:0`) out of quarantine.

        What failed there is forgotten. Raises NotFound, and Refused if nothing is held against it.
        """
        node, _, device = place.partition("/")
        request = pb.ReleaseNodeRequest(request_id=new_request_id(), node=node, device=device)
        answer = await self.connection.call(self.connection.stub.ReleaseNode, request)
        return from_wire.node(answer.node)

    async def wait_drained(self, node: str) -> Node:
        """Return once nothing runs or is parked on a draining node, or it is to be used again.

        `node` is its whole name. Raises NotFound if there is none.
        """
        while True:
            found = next((each for each in await self.nodes() if each.id == node), None)
            if found is None:
                raise NotFound(f"there is no node {node}")
            if found.drained or not found.draining:
                return found
            await asyncio.sleep(_LOOK_SECONDS)


def _person(role: str) -> Role:
    """The role of this name, if a person may have it. Raises UsageError."""
    if role in PERSON_ROLES:
        return Role(role)
    raise refused("role", role, f"one of {', '.join(PERSON_ROLES)}")
