"""Fetches a checkpoint from another node before its trial goes on here.

The files count as a checkpoint only if all of them match its manifest, and the manifest is the one
that the head knows. A transfer that broke off is continued. If a node does not send, the next one
that has the checkpoint is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import grpc

from hermesd.core.bounds import directory_of
from hermesd.core.model import Checkpoint, NodeId
from hermesd.core.node.messages import CheckpointSource
from hermesd.logs import get_logger
from hermesd.node import deep_trees
from hermesd.node.clock import boottime
from hermesd.node.machine.accounts import as_owner, owned
from hermesd.node.storage import checkpoints
from hermesd.node.storage.checkpoints import MANIFEST, MANIFEST_LIMIT_BYTES, DamagedCheckpoint
from hermesd.node.storage.shared_directory import Shared, SharedAway
from hermesd.node.storage.transfer_service import AT_ONCE, PATIENCE_SECONDS
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from hermesd.pb.hermes.v1 import transfer_pb2_grpc
from hermesd.security.enrollment import Membership, channel_options
from hermesd.security.identity import server_name

TRIES = 3
_PAUSE_SECONDS = 1.0
# Who has not begun by then, or sends less than so much in `PATIENCE_SECONDS`, has the turn of
# others and is given up; what gives other files first comes later, by another try.
BEGIN_SECONDS = 120.0
PACE_BYTES = 1 << 20
# For so long others are asked before who was given up.
STALLED_SECONDS = 600.0
# A node that says nothing any more, or was never reached, is given up: others can be asked.
_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.min_reconnect_backoff_ms", 5_000),
]

log = get_logger()


class NotFetched(Exception):
    """No node that has the checkpoint gave it; says why, and whether it was the `way` alone."""

    def __init__(self, reason: str, way: bool) -> None:
        super().__init__(reason)
        self.way = way


class TransferStalled(Exception):
    """A node does not give what it was asked for, or not fast enough."""


class Fetching:
    """What is brought here, at most two checkpoints at a time, for one trial one at a time."""

    def __init__(self, membership: Membership | None, shared: Shared | None = None) -> None:
        self._membership = membership
        self._shared = shared
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._stalled_at: dict[NodeId, float] = {}
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    def lock(self, folder: Path) -> asyncio.Lock:
        """Who holds it may change what lies in this folder of checkpoints."""
        return self._locks.setdefault(folder, asyncio.Lock())

    async def bring(
        self,
        checkpoint: Checkpoint,
        sources: Sequence[CheckpointSource],
        folder: Path,
        identity: str = "",
    ) -> None:
        """See the checkpoint below `folder`: out of the directory that is shared, else from a
        source, if any is named. `identity` is the study's. Raises NotFetched, OSError."""
        lock = self.lock(folder)
        async with lock:
            await self.fetch(checkpoint, sources, folder, identity)

    async def fetch(
        self,
        checkpoint: Checkpoint,
        sources: Sequence[CheckpointSource],
        folder: Path,
        identity: str = "",
    ) -> bool:
        """The same for who holds the lock; whether it is there. Raises NotFetched, OSError."""
        name = directory_of(checkpoint.id)
        if name is None:
            raise NotFetched(
                f"{checkpoint.id[:80]!r} names no directory of a checkpoint", way=False
            )
        # The folder is a trial's own.
        home = folder.parent
        if owned(home, (folder / name / MANIFEST).exists):
            return True
        reasons, way = [], True
        if self._shared is not None:
            try:
                if await asyncio.to_thread(self._shared.take, checkpoint, identity, folder):
                    log.info("checkpoint taken from the shared directory", checkpoint=checkpoint.id)
                    return True
            except SharedAway as error:
                reasons.append(str(error))
        sources = [source for source in sources if not _is_elsewhere(source)]
        if not sources and not reasons:
            return False
        async with self._turns:
            for source in sorted(sources, key=self._stalled_lately):
                if not source.address:
                    reasons.append(f"{source.node} is away")
                    continue
                try:
                    await _from(source, checkpoint, folder / name, identity, self._membership)
                except grpc.aio.AioRpcError as error:
                    way = way and error.code() is grpc.StatusCode.UNAVAILABLE
                    reasons.append(f"{source.node} at {source.address}: {error.details()}")
                except TransferStalled as error:
                    self._stalled_at[source.node] = boottime()
                    log.warning("a node stalls", node=source.node, reason=str(error))
                    reasons.append(f"{source.node} at {source.address}: {error}")
                except DamagedCheckpoint as error:
                    way = False
                    await _doubt(source, checkpoint, self._membership)
                    reasons.append(f"{source.node} at {source.address}: {error}")
                else:
                    log.info("checkpoint fetched", checkpoint=checkpoint.id, node=source.node)
                    return True
        reason = f"checkpoint {checkpoint.id} could not be had: {'; '.join(reasons)}"
        raise NotFetched(reason, way)

    def _stalled_lately(self, source: CheckpointSource) -> bool:
        at = self._stalled_at.get(source.node)
        return at is not None and boottime() - at < STALLED_SECONDS


def _is_elsewhere(source: CheckpointSource) -> bool:
    """Whether it gives by a socket of another machine only: to wait for it would be for ever."""
    socket = source.address.removeprefix("unix:")
    elsewhere = socket != source.address and not Path(socket).exists()
    if elsewhere:
        log.error("a node that has not joined gives to its own machine only", node=source.node)
    return elsewhere


async def _from(
    source: CheckpointSource,
    checkpoint: Checkpoint,
    target: Path,
    identity: str,
    membership: Membership | None,
) -> None:
    """Bring it as the directory `target`. Nothing is asked for that its manifest does not name, nor
    more of it, and nothing at all by a manifest that is not the one the head knows."""
    partial = target.with_name(f"{target.name}.fetched.partial")
    home = target.parents[1]
    owned(home, partial.mkdir, parents=True, exist_ok=True)
    async with _channel(source, membership) as channel:
        stub = transfer_pb2_grpc.TransferServiceStub(channel)
        wanted = pb.FetchRequest(
            trial=checkpoint.trial,
            checkpoint=checkpoint.id,
            ticket=source.ticket,
            identity=identity,
        )
        try:
            async with asyncio.timeout(BEGIN_SECONDS) as patience:
                pace = _Pace(patience)
                await _files(stub, wanted, partial, checkpoint.sha256, pace)
            await asyncio.to_thread(owned, home, checkpoints.verified, partial)
        except TimeoutError:
            raise TransferStalled(str(pace)) from None
        except DamagedCheckpoint:
            owned(home, deep_trees.remove, partial)
            raise
    owned(home, os.rename, partial, target)


class _Pace:
    """The time that who gives a checkpoint has, all its files together: it is up unless one of them
    begins, and then unless as much as it takes has come since."""

    def __init__(self, patience: asyncio.Timeout) -> None:
        self._patience = patience
        self._begun = False
        self._came = 0

    def come(self, size_bytes: int) -> None:
        """So much has come."""
        self._came += size_bytes
        if not self._begun or self._came >= PACE_BYTES:
            self._begun, self._came = True, 0
            self._patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_SECONDS)

    def __str__(self) -> str:
        if self._begun:
            return f"less than {PACE_BYTES} bytes came in {PATIENCE_SECONDS:g} s"
        return f"nothing came in {BEGIN_SECONDS:g} s"


async def _files(
    stub: transfer_pb2_grpc.TransferServiceAsyncStub,
    wanted: pb.FetchRequest,
    partial: Path,
    sha256: str,
    pace: _Pace,
) -> None:
    """Bring the manifest, and what it names. Raises DamagedCheckpoint, AioRpcError, OSError."""
    home = partial.parents[1]
    manifest = partial / MANIFEST
    owned(home, manifest.unlink, missing_ok=True)
    await _file(stub, wanted, MANIFEST, manifest, MANIFEST_LIMIT_BYTES, pace, home)
    files = owned(home, checkpoints.promised, partial, sha256)
    owned(home, _see_room, partial, files.values())
    for name, size in sorted(files.items()):
        file = partial / name
        with as_owner(home):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()  # of one that is empty nothing comes
        await _file(stub, wanted, name, file, size, pace, home)


def _see_room(partial: Path, sizes: Iterable[int]) -> None:
    """See that there is room for all that is still to come. Raises OSError."""
    here = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    if sum(sizes) - here > shutil.disk_usage(partial).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial))


async def _doubt(
    source: CheckpointSource, checkpoint: Checkpoint, membership: Membership | None
) -> None:
    """Have the node look at what it gave; if it cannot be reached now, another try will."""
    request = pb.DoubtRequest(
        trial=checkpoint.trial, checkpoint=checkpoint.id, ticket=source.ticket
    )
    async with _channel(source, membership) as channel:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await transfer_pb2_grpc.TransferServiceStub(channel).Doubt(
                request, timeout=BEGIN_SECONDS
            )


async def _file(
    stub: transfer_pb2_grpc.TransferServiceAsyncStub,
    wanted: pb.FetchRequest,
    name: str,
    target: Path,
    limit_bytes: int,
    pace: _Pace,
    home: Path,
) -> None:
    """Bring one file, going on where an earlier try was cut off, as the owner of `home` may write.

    Raises DamagedCheckpoint, AioRpcError.
    """
    request = pb.FetchRequest()
    request.CopyFrom(wanted)
    request.file = name
    left = TRIES
    while True:
        request.offset = begun = _size(target)
        try:
            async for piece in stub.Fetch(request):
                await asyncio.to_thread(owned, home, _append, target, piece.data, limit_bytes)
                pace.come(len(piece.data))
            return
        except grpc.aio.AioRpcError as error:
            left = TRIES if _size(target) > begun else left - 1
            if error.code() is not grpc.StatusCode.UNAVAILABLE or not left:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def _append(target: Path, data: bytes, limit_bytes: int) -> None:
    with open(target, "ab") as file:
        if file.tell() + len(data) > limit_bytes:
            raise DamagedCheckpoint(f"{target.name} is longer than {limit_bytes} bytes")
        file.write(data)


def _size(target: Path) -> int:
    return target.stat().st_size if target.exists() else 0


def _channel(source: CheckpointSource, membership: Membership | None) -> grpc.aio.Channel:
    if membership is None:
        return grpc.aio.insecure_channel(source.address, options=_OPTIONS)
    options = [*_OPTIONS, *channel_options(server_name(source.node))]
    return grpc.aio.secure_channel(source.address, membership.credentials(), options=options)
