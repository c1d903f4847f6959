"""What callers did and were refused, for admins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hermesd.core.model import Time
from hermesd.head.api import paging
from hermesd.head.journal.store import Journal
from hermesd.pb.hermes.v1 import control_pb2 as pb

_BEYOND_ALL = 2**62


@dataclass(frozen=True)
class AuditService:
    """What is asked of the audit; `now` is the head's clock."""

    journal: Journal
    now: Callable[[], Time]

    async def ListAudit(self, request: pb.ListAuditRequest, context: Any) -> pb.ListAuditResponse:
        size = paging.entries(request.page_size)
        found = await self.journal.audit(
            paging.place(request.page_token) or _BEYOND_ALL,
            size,
            self.now() - request.within_seconds if request.within_seconds else 0.0,
            request.name,
            request.refusals_only,
        )
        return pb.ListAuditResponse(
            entries=[pb.AuditEntry(**asdict(entry)) for entry in found],
            next_page_token=str(found[-1].number) if len(found) == size else "",
        )
