"""Everything that can be asked of a head without changing anything, on asyncio.

Rule: what streams goes on by itself from where it was; every failure is a HermesError.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from hermesctl.errors import NotFound
from hermesctl.sdk import from_wire
from hermesctl.sdk.connection import Connection
from hermesctl.sdk.events import Event
from hermesctl.sdk.follow import RECONNECT_SECONDS, OnGap, follow_logs, follow_study, watch
from hermesctl.sdk.records import (
    Curve,
    Explanation,
    Leaderboard,
    Node,
    ServerInfo,
    Study,
    StudyDetail,
    Trial,
    TrialDetail,
)
from hermesctl.sdk.requests import StudyRef, TrialRef, asked, path_of, ranking, study_id, trial_id
from hermesctl.sdk.transfer import OnProgress, download
from hermesctl.study_file.schema import nearest
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb

_PAGE_SIZE = 1_000


class AsyncReader:
    """Questions to the head at the other end of `connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    # --- looking -------------------------------------------------------------------------------

    async def server_info(self) -> ServerInfo:
        """The head's version and abilities."""
        request = pb.ServerInfoRequest()
        return from_wire.server_info(
            await self.connection.call(self.connection.stub.ServerInfo, request)
        )

    async def studies(self) -> AsyncGenerator[Study, None]:
        """All studies that may be seen, in the head's order."""
        token = ""
        while True:
            request = asked(pb.ListStudiesRequest, page_size=_PAGE_SIZE, page_token=token)
            page = await self.connection.call(self.connection.stub.ListStudies, request)
            for message in page.studies:
                yield from_wire.study(message)
            token = page.next_page_token
            if not token:
                return

    async def latest_study(self) -> Study | None:
        """The study that was submitted last, if there is any."""
        newest: Study | None = None
        async for study in self.studies():
            if newest is None or study.submitted_unix_seconds >= newest.submitted_unix_seconds:
                newest = study
        return newest

    async def study(self, study: StudyRef) -> StudyDetail:
        """A study, by its id or a unique prefix of it, with its trials."""
        request = asked(pb.GetStudyRequest, study=study_id(study))
        return from_wire.study_detail(
            await self.connection.call(self.connection.stub.GetStudy, request)
        )

    async def trials(self, study: StudyRef) -> AsyncGenerator[Trial, None]:
        """A study's trials by number."""
        token = ""
        while True:
            request = asked(
                pb.ListTrialsRequest, study=study_id(study), page_size=_PAGE_SIZE, page_token=token
            )
            page = await self.connection.call(self.connection.stub.ListTrials, request)
            for message in page.trials:
                yield from_wire.trial(message)
            token = page.next_page_token
            if not token:
                return

    async def trial(self, trial: TrialRef) -> TrialDetail:
        """One trial (`digits/17`), with the end of its output."""
        request = asked(pb.GetTrialRequest, trial=trial_id(trial))
        return from_wire.trial_detail(
            await self.connection.call(self.connection.stub.GetTrial, request)
        )

    async def best(
        self, study: StudyRef, count: int = 10, *, metric: str = "", goal: str = "", by: str = ""
    ) -> Leaderboard:
        """The leaderboard: at most `count` trials, best first; those without a metric last.

        With a `metric`, `goal` or `by` they are ranked by these this once, as of `set_metric`.
        """
        request = asked(pb.BestTrialsRequest, study=study_id(study), count=count)
        if metric or goal or by:
            name = metric or (await self.study(study)).study.metric
            request.metric.CopyFrom(ranking(name, goal, by))
        response = await self.connection.call(self.connection.stub.BestTrials, request)
        return from_wire.leaderboard(response)

    async def curve(self, trial: TrialRef, metric: str = "", max_points: int = 0) -> Curve:
        """A metric of a trial by step; the signal if none is named, all points if no maximum.

        Raises NotFound for a metric that is none of those that the trial has reported.
        """
        request = asked(
            pb.GetCurveRequest, trial=trial_id(trial), metric=metric, max_points=max_points
        )
        found = from_wire.curve(await self.connection.call(self.connection.stub.GetCurve, request))
        known = found.metrics_available
        if metric and known and metric not in known:
            near = nearest(metric, known)
            hint = f"; did you mean {printable(near)}?" if near else ""
            name, names = printable(trial_id(trial)), ", ".join(map(printable, known))
            raise NotFound(f"{name} has no metric {printable(metric)}: it has {names}{hint}")
        return found

    async def why(self, trial: TrialRef) -> Explanation:
        """Why a trial runs or waits, in the policy's own words."""
        request = asked(pb.ExplainTrialRequest, trial=trial_id(trial))
        return from_wire.explanation(
            await self.connection.call(self.connection.stub.ExplainTrial, request)
        )

    async def nodes(self) -> list[Node]:
        """The nodes with their devices."""
        request = pb.ListNodesRequest()
        response = await self.connection.call(self.connection.stub.ListNodes, request)
        return [from_wire.node(message) for message in response.nodes]

    # --- following -----------------------------------------------------------------------------

    async def events(
        self,
        study: StudyRef | None = None,
        *,
        after: int = 0,
        reports: bool = False,
        once: bool = False,
        reconnect_seconds: float = RECONNECT_SECONDS,
        on_gap: OnGap | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The journal's events after a sequence number: of one study or all, without end unless
        `once`. It reconnects by itself; `on_gap` is told of each break."""
        batches = watch(
            self.connection,
            study="" if study is None else study_id(study),
            after=after,
            reports=reports,
            once=once,
            reconnect_seconds=reconnect_seconds,
            on_gap=on_gap,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    yield event

    def follow(
        self,
        study: StudyRef,
        *,
        after: int = 0,
        reports: bool = True,
        reconnect_seconds: float = RECONNECT_SECONDS,
        on_gap: OnGap | None = None,
    ) -> AsyncGenerator[Event, None]:
        """A study's events until it has finished. It reconnects by itself."""
        return follow_study(
            self.connection,
            study_id(study),
            after=after,
            reports=reports,
            reconnect_seconds=reconnect_seconds,
            on_gap=on_gap,
        )

    async def wait(self, study: StudyRef) -> StudyDetail:
        """Return once the study has finished."""
        after = (await self.study(study)).journal_sequence
        async for _ in self.follow(study, after=after, reports=False):
            pass
        return await self.study(study)

    def logs(
        self,
        trial: TrialRef,
        *,
        offset: int = 0,
        follow: bool = False,
        on_gap: OnGap | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a trial printed, from a byte on (negative: from the end), and, with `follow`,
        what it prints until it ends."""
        return follow_logs(
            self.connection, trial_id(trial), offset=offset, follow=follow, on_gap=on_gap
        )

    # --- fetching ------------------------------------------------------------------------------

    async def export(self, study: StudyRef) -> AsyncGenerator[bytes, None]:
        """The study as JSON Lines: itself, its trials, its journal and its points."""
        request = asked(pb.ExportStudyRequest, study=study_id(study))
        messages = self.connection.stream(self.connection.stub.ExportStudy, request)
        async with aclosing(messages):
            async for message in messages:
                yield message.data

    async def download_checkpoint(
        self,
        trial: TrialRef,
        destination: str | os.PathLike[str],
        checkpoint: str = "",
        *,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """Write a trial's newest (or the named) checkpoint as a new directory; returns its
        files, which load without Hermes.

        With `force` the directory may hold files, of which those of the same names are replaced.
        `on_progress` is told how many bytes have come.
        """
        return await download(
            self.connection,
            trial_id(trial),
            path_of("destination", destination).absolute(),
            checkpoint,
            force=force,
            on_progress=on_progress,
        )
