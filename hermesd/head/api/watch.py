"""WatchJournal and ExportStudy: readers of the journal, each at its own pace.

The head keeps nothing for a reader: a reader has a number, reads on from there, and is held up by
nothing but its own connection. All events of one entry are in one message, so the number is enough
to resume exactly. Old entries are read outside of the loop, where users take turns; new ones are
read on the loop.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from hermesd import record
from hermesd.core.commands import Launch, Quarantine, Suspend
from hermesd.core.events import NodeJoined, PolicyFailed, Submitted
from hermesd.core.model import Device, Study, StudyId, Time, study_of
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.api import names
from hermesd.head.api.public_events import public_events
from hermesd.head.journal import outcomes
from hermesd.head.journal.points import Piece, counting
from hermesd.head.journal.schema import JournalLine, PointRow, from_row
from hermesd.head.journal.store import Journal
from hermesd.head.loop import Head
from hermesd.head.security.access import FAILED_THERE, Asker, asker, event_for
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pieces import Pieces, in_one, whole
from hermesd.refusal import FieldError, Refused

PAGE = 500
EVENTS_IN_MESSAGE = 200
EXPORT_BYTES = 256 * 1024
# Entries that are looked at on the loop.
FEW, FEW_BYTES = 50, 64 * 1024
# Trials of an export at a time.
TRIALS = 200
_QUARANTINES = (pb.PUBLIC_EVENT_KIND_QUARANTINED, pb.PUBLIC_EVENT_KIND_TRUSTED)

_STUDY: record.Form[Study] = record.Form(Study)
_DEVICE: record.Form[Device] = record.Form(Device)
_TRIAL: record.Form[Trial] = record.Form(Trial)


@dataclass(frozen=True)
class WatchService:
    """What happened, read from the journal."""

    head: Head
    #: Whose each study was.
    owners: dict[StudyId, str]

    async def WatchJournal(
        self, request: pb.WatchJournalRequest, context: Any
    ) -> AsyncIterator[pb.WatchJournalResponse]:
        if request.after_sequence < 0:
            raise Refused(FieldError("after_sequence", str(request.after_sequence), "0 or more"))
        who = asker()
        study = names.study_id(self.head.state, request.study, who) if request.study else ""
        after = request.after_sequence
        if study:
            after = max(after, await self.head.journal.before(study))
        end = self.head.committed
        gathered: list[pb.PublicEvent] = []
        while True:
            events, last = await self._page(after, who, study, request.reports)
            # All of an entry's in one message: its number says where to go on from.
            for _, some in groupby(events, lambda event: event.sequence):
                entry = list(some)
                if gathered and len(gathered) + len(entry) > EVENTS_IN_MESSAGE:
                    yield pb.WatchJournalResponse(events=gathered)
                    gathered = []
                gathered += entry
            if gathered:
                yield pb.WatchJournalResponse(events=gathered)
                gathered = []
            if request.once and (last >= end or last == after):
                return
            if last == after:
                await self.head.beyond(after)
            after = last

    async def _page(
        self, after: int, who: Asker, study: StudyId, reports: bool
    ) -> tuple[list[pb.PublicEvent], int]:
        """What the reader is to know of the entries behind a number, and the last one's number."""

        def found(rows: Iterable[PointRow]) -> Pieces[tuple[list[pb.PublicEvent], int]]:
            events: list[pb.PublicEvent] = []
            last = after
            for row in rows:
                events += self._wanted(from_row(row), study, reports, who)
                last = row.seq
                yield
                if len(events) >= EVENTS_IN_MESSAGE:
                    break
            return events, last

        journal = self.head.journal
        if self.head.committed - after <= FEW:
            rows = await journal.rows(after, FEW)
            if sum(len(row.body) + len(row.outcome) for row in rows) <= FEW_BYTES:
                return whole(found(rows))
        return await self.head.reader.do(
            who.user, lambda: found(journal.each_row(after, PAGE, cut=True))
        )

    def _wanted(
        self, line: JournalLine, study: StudyId, reports: bool, who: Asker
    ) -> list[pb.PublicEvent]:
        return [
            shown
            for event in public_events(line, self.head.state)
            if (reports or event.kind != pb.PUBLIC_EVENT_KIND_REPORTED)
            and (not study or event.study == study or self._meets(event, line, study))
            and (shown := event_for(who, event, self.owners)) is not None
        ]

    def _meets(self, event: pb.PublicEvent, line: JournalLine, study: StudyId) -> bool:
        """Whether an event of a node or a device meets trials of the study: what runs or is kept
        there, and of a quarantine all that could run there."""
        if event.study or study not in self.head.state.studies:
            return False
        return outcomes.touches(line.outcome, study) or (
            event.kind in _QUARANTINES and self._unfinished(study, line.at)
        )

    def _unfinished(self, study: StudyId, at: Time) -> bool:
        """Whether the study had trials that could still run at that time."""
        state = self.head.state
        known = state.studies.get(study)
        trials = (state.trials.get(trial) for trial in state.members.get(study, ()))
        ends = [trial.finished or at for trial in trials if trial is not None]
        return known is not None and known.submitted <= at <= max(ends, default=at)

    async def ExportStudy(
        self, request: pb.ExportStudyRequest, context: Any
    ) -> AsyncIterator[pb.ExportStudyResponse]:
        who = asker()
        study_id = names.study_id(self.head.state, request.study, who)
        async for data in self._export(study_id, who):
            yield pb.ExportStudyResponse(data=data)

    async def _export(self, study_id: StudyId, who: Asker) -> AsyncIterator[bytes]:
        """JSON Lines: the study, its trials, the entries that concern it, its devices, the points.

        The submitter's environment stays out: an export is for others to read. The policy and the
        placement are those that it is run by. Of the points each step is there once, by the attempt
        whose value counts.
        """
        state, read = self.head.state, self.head.reader.do
        study = state.studies[study_id]
        public = replace(
            study,
            program=replace(study.program, environment=()),
            policy=state.own_policy(study_id),
            placement=state.placement_of(study_id),
        )
        # All of it now: the study may be removed while this is read.
        members = await self.head.read(
            who.user,
            len(state.members[study_id]),
            lambda state: in_one(partial(_members, state, study_id)),
        )
        yield f'{{"type":"study","version":1,"study":{_STUDY.write(public)}}}\n'.encode()
        for start in range(0, len(members), TRIALS):
            some = members[start : start + TRIALS]
            yield await read(who.user, partial(_trial_lines, some, who))
        after = 0
        devices: dict[str, None] = {}
        while True:
            lines = partial(_entry_lines, self.head.journal, after, study_id, who, devices)
            data, last = await read(who.user, lines)
            if data:
                yield data
            if not last:
                break
            after = last
        for device in devices:
            device_text = _DEVICE.write(state.slots[device].device)
            yield f'{{"type":"device","device":{device_text}}}\n'.encode()
        for start in range(0, len(members), TRIALS):
            trials = [trial.id for trial in members[start : start + TRIALS]]
            for trial, metrics in (await self.head.journal.metrics_of(trials)).items():
                for metric in metrics:
                    pieces = await self.head.journal.pieces(trial, metric)
                    yield await read(who.user, partial(_point_lines, pieces, metric))


def _members(state: State, study: StudyId) -> list[Trial]:
    names.there(state, study)
    return [state.trials[trial] for trial in state.members[study]]


def _trial_lines(trials: Iterable[Trial], who: Asker) -> Pieces[bytes]:
    lines = []
    for trial in trials:
        shown = trial if who.everything else _own_trial(trial)
        lines.append(f'{{"type":"trial","trial":{_TRIAL.write(shown)}}}\n')
        yield
    return "".join(lines).encode()


def _entry_lines(
    journal: Journal, after: int, study: StudyId, who: Asker, devices: dict[str, None]
) -> Pieces[tuple[bytes, int]]:
    """The lines of the next entries that concern the study, and the last one's number, 0 for none;
    the devices on which its runs were launched are added to `devices`."""
    lines, size, last = [], 0, 0
    for row in journal.each_row(after, PAGE, cut=True):
        last = row.seq
        # The study's own line says it, without the submitter's environment.
        line = None if row.kind == Submitted.__name__ else from_row(row)
        if line is not None and concerns(line, study):
            if isinstance(line.entry, Launch):
                devices.update(dict.fromkeys(line.entry.devices))
            if row.crc is None:
                (row,) = journal.each_row(row.seq - 1, 1)
            lines.append(_exported(row if who.everything else _own(row, line, study)))
            size += len(lines[-1])
        yield
        if size >= EXPORT_BYTES:
            break
    return "".join(f"{line}\n" for line in lines).encode(), last


def _point_lines(pieces: Sequence[Piece], metric: str) -> Pieces[bytes]:
    lines = []
    for attempt, (steps, values) in counting(pieces).items():
        yield
        finite = [v if abs(v) < float("inf") else str(v) for v in values]
        points = {
            "type": "points",
            "trial": pieces[0].trial,
            "attempt": attempt,
            "metric": metric,
            "steps": steps,
            "values": finite,
        }
        lines.append(json.dumps(points, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def concerns(line: JournalLine, study: StudyId) -> bool:
    """Whether an entry goes into a study's export."""
    if isinstance(line.entry, PolicyFailed):
        return line.entry.study == study
    trials = _trials_of(line.entry)
    if trials is None:
        return outcomes.touches(line.outcome, study)
    return study in {study_of(trial) for trial in trials}


def _own(row: PointRow, line: JournalLine, study: StudyId) -> PointRow:
    """An entry as it is to somebody who sees no other study."""
    match line.entry:
        case NodeJoined(live=live) as entry:
            mine = tuple(run for run in live if study_of(run.run.trial) == study)
            kept: record.Entry = replace(entry, live=mine)
        case Suspend() as entry:
            kept = _own_suspend(entry)
        case Quarantine() as entry:
            kept = replace(entry, reason=FAILED_THERE)
        case _:
            return row
    return row._replace(body=record.encode(kept)[1])


def _own_suspend(command: Suspend) -> Suspend:
    """The command without a successor of another study."""
    successor = command.successor
    own = successor is None or study_of(successor) == study_of(command.run.trial)
    return command if own else replace(command, successor=None)


def _own_trial(trial: Trial) -> Trial:
    """The trial without the name of whom it makes room for in another study."""
    run = trial.run
    if run is None or not isinstance(run.asked, Suspend):
        return trial
    return replace(trial, run=replace(run, asked=_own_suspend(run.asked)))


def _exported(row: PointRow) -> str:
    """An entry's line in an export."""
    place = f'"seq":{row.seq},"at":{row.at!r}'
    return f'{{"type":"entry",{place},"kind":"{row.kind}","body":{row.body}}}'


def _trials_of(entry: record.Entry) -> tuple[str, ...] | None:
    """The trials that an entry is about; None: it is about a node or a device."""
    if (run := getattr(entry, "run", None)) is not None:
        return (run.trial,)
    if (trial := getattr(entry, "trial", None)) is not None:
        return (trial,)
    if trials := getattr(entry, "trials", ()):
        return tuple(trial if isinstance(trial, str) else trial.id for trial in trials)
    if (study := getattr(entry, "study", None)) is not None:
        return (f"{study}/",)
    return None
