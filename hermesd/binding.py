"""A gRPC server bound to an address, with the system's own reason where that fails.

gRPC tells its reason to its log alone, and its caller that it "failed to bind".
"""

from __future__ import annotations

import errno
import os
import resource
import socket

import grpc

SOCKET_PATH_BYTES_MAX = 107
# Of what a process may have open, a port's connections have no more than a part: however many come,
# the other ports, the journal and the logs have what they need.
CONNECTIONS_PART = 4
FEWEST_CONNECTIONS = 16


def most_connections() -> int:
    """How many connections a port may have."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = 65_536 if most == resource.RLIM_INFINITY else most // CONNECTIONS_PART
    return max(FEWEST_CONNECTIONS, connections)


def connection_options() -> list[tuple[str, int]]:
    """What a server needs for that; each of its ports counts for itself."""
    return [("grpc.max_allowed_incoming_connections", most_connections())]


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Have the server listen at HOST:PORT or unix:PATH, where nothing may be; its port.

    Raises OSError.
    """
    _try(address)
    try:
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:  # of what came to be since, if not of `credentials`
        raise OSError(None, str(error)) from None


def _try(address: str) -> None:
    """Listen there, and no more."""
    if address.startswith("unix:"):
        _try_socket(address.removeprefix("unix:"))
        return
    host, _, port = address.rpartition(":")
    failed: OSError | None = None
    for family, kind, protocol, _, where in socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
                probe.listen()
                return  # gRPC is content with one of those that a name stands for
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def see_that_it_fits(path: str) -> None:
    """Raises OSError for a path that is too long for a socket's."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        words = f"a socket's path has no more than {SOCKET_PATH_BYTES_MAX} bytes"
        raise OSError(errno.ENAMETOOLONG, words, path)


def _try_socket(path: str) -> None:
    see_that_it_fits(path)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        os.unlink(path)
