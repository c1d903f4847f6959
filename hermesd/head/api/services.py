"""ControlService, put together from its parts: studies, trials, users, nodes, watching, files."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import hermesd
from hermesd.core.model import Time
from hermesd.core.placement import PLACEMENTS
from hermesd.head.loop import Head
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from hermesd.policy import POLICIES

_SERVICE = pb.DESCRIPTOR.services_by_name["ControlService"]


def control_service(*parts: object) -> control_pb2_grpc.ControlServiceServicer:
    """The servicer: each method is that of the one part that has it."""
    methods = {}
    for method in _SERVICE.methods:
        (part,) = (part for part in parts if hasattr(part, method.name))
        methods[method.name] = getattr(part, method.name)
    return cast(control_pb2_grpc.ControlServiceServicer, SimpleNamespace(**methods))


@dataclass(frozen=True)
class HeadService:
    """What is asked of the head itself."""

    head: Head
    cluster_id: str
    started: Time

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
