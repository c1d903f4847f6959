"""EnrollService: invitations, certificates for those who redeem one, their renewal, their end."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.config.values import NODE_NAME
from hermesd.core.model import PoolId, StudyId, Time
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.refusals import NotFound, NotNow, TooMuch
from hermesd.head.security.access import asker
from hermesd.head.security.admission import Admission
from hermesd.head.security.authority import NOTHING, Authority, Grant, Issued, Stolen, key_mark
from hermesd.head.security.guard import LOCAL, Certified, Forbidden, about, caller, credential
from hermesd.head.security.listen import loopback, reached_at
from hermesd.head.security.tokens import KnownToken, Tokens
from hermesd.head.statedir import expecting
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.pb.hermes.v1 import enroll_pb2_grpc
from hermesd.refusal import FieldError, Refused, one_of, shown
from hermesd.security.enrollment import write_private
from hermesd.security.identity import ROLES, SECRET_BYTES, Identity, Invitation, NotEnrolled, Role

# Secrets that are good for so many enrollments: kept by hash, across restarts, until they end.
#
# What was used up is remembered with the keys that it was used for: whoever did not hear
# the answer asks again with the same key.

OPEN_LIMIT = 10_000
OPEN_LIMIT_OF_ONE = 100  # for their own nodes


@dataclass(frozen=True, slots=True)
class InvitationIssued:
    """Who may redeem a secret, and how often."""

    role: Role
    #: Empty where any name will do.
    name: str
    expires: Time
    uses: int = 1
    #: Marks of those by which it was.
    keys: tuple[str, ...] = ()
    #: What a node then has beside its name, as are `most_devices` and `owner`.
    pool: PoolId = ""
    most_devices: int = 0
    owner: str = ""

    @property
    def grant(self) -> Grant:
        """What a node has by it."""
        return Grant(bool(self.name), self.pool, self.most_devices, self.owner)


class Invitations:
    """The open ones, in the file `path`; `now` is the head's clock."""

    def __init__(self, path: Path, now: Callable[[], Time]) -> None:
        self._path = path
        self._now = now
        self._open: dict[str, InvitationIssued] = {}
        if path.exists():
            remedy = "remove it, and make new tokens for those that nobody has used yet"
            with expecting(path, "the invitations that are open", remedy, secret=True):
                for digest, *known in json.loads(path.read_bytes()):
                    self._open[digest] = _invited(*known)

    def invite(
        self,
        role: Role,
        name: str,
        valid_seconds: float,
        uses: int = 1,
        grant: Grant = NOTHING,
    ) -> bytes:
        """A new secret. Raises OverflowError while too many are open."""
        self._forget_ended()
        still = [each for each in self._open.values() if each.uses > 0]
        if len(still) >= OPEN_LIMIT:
            raise OverflowError(f"{OPEN_LIMIT} tokens are open, as many as there may be")
        if grant.owner and sum(each.owner == grant.owner for each in still) >= OPEN_LIMIT_OF_ONE:
            raise OverflowError(
                f"{grant.owner} has {OPEN_LIMIT_OF_ONE} open tokens for nodes, as many as one user"
                " may: wait until some have been used or have ended"
            )
        if grant.owner:
            self._forget_used_up(grant.owner)
        secret = secrets.token_bytes(SECRET_BYTES)
        self._open[_digest(secret)] = InvitationIssued(
            role, name, self._now() + valid_seconds, uses, (), *grant[1:]
        )
        self._write()
        return secret

    def find(self, secret: bytes) -> InvitationIssued | None:
        """Whom it is for, without uses left where it is used up; None for a secret that is unknown
        or too old."""
        found = self._open.get(_digest(secret))
        return found if found is not None and found.expires > self._now() else None

    def use(self, secret: bytes, key: str) -> None:
        """Count one use, by the key of this mark, of a secret that was found with uses left."""
        digest = _digest(secret)
        found = self._open[digest]
        self._open[digest] = replace(found, uses=found.uses - 1, keys=(*found.keys, key))
        self._write()

    def withdraw(self, role: Role, name: str) -> bool:
        """Take back those that are for this name; False if there are none."""
        self._forget_ended()
        left = {d: i for d, i in self._open.items() if (i.role, i.name) != (role, name)}
        if len(left) == len(self._open):
            return False
        self._open = left
        self._write()
        return True

    def take_back(self, secret: bytes) -> bool:
        """Have this one redeemed no more; False if it is unknown or too old."""
        known = self.find(secret) is not None
        if known:
            del self._open[_digest(secret)]
            self._write()
        return known

    def _forget_used_up(self, owner: str) -> None:
        """Of a user's invitations that are used up only the last few are remembered."""
        used = [d for d, each in self._open.items() if each.owner == owner and each.uses == 0]
        for digest in used[:-OPEN_LIMIT_OF_ONE]:
            del self._open[digest]

    def _forget_ended(self) -> None:
        now = self._now()
        self._open = {d: invited for d, invited in self._open.items() if invited.expires > now}

    def _write(self) -> None:
        entries = [
            [d, i.role, i.name, i.expires, i.uses, i.keys, *i.grant[1:]]
            for d, i in self._open.items()
        ]
        write_private(self._path, json.dumps(entries).encode())


def _invited(
    role: str, name: str, expires: Time, uses: int, keys: Iterable[str] = (), *granted: Any
) -> InvitationIssued:
    return InvitationIssued(Role(role), name, expires, uses, tuple(keys), *granted)


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _mark(secret: bytes) -> str:
    """What the audit calls an invitation: the same word when it is made and when it is used."""
    return f"invitation {_digest(secret)[:12]}"


LONGEST_SECONDS = 30 * 86_400.0
USUAL_SECONDS = 86_400.0
TOKENS_LONGEST_SECONDS = 366 * 86_400.0
TOKENS_USUAL_SECONDS = 90 * 86_400.0
# Of nodes that are connected each comes within seconds; of people, those who call meanwhile.
OVERLAP_SHORTEST_SECONDS = 10.0
OVERLAP_LONGEST_SECONDS = 366 * 86_400.0
MOST_USES = 10_000
MOST_USES_OF_ONE = 256
# Certificates that count of nodes for one user's trials: of each name that is taken, others have no
# more use, and all of them are written down with each enrollment.
MOST_NODES_OF_ONE = 512
# A request for a P-256 key takes some 300 bytes.
SIGNING_REQUEST_LIMIT_BYTES = 4096
_USED = "the token was used, or is too old: ask for another"
_NUMBERS = {role: number for number, role in ROLES.items()}

log = get_logger()


class EnrollService(enroll_pb2_grpc.EnrollServiceServicer):
    """The servicer. `authority` is None at a head that serves no other machines, `tokens` at one
    that asks for none; `address` is where they reach it, `enroll_address` where invitations are
    redeemed, `owners` whose each study is."""

    def __init__(
        self,
        authority: Authority | None,
        admission: Admission,
        invitations: Invitations,
        tokens: Tokens | None,
        sessions: NodeSessions,
        address: str,
        enroll_address: str,
        owners: Mapping[StudyId, str],
    ) -> None:
        self._authority = authority
        self._admission = admission
        self._sessions = sessions
        self._invitations = invitations
        self._tokens = tokens
        self._address = address
        self._port = int(enroll_address.rpartition(":")[2]) if enroll_address else 0
        self._owners = owners

    async def Invite(self, request: pb.InviteRequest, context: Any) -> pb.InviteResponse:
        authority = self._needed()
        role = _role(request.role)
        if request.name:
            _checked(request.name)
        seconds = request.valid_seconds or USUAL_SECONDS
        if not 0 < seconds <= LONGEST_SECONDS:
            expected = f"more than 0 and at most {LONGEST_SECONDS:g} seconds"
            raise Refused(FieldError("valid_seconds", f"{request.valid_seconds:g}", expected))
        uses = request.uses or 1
        if not 0 < uses <= MOST_USES:
            raise Refused(FieldError("uses", f"{uses}", f"from 1 to {MOST_USES}"))
        if uses > 1 and (request.name or role is not Role.NODE):
            expected = "1, but for nodes of any name"
            raise Refused(FieldError("uses", f"{uses}", expected))
        grant = self._checked_grant(role, request)
        try:
            secret = self._invitations.invite(role, request.name, seconds, uses, grant)
        except OverflowError as error:
            raise TooMuch(str(error)) from None
        about.set(_mark(secret))
        log.info("invited", role=role, name=request.name or "any", uses=uses)
        token = Invitation(secret, self._port, authority.roots_der).token()
        return pb.InviteResponse(token=token, address=reached_at(self._address))

    def _checked_grant(self, role: Role, request: pb.InviteRequest) -> Grant:
        """What a node will have by it. Raises Refused, Forbidden."""
        who = caller.get()
        assert who is not None
        if who.role is not Role.ADMIN and (role is not Role.NODE or request.pool):
            raise Forbidden(
                f"{who.role} {who.name} may invite only nodes for their own trials: anything else"
                " takes an admin"
            )
        owner = who.name if request.own or who.role is not Role.ADMIN else ""
        if owner and request.uses > MOST_USES_OF_ONE:
            expected = f"at most {MOST_USES_OF_ONE} for nodes of one user"
            raise Refused(FieldError("uses", f"{request.uses}", expected))
        wishes = {
            "pool": request.pool, "most_devices": request.most_devices, "own": request.own
        }  # fmt: skip
        for field, value in wishes.items():
            if value and role is not Role.NODE:
                raise Refused(FieldError(field, f"{value}", "none, since only nodes have one"))
        if request.most_devices < 0:
            expected = "1 or more, or 0 for any number"
            raise Refused(FieldError("most_devices", f"{request.most_devices}", expected))
        grant = Grant(bool(request.name), request.pool, request.most_devices, owner)
        if request.pool and owner:
            raise Refused(FieldError("pool", request.pool, "none for nodes of one user"))
        if request.pool:
            self._admission.require_pool(request.pool)
        if request.name and role is Role.NODE:
            if why := self._admission.hindrance(request.name, grant):
                raise Refused(FieldError("name", request.name, f"another name: {why}"))
            if owner and not self._may_name(who, request.name):
                raise Refused(FieldError("name", request.name, "a name that no node has"))
        return grant

    def _may_name(self, who: Identity, node: str) -> bool:
        """Whether a token for this node's name may end what has the name now."""
        known = self._needed().identities().get(Identity(Role.NODE, node))
        there = known is not None or self._sessions.find(node) is not None
        return not there or (known is not None and known.grant.owner == who.name)

    async def Enroll(self, request: pb.EnrollRequest, context: Any) -> pb.EnrollResponse:
        authority = self._needed()
        name = _checked(request.name)
        # Anybody may ask: nothing dear is done before the secret is known.
        invited = self._invitations.find(request.secret)
        if invited is None:
            raise NotNow(_USED)
        about.set(f"{_mark(request.secret)}, for a {invited.role}")
        signing_request = _signing_request(request.signing_request)
        key = key_mark(signing_request)
        identity = Identity(invited.role, name)
        # Whoever has the key has the name, and asks again: the answer was lost, or we were stopped.
        known = authority.is_held_by(identity, key)
        again = known and key in invited.keys
        if not (invited.uses or again):
            raise NotNow(_USED)
        if why := self._hindrance(authority, invited, request, known):
            raise NotNow(f"{why}; the token was not used")
        certificate = authority.issue(identity, signing_request, invited.grant)
        if not again:
            self._invitations.use(request.secret, key)
        log.info("enrolled", role=invited.role, name=name, again=again, peer=context.peer())
        return pb.EnrollResponse(certificate=certificate, role=_NUMBERS[invited.role], name=name)

    def _hindrance(
        self,
        authority: Authority,
        invited: InvitationIssued,
        request: pb.EnrollRequest,
        known: bool,
    ) -> str:
        """Why who asks is not who was invited, for the holder of the secret alone; "" if it is.
        Who is `known` is who has the name."""
        node, name = invited.role is Role.NODE, shown(request.name)
        whom = f"the {invited.role} {invited.name}" if invited.name else f"a new {invited.role}"
        if request.HasField("machine") and request.machine is not node:
            how = "hermesd node join" if node else "hermesctl login"
            return f"the token is for {whom}: `{how}` redeems it"
        theirs = authority.nodes_of(invited.owner) if invited.owner else set()
        if request.name not in theirs and len(theirs) >= MOST_NODES_OF_ONE:
            return (
                f"{invited.owner} has {MOST_NODES_OF_ONE} nodes of their own, as many as one user"
                " may: end some that are gone by `hermesctl node revoke NAME`"
            )
        if invited.name not in ("", request.name):
            option = "--name" if node else "--user"
            return f"the token is for {whom}, not for {name}: say {option} {invited.name}"
        if node and (why := self._admission.hindrance(request.name, invited.grant)):
            return why
        if invited.name or known or not self._taken(authority, invited.role, request.name):
            return ""
        how = f"`hermesctl {'node token --name' if node else 'user token'} {name}`"
        there = f"a node {name}" if node else f"somebody called {name}"
        return (
            f"there is {there} already, and the token is for a new name: give another, or redeem"
            f" a token for that name, which {how} makes"
        )

    def _taken(self, authority: Authority, role: Role, name: str) -> bool:
        """Whether somebody is known by the name: of a person that is who owns what, in any role."""
        known = authority.identities()
        if role is Role.NODE:
            return Identity(role, name) in known
        people = {one.name for one in known if one.role is not Role.NODE}
        return name in {*people, *self._owners.values(), LOCAL.name}

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        authority, shown = self._needed(), credential.get()
        if not isinstance(shown, Certified):
            raise NotNow("only the holder of a certificate of this head can renew it")
        signing_request = _signing_request(request.signing_request)
        try:
            certificate = authority.renew(shown.identity, shown.serial, signing_request)
        except Stolen:
            raise shown.two_holders() from None
        log.info("renewed", role=shown.identity.role, name=shown.identity.name)
        return pb.RenewResponse(certificate=certificate, authority=authority.roots_pem)

    async def Revoke(self, request: pb.RevokeRequest, context: Any) -> pb.RevokeResponse:
        if request.token:
            self._take_back(request.token)
            return pb.RevokeResponse()
        identity = Identity(_role(request.role), request.name)
        if not request.name:
            raise Refused(FieldError("name", "", "the name whose certificate is to end"))
        self._see_that_may_end(identity)
        known = self._authority is not None and self._authority.revoke(identity)
        # Who has not come yet is not to come tomorrow, nor who comes another way.
        invited = self._invitations.withdraw(identity.role, identity.name)
        bearing = self._tokens is not None and self._tokens.revoke_of(identity)
        if not (known or invited or bearing):
            raise NotFound(f"no {identity.role} {shown(request.name)} is enrolled")
        session = self._sessions.find(identity.name) if identity.role is Role.NODE else None
        if session is not None:
            session.close("its certificate was revoked")
        log.info("revoked", role=identity.role, name=identity.name)
        return pb.RevokeResponse()

    def _see_that_may_end(self, identity: Identity) -> None:
        """A user may end their own nodes. Raises Forbidden."""
        who = caller.get()
        assert who is not None
        issued = self._authority.identities() if self._authority is not None else {}
        known = issued.get(identity)
        owner = known.grant.owner if known is not None and identity.role is Role.NODE else ""
        if who.role is not Role.ADMIN and owner != who.name:
            raise Forbidden(
                f"{who.role} {who.name} may revoke only their own nodes: anything else takes an"
                " admin"
            )

    def _take_back(self, token: str) -> None:
        try:
            secret = Invitation.of(token).secret
        except NotEnrolled as error:
            raise Refused(FieldError("token", "", str(error))) from None
        about.set(_mark(secret))
        if not self._invitations.take_back(secret):
            raise NotFound("no such token is open: it was used up, or has ended")
        log.info("invitation taken back")

    async def ListIdentities(
        self, request: pb.ListIdentitiesRequest, context: Any
    ) -> pb.ListIdentitiesResponse:
        known = self._authority.identities() if self._authority is not None else {}
        if not asker().everything:
            known = {one: issued for one, issued in known.items() if one == caller.get()}
        return pb.ListIdentitiesResponse(identities=_told_identities(known))

    async def IssueToken(
        self, request: pb.IssueTokenRequest, context: Any
    ) -> pb.IssueTokenResponse:
        tokens, by = self._needed_tokens(), caller.get()
        assert by is not None
        for field, name in (("name", request.name), ("user", request.user)):
            _checked(name, field)
        role = _role(request.role)
        if role is Role.NODE:
            expected = "user, operator or admin: `hermesctl node token` is for nodes"
            raise Refused(FieldError("role", role, expected))
        seconds = request.valid_seconds or TOKENS_USUAL_SECONDS
        if not 0 < seconds <= TOKENS_LONGEST_SECONDS:
            expected = f"more than 0 and at most {TOKENS_LONGEST_SECONDS:g} seconds"
            raise Refused(FieldError("valid_seconds", f"{request.valid_seconds:g}", expected))
        token = tokens.issue(request.name, Identity(role, request.user), seconds, by.name)
        known = tokens.find(token.word)
        assert known is not None
        log.info("token issued", name=known.name, role=role, user=known.user)
        return pb.IssueTokenResponse(text=token.text(), token=_told(known))

    async def ListTokens(
        self, request: pb.ListTokensRequest, context: Any
    ) -> pb.ListTokensResponse:
        known = self._tokens.all() if self._tokens is not None else []
        if not asker().everything:
            known = [token for token in known if token.holder == caller.get()]
        return pb.ListTokensResponse(tokens=[_told(token) for token in known])

    async def RevokeToken(
        self, request: pb.RevokeTokenRequest, context: Any
    ) -> pb.RevokeTokenResponse:
        tokens, who = self._needed_tokens(), caller.get()
        assert who is not None
        theirs = [t for t in tokens.all() if who.role is Role.ADMIN or t.holder == who]
        if not any(token.name == request.name for token in theirs):
            raise NotFound(f"no token {shown(request.name)}")
        tokens.revoke(request.name)
        log.info("token revoked", name=request.name)
        return pb.RevokeTokenResponse()

    async def RotateAuthority(
        self, request: pb.RotateAuthorityRequest, context: Any
    ) -> pb.RotateAuthorityResponse:
        authority, seconds = self._needed(), request.overlap_seconds
        if not OVERLAP_SHORTEST_SECONDS <= seconds <= OVERLAP_LONGEST_SECONDS:
            expected = f"from {OVERLAP_SHORTEST_SECONDS:g} to {OVERLAP_LONGEST_SECONDS:g} seconds"
            raise Refused(FieldError("overlap_seconds", f"{seconds:g}", expected))
        if authority.rotation is not None:
            raise NotNow("the authority is being replaced already: that has to end first")
        authority.rotate(seconds)
        log.warning("a new authority takes over", overlap_seconds=seconds)
        return pb.RotateAuthorityResponse(authority=self._authority_status(authority))

    async def GetAuthority(
        self, request: pb.GetAuthorityRequest, context: Any
    ) -> pb.GetAuthorityResponse:
        return pb.GetAuthorityResponse(authority=self._authority_status(self._needed()))

    def _authority_status(self, authority: Authority) -> pb.AuthorityStatus:
        rotation = authority.rotation
        if rotation is None:
            return pb.AuthorityStatus(roots=authority.roots_pem)
        known = authority.identities()
        behind = {one: issued for one, issued in known.items() if issued.roots != authority.mark}
        return pb.AuthorityStatus(
            roots=authority.roots_pem,
            signs_unix_seconds=rotation.signs_unix_seconds,
            ends_unix_seconds=rotation.ends_unix_seconds,
            behind=_told_identities(behind),
        )

    def _needed_tokens(self) -> Tokens:
        if self._tokens is None:
            raise NotNow("an embedded head asks nobody for a token: only its own user reaches it")
        return self._tokens

    def _needed(self) -> Authority:
        if self._authority is None:
            raise NotNow(f"this head gives out no certificates: {_why_none(self._address)}")
        return self._authority


def _told_identities(known: Mapping[Identity, Issued]) -> list[pb.Identity]:
    return [
        pb.Identity(
            role=_NUMBERS[identity.role],
            name=identity.name,
            expires_unix_seconds=issued.expires_unix_seconds,
        )
        for identity, issued in sorted(known.items(), key=lambda item: item[0].name)
    ]


def _why_none(listen_address: str) -> str:
    if not listen_address:
        return "start it with listen = HOST:PORT, an address that other machines can reach"
    if loopback(listen_address):
        host, _, port = listen_address.rpartition(":")
        return (
            f"no other machine can reach listen = {listen_address}: give it an address that they"
            f' can, or, to try it on this machine, enroll = "{host}:{int(port) + 1}" beside it'
        )
    return "its own is from elsewhere; start it without tls_ files to have it make them"


def _role(number: pb.IdentityRole) -> Role:
    role = ROLES.get(number)
    if role is None:
        raise Refused(FieldError("role", str(number), one_of([str(r) for r in Role])))
    return role


def _told(token: KnownToken) -> pb.IssuedToken:
    return pb.IssuedToken(
        name=token.name,
        user=token.user,
        role=_NUMBERS[token.role],
        made_unix_seconds=token.made,
        expires_unix_seconds=token.expires,
        by=token.by,
    )


def _checked(name: str, field: str = "name") -> str:
    if not NODE_NAME.fullmatch(name):
        expected = "1 to 63 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first"
        raise Refused(FieldError(field, shown(name), expected))
    return name


def _signing_request(pem: bytes) -> x509.CertificateSigningRequest:
    """Raises Refused unless it is one for a P-256 key, signed with that key."""
    wrong = Refused(FieldError("signing_request", "", "PKCS #10 in PEM, signed, for a P-256 key"))
    if len(pem) > SIGNING_REQUEST_LIMIT_BYTES:
        raise wrong
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        # The kind of key first: a signature by a large one of another kind is dear to check.
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
            key.curve, ec.SECP256R1
        ):
            raise wrong
        good = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise wrong from None
    if not good:
        raise wrong
    return request
