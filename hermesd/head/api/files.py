"""Files on nodes, relayed piece by piece: what a trial printed, its checkpoints, its working
copy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from hermesd.core.decide.explanation import crowded
from hermesd.core.fold.checkpoints import loadable
from hermesd.core.model import NodeId, Processes, TrialId, study_of
from hermesd.core.state import State
from hermesd.head.api import names, views
from hermesd.head.api.ranking import leaderboard
from hermesd.head.fleet.relay import Relay
from hermesd.head.fleet.session import NodeSession
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.loop import Head
from hermesd.head.refusals import NotFound, TooMuch, Unreachable
from hermesd.head.security.access import asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pieces import Pieces
from hermesd.refusal import FieldError, Refused

TAIL_BYTES = 8 * 1024
TAIL_SECONDS = 2.0
FOLLOW_SECONDS = 0.5
# A node compares each file of a working copy with each.
PATTERNS_LIMIT = 1_000
PATH_LENGTH = 4096


@dataclass(frozen=True)
class FilesService:
    """What nodes have of a trial: its output, its checkpoints, what it uses now."""

    head: Head
    sessions: NodeSessions
    relay: Relay

    async def GetTrial(self, request: pb.GetTrialRequest, context: Any) -> pb.GetTrialResponse:
        who, state = asker(), self.head.state
        trial_id = names.trial_id(state, request.trial, who)
        study_id = state.trials[trial_id].spec.study

        def ranked(state: State) -> Pieces[pb.Trial]:
            board = yield from leaderboard(state, names.there(state, study_id))
            view = views.ranked_view(state, state.trials[trial_id], board)
            view.shared_out_seconds = views.shared_out_seconds(state, state.trials[trial_id])
            return view

        view = await self.head.read(who.user, len(state.members[study_id]), ranked)
        if trial_id not in state.trials:
            raise NotFound(f"trial {trial_id} was removed just now")
        trial = state.trials[trial_id]
        response = pb.GetTrialResponse(trial=view, parked_memory=crowded(state, trial))
        node = state.node_of(trial)
        if node is not None and (session := self.sessions.find(node)):
            response.pids.extend(session.pids.get(trial.id, ()))
            devices = trial.run.devices if trial.run is not None else ()
            response.usage.extend(session.usage[d] for d in devices if d in session.usage)
        if trial.attempt:
            response.output_tail = await self._tail(trial.id)
        return response

    async def _tail(self, trial: TrialId) -> str:
        """The last of what a trial printed, as far as it can be had at once."""
        try:
            async with asyncio.timeout(TAIL_SECONDS):
                text = b""
                async for piece in self._log(trial, -TAIL_BYTES):
                    text = (text + piece.data)[-TAIL_BYTES:]
        except (TimeoutError, NotFound, Unreachable, TooMuch):
            return ""
        return text.decode(errors="replace")

    async def TailLogs(
        self, request: pb.TailLogsRequest, context: Any
    ) -> AsyncIterator[pb.TailLogsResponse]:
        trial = names.trial_id(self.head.state, request.trial, asker())
        self._check_rank(trial, request.rank)
        offset = request.offset
        while True:
            over = not request.follow or self._over(trial)
            pieces = self._log(trial, offset, follow=not over, rank=request.rank)
            try:
                async with aclosing(pieces):
                    async for piece in pieces:
                        if piece.data:
                            offset = piece.offset + len(piece.data)
                            yield pb.TailLogsResponse(data=piece.data, offset=piece.offset)
            except NotFound:  # a node that has a run to prepare has no output of it yet
                if over:
                    raise
            if over:
                return
            # The node's part ends when the trial is suspended; it may go on elsewhere.
            await asyncio.sleep(FOLLOW_SECONDS)

    def _over(self, trial: TrialId) -> bool:
        known = self.head.state.trials.get(trial)
        return known is None or known.phase.final

    def _check_rank(self, trial: TrialId, rank: int) -> None:
        """Raises Refused for one that no process of the trial can have."""
        study = self.head.state.studies[study_of(trial)]
        last = 0 if study.processes is Processes.ONE else study.widest - 1
        if not 0 <= rank <= last:
            expected = f"0 to {last}" if last else "0, as its trials have one process each"
            raise Refused(FieldError("rank", str(rank), expected))

    async def _log(
        self, trial: TrialId, offset: int, follow: bool = False, rank: int = 0
    ) -> AsyncGenerator[node_pb2.FileChunk, None]:
        """The log from an offset on, from the first node that has it; nothing before the first run.

        Raises NotFound and Unreachable.
        """
        if self.head.state.trials[trial].last_node is None:
            return
        log = node_pb2.LogRange(offset=offset, follow=follow, rank=rank)
        wanted = node_pb2.SendFile(trial=trial, log=log)
        async with aclosing(self._sent(trial, wanted, f"the output of {trial} lies")) as chunks:
            async for chunk in chunks:
                yield chunk

    async def GetFiles(
        self, request: pb.GetFilesRequest, context: Any
    ) -> AsyncIterator[pb.GetFilesResponse]:
        trial = names.trial_id(self.head.state, request.trial, asker())
        if self.head.state.trials[trial].last_node is None:
            raise NotFound(f"{trial} has not run yet: it has no files")
        if len(request.patterns) > PATTERNS_LIMIT or any(map(_is_long, request.patterns)):
            value = f"{len(request.patterns):,} paths"
            expected = f"at most {PATTERNS_LIMIT:,}, each of up to {PATH_LENGTH} characters"
            raise Refused(FieldError("patterns", value, expected))
        files = node_pb2.WorkFiles(
            patterns=request.patterns,
            names_only=request.names_only,
            written_only=request.written_only,
        )
        wanted = node_pb2.SendFile(trial=trial, work=files)
        async with aclosing(self._sent(trial, wanted, f"the files of {trial} lie")) as chunks:
            async for chunk in chunks:
                if chunk.name:  # the end of all has none
                    yield pb.GetFilesResponse(
                        name=chunk.name,
                        offset=chunk.offset,
                        data=chunk.data,
                        size_bytes=chunk.size_bytes,
                        modified_unix_seconds=chunk.modified_unix_seconds,
                    )

    async def _sent(
        self, trial: TrialId, wanted: node_pb2.SendFile, what: str
    ) -> AsyncGenerator[node_pb2.FileChunk, None]:
        """What the first node sends that has it. Raises NotFound and Unreachable."""
        last = self.head.state.trials[trial].last_node
        missing: Exception = Unreachable(f"{what} on node {last}, which is not attached")
        for session in self._holders(trial):
            try:
                with self.relay.ask(session, wanted) as ticket:
                    async for chunk in ticket.chunks():
                        yield chunk
                return
            except NotFound as reason:
                missing = reason if session.node == last else missing
        raise missing

    def _holders(self, trial: TrialId) -> list[NodeSession]:
        """The attached nodes that may have the trial's files, those that most likely do first: none
        of a pool where it cannot have been, whose answer would be somebody else's word."""
        state = self.head.state
        likely, pool = nodes_of(state, trial), state.studies[study_of(trial)].pool
        attached = [session for node in likely if (session := self.sessions.find(node))]
        return attached + [
            session
            for session in self.sessions.all()
            if session.node not in likely and state.nodes[session.node].pool == pool
        ]

    async def DownloadCheckpoint(
        self, request: pb.DownloadCheckpointRequest, context: Any
    ) -> AsyncIterator[pb.DownloadCheckpointResponse]:
        state = self.head.state
        trial = state.trials[names.trial_id(state, request.trial, asker())]
        newest = loadable(trial)
        name = request.checkpoint or (newest.id if newest else "")
        if not name:
            raise NotFound(f"{trial.id} has no checkpoint: {trial.fidelity_reason or 'none yet'}")
        nodes = newest.nodes if newest and newest.id == name else nodes_of(state, trial.id)
        session = next((s for node in nodes if (s := self.sessions.find(node))), None)
        if session is None:
            raise Unreachable(f"no node that has checkpoint {name} is attached")
        wanted = node_pb2.SendFile(trial=trial.id, checkpoint=name)
        with self.relay.ask(session, wanted) as ticket:
            async for chunk in ticket.chunks():
                yield pb.DownloadCheckpointResponse(
                    name=chunk.name, offset=chunk.offset, data=chunk.data
                )


def _is_long(path: str) -> bool:
    return len(path) > PATH_LENGTH


def nodes_of(state: State, trial_id: TrialId) -> list[NodeId]:
    """The nodes that a trial was on, as far as the state knows, the last one first."""
    trial = state.trials[trial_id]
    devices = [failure.device for failure in reversed(trial.failures)]
    nodes = [trial.last_node] if trial.last_node is not None else []
    nodes += [state.slots[device].device.node for device in devices if device in state.slots]
    nodes += trial.checkpoint.nodes if trial.checkpoint else ()
    return list(dict.fromkeys(nodes))
