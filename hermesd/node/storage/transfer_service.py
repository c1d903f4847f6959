"""Gives checkpoints to other nodes, at a port of this node that accepts only the head's tickets,
each from the node for which it was made. (A socket is for daemons of this machine; its directory
lets in no others.)

At most two files are sent at a time, in pieces of a quarter of a MiB, and never through the head.
If a file is missing or damaged, the checkpoint is examined at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import grpc
from cryptography import x509

from hermesd.binding import bind, connection_options, most_connections
from hermesd.config.schema import NodeConfig
from hermesd.core.model import CheckpointId, TrialId
from hermesd.crowd import Crowd
from hermesd.logs import get_logger
from hermesd.node.clock import boottime
from hermesd.node.machine import accounts
from hermesd.node.storage import checkpoints, client_files
from hermesd.node.storage.shared_directory import Shared
from hermesd.node.storage.trial_folder import BadTrial, TrialFolders
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from hermesd.pb.hermes.v1 import transfer_pb2_grpc
from hermesd.security import pem, ticket
from hermesd.security.identity import Identity, Role

AT_ONCE = 2
# For a piece to be taken: who asks for a file and does not read it must not keep its turn either.
PATIENCE_SECONDS = 120.0
# Each side asks now and then whether anybody is still there: who is gone in the middle of a file
# must not keep its turn.
_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
]

log = get_logger()


class Doubter(Protocol):
    """Who looks whether a checkpoint of this node is still what it was."""

    async def doubt(self, trial: TrialId, name: CheckpointId) -> None: ...


class TransferService(transfer_pb2_grpc.TransferServiceServicer):
    """The servicer and its server.

    The `doubter` looks at a checkpoint that another node did not get.
    """

    def __init__(
        self,
        folders: TrialFolders,
        doubter: Doubter,
        shared: Shared | None = None,
    ) -> None:
        self.key = ticket.new_key()
        #: Where it serves, once it is started.
        self.address = ""
        self._folders = folders
        self._shared = shared
        self._doubter = doubter
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._server: grpc.aio.Server | None = None
        self._crowd = Crowd(most_connections())
        self._open = ExitStack()
        # Whether callers have certificates.
        self._certified = False

    async def start(self, config: NodeConfig) -> None:
        """Serve where the settings say. Raises StateRefused if that is not to be had."""
        self._server = server = grpc.aio.server(options=[*_OPTIONS, *connection_options()])
        transfer_pb2_grpc.add_TransferServiceServicer_to_server(self, server)
        membership = config.membership
        if membership is None:
            if config.transfer:
                log.warning(
                    "transfer has no effect before this node has joined its head",
                    transfer=config.transfer,
                    expected="`hermesd node join` first; until then a socket for this machine",
                )
            path = config.runtime_path / "transfer.sock"
            self.address = f"unix:{path}"
            remedy = "set node.runtime_dir to another directory"
            with config.taking("runtime_dir", "a directory with room for sockets", remedy):
                path.unlink(missing_ok=True)
                bind(server, self.address, None)
        else:
            credentials = membership.server_credentials()
            remedy = "end what listens there, or set node.transfer to another address"
            expected = "an address of this machine with a port that is free"
            with config.taking("transfer", expected, remedy):
                address = config.transfer or f"{_own_address(config.head)}:0"
                host, _, port = address.rpartition(":")
                self.address = f"{host}:{bind(server, f'{host}:{port}', credentials)}"
            self._certified = True
        await server.start()
        self._open.enter_context(self._crowd.watched(self.address))

    async def stop(self) -> None:
        """Serve no more."""
        if self._server is not None:
            await self._server.stop(None)
        self._open.close()

    async def Fetch(  # type: ignore[override]  # a handler may write instead of yielding
        self, request: pb.FetchRequest, context: Any
    ) -> None:
        await self._let_in(request, context)
        try:
            file, home = await asyncio.to_thread(self._lent, request)
            # Else gRPC sends it with the first piece, and again with the end of a call whose first
            # piece nobody took: it refuses that, and such a caller would never hear of the end.
            await context.send_initial_metadata(())
            async with self._turns:
                async for data in client_files.rest(file, request.offset, home):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await context.write(pb.FetchResponse(data=data))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "nobody reads what was asked")
        except (OSError, BadTrial, ValueError) as error:  # the last of a name with a NUL
            await self._doubter.doubt(request.trial, request.checkpoint)
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    async def Doubt(self, request: pb.DoubtRequest, context: Any) -> pb.DoubtResponse:
        await self._let_in(request, context)
        async with self._turns:
            await self._doubter.doubt(request.trial, request.checkpoint)
        return pb.DoubtResponse()

    async def _let_in(self, request: pb.FetchRequest | pb.DoubtRequest, context: Any) -> None:
        """Refuse who has no ticket for the checkpoint, or one that another node got."""
        wanted = request.trial, request.checkpoint
        bearer = ticket.bearer_of(request.ticket, self.key, *wanted, boottime())
        if bearer is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not a ticket for this")
            raise AssertionError("an abort raises")
        if self._certified:
            [shown] = context.auth_context()["x509_pem_cert"]
            who = pem.identity(x509.load_pem_x509_certificate(shown))
            if who != Identity(Role.NODE, bearer):
                words = f"the ticket was made for node {bearer}"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, words)
        self._crowd.called(bearer, context.peer())

    def _lent(self, request: pb.FetchRequest) -> tuple[Path, Path]:
        """The file that is asked for, of a checkpoint that stays for now, and whose owner may read
        it. Blocks, for as long as a server of shared files likes. Raises BadTrial,
        FileNotFoundError."""
        folder = self._folders.of(request.trial)
        home = folder.path
        try:
            directory = folder.as_owner(client_files.checkpoint, folder, request.checkpoint)
        except FileNotFoundError:
            if self._shared is None:
                raise
            home = directory = self._shared.where(
                request.trial, request.identity, request.checkpoint
            )
        file = accounts.owned(home, client_files.within, directory, request.file)
        with contextlib.suppress(OSError):  # a full disk gives what it has all the same
            accounts.owned(home, checkpoints.lend, directory)
        return file, home


def _own_address(head: str) -> str:
    """This machine's address on the way to the head: the one by which its like reach it, too."""
    host, _, port = head.rpartition(":")
    family, kind, _, _, address = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # of a datagram socket: nothing is sent
        own = str(probe.getsockname()[0])
    return f"[{own}]" if ":" in own else own
