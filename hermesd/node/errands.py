"""What the head asks for on a client's behalf: files of trials, sent while their stream lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from hermesd.core.model import TrialId
from hermesd.node import files
from hermesd.node.folder import BadTrial, TrialFolder
from hermesd.node.outbox import Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb

log = structlog.get_logger()


class Errands:
    """Files on their way, by ticket. `ended` says whether a trial has no process here."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        outbox: Outbox,
        folder: Callable[[TrialId], TrialFolder],
        ended: Callable[[TrialId], bool],
    ) -> None:
        self._tasks = tasks
        self._outbox = outbox
        self._folder = folder
        self._ended = ended
        self._sending: dict[int, asyncio.Task[None]] = {}

    def take(self, request: pb.SendFile) -> None:
        """Begin to send what is asked for, or end what is being sent."""
        if request.cancel:
            if task := self._sending.get(request.ticket):
                task.cancel()
            return
        task = self._tasks.create_task(self._send(request))
        self._sending[request.ticket] = task
        task.add_done_callback(lambda _: self._sending.pop(request.ticket, None))

    def drop(self) -> None:
        """The stream is over, and nobody knows its tickets any more."""
        for task in self._sending.values():
            task.cancel()

    async def _send(self, request: pb.SendFile) -> None:
        try:
            folder = self._folder(request.trial)
        except BadTrial as error:
            await self._offer(pb.FileChunk(ticket=request.ticket, last=True, error=str(error)))
            return
        try:
            async for chunk in files.chunks(request, folder, lambda: self._ended(request.trial)):
                await self._offer(chunk)
        except Exception as error:  # it costs whoever asked, and nobody else
            log.error("not sent", trial=request.trial, exc_info=error)
            why = "the node could not read it; its log says why"
            await self._offer(pb.FileChunk(ticket=request.ticket, last=True, error=why))

    async def _offer(self, chunk: pb.FileChunk) -> None:
        await self._outbox.offer(pb.AttachRequest(file_chunk=chunk))
