"""The stream to the head: opened, kept up, and opened again.

One task writes, one reads. Each message says when it was sent, and the lease in the answer counts
from then. The event loop sends a heartbeat when nothing else was sent for a while, since the
transport's own pings prove only that its threads are alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from hermesd.config.schema import NodeConfig
from hermesd.expecting import StateAway, StateRefused
from hermesd.logs import get_logger
from hermesd.node.clock import boottime
from hermesd.node.machine.identity import marks_of_machine
from hermesd.node.outbox import REPORT_SECONDS, Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2_grpc
from hermesd.security.enrollment import Membership, channel_options
from hermesd.security.token import Token

# What the log says while the head is away: each reason at once, and again ever more seldom.

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0


class Outage:
    """The time since the head was last attached to."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._said: dict[tuple[str, ...], _Said] = {}

    def tell(self, log: Callable[..., object], event: str, **known: str) -> None:
        """Log why there is no stream, unless the very same was logged a short while ago."""
        now = self._clock()
        said = self._said.setdefault((event, *known.values()), _Said(now))
        said.tries += 1
        if now >= said.due:
            again = {"tries": said.tries, "for_seconds": round(now - said.first)}
            log(event, **known, **(again if said.tries > 1 else {}))
            said.put_off(now)

    def end(self) -> None:
        """The head is there: what comes next is news."""
        self._said.clear()


class _Said:
    """One reason: since when, how often, and when it is to be told again."""

    def __init__(self, now: float) -> None:
        self.first = self.due = now
        self.tries = 0
        self._pause = FIRST_SECONDS

    def put_off(self, now: float) -> None:
        self.due = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_SECONDS)


# The node's token: read anew for each stream, since a head makes it at its own first start.
#
# A token that cannot be read keeps nobody from asking, as an embedded head wants none; what
# was looked for is said when the head refuses.


@dataclass(frozen=True, slots=True)
class NodeToken:
    """The token for the head, if there is one."""

    #: What to send; None for nothing.
    token: Token | None
    #: Where the token is from, or why there is none.
    origin: str


def read_token(path: Path | None) -> NodeToken:
    """The token in a file."""
    if path is None:
        return NodeToken(None, "none was sent: node.token_file is not set")
    try:
        token = Token.of(path.read_text(encoding="ascii"))
    except OSError as error:
        return NodeToken(None, f"none was sent: {path}: {error.strerror}")
    except ValueError:
        return NodeToken(None, f"none was sent: {path}: it does not hold one token")
    return NodeToken(token, f"what was sent is from {path}")


# More than from one report of a trial to the next: who trains needs no heartbeat.
HEARTBEAT_SECONDS = 0.5
_BACKOFF_SECONDS = (0.2, 2.0)
# A head that answers nothing for so long is as good as gone: dial again.
_SILENCE_SECONDS = 15.0
_PARTING_SECONDS = 1.0
# By a clock that is far ahead, a new certificate is as old as the one before.
_RENEWAL_PAUSE_SECONDS = 3600.0
# What could not be renewed, or not be written down, is tried again so much later.
_RENEWAL_AGAIN_SECONDS = 300.0
_ROTATION_AGAIN_SECONDS = 5.0
_OPTIONS = [
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A proxy that the environment names for the web would be handed the token.
    ("grpc.enable_http_proxy", 0),
]

log = get_logger()


class NameTaken(Exception):
    """Another daemon answers as this node, says the head; and what to do."""


_Call = grpc.aio.StreamStreamCall[pb.AttachRequest, pb.AttachResponse]


class Conversation(Protocol):
    """What is said over a stream: the first message of this side, and what the other one says."""

    def hello(self) -> pb.AttachRequest: ...

    def hear(self, response: pb.AttachResponse) -> None: ...


class Link:
    """The node's end of the stream.

    To be made where its loop runs: a channel belongs to the loop that it was made in.
    """

    def __init__(self, config: NodeConfig, outbox: Outbox) -> None:
        asyncio.get_running_loop()
        self._target = config.head
        self._outbox = outbox
        self._config = config
        self._membership = config.membership
        self._channel = _channel(config, self._membership)
        self._token_path = config.token_path
        self._known = b""
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._stub = node_pb2_grpc.NodeServiceStub(self._channel)
        self._call: _Call | None = None
        self._heard_at = 0.0
        self._said_at = -math.inf
        # What the last lease said of its head.
        self._heard_head, self._heard_sequence = "", 0
        self._machine = marks_of_machine()
        self._renew_after = 0.0
        # By the mark of the roots that count at the head: whether it may have changed them.
        self._authority_mark = ""
        self._rotated = asyncio.Event()
        self._ended = asyncio.Event()
        self._outage = Outage()

    async def run(self, said: Conversation) -> None:
        """Keep a stream open for as long as this task lives. Raises NameTaken."""
        backoff = _BACKOFF_SECONDS[0]
        while True:
            await self._attach(said)
            if self._heard_at:
                backoff, self._heard_at = _BACKOFF_SECONDS[0], 0.0
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _BACKOFF_SECONDS[1])

    async def _attach(self, said: Conversation) -> None:
        """One stream, from Hello to its end."""
        self._outbox.rewind()
        token = read_token(self._token_path)
        if not await self._knows_head(token):
            return
        self._metadata = token.token.metadata if token.token else ()
        self._call = call = self._stub.Attach(metadata=self._metadata)
        taken: str | None = None
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                await call.write(self._greeting(said))
                welcome = await call.read()
            if not isinstance(welcome, pb.AttachResponse):
                return
            self._outage.end()
            self._answered(said, welcome)
            async with asyncio.TaskGroup() as tasks:
                parts = (self._write, self._beat, self._keep_renewed)
                sides = [tasks.create_task(part(call)) for part in parts]
                await self._read(said, call)
                for side in sides:
                    side.cancel()
        except* TimeoutError:
            self._outage.tell(log.warning, "the head does not answer", head=self._target)
        except* grpc.aio.AioRpcError as errors:
            error = next(_rpc_errors(errors))
            taken = self._told_why(error, token)
        except* asyncio.InvalidStateError:
            self._outage.tell(log.info, "the stream to the head ended", head=self._target)
        finally:
            self._call = None
            call.cancel()
            self._ended.set()
        if taken is not None:
            raise NameTaken(taken)

    async def _knows_head(self, token: NodeToken) -> bool:
        """Whether the channel will tell the head from whoever else may listen at its port: where
        nothing else says who it is, its token does."""
        if self._membership or self._config.tls or self._target.startswith("unix:"):
            return True
        authority = token.token.authority if token.token is not None else b""
        if not authority:
            words = "no certificate of the head beside its token: copy the head's node-token again"
            self._outage.tell(log.warning, words, head=self._target, token=token.origin)
            return False
        if authority != self._known:
            retired, self._channel = self._channel, _channel(self._config, None, authority)
            self._stub = node_pb2_grpc.NodeServiceStub(self._channel)
            self._known = authority
            await retired.close()
        return True

    def _told_why(self, error: grpc.aio.AioRpcError, token: NodeToken) -> str | None:
        """Log why the head has no stream for us; its words if it never will, as somebody else is
        this node."""
        reason = error.details() or error.code().name
        if error.code() is grpc.StatusCode.ALREADY_EXISTS:
            return reason
        known = {"head": self._target, "reason": reason}
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            shown = {} if self._membership else {"token": token.origin}
            self._outage.tell(log.warning, "the head refuses this node", **known, **shown)
        elif error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            self._outage.tell(log.warning, "the head does not take this node now", **known)
        else:
            self._outage.tell(log.info, "no stream to the head", **known)
        return None

    async def _read(self, said: Conversation, call: _Call) -> None:
        while True:
            async with asyncio.timeout(_SILENCE_SECONDS):
                response = await call.read()
            if not isinstance(response, pb.AttachResponse):
                return
            self._answered(said, response)

    def _greeting(self, said: Conversation) -> pb.AttachRequest:
        request = said.hello()
        request.hello.heard_head = self._heard_head
        request.hello.heard_journal_sequence = self._heard_sequence
        request.hello.machine.extend(self._machine)
        request.hello.boottime_seconds = boottime()
        return request

    def _answered(self, said: Conversation, response: pb.AttachResponse) -> None:
        self._heard_at = boottime()
        if response.HasField("lease"):
            self._heard_head = response.lease.head
            self._heard_sequence = response.lease.journal_sequence
            self._outbox.report_seconds = max(REPORT_SECONDS, response.lease.report_seconds)
            if self._authority_mark != response.lease.authority_mark:
                self._authority_mark = response.lease.authority_mark
                self._rotated.set()
        said.hear(response)

    async def _write(self, call: _Call) -> None:
        while True:
            message = await self._outbox.take()
            self._said_at = message.boottime_seconds = boottime()
            await call.write(message)
            if message.HasField("goodbye"):
                await call.done_writing()
                return

    async def _beat(self, call: _Call) -> None:
        self._said_at = -math.inf
        while True:
            wait = self._said_at + self._outbox.report_seconds + HEARTBEAT_SECONDS - boottime()
            if wait > 0:
                # The head may want to hear it more often meanwhile.
                await asyncio.sleep(min(wait, REPORT_SECONDS))
            else:
                self._said_at = boottime()
                self._outbox.put_transient(pb.AttachRequest(heartbeat=pb.Heartbeat()))

    async def _keep_renewed(self, call: _Call) -> None:
        """Come again with a newer certificate before this one ends, or as the head's authority is
        replaced; runs go on meanwhile."""
        membership = self._membership
        if membership is None:
            return
        while True:
            rotated = False
            try:
                rotated = await self._renewal_due(membership)
                now, mark = datetime.datetime.now(datetime.UTC), self._authority_mark
                if not await membership.renew(now, self._opened, mark):
                    continue
                renewed = self._opened()
            except (grpc.aio.AioRpcError, OSError, StateRefused, StateAway) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                log.error("certificate not renewed", head=self._target, reason=reason)
                if rotated:
                    self._rotated.set()
                    await asyncio.sleep(_ROTATION_AGAIN_SECONDS)
            else:
                break
        self._renew_after = boottime() + _RENEWAL_PAUSE_SECONDS
        log.info("certificate renewed", head=self._target)
        retired, self._channel = self._channel, renewed
        self._stub = node_pb2_grpc.NodeServiceStub(self._channel)
        await call.done_writing()
        await retired.close(_PARTING_SECONDS)

    async def _renewal_due(self, membership: Membership) -> bool:
        """Wait until the certificate is due, or the head's authority has changed: True for that."""
        while await self._rotated_within(self._renew_after - boottime()):
            if not membership.is_of(self._authority_mark):
                return True
        # A file that is damaged has to wait for its next turn, too.
        self._renew_after = boottime() + _RENEWAL_AGAIN_SECONDS
        now = datetime.datetime.now(datetime.UTC)
        while await self._rotated_within(membership.seconds_to_renewal(now)):
            if not membership.is_of(self._authority_mark):
                return True
        self._renew_after = boottime() + _RENEWAL_AGAIN_SECONDS
        return False

    async def _rotated_within(self, seconds: float) -> bool:
        """Wait so long for the head to tell of other roots."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._rotated.wait()
        except TimeoutError:
            return False
        self._rotated.clear()
        return True

    def _opened(self) -> grpc.aio.Channel:
        return _channel(self._config, self._membership)

    @property
    def attached(self) -> bool:
        """Whether a stream is open."""
        return self._call is not None

    async def blob(self, sha256: str) -> AsyncIterator[bytes]:
        """A code snapshot by its content's name. Raises AioRpcError."""
        call = self._stub.GetBlob(pb.GetBlobRequest(sha256=sha256), metadata=self._metadata)
        async for response in call:
            yield response.data

    async def part(self, reason: str, for_good: bool) -> None:
        """Say goodbye, if somebody listens, and wait until they have hung up."""
        if self._call is None:
            return
        self._ended.clear()
        goodbye = pb.Goodbye(reason=reason, for_good=for_good)
        self._outbox.put_transient(pb.AttachRequest(goodbye=goodbye))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                await self._ended.wait()

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()


def _rpc_errors(
    errors: BaseExceptionGroup[grpc.aio.AioRpcError],
) -> Iterator[grpc.aio.AioRpcError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _rpc_errors(error)
        else:
            yield error


def _channel(
    config: NodeConfig, membership: Membership | None, known: bytes = b""
) -> grpc.aio.Channel:
    """`known` is the authority of the head, where only its token says it. Raises StateRefused,
    StateAway, PermissionError."""
    if membership is not None:
        options = [*_OPTIONS, *channel_options()]
        return grpc.aio.secure_channel(config.head, membership.credentials(), options=options)
    files = config.tls_files()
    if files is None and config.head.startswith("unix:"):
        return grpc.aio.insecure_channel(config.head, options=_OPTIONS)
    if files is None:
        options = [*_OPTIONS, *channel_options()]
        credentials = grpc.ssl_channel_credentials(known or None)
        return grpc.aio.secure_channel(config.head, credentials, options=options)
    credentials = grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)
    return grpc.aio.secure_channel(config.head, credentials, options=_OPTIONS)
