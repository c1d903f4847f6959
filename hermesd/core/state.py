"""The whole of what the head knows, as a fold of events and commands.

`apply` is the only mutator. Replaying the journal gives the state back without asking a policy,
since commands are folded like events.
"""

from __future__ import annotations

from hermesd.core.commands import Command
from hermesd.core.events import (
    Cancelled,
    DeviceFailed,
    Event,
    Extended,
    Forgiven,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    Paused,
    PolicyFailed,
    Removed,
    Retried,
    Submitted,
    Unpaused,
)
from hermesd.core.fold_commands import fold_command
from hermesd.core.fold_nodes import fold_node_event
from hermesd.core.fold_people import fold_selection_event, fold_study_event
from hermesd.core.fold_runs import fold_run_event
from hermesd.core.fold_upkeep import fold_upkeep_event
from hermesd.core.invariants import check
from hermesd.core.model import Time
from hermesd.core.tables import Rejected, Tables

__all__ = ["Rejected", "State"]


class State(Tables):
    """The tables and the one way to change them."""

    def apply(self, entry: Event | Command, now: Time) -> None:
        """Fold one event or command in.

        Raises:
            Rejected: the entry is illegal here; the state is as it was.
        """
        if isinstance(entry, Command):
            fold_command(self, entry, now)
        else:
            self._fold_event(entry, now)
        self.now = max(self.now, now)

    def _fold_event(self, event: Event, now: Time) -> None:
        match event:
            case Submitted() | Removed() | Extended() | Retried():
                fold_study_event(self, event, now)
            case Paused() | Unpaused() | Cancelled():
                fold_selection_event(self, event, now)
            case NodeJoined() | NodeSilent() | NodeLost() | DeviceFailed():
                fold_node_event(self, event, now)
            case NodeDrained() | NodeUndrained() | Forgiven():
                fold_upkeep_event(self, event)
            case PolicyFailed(study, detail):
                self.study(study)
                self.fallen[study] = detail
                self.touch_all(self.active[study])
            case _:
                fold_run_event(self, event, now)

    def check(self) -> None:
        """Assert every invariant; raises `InvariantBroken`."""
        check(self)
