"""One channel to one head: calls with retries, and the head's refusals as our own errors.

A call is repeated only while the head can't be reached, with the same request id, for at most
`patience_seconds`. Every failure becomes a HermesError.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import os
import random
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
from grpc import aio

from hermesctl.errors import HermesError, NotFound, Problem, Refused, Unreachable, UsageError
from hermesctl.invocation import command
from hermesctl.sdk.address import Address, embedded_process, short_state_directory
from hermesctl.sdk.contexts import reading_login
from hermesctl.sdk.token import HeadToken
from hermesctl.text import printable
from hermesd.pb.hermes.v1.control_pb2 import FieldErrors
from hermesd.pb.hermes.v1.control_pb2_grpc import ControlServiceStub
from hermesd.pb.hermes.v1.enroll_pb2_grpc import EnrollServiceStub
from hermesd.security.enrollment import channel_options
from hermesd.security.identity import MARK_KEY
from hermesd.security.token import Token

if TYPE_CHECKING:
    # The type of an asyncio channel's stub is only in the generated .pyi.
    from hermesd.pb.hermes.v1.control_pb2_grpc import ControlServiceAsyncStub
    from hermesd.pb.hermes.v1.enroll_pb2_grpc import EnrollServiceAsyncStub

PATIENCE_SECONDS = 10.0
CALL_TIMEOUT_SECONDS = 60.0
ERRORS_KEY = "hermes-errors-bin"
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 2.0

# A dead peer is noticed within about four seconds, a restarted one within two.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A study of 100,000 trials answers in one message.
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),
)

Answer = TypeVar("Answer")
Request = TypeVar("Request")
Message = TypeVar("Message")


def new_request_id() -> str:
    """What a mutation is known by, however often it is sent."""
    return str(uuid.uuid4())


class Connection:
    """A lazily opened channel. `patience_seconds` bounds how long a silent head is waited for."""

    def __init__(
        self,
        address: Address,
        *,
        token: HeadToken | None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.address = address
        self.patience_seconds = patience_seconds
        self._token = token
        self._shown = token.token if token is not None else None
        self._metadata = self._shown.metadata if self._shown is not None else ()
        self._channel: aio.Channel | None = None
        # Whether there ever was a head: then one that is away may be a head that restarts.
        self.has_answered = False
        # The mark of the roots of the authority that count at the head, as it said last.
        self._authority_mark = ""

    @property
    def stub(self) -> ControlServiceAsyncStub:
        """The service; opens the channel, so it needs a running event loop."""
        return ControlServiceStub(self._opened())

    @property
    def enroll_stub(self) -> EnrollServiceAsyncStub:
        """Likewise, for certificates."""
        return EnrollServiceStub(self._opened())

    async def keep_renewed(self) -> None:
        """Renew this user's certificate if it is time, or as the head's authority is replaced; what
        fails now is tried the next time."""
        membership, mark = self.address.membership, self._authority_mark
        now = datetime.datetime.now(datetime.UTC)
        if membership is None:
            return
        with reading_login():
            due = membership.seconds_to_renewal(now) == 0 or not membership.is_of(mark)
        if due:
            with contextlib.suppress(aio.AioRpcError, OSError), reading_login():
                await membership.renew(now, lambda: _channel(self.address, None), mark)

    def _opened(self) -> aio.Channel:
        if self._channel is None:
            self._channel = _channel(self.address, self._shown)
        return self._channel

    async def close(self) -> None:
        """Close the channel; the next call would open another."""
        if self._authority_mark:
            await self.keep_renewed()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def call(
        self,
        method: Callable[..., Awaitable[Answer]],
        request: object,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        patience_seconds: float | None = None,
    ) -> Answer:
        """One unary call, repeated while the head can't be reached."""
        backoff = Backoff(self.patience_seconds if patience_seconds is None else patience_seconds)
        while True:
            self.refuse_absent_socket()
            try:
                call = method(request, timeout=timeout_seconds, metadata=self._metadata)
                answer = await call
                self.has_answered = True
                if isinstance(call, aio.Call):
                    told = dict(await call.trailing_metadata() or ())
                    self._authority_mark = str(told.get(MARK_KEY, ""))
                return answer
            except aio.AioRpcError as error:
                if not is_outage(error) or not await backoff.wait():
                    raise self.explained(error) from None

    async def stream(
        self, method: Callable[..., aio.UnaryStreamCall[Request, Message]], request: Request
    ) -> AsyncGenerator[Message, None]:
        """The messages of one streaming call; never repeated, as only the caller knows where
        to go on. An outage is raised as Unreachable."""
        self.refuse_absent_socket()
        call = method(request, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except aio.AioRpcError as error:
            raise self.explained(error) from None
        finally:
            # Leaving the loop early would leave the call open at the head.
            call.cancel()

    def refuse_absent_socket(self) -> None:
        """Raise Unreachable at once when no head was ever seen on a socket that is not there, or
        that is out of this user's reach, or that a local head has left which nothing restarts."""
        path = self.address.socket
        if path is None or self.has_answered:
            return
        try:
            path.stat()
        except PermissionError:
            folder = printable(str(path.parent))
            raise Unreachable(self._advice(f"you may not enter {folder}")) from None
        except OSError:
            raise Unreachable(self._advice("there is no such socket")) from None
        is_alone = self.address.embedded and not embedded_process(short_state_directory(os.environ))
        if is_alone and _is_deserted(path):
            raise Unreachable(self._advice("it does not run"))

    def explained(self, error: aio.AioRpcError) -> HermesError:
        """The HermesError that `error` amounts to."""
        words = printable(error.details() or error.code().name, keep="\n")
        match error.code():
            case grpc.StatusCode.NOT_FOUND:
                return NotFound(words)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return Unreachable(self._advice("it did not answer in time"))
            case grpc.StatusCode.UNIMPLEMENTED:
                return Refused(f"the head is of another version and can't do that: {words}")
            case grpc.StatusCode.INVALID_ARGUMENT:
                return UsageError(words, _field_problems(error))
            case grpc.StatusCode.UNAUTHENTICATED if self._token is not None:
                return Refused(f"{words}\n{self._token.origin}")
            case (
                grpc.StatusCode.FAILED_PRECONDITION
                | grpc.StatusCode.ALREADY_EXISTS
                | grpc.StatusCode.PERMISSION_DENIED
                | grpc.StatusCode.UNAUTHENTICATED
                | grpc.StatusCode.RESOURCE_EXHAUSTED
                | grpc.StatusCode.OUT_OF_RANGE
                | grpc.StatusCode.ABORTED
            ):
                return Refused(words)
            case _ if is_outage(error):
                refused = "Connection refused" in words  # amid much about addresses
                return Unreachable(self._advice("it refuses connections" if refused else words))
            case _:
                return HermesError(f"the head failed ({error.code().name}): {words}")

    def _advice(self, reason: str) -> str:
        lines = [f"no head answers at {self.address}: {reason}"]
        if self.address.embedded:
            lines += _embedded_advice(short_state_directory(os.environ))
        elif self.address.socket is not None:
            lines.append("is `hermesd head` running, and may you open its socket?")
        elif self.address.membership is not None:
            lines.append("is `hermesd head` running there, and does it still know this login?")
        else:
            lines.append("is `hermesd head` running there, or the tunnel to its port?")
        return "\n".join(lines)


def _embedded_advice(state: Path) -> list[str]:
    """What to do where one's own head does not answer."""
    if (pid := embedded_process(state)) is not None:
        log = printable(str(state / "local.log"))
        return [
            f"its process {pid} is there: {log} says why it does not serve, such as a full disk"
        ]
    return [
        f"start one for yourself:   {command('local start')}   (or add --local)",
        f"or log in to another's:   {command('login HOST:PORT TOKEN')}",
        "or name a socket on this machine: --head unix:PATH, or HERMES_HEAD",
    ]


def _is_deserted(path: Path) -> bool:
    """Whether nobody listens on a socket any more."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        return asking.connect_ex(os.fsencode(path)) == errno.ECONNREFUSED


def _channel(address: Address, token: Token | None) -> aio.Channel:
    if address.socket is not None:
        return aio.insecure_channel(address.target, options=_OPTIONS)
    options = [*_OPTIONS, *channel_options()]
    if address.membership is None:
        assert token is not None, "find_token has seen to it"
        credentials = grpc.ssl_channel_credentials(token.authority)
    else:
        with reading_login():
            credentials = address.membership.credentials()
    return aio.secure_channel(address.target, credentials, options=options)


class Backoff:
    """Waits that double, with jitter, until the patience is used up. `begun`: it has waited."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self.reset()

    def reset(self) -> None:
        """Begin anew, because the head answered."""
        self.begun = False
        self._wait_seconds = _FIRST_WAIT_SECONDS
        self._give_up = time.monotonic() + self._patience_seconds

    async def wait(self) -> bool:
        """Wait for the next try; False when the patience is used up."""
        pause = self._wait_seconds * random.uniform(0.75, 1.25)
        if time.monotonic() + pause > self._give_up:
            return False
        self.begun = True
        self._wait_seconds = min(2 * self._wait_seconds, _LONGEST_WAIT_SECONDS)
        await asyncio.sleep(pause)
        return True


def is_outage(error: aio.AioRpcError) -> bool:
    """Whether the head was not there, rather than saying no."""
    # A head that stops cancels its calls; our own cancelling is a CancelledError. A partition
    # shows as UNAVAILABLE, or as INTERNAL from the transport itself.
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) or (
        error.code() is grpc.StatusCode.INTERNAL and "from Core" in (error.details() or "")
    )


def _field_problems(error: aio.AioRpcError) -> list[Problem]:
    for key, value in error.trailing_metadata() or ():
        if key == ERRORS_KEY and isinstance(value, bytes):
            return problems_of(value)
    return []


def problems_of(field_errors: bytes) -> list[Problem]:
    """What a serialized FieldErrors says is wrong."""
    errors = FieldErrors.FromString(field_errors).errors
    return [Problem(e.expected, e.field_path, e.value, e.nearest) for e in errors]
