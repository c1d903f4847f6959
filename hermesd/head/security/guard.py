"""What every call passes first: it checks by the table `METHODS` whether this caller may call this
method, and decides what a caller is told when it fails.

The text of an exception that is not a refusal is never shown to a client. It is logged under an
incident id, and the client sees only that.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import hmac
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from cryptography import x509
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hermesd.core.state import Rejected
from hermesd.crowd import Crowd
from hermesd.head.blobs import TooLarge
from hermesd.head.budget import PIECE_BYTES, Budget
from hermesd.head.clock import boottime
from hermesd.head.journal.store import JournalBroken
from hermesd.head.loop import ReadOnly, Stopping, beside, paying
from hermesd.head.refusals import Doubled, NotFound, NotNow, Reused, TooMuch, Unreachable
from hermesd.head.security.audit import OK, Attempt, Audit, subject_of
from hermesd.head.security.authority import Authority, Stolen
from hermesd.head.security.tokens import KnownToken, Tokens
from hermesd.head.statedir import expecting
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import control_pb2, enroll_pb2, node_pb2
from hermesd.refusal import Refused
from hermesd.security import pem
from hermesd.security.accounts import current_user
from hermesd.security.enrollment import write_private
from hermesd.security.identity import MARK_KEY, Identity, Role
from hermesd.security.token import Token


def methods_of(file: Any) -> list[str]:
    """The names of all methods of a file's services, as they are called."""
    return [
        f"/{service.full_name}/{method.name}"
        for service in file.services_by_name.values()
        for method in service.methods
    ]


# Who may call what: the table of every method of every service.
#
# One that is missing here fails the start-up, so that nothing is ever open by oversight.

READING_METHODS = (
    "GetStudy", "ListStudies", "GetTrial", "ListTrials", "ListNodes", "GetCurve", "ExplainTrial",
    "BestTrials", "WatchJournal", "TailLogs", "ExportStudy", "DownloadCheckpoint", "GetFiles",
    "ListUsers", "ServerInfo",
)  # fmt: skip
CONTROL_METHODS = (
    *READING_METHODS, "SubmitStudy", "PutBlob", "PauseTrials", "ResumeTrials", "StopTrials",
    "RetryTrials", "MarkTrials", "AddTrials", "AskTrial", "TellTrial", "ForkTrial", "ExtendStudy",
    "SetMetric", "SetSignal", "RemoveStudy",
)  # fmt: skip
# What concerns everybody's trials.
UPKEEP_METHODS = ("DrainNode", "UndrainNode", "LoseNode", "ReleaseNode")
PEOPLE = frozenset({Role.USER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
EVERYBODY = frozenset(Role)
METHODS: Mapping[str, frozenset[Role]] = {
    **{f"/hermes.v1.ControlService/{name}": PEOPLE for name in CONTROL_METHODS},
    **{f"/hermes.v1.ControlService/{name}": OPERATORS for name in UPKEEP_METHODS},
    "/hermes.v1.ControlService/ListAudit": frozenset({Role.ADMIN}),
    "/hermes.v1.NodeService/Attach": frozenset({Role.NODE}),
    "/hermes.v1.NodeService/GetBlob": frozenset({Role.NODE}),
    "/hermes.v1.EnrollService/Enroll": EVERYBODY,
    "/hermes.v1.EnrollService/Renew": EVERYBODY,
    # But for an admin, of nodes for the caller's own trials alone.
    "/hermes.v1.EnrollService/Invite": PEOPLE,
    "/hermes.v1.EnrollService/Revoke": PEOPLE,
    "/hermes.v1.EnrollService/ListIdentities": PEOPLE,
    "/hermes.v1.EnrollService/IssueToken": frozenset({Role.ADMIN}),
    "/hermes.v1.EnrollService/ListTokens": PEOPLE,
    "/hermes.v1.EnrollService/RevokeToken": PEOPLE,
    "/hermes.v1.EnrollService/RotateAuthority": frozenset({Role.ADMIN}),
    "/hermes.v1.EnrollService/GetAuthority": frozenset({Role.ADMIN}),
    **dict.fromkeys(methods_of(health_pb2.DESCRIPTOR), EVERYBODY),
    **dict.fromkeys(methods_of(reflection_pb2.DESCRIPTOR), PEOPLE),
}
# What changes nothing: the audit has only who was refused it. All others are changes.
READS = frozenset(
    {
        *(f"/hermes.v1.ControlService/{name}" for name in (*READING_METHODS, "ListAudit")),
        "/hermes.v1.NodeService/GetBlob",
        "/hermes.v1.EnrollService/ListIdentities",
        "/hermes.v1.EnrollService/ListTokens",
        "/hermes.v1.EnrollService/GetAuthority",
        *methods_of(health_pb2.DESCRIPTOR),
        *methods_of(reflection_pb2.DESCRIPTOR),
    }
)
# The only one that asks for no credential: the secret in its request is one.
INVITED = "/hermes.v1.EnrollService/Enroll"
RENEWAL = "/hermes.v1.EnrollService/Renew"


def undeclared() -> set[str]:
    """Methods that are served and not in the table, or the other way round."""
    ours = (control_pb2.DESCRIPTOR, node_pb2.DESCRIPTOR, enroll_pb2.DESCRIPTOR)
    grpcs = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    return {method for file in (*ours, *grpcs) for method in methods_of(file)} ^ set(METHODS)


def takes(roles: frozenset[Role]) -> str:
    """Which people may do what is open to these roles; nothing where all may, or none."""
    if Role.USER in roles:
        return ""
    people = [f"an {role}" for role in (Role.OPERATOR, Role.ADMIN) if role in roles]
    return f": it takes {' or '.join(people)}" if people else ""


# How much one person may have open at the head, so that nobody keeps it from the others.
#
# Who is at a limit is refused at once, before anything is done for the call, and what they
# have open goes on. Nodes and admins are not counted: without the former nothing runs, and the
# latter are who mends things.

# What lasts: journals and logs that are followed, exports, downloads, uploads.
STREAMS_LIMIT = 32
# What is asked and answered: more than one program with all its threads has under way.
CALLS_LIMIT = 32
COUNTED = frozenset({Role.USER, Role.OPERATOR})
# How fast one may change things: what is changed is written down for good, and the disk is
# everybody's. A change counts as one, and as many more as it asks, and writes, pieces of so many
# bytes; one of identities, for which all others are written anew, as a second's worth. Who has more
# to change than that comes to in two minutes waits for it, or is refused if that would take long:
# one may submit a study of 100,000 trials, and stop it again.
CHANGES_A_SECOND = 64.0
CHANGES_AT_ONCE_SECONDS = 120.0
PATIENCE_SECONDS = 10.0
_PAYERS_KNOWN = 1_000


class Calls:
    """What each person has open now, and what they have changed."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._open: Counter[tuple[str, bool]] = Counter()
        self._clock = clock
        self._changes: dict[Identity, Budget] = {}

    def charge(self, payer: Identity, count: float) -> float:
        """Count changes; by how many seconds that is ahead of who may make no more at once."""
        if len(self._changes) >= _PAYERS_KNOWN:
            self._changes = {one: it for one, it in self._changes.items() if it.ahead_seconds > 0}
        if (budget := self._changes.get(payer)) is None:
            budget = self._changes[payer] = Budget(self._clock)
        return budget.charge(count, CHANGES_A_SECOND) - CHANGES_AT_ONCE_SECONDS

    async def turn(self, payer: Identity, count: float) -> None:
        """Count changes, and wait until they may be made. Raises TooMuch where that is not soon,
        and counts nothing: who asks again and again is to have a turn, too."""
        wait = self.charge(payer, count)
        if wait > PATIENCE_SECONDS:
            self.charge(payer, -count)
            raise TooMuch(
                f"{payer.name} makes changes faster than one user may ({CHANGES_A_SECOND:g} a"
                f" second): try again in {wait:.0f} s"
            )
        if wait > 0:
            await asyncio.sleep(wait)

    @contextmanager
    def counted(self, who: Identity | None, lasts: bool) -> Iterator[None]:
        """Count a call for the block; `lasts` for a stream in either direction.

        Raises TooMuch.
        """
        if who is None or who.role not in COUNTED:
            yield
            return
        key = (who.name, lasts)
        if lasts and self._open[key] >= STREAMS_LIMIT:
            raise TooMuch(
                f"{who.name} has {STREAMS_LIMIT} streams open, as many as one user may (events and"
                " logs that are followed, exports, transfers): end some, or wait until some end"
            )
        if not lasts and self._open[key] >= CALLS_LIMIT:
            raise TooMuch(
                f"{who.name} has {CALLS_LIMIT} calls in progress, as many as one user may: wait for"
                " some of them to be answered"
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


log = get_logger()

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

ERRORS_KEY = "hermes-errors-bin"
TEXT_LIMIT = 3_000


# Who comes by the socket of an embedded head, or with the head's own token: the account it runs as.
LOCAL = Identity(Role.ADMIN, current_user())
# Who calls; None for one who only redeems an invitation.
caller: ContextVar[Identity | None] = ContextVar("caller", default=None)
# What the method that is answered has to say about it for the audit.
about: ContextVar[str] = ContextVar("about", default="")


@dataclass(frozen=True, slots=True)
class Certified:
    """By which of an identity's certificates a call came, and when that ends."""

    authority: Authority
    identity: Identity
    serial: int
    ends: datetime.datetime
    issuer: str

    def see(self) -> None:
        """See that it counts: a connection outlives what it was opened with. Raises Denied."""
        who = f"{self.identity.role} {self.identity.name}"
        try:
            counts = self.authority.counts(self.identity, self.serial)
        except Stolen:
            raise self.two_holders() from None
        if not counts:
            raise Denied(f"the certificate of {who} is no longer valid")
        if not self.authority.trusts(self.issuer):
            raise Denied(
                f"the certificate of {who} was signed by an authority's key that was replaced:"
                " enroll again with a new token"
            )
        if self.ends <= datetime.datetime.now(datetime.UTC):
            raise Denied(f"the certificate of {who} ended {self.ends:%Y-%m-%d %H:%M:%SZ}")

    def two_holders(self) -> Denied:
        """What to say, and to log, where it was found to have a second holder."""
        who = f"{self.identity.role} {self.identity.name}"
        log.error("a certificate has two holders: it was revoked", who=who)
        return Denied(
            f"somebody else has a copy of the key of {who}, or it was restored from an old backup:"
            " its certificate was revoked. Find out who had the key, and enroll again with a new"
            " token"
        )

    @property
    def mark(self) -> str:
        """Which one, for the audit."""
        return f"certificate {self.serial:x}"[:28]


@dataclass(frozen=True, slots=True)
class Bearing:
    """By which of the tokens made for people a call came."""

    tokens: Tokens
    token: KnownToken

    def see(self) -> None:
        """See that it is still good: a stream may outlive it. Raises Denied."""
        if not self.tokens.stands(self.token):
            raise Denied(f"the token {self.token.name} of {self.token.user} is no longer valid")

    @property
    def mark(self) -> str:
        """Which one, for the audit."""
        return f"token {self.token.name}"[:28]


# None for who calls by the head's own tokens, by the socket of an embedded head, or to redeem an
# invitation.
credential: ContextVar[Certified | Bearing | None] = ContextVar("credential", default=None)


class Denied(Exception):
    """Nobody knows the caller; says why."""


class Forbidden(Exception):
    """The caller is known, and may not."""


_STATUS: Mapping[type[Exception], grpc.StatusCode] = {
    Refused: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    NotNow: grpc.StatusCode.FAILED_PRECONDITION,
    Rejected: grpc.StatusCode.FAILED_PRECONDITION,
    ReadOnly: grpc.StatusCode.FAILED_PRECONDITION,
    Reused: grpc.StatusCode.ALREADY_EXISTS,
    Doubled: grpc.StatusCode.ALREADY_EXISTS,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooMuch: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unreachable: grpc.StatusCode.UNAVAILABLE,
    Stopping: grpc.StatusCode.UNAVAILABLE,
    JournalBroken: grpc.StatusCode.UNAVAILABLE,
    Denied: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
}
# Of these the audit has those of reads as well.
_REFUSALS = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


def token(path: Path, authority: bytes = b"") -> str:
    """The token in a file, made at the first start; only its owner may read it. Beside it is the
    `authority` by which those who have the file know this head.

    Raises PermissionError if others can, StateRefused if it holds something else.
    """
    if not path.exists():
        write_private(path, Token(f"hermes_{secrets.token_urlsafe(32)}", authority).text().encode())
    if path.stat().st_mode & 0o077:
        raise PermissionError(f"{path} can be read by others: chmod 600 {path}")
    with expecting(path, "one token", "remove it, and a new token is made", secret=True):
        # Empty if the disk was full when it was made: an empty word would let everybody in.
        known = Token.of(path.read_text(encoding="ascii"))
    if known.authority != authority:
        write_private(path, Token(known.word, authority).text().encode())
    return known.word


class Guard(grpc.aio.ServerInterceptor):
    """The interceptor. `tokens` by role, or None where the socket's permissions are enough;
    `authority` whose certificates say who calls, where connections come with one; `audit` has what
    they do, and `crowd` by which connections."""

    def __init__(
        self,
        tokens: Mapping[Role, str] | None,
        authority: Authority | None = None,
        audit: Audit | None = None,
        people: Tokens | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        if missing := undeclared():
            raise RuntimeError(f"not in the table of methods: {sorted(missing)}")
        self._tokens = tokens
        self._authority = authority
        self._people = people
        self._calls = Calls()
        self._audit = audit
        self._crowd = crowd

    async def intercept_service(  # type: ignore[override]  # generic where ours takes any
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        method = handler_call_details.method
        roles = METHODS.get(method, frozenset())
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        holder = self._token_holder(handler_call_details)
        if self._tokens is None and roles:
            shown, admit = "socket", _as(LOCAL)
        elif method == INVITED:
            shown, admit = "invitation", _as(None)
        elif isinstance(holder, Bearing):
            shown, admit = "token", functools.partial(_by_token, holder, roles)
        elif holder is not None and holder.role in roles:
            shown, admit = "token", _as(holder)
        elif self._authority is None or not roles:
            shown, admit = "", _nobody
            # For every kind of call: it waits for no message.
            handler = grpc.stream_stream_rpc_method_handler(_unreached)
        else:
            shown, admit = "certificate", functools.partial(self._certified, roles)
        door = _Door(method, shown, admit, self._calls, self._audit, self._authority, self._crowd)
        return _guarded(handler, door)

    def _token_holder(self, details: grpc.HandlerCallDetails) -> Identity | Bearing | None:
        """Who holds one of the head's own tokens; or one that was made for a person."""
        for key, value in details.invocation_metadata or ():
            if key == "authorization" and isinstance(value, str):
                for role, word in (self._tokens or {}).items():
                    if hmac.compare_digest(value.encode(), f"Bearer {word}".encode()):
                        return LOCAL if role is Role.ADMIN else Identity(role, "")
                found = self._people.find(value.removeprefix("Bearer ")) if self._people else None
                return Bearing(self._people, found) if self._people and found else None
        return None

    def _certified(self, roles: frozenset[Role], context: Any) -> Identity:
        """Whom the connection's certificate is for. Raises Denied, Forbidden."""
        known = context.auth_context().get("x509_pem_cert", ())
        assert self._authority is not None
        identity, serial, ends, issuer = _bearer(known[0]) if known else (None, 0, _ENDED, "")
        if identity is None:
            raise Denied("a valid token, or a certificate of this head, is needed")
        shown = Certified(self._authority, identity, serial, ends, issuer)
        # The audit has who it was, refused or not.
        caller.set(identity)
        credential.set(shown)
        shown.see()
        return _with_role(identity, roles)


_ENDED = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@functools.lru_cache(maxsize=4_096)
def _bearer(certificate_pem: bytes) -> tuple[Identity | None, int, datetime.datetime, str]:
    """Who a certificate is for, its number, its end and who signed it; the connection has verified
    its signature."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    number, ends = certificate.serial_number, certificate.not_valid_after_utc
    issuer = certificate.issuer.rfc4514_string()
    return pem.identity(certificate), number, ends, issuer


def _by_token(shown: Bearing, roles: frozenset[Role], context: Any) -> Identity:
    """Whose token it is. Raises Denied, Forbidden."""
    caller.set(shown.token.holder)
    credential.set(shown)
    return _with_role(shown.token.holder, roles)


def _with_role(who: Identity, roles: frozenset[Role]) -> Identity:
    if who.role not in roles:
        raise Forbidden(f"{who.role} {who.name} may not do this{takes(roles)}")
    return who


def _as(who: Identity | None) -> Callable[[Any], Identity | None]:
    return lambda _: who


def _nobody(context: Any) -> Identity:
    raise Denied("a valid token is needed (metadata `authorization`)")


async def _unreached(request: Any, context: Any) -> None:
    raise AssertionError("nobody is admitted")


@dataclass(frozen=True, slots=True)
class _Door:
    """What a method's calls pass."""

    method: str
    shown: str
    #: Says who calls, or raises.
    admit: Callable[[Any], Identity | None]
    calls: Calls
    audit: Audit | None
    authority: Authority | None
    crowd: Crowd | None

    @contextmanager
    def admitted(self, context: Any, lasts: bool) -> Iterator[None]:
        """Let a call in for the block. Raises Denied, Forbidden, TooMuch."""
        caller.set(None)
        caller.set(who := self.admit(context))
        if who is not None and self.crowd is not None:
            self.crowd.called(f"{who.role} {who.name}", context.peer())
        if self.authority is not None:
            context.set_trailing_metadata(((MARK_KEY, self.authority.mark),))
        with self.calls.counted(who, lasts):
            yield

    async def turn(self, request: Any) -> None:
        """Wait until the caller may make one more change, if this is one, and count it, and then
        what it writes. Raises Denied, TooMuch."""
        if (payer := self._payer(request)) is not None:
            count = CHANGES_A_SECOND if self._is_dear() else 1
            await self.calls.turn(payer, count + _size(request) / PIECE_BYTES)
            paying.set(lambda size_bytes: self.calls.charge(payer, size_bytes / PIECE_BYTES))
            if (shown := credential.get()) is not None:
                shown.see()  # which may have ended meanwhile

    def _is_dear(self) -> bool:
        """Whether it is a change of identities. A renewal whose time has come is none: each comes
        once, and those of a user's many nodes at the same time, when the authority is replaced."""
        if not self.method.startswith("/hermes.v1.EnrollService/"):
            return False
        who = caller.get()
        is_due = who is not None and self.authority is not None and self.authority.is_due(who)
        return not (self.method == RENEWAL and is_due)

    def _payer(self, request: Any) -> Identity | None:
        """On whose account a change is: of a user's own node on that user's. None for what is none,
        and for an admin."""
        who = caller.get()
        if who is None or who.role is Role.ADMIN or not self._is_change(request):
            return None
        if who.role is Role.NODE and self.authority is not None:
            owner = self.authority.owner_of(who)
            return Identity(Role.USER, owner) if owner else who
        return who

    async def done(self, context: Any, request: Any = None) -> None:
        """Note that a change was made."""
        if self._is_change(request) and self.audit is not None:
            await self.audit.note(self._attempt(context, request), OK)

    async def failed(self, context: Any, error: Exception, request: Any = None) -> None:
        """Have the caller hear a failure, and the audit, too."""
        code, words, metadata = _answer(error, self.method)
        refused = code in _REFUSALS or self._is_change(request)
        if refused and self.audit is not None:
            with suppress(JournalBroken):  # the head ends by that
                await self.audit.note(self._attempt(context, request), code.name, words)
        await context.abort(code, words, metadata)

    def note_late(self, context: Any, request: Any, result: str) -> None:
        """Note what came of a call whose caller waits for no answer any more."""
        if self._is_change(request) and self.audit is not None:
            self.audit.note_late(self._attempt(context, request), result)

    def _is_change(self, request: Any) -> bool:
        return self.method not in READS and not getattr(request, "validate_only", False)

    def _attempt(self, context: Any, request: Any) -> Attempt:
        known = credential.get()
        by = known.mark if known is not None else self.shown
        words = "; ".join(filter(None, (subject_of(request), about.get())))
        return Attempt(caller.get(), by, context.peer(), self.method, words)


def _size(message: Any) -> int:
    """The bytes of a request; of a stream of requests none are known."""
    if isinstance(message, bytes):
        return len(message)
    return message.ByteSize() if isinstance(message, Message) else 0


# By which door a stream of requests came in, and its context.
_stream: ContextVar[tuple[_Door, Any] | None] = ContextVar("stream", default=None)


async def note_stream(subject: str) -> None:
    """Have the audit say that a stream of requests was opened, and on what it acts, which only its
    method finds out; on the disk when this returns."""
    about.set(subject)
    if (opened := _stream.get()) is not None:
        door, context = opened
        await door.done(context)


def note_stream_late(subject: str) -> None:
    """Have the audit say, soon, what such a stream has changed as it ended."""
    about.set(subject)
    if (opened := _stream.get()) is not None:
        door, context = opened
        door.note_late(context, None, OK)


def _guarded(handler: Any, door: _Door) -> Handler:
    """The handler for those who are admitted and have not too much open, with its failures turned
    into statuses, and what it does in the audit."""
    if handler.unary_unary or handler.stream_unary:
        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        single, as_bytes = _single(handler, door), _as_bytes(handler.response_serializer)
        return make(single, handler.request_deserializer, as_bytes)
    make_stream = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    streamed = _streamed(handler, door)
    return make_stream(streamed, handler.request_deserializer, handler.response_serializer)


def _single(handler: Any, door: _Door) -> Callable[[Any, Any], Awaitable[Any]]:
    """What answers a call once."""
    inner = handler.unary_unary or handler.stream_unary

    async def single(request: Any, context: Any) -> Any:
        noted: list[asyncio.Task[None]] = []
        begun = False

        def note() -> None:
            if not noted:
                done = door.done(context, request)
                task = asyncio.create_task(done, context=here)  # noqa: TID251 - awaited below
                noted.append(task)

        try:
            with door.admitted(context, lasts=handler.request_streaming):
                await door.turn(request)
                begun = True
                here = copy_context()
                beside.set(note)
                try:
                    answer = await inner(_counting(handler, request), context)
                finally:  # a change was made, whatever came of the call
                    if noted:
                        await asyncio.shield(noted[0])
                if not noted:
                    await door.done(context, request)
                return answer
        except asyncio.CancelledError:
            if begun:  # a change may be made all the same
                door.note_late(context, request, "CANCELLED")
            raise
        except Exception as error:  # of which the caller learns no more than `failed` says
            await door.failed(context, error, request)

    return single


def _streamed(handler: Any, door: _Door) -> Callable[[Any, Any], Awaitable[None]]:
    """What answers a call by a stream."""
    inner = handler.unary_stream or handler.stream_stream

    async def streamed(request: Any, context: Any) -> None:
        try:
            with door.admitted(context, lasts=True):
                if handler.request_streaming:
                    _stream.set((door, context))
                else:
                    await door.done(context, request)
                shown = credential.get()
                answers = inner(_counting(handler, request), context)
                if isinstance(answers, AsyncGenerator):
                    async with aclosing(answers):
                        async for answer in answers:
                            if shown is not None:  # nothing more for whom was revoked meanwhile
                                shown.see()
                            await context.write(answer)
                else:
                    await answers
        except Exception as error:  # of which the caller learns no more than `failed` says
            await door.failed(context, error, request)

    return streamed


def _as_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """How an answer is serialized, unless it was already: a long one is, beside the loop."""
    return lambda answer: answer if isinstance(answer, bytes) else serialize(answer)


def _counting(handler: Any, request: Any) -> Any:
    """What a method is given: the request, or the stream of requests, while its caller counts."""
    shown = credential.get()
    if shown is None or not handler.request_streaming:
        return request
    return _while_it_counts(shown, request)


async def _while_it_counts(
    shown: Certified | Bearing, requests: AsyncIterator[Any]
) -> AsyncIterator[Any]:
    """The requests of a stream, nothing more of whom was revoked or enrolled anew meanwhile."""
    async for request in requests:
        shown.see()
        yield request


def _answer(
    error: Exception, method: str
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """What the caller hears of a failure: code, words and metadata."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, grpc.aio.AbortError):
        raise error
    code = _STATUS.get(type(error))
    if code is None:
        incident = secrets.token_hex(6)
        log.error("uncaught exception", method=method, incident=incident, exc_info=error)
        words = f"internal error; the head's log has it as {incident}"
        return grpc.StatusCode.INTERNAL, words, ()
    metadata: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, Refused):
        metadata = ((ERRORS_KEY, field_errors(error).SerializeToString()),)
    return code, str(error)[:TEXT_LIMIT], metadata


def field_errors(refused: Refused) -> control_pb2.FieldErrors:
    """The first errors of an input, as a client is told them."""
    fields = [
        control_pb2.FieldError(
            field_path=e.field_path, value=e.value, expected=e.expected, nearest=e.nearest
        )
        for e in refused.errors[:20]
    ]
    return control_pb2.FieldErrors(errors=fields)
