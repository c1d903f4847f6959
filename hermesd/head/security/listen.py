"""Where the head listens: on a Unix socket always, on TCP if told to, and never without
protection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import grpc

from hermesd.binding import bind, connection_options, see_that_it_fits
from hermesd.config.schema import HeadConfig
from hermesd.crowd import Crowd
from hermesd.head.security.audit import Audit
from hermesd.head.security.authority import Authority
from hermesd.head.security.guard import Guard, token
from hermesd.head.security.tokens import Tokens
from hermesd.head.statedir import StateBusy, StateRefused
from hermesd.logs import get_logger
from hermesd.security import pem
from hermesd.security.identity import Role

# Measured: keepalive alone takes a minute to see a stopped peer unless ping_timeout is set, and
# so_reuseport would let a second server take the port, or the socket, without a word.
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
    # Who connects and says nothing is let go; grpc's own patience is two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # More than one person may have open; what is more waits at the client.
    ("grpc.max_concurrent_streams", 256),
)
# Where nobody is known yet: an enrollment is a few hundred bytes, and takes milliseconds.
RECEPTION_OPTIONS: Sequence[tuple[str, int]] = (
    *OPTIONS,
    ("grpc.max_receive_message_length", 16 * 1024),
    ("grpc.max_metadata_size", 8 * 1024),
    # Nobody has anything to wait for here, and an answer that does not come is asked for again.
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.max_connection_age_ms", 20_000),
    ("grpc.max_connection_age_grace_ms", 5_000),
)
RECEPTION_CALLS = 64
SOCKET_CHECK_SECONDS = 1.0

log = get_logger()


def loopback(address: str, called: str = "") -> bool:
    """Whether every address that host:port stands for is this machine's own. Raises StateRefused
    with what the address is `called`, if that is more than head.listen."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise StateRefused(f"{called or f'head.listen = {address}'}: {error.strerror}") from None
    return bool(found) and all(ipaddress.ip_address(one).is_loopback for one in found)


def reached_at(listen: str) -> str:
    """Where other machines reach what listens on host:port. For all addresses of this machine that
    is the one by which it speaks to others itself, or its name where there is none."""
    host, _, port = listen.rpartition(":")
    try:
        every = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return listen
    if not every:
        return listen
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", int(port)))  # RFC 5737: nobody's; nothing is sent
            return f"{probe.getsockname()[0]}:{port}"
        except OSError:
            return f"{socket.gethostname()}:{port}"


async def make_server(
    config: HeadConfig,
    authority: Authority | None,
    audit: Audit | None = None,
    people: Tokens | None = None,
    crowd: Crowd | None = None,
) -> grpc.aio.Server:
    """A server bound to everything that is configured; services are still to be added.

    `authority` is the head's own, if it has no certificates from elsewhere; `audit` gets what is
    done, `people` has the tokens that were made for them, `crowd` hears by which connections they
    call. Raises StateRefused for TCP without tokens and for an address beyond loopback without TLS,
    before anything is bound, and StateBusy for a socket at which another head answers, before that
    is touched.
    """
    _see_that_nobody_answers(config)
    tokens = _tokens(config, authority)
    if config.listen and tokens is None:
        raise StateRefused(
            f"{config.told('listen')}: an embedded head asks nobody for a token, and any"
            " user of this machine could reach it there: leave out listen, or embedded"
        )
    # Certificates are for other machines; on this one, a token will do.
    members = authority if config.enroll_address else None
    encrypted = config.tls or members is not None
    if config.listen and not encrypted and not loopback(config.listen, config.told("listen")):
        raise StateRefused(
            f"{config.told('listen')} can be reached from other machines: set enroll, or"
            " tls_certificate, tls_key and tls_ca, or listen on 127.0.0.1"
        )
    server = grpc.aio.server(
        options=[*OPTIONS, *connection_options()],
        interceptors=[Guard(tokens, members, audit, people, crowd)],
    )
    try:
        if config.listen:
            credentials = _credentials(config, authority)
            with _listening(config, "listen"):
                bind(server, config.listen, credentials)
        _bind_socket(server, config)
    except BaseException:
        await server.stop(None)
        raise
    return server


async def make_enroll_server(
    config: HeadConfig, address: str, authority: Authority, audit: Audit | None
) -> grpc.aio.Server:
    """A server where invitations are redeemed, by those who have no certificate yet."""
    server = grpc.aio.server(
        options=[*RECEPTION_OPTIONS, *connection_options()],
        interceptors=[Guard({}, audit=audit)],
        maximum_concurrent_rpcs=RECEPTION_CALLS,
    )
    credentials = pem.server_credentials(authority.server_files, members_only=False)
    try:
        with _listening(config, "enroll"):
            bind(server, address, credentials)
    except BaseException:
        await server.stop(None)
        raise
    return server


def _tokens(config: HeadConfig, authority: Authority | None) -> Mapping[Role, str] | None:
    if config.embedded:
        return None
    known = authority.roots_pem if authority is not None else b""
    return {
        Role.ADMIN: token(config.state_dir / "token", known),
        Role.NODE: token(config.state_dir / "node-token", known),
    }


def _see_that_nobody_answers(config: HeadConfig) -> None:
    """The socket may be named by the settings of a head with another state directory, too.

    Raises StateBusy if that one lives, StateRefused for what cannot be a dead head's socket.
    """
    path = config.socket_path
    with _socket(config):
        see_that_it_fits(str(path))
        if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
            words = "something other than a socket is there already"
            raise FileExistsError(errno.EEXIST, words, str(path))
        if not _answers(path):
            return
    raise StateBusy(
        f"another head answers at {path}: end that one, or name another socket (and another"
        " listen) for this one"
    )


def _answers(path: Path) -> bool:
    """Whether somebody listens at a socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except BlockingIOError:
            return True  # somebody listens, and is too busy to answer
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
    return True


def _socket(config: HeadConfig) -> AbstractContextManager[None]:
    return config.taking(
        "socket", "the path of a socket, new or of a dead head", "name another head.socket"
    )


def _listening(config: HeadConfig, key: str) -> AbstractContextManager[None]:
    expected = "an address of this machine with a port that is free"
    return config.taking(key, expected, f"end what listens there, or name another head.{key}")


def _bind_socket(server: grpc.aio.Server, config: HeadConfig) -> None:
    """A socket that is there is a dead head's: nobody answered."""
    path: Path = config.socket_path
    path.unlink(missing_ok=True)
    # From the first moment on: only the owner, or the group too for a system head.
    before = os.umask(0o177 if config.embedded else 0o117)
    try:
        with _socket(config):
            bind(server, f"unix:{path}", None)
    finally:
        os.umask(before)


def second_name(path: Path) -> Path:
    """A second name of the socket, by which it can be had back; none on a disk without links."""
    spare = path.with_name(f".{path.name}.kept")
    spare.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.link(path, spare)
    return spare


async def keep_socket(path: Path, spare: Path) -> None:
    """See, until cancelled, that the socket has its name: whoever removes it, a cleaner of old
    files for example, would have the head run on where nobody finds it.

    Where its second name is gone too, what to do is logged.
    """
    told = False
    try:
        while True:
            await asyncio.sleep(SOCKET_CHECK_SECONDS)
            if os.path.lexists(path):
                told = False
                continue
            try:
                os.link(spare, path)
                log.warning("the socket was removed, and is there again", socket=str(path))
            except OSError:
                if not told:
                    log.error(
                        "the socket was removed, and cannot be made again: restart the head; trials"
                        " run on meanwhile",
                        socket=str(path),
                    )
                told = True
    finally:
        spare.unlink(missing_ok=True)


def _credentials(config: HeadConfig, authority: Authority | None) -> grpc.ServerCredentials:
    """For the TCP port. Raises StateRefused for damaged files."""
    if authority is not None:
        members_only = config.enroll_address is not None
        return pem.server_credentials(authority.server_files, members_only)
    files = config.tls_files()
    assert files is not None
    return pem.server_credentials(lambda: config.tls_files() or files, members_only=True)
