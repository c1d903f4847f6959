"""ControlService, put together from its parts: studies, trials, users, nodes, watching, files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hermesd
from hermesd.core.model import NodeId, StudyId, Time
from hermesd.core.placement import PLACEMENTS
from hermesd.head.api.files import FilesService
from hermesd.head.api.nodes import NodesService
from hermesd.head.api.studies import StudiesService
from hermesd.head.api.trials import TrialsService
from hermesd.head.api.users import UsersService
from hermesd.head.api.watch import WatchService
from hermesd.head.blobs import Blobs
from hermesd.head.fleet.relay import Relay
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.fleet.stale_state import StaleState
from hermesd.head.loop import Head
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from hermesd.policy import POLICIES


class ControlService(
    StudiesService,
    TrialsService,
    UsersService,
    NodesService,
    WatchService,
    FilesService,
    control_pb2_grpc.ControlServiceServicer,
):
    """The servicer. Reads are answered from the state; changes go through the loop."""

    def __init__(
        self,
        head: Head,
        sessions: NodeSessions,
        relay: Relay,
        blobs: Blobs,
        cluster_id: str,
        taken: dict[StudyId, str],
        owners: dict[StudyId, str],
        revoke: Callable[[NodeId], object],
        setback: StaleState,
    ) -> None:
        self.head = head
        self.sessions = sessions
        self.relay = relay
        self.blobs = blobs
        self.cluster_id = cluster_id
        self.taken = taken
        self.owners = owners
        self.revoke = revoke
        self.page_turn = asyncio.Lock()
        self.setback = setback
        self.started: Time = head.clock()

    async def ServerInfo(
        self, request: pb.ServerInfoRequest, context: Any
    ) -> pb.ServerInfoResponse:
        return pb.ServerInfoResponse(
            version=hermesd.__version__,
            cluster_id=self.cluster_id,
            started_unix_seconds=self.started,
            policies=sorted(POLICIES),
            placements=sorted(PLACEMENTS),
            read_only=bool(self.head.fault),
            read_only_reason=self.head.fault,
            journal_sequence=self.head.committed,
        )
