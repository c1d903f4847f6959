"""What this node has files of, said to the head after each Welcome, so that nothing is left over.

A word to forget a trial is lost if the stream breaks just then; the head says it again for what it
hears of here. A head whose state is an older copy sees here what it has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from hermesd.node.outbox import Outbox
from hermesd.node.storage.checkpoints import furthest
from hermesd.node.storage.trial_folder import TrialFolders
from hermesd.pb.hermes.v1 import node_pb2 as pb

_PIECE = 500

log = structlog.get_logger()


async def tell_holdings(folders: TrialFolders, outbox: Outbox) -> None:
    """Say all of it, in pieces that give way to everything else."""
    try:
        held = await asyncio.to_thread(lambda: list(_held(folders)))
    except OSError as error:
        log.warning("not said what is held", error=str(error))
        return
    for at in range(0, len(held), _PIECE):
        piece = pb.Holdings(trials=held[at : at + _PIECE])
        await outbox.offer(pb.AttachRequest(holdings=piece))


def _held(folders: TrialFolders) -> Iterator[pb.Holding]:
    for folder in folders.all():
        step, attempt = furthest(folder.checkpoints)
        yield pb.Holding(
            trial=folder.trial,
            identity=folder.identity,
            checkpoint_step=step,
            checkpoint_attempt=attempt,
        )
