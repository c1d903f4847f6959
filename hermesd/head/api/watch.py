"""WatchJournal and ExportStudy: readers of the journal, each at its own pace.

Nothing is kept for a reader: it has a number, reads on from there, and is held up by its own
connection alone. All events of one entry come in one message, so the number resumes exactly.
Readers take turns, a page each: however many read what is long past, the head does everything else
in between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from hermesd import record
from hermesd.core.commands import Launch, Quarantine, Suspend
from hermesd.core.events import NodeJoined, PolicyFailed, Submitted
from hermesd.core.model import Device, Study, StudyId, Time, study_of
from hermesd.core.trial import Trial
from hermesd.head.api import names
from hermesd.head.api.public_events import public_events
from hermesd.head.journal import outcomes
from hermesd.head.journal.points import counting
from hermesd.head.journal.schema import JournalLine, PointRow, from_row
from hermesd.head.loop import Head
from hermesd.head.security.access import FAILED_THERE, Asker, asker, event_for
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused

PAGE = 500
EVENTS_IN_MESSAGE = 200
EXPORT_BYTES = 256 * 1024
_QUARANTINES = (pb.PUBLIC_EVENT_KIND_QUARANTINED, pb.PUBLIC_EVENT_KIND_TRUSTED)

_STUDY: record.Form[Study] = record.Form(Study)
_DEVICE: record.Form[Device] = record.Form(Device)
_TRIAL: record.Form[Trial] = record.Form(Trial)


@dataclass(frozen=True)
class WatchService:
    """What happened, from the journal; `owners` says whose each study was."""

    head: Head
    owners: dict[StudyId, str]
    page_turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def WatchJournal(
        self, request: pb.WatchJournalRequest, context: Any
    ) -> AsyncIterator[pb.WatchJournalResponse]:
        if request.after_sequence < 0:
            raise Refused(FieldError("after_sequence", str(request.after_sequence), "0 or more"))
        who = asker()
        study = names.study_id(self.head.state, request.study, who) if request.study else ""
        after = request.after_sequence
        end = self.head.committed
        while True:
            async with self.page_turn:
                lines = await self.head.journal.read(after, PAGE)
            events: list[pb.PublicEvent] = []
            for line in lines:
                events += self._wanted(line, study, request.reports, who)
                if len(events) >= EVENTS_IN_MESSAGE:
                    yield pb.WatchJournalResponse(events=events)
                    events = []
            if events:
                yield pb.WatchJournalResponse(events=events)
            if lines:
                after = lines[-1].seq
            if request.once and (after >= end or not lines):
                return
            if not lines:
                await self.head.beyond(after)

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
        ends = [state.trials[trial].finished or at for trial in state.members[study]]
        return state.studies[study].submitted <= at <= max(ends, default=at)

    async def ExportStudy(
        self, request: pb.ExportStudyRequest, context: Any
    ) -> AsyncIterator[pb.ExportStudyResponse]:
        who = asker()
        study_id = names.study_id(self.head.state, request.study, who)
        gathered: list[bytes] = []
        size = 0
        async for text in self._export(study_id, who):
            gathered.append(f"{text}\n".encode())
            size += len(gathered[-1])
            if size >= EXPORT_BYTES:
                yield pb.ExportStudyResponse(data=b"".join(gathered))
                gathered, size = [], 0
        yield pb.ExportStudyResponse(data=b"".join(gathered))

    async def _export(self, study_id: StudyId, who: Asker) -> AsyncIterator[str]:
        """JSON Lines: the study, its trials, the entries that concern it, its devices, the points.

        The submitter's environment stays out: an export is for others to read. The policy and the
        placement are those that it is run by. Of the points each step is there once, by the attempt
        whose value counts.
        """
        state = self.head.state
        study = state.studies[study_id]
        public = replace(
            study,
            program=replace(study.program, environment=()),
            policy=state.own_policy(study_id),
            placement=state.placement_of(study_id),
        )
        # All of it now: the study may be removed while this is read.
        members = [state.trials[trial] for trial in state.members[study_id]]
        if not who.everything:
            members = [_own_trial(trial) for trial in members]
        yield f'{{"type":"study","version":1,"study":{_STUDY.write(public)}}}'
        for trial in members:
            yield f'{{"type":"trial","trial":{_TRIAL.write(trial)}}}'
        after = 0
        devices: dict[str, None] = {}
        while page := await self._page(after):
            after = page[-1][0].seq
            for row, line in page:
                if _concerns(line, study_id):
                    if isinstance(line.entry, Launch):
                        devices.update(dict.fromkeys(line.entry.devices))
                    yield _exported(row if who.everything else _own(row, line, study_id))
        for device in devices:
            yield f'{{"type":"device","device":{_DEVICE.write(state.slots[device].device)}}}'
        for trial in members:
            for metric in await self.head.journal.metrics(trial.id):
                pieces = await self.head.journal.pieces(trial.id, metric)
                for attempt, (steps, values) in counting(pieces).items():
                    finite = [v if abs(v) < float("inf") else str(v) for v in values]
                    yield json.dumps(
                        {
                            "type": "points",
                            "trial": trial.id,
                            "attempt": attempt,
                            "metric": metric,
                            "steps": steps,
                            "values": finite,
                        },
                        separators=(",", ":"),
                    )

    async def _page(self, after: int) -> list[tuple[PointRow, JournalLine]]:
        """Rows behind a number, with what they say."""
        async with self.page_turn:
            return [(row, from_row(row)) for row in await self.head.journal.rows(after, PAGE)]


def _concerns(line: JournalLine, study: StudyId) -> bool:
    """Whether an entry goes into a study's export."""
    if isinstance(line.entry, PolicyFailed):
        return line.entry.study == study
    if isinstance(line.entry, Submitted):
        # The study's own line says it, without the submitter's environment.
        return False
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
