"""Whether this head has been set back: its state is an older copy, and nodes have heard of more.

Rule: each lease tells how far the journal is. A node that has heard an earlier head speak of more
than this one began with knows of launches that this one does not; those may run on until every
lease is out, and so long none of their trials is launched. Only evidence sets anything back, once.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import structlog

from hermesd.core.model import Time
from hermesd.core.scheduler import Scheduler
from hermesd.enrolment import write_private
from hermesd.pb.hermes.v1 import node_pb2 as pb

log = structlog.get_logger()


class Setback:
    """What this head knows of those before it. `begun` is the number of the last entry at its
    start, `silent_until` when the last run has ended that may then have been under way; `path` is
    a file in which that outlives a restart."""

    def __init__(
        self, path: Path, scheduler: Scheduler, begun: int, silent_until: Time, now: Time
    ) -> None:
        self.head = secrets.token_hex(8)
        self._path = path
        self._scheduler = scheduler
        self._begun = begun
        self._silent_until = silent_until
        self._noted = False
        if path.exists() and (until := float(path.read_text(encoding="ascii"))) > now:
            self._hold(until)

    def note(self, hello: pb.Hello) -> None:
        """See what the node has heard before, ere anything is decided for it."""
        heard = hello.heard_journal_sequence
        if self._noted or hello.heard_head == self.head or heard <= self._begun:
            return
        write_private(self._path, str(self._silent_until).encode())
        self._hold(self._silent_until)
        log.warning(
            "this head was restored from an older copy: what it knew is launched when no lease of"
            " the head before can hold any more",
            node=hello.node,
            journal=self._begun,
            heard=heard,
        )

    def _hold(self, until: Time) -> None:
        self._noted = True
        self._scheduler.hold(until)
