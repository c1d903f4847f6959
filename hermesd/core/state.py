"""Everything that the head knows, as a fold of events and commands.

`apply` is the only function that changes the state. Replaying the journal gives the state back
without asking a policy, since commands are folded like events.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TypeAlias

from hermesd.core.commands import Command, Copy, Drop, Look
from hermesd.core.events import (
    Added,
    Asked,
    Cancelled,
    Copied,
    DeviceFailed,
    Dropped,
    Event,
    Extended,
    Forgiven,
    ImageGivenUp,
    Looked,
    Marked,
    MetricChosen,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    OutcomeTold,
    Paused,
    PolicyFailed,
    PoolsConfigured,
    PopulationEnded,
    Reclaimed,
    Removed,
    Retried,
    SearchFailed,
    SearchLimited,
    SignalChosen,
    Spoilt,
    Submitted,
    TermsSet,
    Unpaused,
    WidthGivenUp,
    Yielded,
)
from hermesd.core.fold.checkpoints import (
    fold_copy_command,
    fold_copy_event,
    fold_image_given_up,
    fold_width_given_up,
)
from hermesd.core.fold.commands import fold_command
from hermesd.core.fold.nodes import fold_node_event, fold_upkeep_event, fold_yield_event
from hermesd.core.fold.riding import settle
from hermesd.core.fold.runs import fold_run_event
from hermesd.core.fold.studies import fold_own_loop, fold_selection_event, fold_study_event
from hermesd.core.invariants import check
from hermesd.core.model import Time
from hermesd.core.requirements import fold_look
from hermesd.core.tables import (
    NOTHING,
    Ahead,
    Members,
    Rejected,
    Tables,
)
from hermesd.core.trial import Trial

__all__ = ["AboutMany", "Rejected", "State"]

# The events that may be about very many trials in one entry.
AboutMany: TypeAlias = Submitted | Added | Extended | SignalChosen
# So many new trials are found ahead in a millisecond or few.
PART = 50


class State(Tables):
    """The tables and the one way to change them.

    It is the tables, and does not hold them: the folds, which it calls, know only these, and all
    that reads asks `state.trials`.
    """

    def apply(self, entry: Event | Command, now: Time, ahead: Ahead = NOTHING) -> None:
        """Fold one event or command in, of which some was found `ahead` as of this time, and holds.

        Raises:
            Rejected: the entry is illegal here; the state is as it was.
        """
        if isinstance(entry, Command):
            self._fold_command(entry, now)
        else:
            self._fold_event(entry, now, ahead)
        if self.riding.moved:
            settle(self, now)
        self.now = max(self.now, now)

    def _fold_command(self, command: Command, now: Time) -> None:
        match command:
            case Copy() | Drop():
                fold_copy_command(self, command)
            case Look():
                fold_look(self, command)
            case _:
                fold_command(self, command, now)

    def _fold_event(self, event: Event, now: Time, ahead: Ahead) -> None:
        match event:
            case Copied() | NotCopied() | Dropped() | Spoilt():
                fold_copy_event(self, event, now)
            case ImageGivenUp():
                fold_image_given_up(self, event)
            case WidthGivenUp():
                fold_width_given_up(self, event, now)
            case Looked():
                fold_look(self, event)
            case (
                Submitted()
                | Added()
                | PopulationEnded()
                | Removed()
                | Extended()
                | MetricChosen()
                | SignalChosen()
                | Retried()
                | SearchLimited()
                | SearchFailed()
            ):
                fold_study_event(self, event, now, ahead)
            case Asked() | OutcomeTold():
                fold_own_loop(self, event, now)
            case Paused() | Unpaused() | Cancelled() | Marked():
                fold_selection_event(self, event, now)
            case NodeJoined() | NodeSilent() | NodeLost() | DeviceFailed():
                fold_node_event(self, event, now)
            case Yielded() | Reclaimed():
                fold_yield_event(self, event)
            case NodeDrained() | NodeUndrained() | Forgiven() | TermsSet() | PoolsConfigured():
                fold_upkeep_event(self, event, now)
            case PolicyFailed(study, detail):
                self.study(study)
                self.fallen[study] = detail
                self.touch_all(self.active[study])
            case _:
                fold_run_event(self, event, now)

    def found_ahead(self, event: AboutMany, now: Time) -> Generator[None, None, Ahead]:
        """What the event comes to as of that time. It is folded in here, some new trials at a time:
        into a copy of the state (see `reader.still`), or into another that has all that the event
        is about.

        Raises:
            Rejected: the event is illegal.
        """
        study = event.study.id if isinstance(event, Submitted) else event.study
        known, before = self.studies.get(study), dict(self.trials)
        self.dirty = {}
        if known is not None:  # as the values of one list are told apart by one thread alone
            self.members[study] = Members(self.members[study])
        for part in _in_parts(event):
            self.apply(part, now)
            yield
        changed = [(before.get(each), self.trials[each]) for each in self.dirty]
        rest = [
            (old, new) for old, new in changed if new.is_at_rest and (not old or old.is_at_rest)
        ]
        yield
        if isinstance(event, Submitted | Added):
            effect = tuple(spec.id for spec in event.trials)
        else:
            effect = self.requests[event.request_id]
        return Ahead(
            {new.id: new for _, new in rest},
            {new.id: old for old, new in rest},
            study,
            known,
            is_free=sum(map(_is_opened, changed)) == sum(map(_is_opened, rest)),
            effect=effect,
            names={new.id: None for _, new in rest},
            opened={pair[1].id: None for pair in rest if _is_opened(pair)},
            ended=tuple(
                new.id for old, new in rest if new.phase.final and old and not old.phase.final
            ),
            indexed=tuple(new.id for old, new in rest if self.is_indexed(old, new)),
        )

    def check(self) -> None:
        """Assert every invariant; raises `InvariantBroken`."""
        check(self)


def _is_opened(pair: tuple[Trial | None, Trial]) -> bool:
    """Whether a trial is unfinished that was not before."""
    old, new = pair
    return not new.phase.final and (old is None or old.phase.final)


def _in_parts(event: AboutMany) -> Iterator[AboutMany]:
    """The event, or several which together do the same, each with some of its new trials."""
    match event:
        case Submitted(study, trials, request_id):
            yield replace(event, trials=())
            whole = Added(study.id, trials, request_id)
        case Added(trials=trials) if trials and not (event.forked or event.instead):
            whole = event
        case _:
            yield event
            return
    for start in range(0, len(trials), PART):
        request_id = f"{whole.request_id} from {start}"
        yield replace(whole, trials=trials[start : start + PART], request_id=request_id)
