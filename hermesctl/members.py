"""Who may use a head from other machines: invitations, those who redeemed one, their end."""

from __future__ import annotations

from dataclasses import dataclass

from hermesctl.connection import Connection
from hermesd.enrolment import ROLES, Role
from hermesd.pb.hermes.v1 import enrol_pb2 as pb

_NUMBERS = {role: number for number, role in ROLES.items()}


@dataclass(frozen=True, slots=True)
class Invited:
    """`token` is good once; `address` is the head's own idea of where it can be reached."""

    token: str
    address: str


@dataclass(frozen=True, slots=True)
class Member:
    """A node or a person with a certificate."""

    role: Role
    name: str
    expires_unix_seconds: float


async def invite(connection: Connection, role: Role, name: str, valid_seconds: float) -> Invited:
    """A new invitation; an empty `name` is any. Raises Refused."""
    request = pb.InviteRequest(role=_NUMBERS[role], name=name, valid_seconds=valid_seconds)
    answer = await connection.call(connection.enrol_stub.Invite, request)
    return Invited(answer.token, answer.address)


async def revoke(connection: Connection, role: Role, name: str) -> None:
    """End what was issued to it. Raises NotFound."""
    request = pb.RevokeRequest(role=_NUMBERS[role], name=name)
    await connection.call(connection.enrol_stub.Revoke, request)


async def members(connection: Connection) -> list[Member]:
    """All of them, by name."""
    answer = await connection.call(connection.enrol_stub.ListIdentities, pb.ListIdentitiesRequest())
    return [
        Member(ROLES[one.role], one.name, one.expires_unix_seconds) for one in answer.identities
    ]
