"""Makes the events that people follow from the lines of the journal: stable, complete, and in one
way.

What has ended is taken from the line's outcome, so a reader that begins in the middle sees the same
as one that began at the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hermesd.core.commands import (
    Bind,
    Copy,
    Drop,
    Gather,
    Kill,
    Launch,
    Look,
    Miss,
    Quarantine,
    Release,
    Renew,
    Stop,
    Suspend,
    Trust,
    WriteDown,
)
from hermesd.core.events import (
    Added,
    Asked,
    Cancelled,
    Checkpointed,
    Copied,
    DeviceFailed,
    Dropped,
    Extended,
    FidelityKnown,
    Forgiven,
    ImageGivenUp,
    Looked,
    Marked,
    MetricChosen,
    MilestonePassed,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    OutcomeTold,
    ParkLost,
    Paused,
    PolicyFailed,
    PoolsConfigured,
    PopulationEnded,
    QuantumEnded,
    Reclaimed,
    Removed,
    Reported,
    Retried,
    RunCompleted,
    RunFailed,
    RunStalled,
    RunStarted,
    RunSuspended,
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
from hermesd.core.model import Phase, RunId, Study, StudyId, TrialSpec, study_of
from hermesd.core.state import State
from hermesd.head.api.views import quantum_view, signed
from hermesd.head.journal import outcomes
from hermesd.head.journal.schema import JournalLine
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.wire import TIERS

_ENDS = {
    Phase.FAILED: pb.PUBLIC_EVENT_KIND_FAILED,
    Phase.STOPPED: pb.PUBLIC_EVENT_KIND_STOPPED,
    Phase.CANCELLED: pb.PUBLIC_EVENT_KIND_CANCELLED,
}
_SELECTIONS = {
    Paused: pb.PUBLIC_EVENT_KIND_PAUSED,
    Unpaused: pb.PUBLIC_EVENT_KIND_RESUMED,
    Retried: pb.PUBLIC_EVENT_KIND_RETRIED,
    Extended: pb.PUBLIC_EVENT_KIND_EXTENDED,
}
# What happens to nodes and devices.
_OfPlace: TypeAlias = (
    NodeJoined
    | NodeSilent
    | NodeLost
    | NodeDrained
    | NodeUndrained
    | Quarantine
    | Trust
    | Forgiven
    | DeviceFailed
    | Yielded
    | Reclaimed
)
_PLACES: dict[type[_OfPlace], pb.PublicEventKind] = {
    NodeJoined: pb.PUBLIC_EVENT_KIND_NODE_JOINED,
    NodeSilent: pb.PUBLIC_EVENT_KIND_NODE_SILENT,
    NodeLost: pb.PUBLIC_EVENT_KIND_NODE_LOST,
    NodeDrained: pb.PUBLIC_EVENT_KIND_NODE_DRAINED,
    NodeUndrained: pb.PUBLIC_EVENT_KIND_NODE_UNDRAINED,
    Quarantine: pb.PUBLIC_EVENT_KIND_QUARANTINED,
    Trust: pb.PUBLIC_EVENT_KIND_TRUSTED,
    Forgiven: pb.PUBLIC_EVENT_KIND_TRUSTED,
    DeviceFailed: pb.PUBLIC_EVENT_KIND_DEVICE_FAILED,
    Yielded: pb.PUBLIC_EVENT_KIND_YIELDED,
    Reclaimed: pb.PUBLIC_EVENT_KIND_RECLAIMED,
}


def public_events(line: JournalLine, state: State) -> list[pb.PublicEvent]:
    """What a line means to people; nothing for what only the head and its nodes care about.

    The state only says in which direction a study's signal is to be told.
    """
    events = list(_entry(line, state))
    for one in outcomes.read(line.outcome):
        if isinstance(line.entry, RunFailed) and one.subject == line.entry.run.trial:
            # Every failure is told; the last one says that there are no more tries.
            events[0].reason = one.reason
        else:
            events += _ended(one)
        if one.phase == Phase.COMPLETED and not any(one.subject == each.trial for each in events):
            # Another has trained for it.
            kind = pb.PUBLIC_EVENT_KIND_COMPLETED
            events.append(pb.PublicEvent(trial=one.subject, kind=kind, reason=one.reason))
    for event in events:
        event.sequence, event.at_unix_seconds = line.seq, line.at
        if event.trial and not event.study:
            event.study = study_of(event.trial)
    return events


def _of(run: RunId, kind: pb.PublicEventKind) -> pb.PublicEvent:
    return pb.PublicEvent(trial=run.trial, attempt=run.attempt, kind=kind)


def _ended(one: outcomes.JournalOutcome) -> Iterator[pb.PublicEvent]:
    if one.phase == outcomes.FINISHED:
        yield pb.PublicEvent(study=one.subject, kind=pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
    elif one.phase in _ENDS:
        kind = _ENDS[Phase(one.phase)]
        yield pb.PublicEvent(trial=one.subject, kind=kind, reason=one.reason)


def _entry(line: JournalLine, state: State) -> Iterator[pb.PublicEvent]:
    if isinstance(line.entry, _OfPlace):
        yield _of_place(line.entry)
        return
    match line.entry:
        case Launch() | Renew() | Suspend() | Stop():
            yield _command(line.entry, state.studies.get(study_of(line.entry.run.trial)))
        case Bind() | Gather() | Kill() | WriteDown() | Release() | Copy() | Drop() | Look():
            return
        case Miss() | Copied() | NotCopied() | Dropped() | Spoilt() | Looked():
            return
        case ImageGivenUp() | WidthGivenUp():  # its next launch is told, or its end
            return
        case PopulationEnded():  # each of its trials is told
            return
        case PoolsConfigured() | TermsSet() | FidelityKnown() | Cancelled() | Marked():
            return
        case ParkLost(run, reason):
            event = _of(run, pb.PUBLIC_EVENT_KIND_PARK_LOST)
            event.reason = reason
            yield event
        case Submitted(study):
            yield pb.PublicEvent(study=study.id, kind=pb.PUBLIC_EVENT_KIND_SUBMITTED)
        case Added(study_id, specs):
            event = _added(study_id, specs)
            event.reason += _by_whom(line.entry)
            yield event
        case Asked() | OutcomeTold():
            yield from _of_own_loop(line.entry)
        case SearchLimited() | SearchFailed():
            yield _of_search(line.entry)
        case Removed(study_id):
            yield pb.PublicEvent(study=study_id, kind=pb.PUBLIC_EVENT_KIND_REMOVED)
        case Paused() | Unpaused() | Retried() | Extended():
            kind = _SELECTIONS[type(line.entry)]
            resumed = line.entry.resumed if isinstance(line.entry, Extended) else ()
            for trial in (*line.entry.trials, *resumed):
                yield pb.PublicEvent(trial=trial, kind=kind)
            if isinstance(line.entry, Extended) and line.entry.added:
                yield _added(line.entry.study, line.entry.added)
        case MetricChosen(study_id, metric, goal, mode):
            words = f"ranked by {metric}: {goal}, {mode}"
            kind = pb.PUBLIC_EVENT_KIND_METRIC_CHOSEN
            yield pb.PublicEvent(study=study_id, kind=kind, reason=words)
        case SignalChosen(study_id, signal, goal, reason=why):
            words = f"policies read {signal}: {goal}" + (f" · {why}" if why else "")
            kind = pb.PUBLIC_EVENT_KIND_SIGNAL_CHOSEN
            yield pb.PublicEvent(study=study_id, kind=kind, reason=words)
        case PolicyFailed(study_id, detail):
            yield pb.PublicEvent(
                study=study_id, kind=pb.PUBLIC_EVENT_KIND_POLICY_FAILED, reason=detail
            )
        case _:
            yield _run_event(line.entry, state)


def _added(study: StudyId, specs: Sequence[TrialSpec]) -> pb.PublicEvent:
    words = f"{specs[0].id} to {specs[-1].id}" if len(specs) > 1 else specs[0].id
    return pb.PublicEvent(study=study, kind=pb.PUBLIC_EVENT_KIND_ADDED, reason=words)


def _of_place(entry: _OfPlace) -> pb.PublicEvent:
    match entry:
        case NodeJoined(place) | NodeLost(place) | NodeDrained(place) | NodeUndrained(place):
            reason = ""
        case Reclaimed(place):
            reason = ""
        case Forgiven(place):
            reason = "released by a person"
        case NodeSilent(place, reason) | DeviceFailed(place, reason) | Yielded(place, reason):
            pass
        case Quarantine(place, _, reason) | Trust(place, reason):
            pass
    return pb.PublicEvent(device=place, kind=_PLACES[type(entry)], reason=reason)


def _by_whom(entry: Added) -> str:
    """What proposed the trials; of a population, who goes on from whom in whose place."""
    if not entry.instead:
        return f" · proposed by {entry.searcher}" if entry.searcher else ""
    forks = zip(entry.trials, entry.forked, entry.instead, strict=True)
    each = (
        f"{spec.id} from {begin.trial} at step {begin.step} in the place of {loser}"
        for spec, begin, loser in forks
    )
    return f" · {entry.searcher}: {'; '.join(each)}"


def _of_own_loop(entry: Asked | OutcomeTold) -> Iterator[pb.PublicEvent]:
    if isinstance(entry, Asked):
        yield pb.PublicEvent(trial=entry.trial, kind=pb.PUBLIC_EVENT_KIND_ASKED)
    elif not entry.failure:
        values = (
            pb.MetricValue(name=name, last=value, low=value, high=value)
            for name, value in entry.metrics
        )
        kind = pb.PUBLIC_EVENT_KIND_COMPLETED
        yield pb.PublicEvent(trial=entry.trial, kind=kind, metrics=values)


def _of_search(entry: SearchLimited | SearchFailed) -> pb.PublicEvent:
    if isinstance(entry, SearchFailed):
        kind, again = pb.PUBLIC_EVENT_KIND_SEARCH_FAILED, entry.again_seconds or None
        return pb.PublicEvent(study=entry.study, kind=kind, reason=entry.detail, seconds=again)
    cap = entry.run_cap
    words = "no more trials are proposed" if cap is None else f"up to {cap} trials"
    kind = pb.PUBLIC_EVENT_KIND_EXTENDED
    return pb.PublicEvent(study=entry.study, kind=kind, reason=words)


def _command(command: Launch | Renew | Suspend | Stop, study: Study | None) -> pb.PublicEvent:
    match command:
        case Launch(run, devices, quantum, reason):
            event = _of(run, pb.PUBLIC_EVENT_KIND_LAUNCHED)
            event.device = ", ".join(devices)
            event.quantum.CopyFrom(quantum_view(study, quantum))
        case Renew(run, _, quantum, reason):
            event = _of(run, pb.PUBLIC_EVENT_KIND_RENEWED)
            event.quantum.CopyFrom(quantum_view(study, quantum))
        case Suspend(run, successor=successor, reason=reason):
            event = _of(run, pb.PUBLIC_EVENT_KIND_SUSPEND_ASKED)
            event.successor = successor or ""
        case Stop(run, reason=reason):
            event = _of(run, pb.PUBLIC_EVENT_KIND_SUSPEND_ASKED)
    event.reason = reason
    return event


def _run_event(
    entry: RunStarted
    | Reported
    | RunStalled
    | QuantumEnded
    | MilestonePassed
    | RunSuspended
    | RunCompleted
    | RunFailed
    | Checkpointed,
    state: State,
) -> pb.PublicEvent:
    study = state.studies.get(study_of(entry.run.trial))
    match entry:
        case RunStarted(run, step, seconds):
            event = _of(run, pb.PUBLIC_EVENT_KIND_STARTED)
            event.step, event.seconds = step, seconds
        case Reported(run, step, chunks, metrics):
            event = _of(run, pb.PUBLIC_EVENT_KIND_REPORTED)
            event.step = step
            if chunks and (loss := signed(study, chunks[-1].mean)) is not None:
                event.loss = loss
            ranges = {name: (low, high) for name, low, high in entry.ranges}
            for name, value in metrics:
                shown = event.metrics.add(name=name, last=value)
                if not math.isnan(value) or name in ranges:
                    shown.low, shown.high = ranges.get(name, (value, value))
        case RunStalled(run, step, seconds):
            event = _of(run, pb.PUBLIC_EVENT_KIND_STALLED)
            event.step, event.seconds = step, seconds
        case QuantumEnded(run, _, step):
            event = _of(run, pb.PUBLIC_EVENT_KIND_QUANTUM_ENDED)
            event.step = step
        case MilestonePassed(run, percent, loss, step):
            event = _of(run, pb.PUBLIC_EVENT_KIND_MILESTONE_PASSED)
            event.step, event.percent = step, percent
            event.loss = signed(study, loss) or 0.0
        case RunSuspended(run, tier, step, _, seconds, cause):
            event = _of(run, pb.PUBLIC_EVENT_KIND_SUSPENDED)
            event.step, event.tier, event.seconds, event.reason = step, TIERS[tier], seconds, cause
        case RunCompleted(run, step):
            event = _of(run, pb.PUBLIC_EVENT_KIND_COMPLETED)
            event.step = step
        case RunFailed(run, _, detail, _, step):
            event = _of(run, pb.PUBLIC_EVENT_KIND_FAILED)
            event.step, event.reason = step, detail
        case Checkpointed(run, checkpoint):
            event = _of(run, pb.PUBLIC_EVENT_KIND_CHECKPOINTED)
            event.step = checkpoint.step
    return event
