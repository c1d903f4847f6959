"""A head for the client's tests: a real gRPC server on a Unix socket over a few dictionaries.

It runs in a thread of its own, because the command line brings its own event loop. `failures`
makes a method fail the given number of times first; `requests` remembers what came.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from hermesctl.sdk.versions import client_version
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from hermesd.pb.hermes.v1 import types_pb2 as types


def event(sequence: int, kind: int, study: str = "digits", **fields: Any) -> pb.PublicEvent:
    at = 1_700_000_000.0 + sequence
    return pb.PublicEvent(sequence=sequence, at_unix_seconds=at, study=study, kind=kind, **fields)


def trial(number: int, study: str = "digits", **fields: Any) -> pb.Trial:
    fields.setdefault("state", types.TRIAL_STATE_WAITING)
    parameters = [
        types.NamedValue(name="lr", value=types.Value(double_value=0.1 / number)),
        types.NamedValue(name="optimizer", value=types.Value(string_value="adam")),
    ]
    return pb.Trial(
        id=f"{study}/{number}", study=study, number=number, parameters=parameters, **fields
    )


class FakeHead(control_pb2_grpc.ControlServiceServicer):
    """The service; its attributes are what it answers with."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.failures: dict[str, list[tuple[grpc.StatusCode, str]]] = defaultdict(list)
        self.field_errors: list[pb.FieldError] = []
        self.blobs: dict[str, bytes] = {}
        self.studies: dict[str, pb.Study] = {}
        self.trials: dict[str, list[pb.Trial]] = {}
        self.events: list[pb.PublicEvent] = []
        self.break_after: list[int] = []  # journal streams break after so many events
        self.stop_notes: list[str] = []
        self.output = b""
        self.output_bytes = 7  # at a time
        self.metrics = ["loss", "accuracy"]
        self.signal = "loss"
        self.curve = {1: 3.0, 2: 2.0, 3: float("nan")}
        self.checkpoint: list[pb.DownloadCheckpointResponse] = []
        self.files: list[pb.GetFilesResponse] = []
        self.exported = [b'{"study": 1}\n', b'{"trial": 1}\n']
        self.nodes = [pb.Node(id="box", connected=True)]
        self.version = client_version()
        self.identical_to = ""
        self.free_id = "digits"  # what the next study is called
        self.why = "it waits for cpu/0"
        self.submitted: dict[str, Any] = {}  # more of what a submitted study is
        self.then: list[pb.PublicEvent] = []  # what happens right after a submit
        self.at_last: list[pb.PublicEvent] = []  # what happens once the study was asked about
        self.asked_before = 0  # so often
        self.watching = threading.Event()
        self.cancelled = threading.Event()
        self.unchanged: set[str] = set()  # trials that a change finds as it wants them

    def add_study(self, study: str, *trials: pb.Trial, **fields: Any) -> None:
        fields.setdefault("submitted_unix_seconds", 1_700_000_000.0 + len(self.studies))
        counts = defaultdict(int)
        for one in trials:
            counts[one.state] += 1
        self.trials[study] = list(trials)
        self.studies[study] = pb.Study(
            id=study,
            spec=types.StudySpec(
                program="train.py",
                metric=types.Metric(name="val_loss"),
                schedule=types.Schedule(policy=types.Plugin(name="best_first")),
            ),
            counts=[pb.StateCount(state=s, count=n) for s, n in counts.items()],
            **fields,
        )

    def of(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind."""
        return [r for r in self.requests if isinstance(r, kind)]

    async def _begin(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        waiting = self.failures[type(request).__name__.removesuffix("Request")]
        if waiting:
            code, words = waiting.pop(0)
            if self.field_errors:
                details = pb.FieldErrors(errors=self.field_errors).SerializeToString()
                context.set_trailing_metadata((("hermes-errors-bin", details),))
            await context.abort(code, words)

    async def _study(self, name: str, context: Any) -> pb.Study:
        found = [s for key, s in self.studies.items() if key.startswith(name)]
        if len(found) != 1:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no study {name}")
        return found[0]

    async def ServerInfo(self, request: Any, context: Any) -> pb.ServerInfoResponse:
        await self._begin(request, context)
        last = self.events[-1].sequence if self.events else 0
        return pb.ServerInfoResponse(
            version=self.version, policies=["best_first"], journal_sequence=last
        )

    async def PutBlob(self, requests: Any, context: Any) -> pb.PutBlobResponse:
        data = b"".join([r.data async for r in requests])
        await self._begin(pb.PutBlobRequest(data=data), context)
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return pb.PutBlobResponse(sha256=digest, size_bytes=len(data))

    async def SubmitStudy(self, request: Any, context: Any) -> pb.SubmitStudyResponse:
        await self._begin(request, context)
        trials = [trial(1), trial(2)]
        if request.validate_only:
            return pb.SubmitStudyResponse(study=self.free_id, trials=trials)
        if self.identical_to and not request.again:
            return pb.SubmitStudyResponse(identical_to=self.identical_to)
        self.add_study(self.free_id, *trials, **self.submitted)
        self.events += self.then
        return pb.SubmitStudyResponse(study=self.free_id, trials=trials, notes=["a note"])

    async def GetStudy(self, request: Any, context: Any) -> pb.GetStudyResponse:
        await self._begin(request, context)
        study = await self._study(request.study, context)
        if self.asked_before and len(self.of(pb.GetStudyRequest)) == self.asked_before:
            self.events += self.at_last
            study.finished = True
        last = self.events[-1].sequence if self.events else 0
        return pb.GetStudyResponse(
            study=study,
            trials=self.trials[study.id],
            next_up=[t.id for t in self.trials[study.id]],
            journal_sequence=last,
        )

    async def ListStudies(self, request: Any, context: Any) -> pb.ListStudiesResponse:
        await self._begin(request, context)
        names = list(self.studies)
        start = int(request.page_token or 0)
        token = str(start + 1) if start + 1 < len(names) else ""
        page = [self.studies[n] for n in names[start : start + 1]]
        return pb.ListStudiesResponse(studies=page, next_page_token=token)

    async def ListTrials(self, request: Any, context: Any) -> pb.ListTrialsResponse:
        await self._begin(request, context)
        study = await self._study(request.study, context)
        return pb.ListTrialsResponse(trials=self.trials[study.id])

    async def GetTrial(self, request: Any, context: Any) -> pb.GetTrialResponse:
        await self._begin(request, context)
        for one in (t for trials in self.trials.values() for t in trials):
            if one.id == request.trial:
                tail = self.output.decode(errors="replace")
                return pb.GetTrialResponse(trial=one, output_tail=tail)
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no trial {request.trial}")
        raise AssertionError

    async def BestTrials(self, request: Any, context: Any) -> pb.BestTrialsResponse:
        await self._begin(request, context)
        study = await self._study(request.study, context)
        trials = self.trials[study.id][: request.count]
        own = study.ranking if study.HasField("ranking") else pb.Ranking(metric=study.spec.metric)
        ranking = pb.Ranking(metric=request.metric) if request.HasField("metric") else own
        return pb.BestTrialsResponse(study=study.id, trials=trials, ranking=ranking)

    async def GetCurve(self, request: Any, context: Any) -> pb.GetCurveResponse:
        await self._begin(request, context)
        return pb.GetCurveResponse(
            metric=request.metric or self.signal,
            steps=list(self.curve),
            values=list(self.curve.values()),
            metrics_available=self.metrics,
        )

    async def ExplainTrial(self, request: Any, context: Any) -> pb.ExplainTrialResponse:
        await self._begin(request, context)
        waiting = types.TRIAL_STATE_WAITING
        study = request.trial.rpartition("/")[0]
        return pb.ExplainTrialResponse(
            trial=request.trial,
            notices=self.studies[study].notices if study in self.studies else (),
            summary=self.why,
            policy="best_first",
            earlier_studies="monday, whose order says what is probed while it holds",
            ranking=[pb.RankedTrial(trial="digits/1", words="loss 0.2", state=waiting)],
        )

    async def DrainNode(self, request: Any, context: Any) -> pb.DrainNodeResponse:
        await self._begin(request, context)
        return pb.DrainNodeResponse(node=self._drained(request.node, True))

    async def UndrainNode(self, request: Any, context: Any) -> pb.UndrainNodeResponse:
        await self._begin(request, context)
        return pb.UndrainNodeResponse(node=self._drained(request.node, False))

    async def LoseNode(self, request: Any, context: Any) -> pb.LoseNodeResponse:
        await self._begin(request, context)
        return pb.LoseNodeResponse(node=next(n for n in self.nodes if n.id == request.node))

    async def ReleaseNode(self, request: Any, context: Any) -> pb.ReleaseNodeResponse:
        await self._begin(request, context)
        return pb.ReleaseNodeResponse(node=next(n for n in self.nodes if n.id == request.node))

    def _drained(self, name: str, draining: bool) -> pb.Node:
        node = next(node for node in self.nodes if node.id == name)
        node.draining = draining
        return node

    async def ListNodes(self, request: Any, context: Any) -> pb.ListNodesResponse:
        await self._begin(request, context)
        return pb.ListNodesResponse(nodes=self.nodes)

    async def PauseTrials(self, request: Any, context: Any) -> pb.PauseTrialsResponse:
        await self._begin(request, context)
        return pb.PauseTrialsResponse(trials=self._selected(request))

    async def ResumeTrials(self, request: Any, context: Any) -> pb.ResumeTrialsResponse:
        await self._begin(request, context)
        return pb.ResumeTrialsResponse(trials=self._selected(request))

    async def StopTrials(self, request: Any, context: Any) -> pb.StopTrialsResponse:
        await self._begin(request, context)
        return pb.StopTrialsResponse(trials=self._selected(request), notes=self.stop_notes)

    async def RetryTrials(self, request: Any, context: Any) -> pb.RetryTrialsResponse:
        await self._begin(request, context)
        return pb.RetryTrialsResponse(trials=self._selected(request))

    async def ExtendStudy(self, request: Any, context: Any) -> pb.ExtendStudyResponse:
        await self._begin(request, context)
        return pb.ExtendStudyResponse(trials=self._selected(request))

    async def MarkTrials(self, request: Any, context: Any) -> pb.MarkTrialsResponse:
        await self._begin(request, context)
        for one in (t for trials in self.trials.values() for t in trials):
            if one.id in request.selection.trials:
                one.tags.extend(request.add_tags)
                one.note = request.note
        return pb.MarkTrialsResponse(trials=self._selected(request))

    async def ForkTrial(self, request: Any, context: Any) -> pb.ForkTrialResponse:
        await self._begin(request, context)
        made = trial(9, request.trial.partition("/")[0], forked_from=request.trial)
        return pb.ForkTrialResponse(trial=made)

    async def AddTrials(self, request: Any, context: Any) -> pb.AddTrialsResponse:
        await self._begin(request, context)
        study = await self._study(request.study, context)
        return pb.AddTrialsResponse(
            study=study.id, trials=self.trials[study.id], notes=["1 more is there"]
        )

    async def SetSignal(self, request: Any, context: Any) -> pb.SetSignalResponse:
        await self._begin(request, context)
        await self._study(request.study, context)
        return pb.SetSignalResponse(
            signal=types.Signal(name=request.signal.name, goal=request.signal.goal or 1)
        )

    async def SetMetric(self, request: Any, context: Any) -> pb.SetMetricResponse:
        await self._begin(request, context)
        study = await self._study(request.study, context)
        study.ranking.metric.CopyFrom(request.metric)
        return pb.SetMetricResponse(ranking=study.ranking, notes=["policies read loss"])

    async def RemoveStudy(self, request: Any, context: Any) -> pb.RemoveStudyResponse:
        await self._begin(request, context)
        del self.studies[request.study]
        return pb.RemoveStudyResponse()

    def _selected(self, request: Any) -> list[str]:
        selection = request.selection
        trials = [t.id for t in self.trials.get(selection.study, [])]
        chosen = list(selection.trials) or trials
        return [one for one in chosen if one not in self.unchanged]

    async def WatchJournal(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.WatchJournalResponse]:
        await self._begin(request, context)
        self.watching.set()
        left = self.break_after.pop(0) if self.break_after else None
        sent = request.after_sequence
        try:
            while True:
                for number in sorted({e.sequence for e in self.events if e.sequence > sent}):
                    if left == 0:
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
                    left = None if left is None else left - 1
                    sent = number
                    # All events of one journal entry come together.
                    entry = [e for e in self.events if e.sequence == number]
                    wanted = [
                        e
                        for e in entry
                        if e.kind != pb.PUBLIC_EVENT_KIND_REPORTED or request.reports
                    ]
                    yield pb.WatchJournalResponse(events=wanted)
                if request.once:
                    return
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def TailLogs(self, request: Any, context: Any) -> AsyncIterator[pb.TailLogsResponse]:
        await self._begin(request, context)
        offset = request.offset
        if offset < 0:
            offset = max(0, len(self.output) + offset)
        while offset < len(self.output):
            data = self.output[offset : offset + self.output_bytes]
            yield pb.TailLogsResponse(data=data, offset=offset)
            offset += len(data)
            if self.break_after and self.break_after.pop(0) == 0:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    async def ExportStudy(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.ExportStudyResponse]:
        await self._begin(request, context)
        await self._study(request.study, context)
        for data in self.exported:
            yield pb.ExportStudyResponse(data=data)

    async def DownloadCheckpoint(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.DownloadCheckpointResponse]:
        await self._begin(request, context)
        for chunk in self.checkpoint:
            yield chunk

    async def GetFiles(self, request: Any, context: Any) -> AsyncIterator[pb.GetFilesResponse]:
        await self._begin(request, context)
        for piece in self.files:
            yield piece


class HeadThread:
    """Serves a FakeHead on a Unix socket; can be taken away and brought back."""

    def __init__(self, socket: Path) -> None:
        self.head = FakeHead()
        self.socket = socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: aio.Server | None = None
        self.up()

    def up(self) -> None:
        async def serve() -> None:
            self._server = aio.server()
            control_pb2_grpc.add_ControlServiceServicer_to_server(self.head, self._server)
            self._server.add_insecure_port(f"unix:{self.socket}")
            await self._server.start()

        self._do(serve())

    def down(self) -> None:
        if self._server is not None:
            self._do(self._server.stop(None))
            self._server = None

    def close(self) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
