"""Who may use a head from other machines, and how those who do share its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermesctl.connection import Connection
from hermesctl.errors import NotFound
from hermesd.identity import ROLES, Role
from hermesd.pb.hermes.v1 import control_pb2, enrol_pb2

_NUMBERS = {role: number for number, role in ROLES.items()}


@dataclass(frozen=True, slots=True)
class Invited:
    """`token` is good for one, or for as many as were asked for; `address` is the head's own idea
    of where it can be reached."""

    token: str
    address: str


@dataclass(frozen=True, slots=True)
class Member:
    """A node or a person with a certificate."""

    role: Role
    name: str
    expires_unix_seconds: float


@dataclass(frozen=True, slots=True)
class User:
    """What a user has and has used of the devices, and may have; a quota is None where there is
    none.

    Decayed device seconds count half as much after each half-life. `share` is the user's part of
    everybody's, `fair_share` what the weights make of it among those with unfinished trials.
    """

    name: str
    weight: float
    max_devices: int | None
    max_unfinished_trials: int | None
    devices: int
    unfinished_trials: int
    studies: int
    decayed_device_seconds: float
    share: float
    fair_share: float
    half_life_seconds: float
    max_studies: int | None = None


async def invite(
    connection: Connection, role: Role, name: str, valid_seconds: float, uses: int = 1
) -> Invited:
    """A new invitation; an empty `name` is any, and may be for several nodes. Raises Refused."""
    request = enrol_pb2.InviteRequest(
        role=_NUMBERS[role], name=name, valid_seconds=valid_seconds, uses=uses
    )
    answer = await connection.call(connection.enrol_stub.Invite, request)
    return Invited(answer.token, answer.address)


async def take_back(connection: Connection, invited: Invited) -> None:
    """Have an invitation redeemed no more. Raises NotFound where it is not open."""
    request = enrol_pb2.RevokeRequest(token=invited.token)
    await connection.call(connection.enrol_stub.Revoke, request)


async def revoke(connection: Connection, roles: Sequence[Role], name: str) -> None:
    """End what was issued to it in these roles, and the tokens that are for it. Raises NotFound
    where there is nothing in any of them."""
    missing: list[NotFound] = []
    for role in roles:
        request = enrol_pb2.RevokeRequest(role=_NUMBERS[role], name=name)
        try:
            await connection.call(connection.enrol_stub.Revoke, request)
        except NotFound as error:
            missing.append(error)
    if len(missing) == len(roles):
        raise missing[0]


async def members(connection: Connection) -> list[Member]:
    """All of them, by name; to a user only themselves."""
    request = enrol_pb2.ListIdentitiesRequest()
    answer = await connection.call(connection.enrol_stub.ListIdentities, request)
    return [
        Member(ROLES[one.role], one.name, one.expires_unix_seconds) for one in answer.identities
    ]


async def users(connection: Connection) -> list[User]:
    """Everybody who has studies, used devices or has terms of their own; to a user themselves."""
    answer = await connection.call(connection.stub.ListUsers, control_pb2.ListUsersRequest())
    return [_user(one) for one in answer.users]


def _user(one: control_pb2.User) -> User:
    limits = {
        name: getattr(one, name) if one.HasField(name) else None
        for name in ("max_devices", "max_unfinished_trials", "max_studies")
    }
    return User(
        name=one.name,
        weight=one.weight,
        max_devices=limits["max_devices"],
        max_unfinished_trials=limits["max_unfinished_trials"],
        max_studies=limits["max_studies"],
        devices=one.devices,
        unfinished_trials=one.unfinished_trials,
        studies=one.studies,
        decayed_device_seconds=one.decayed_device_seconds,
        share=one.share,
        fair_share=one.fair_share,
        half_life_seconds=one.half_life_seconds,
    )
