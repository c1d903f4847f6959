"""Who may use a head from other machines: invitations, certificates, tokens, and the audit."""

from __future__ import annotations

from collections.abc import Sequence

from hermesctl.errors import NotFound
from hermesctl.sdk.connection import Connection
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.records import AuditEntry, AuthorityStatus, Invited, IssuedToken, Member, User
from hermesd.pb.hermes.v1 import control_pb2, enroll_pb2
from hermesd.security.identity import ROLES, Role

_AUDIT_PAGE_SIZE = 1_000
_NUMBERS = {role: number for number, role in ROLES.items()}


async def audit(
    connection: Connection,
    last: int,
    within_seconds: float = 0.0,
    name: str = "",
    refusals_only: bool = False,
) -> list[AuditEntry]:
    """The newest `last` entries of the head's audit that are asked for, the oldest of them first.

    Raises Forbidden for who is no admin.
    """
    found: list[AuditEntry] = []
    token = ""
    while len(found) < last:
        request = control_pb2.ListAuditRequest(
            page_size=min(last - len(found), _AUDIT_PAGE_SIZE),
            page_token=token,
            within_seconds=within_seconds,
            name=name,
            refusals_only=refusals_only,
        )
        page = await connection.call(connection.stub.ListAudit, request)
        found += [record(AuditEntry, one) for one in page.entries]
        token = page.next_page_token
        if not token:
            break
    return found[::-1]


async def invite(
    connection: Connection,
    role: Role,
    name: str,
    valid_seconds: float,
    uses: int = 1,
    pool: str = "",
    most_devices: int = 0,
    own: bool = False,
) -> Invited:
    """A new invitation; an empty `name` is any, and may be for several nodes, which it can grant a
    pool, limit in their devices (0: it does not), and keep to the caller's `own` trials. Raises
    Refused, Forbidden."""
    request = enroll_pb2.InviteRequest(
        role=_NUMBERS[role],
        name=name,
        valid_seconds=valid_seconds,
        uses=uses,
        pool=pool,
        most_devices=most_devices,
        own=own,
    )
    answer = await connection.call(connection.enroll_stub.Invite, request)
    return record(Invited, answer)


async def take_back(connection: Connection, invited: Invited) -> None:
    """Have an invitation redeemed no more. Raises NotFound where it is not open."""
    request = enroll_pb2.RevokeRequest(token=invited.token)
    await connection.call(connection.enroll_stub.Revoke, request)


async def revoke(connection: Connection, roles: Sequence[Role], name: str) -> list[Role]:
    """End what was issued to it in these roles, and the tokens that are for it; returns those in
    which there was something. Raises NotFound where there is nothing in any of them."""
    missing: dict[Role, NotFound] = {}
    for role in roles:
        request = enroll_pb2.RevokeRequest(role=_NUMBERS[role], name=name)
        try:
            await connection.call(connection.enroll_stub.Revoke, request)
        except NotFound as error:
            missing[role] = error
    if len(missing) == len(roles):
        raise missing[roles[0]]
    return [role for role in roles if role not in missing]


async def members(connection: Connection) -> list[Member]:
    """All of them, by name; to a user only themselves."""
    request = enroll_pb2.ListIdentitiesRequest()
    answer = await connection.call(connection.enroll_stub.ListIdentities, request)
    return [record(Member, one) for one in answer.identities]


async def issue_token(
    connection: Connection, name: str, user: str, role: Role, valid_seconds: float
) -> str:
    """A new token of a person's, as a file has it. Raises Refused."""
    request = enroll_pb2.IssueTokenRequest(
        name=name, user=user, role=_NUMBERS[role], valid_seconds=valid_seconds
    )
    return (await connection.call(connection.enroll_stub.IssueToken, request)).text


async def tokens(connection: Connection) -> list[IssuedToken]:
    """All that are good, the newest last; to a user their own."""
    request = enroll_pb2.ListTokensRequest()
    answer = await connection.call(connection.enroll_stub.ListTokens, request)
    return [record(IssuedToken, one) for one in answer.tokens]


async def revoke_token(connection: Connection, name: str) -> None:
    """End a token. Raises NotFound."""
    request = enroll_pb2.RevokeTokenRequest(name=name)
    await connection.call(connection.enroll_stub.RevokeToken, request)


async def authority(connection: Connection) -> AuthorityStatus:
    """By what the head is known, and who has not heard of a change. Raises Forbidden."""
    answer = await connection.call(
        connection.enroll_stub.GetAuthority, enroll_pb2.GetAuthorityRequest()
    )
    return record(AuthorityStatus, answer.authority)


async def rotate_authority(connection: Connection, overlap_seconds: float) -> AuthorityStatus:
    """Begin to replace its key by one that counts beside it for so long. Raises Refused,
    Forbidden."""
    request = enroll_pb2.RotateAuthorityRequest(overlap_seconds=overlap_seconds)
    answer = await connection.call(connection.enroll_stub.RotateAuthority, request)
    return record(AuthorityStatus, answer.authority)


async def users(connection: Connection) -> list[User]:
    """Everybody who has studies, used devices or has terms of their own; to a user themselves."""
    answer = await connection.call(connection.stub.ListUsers, control_pb2.ListUsersRequest())
    return [record(User, one) for one in answer.users]
