"""The SDK on asyncio: everything that a head can be asked for or told to do.

A call that changes something has one request id however often it is sent, so a retry never has two
effects. A stream goes on by itself from where it was, and every failure is a HermesError.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from hermesctl.errors import HermesError, NotFound, StudyFileError, Unreachable, UsageError
from hermesctl.sdk import local, notebook, people
from hermesctl.sdk.address import embedded_head, find_head
from hermesctl.sdk.beside import beside
from hermesctl.sdk.comparison import StudyComparison, StudyTrace, compared, traced
from hermesctl.sdk.connection import PATIENCE_SECONDS, Connection, new_request_id
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.follow import (
    RECONNECT_SECONDS,
    OnGap,
    begin_of_lines,
    follow_logs,
    follow_study,
    watch,
)
from hermesctl.sdk.forecast import Forecast, Preview, forecast, policy_of, with_doubts
from hermesctl.sdk.from_wire import enum_word, leaderboard, record
from hermesctl.sdk.likeness import program, ran_meanwhile, signal_of
from hermesctl.sdk.local import expanded, with_further
from hermesctl.sdk.records import (
    ChangedTrials,
    Curve,
    Explanation,
    Fork,
    Invited,
    Leaderboard,
    Member,
    MetricChoice,
    Node,
    ServerInfo,
    Study,
    StudyDetail,
    Submission,
    Trial,
    TrialDetail,
    TrialFile,
    User,
)
from hermesctl.sdk.requests import (
    Changes,
    StudyRef,
    Target,
    TrialRef,
    addition,
    asked,
    extension,
    fork,
    path_of,
    ranking,
    refused,
    selections,
    study_id,
    trial_id,
)
from hermesctl.sdk.simulation import simulated
from hermesctl.sdk.token import find_token
from hermesctl.sdk.transfer import OnProgress, checkpoint_files, download, upload, work_files
from hermesctl.sdk.versions import check_skew, client_version
from hermesctl.study_file.load import NO_NUL, Document
from hermesctl.study_file.snapshot import CodeSnapshot, snapshot
from hermesctl.study_file.submission import (
    Prepared,
    UnsoundStudy,
    from_changed_spec,
    from_data,
    from_file,
    inherited_environment,
    interpreter,
    open_study,
    own_files,
    program_sha256,
)
from hermesctl.study_file.trees import keys_on, tree_of, with_value
from hermesctl.study_file.write import study_data
from hermesctl.text import count, nearest, one_line, printable
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import Goal, NamedValue, Signal, StudySpec, Value
from hermesd.security.identity import Role

StudySource: TypeAlias = str | os.PathLike[str] | Mapping[str, object] | StudySpec | Prepared

_SUBMIT_TIMEOUT_SECONDS = 300.0
# Trials on devices that are called by name where all are spoken of.
_NAMED = 8
_PAGE_SIZE = 1_000
PERSON_ROLES = (Role.USER, Role.OPERATOR, Role.ADMIN)
_LOOK_SECONDS = 1.0
_DAY_SECONDS = 86_400.0


class _Changed(Protocol):
    """An answer that names the trials that a request made a difference to."""

    @property
    def trials(self) -> Sequence[str]: ...


class AsyncClient:
    """A client of one head; an async context manager.

    `head` is an address (`127.0.0.1:7411`, `unix:PATH`); without it HERMES_HEAD counts, else this
    user's own head. With `local` it is the embedded head, started if it does not run.
    `patience_seconds` is how long calls are repeated while the head can't be reached.
    """

    def __init__(
        self,
        head: str | None = None,
        *,
        local: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.local = local
        address = embedded_head(os.environ) if local else find_head(head, os.environ)
        self.connection = Connection(
            address, token=find_token(os.environ, address), patience_seconds=patience_seconds
        )
        self._compatible = False

    async def __aenter__(self) -> AsyncClient:
        if self.local:
            await local.start(os.environ)
        await self.connection.keep_renewed()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.connection.address}>"

    # Looking.

    async def server_info(self) -> ServerInfo:
        """The head's version and abilities."""
        request = pb.ServerInfoRequest()
        return record(
            ServerInfo, await self.connection.call(self.connection.stub.ServerInfo, request)
        )

    async def studies(self) -> AsyncGenerator[Study, None]:
        """All studies that the caller may see, in the head's order, the newest first."""
        token = ""
        while True:
            request = asked(pb.ListStudiesRequest, page_size=_PAGE_SIZE, page_token=token)
            page = await self.connection.call(self.connection.stub.ListStudies, request)
            for message in page.studies:
                yield record(Study, message)
            token = page.next_page_token
            if not token:
                return

    async def latest_study(self) -> Study | None:
        """The study that was submitted last; None if there is none."""
        newest: Study | None = None
        async for study in self.studies():
            if newest is None or study.submitted_unix_seconds >= newest.submitted_unix_seconds:
                newest = study
        return newest

    async def study(self, study: StudyRef) -> StudyDetail:
        """A study with its trials.

        Args:
            study: its id, a unique prefix of that, or a record of it.

        Raises:
            NotFound: no study has this id, or several begin with it.
        """
        request = asked(pb.GetStudyRequest, study=study_id(study))
        return record(
            StudyDetail, await self.connection.call(self.connection.stub.GetStudy, request)
        )

    async def trials(self, study: StudyRef) -> AsyncGenerator[Trial, None]:
        """A study's trials by number.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
        token = ""
        while True:
            request = asked(
                pb.ListTrialsRequest, study=study_id(study), page_size=_PAGE_SIZE, page_token=token
            )
            page = await self.connection.call(self.connection.stub.ListTrials, request)
            for message in page.trials:
                yield record(Trial, message)
            token = page.next_page_token
            if not token:
                return

    async def trial(self, trial: TrialRef) -> TrialDetail:
        """One trial with the end of its output.

        Args:
            trial: its id (`digits/17`) or a record of it.

        Raises:
            NotFound: there is no such trial.
        """
        request = asked(pb.GetTrialRequest, trial=trial_id(trial))
        return record(
            TrialDetail, await self.connection.call(self.connection.stub.GetTrial, request)
        )

    async def best(
        self, study: StudyRef, count: int = 10, *, metric: str = "", goal: str = "", by: str = ""
    ) -> Leaderboard:
        """The leaderboard: best first, trials without a metric last.

        Args:
            study: as in `study`.
            count: how many trials at most.
            metric: rank by this metric, only now; the study's own if empty.
            goal: `minimize` or `maximize`; found as in `set_metric` if empty.
            by: which value counts, as in `set_metric`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
        """
        request = asked(pb.BestTrialsRequest, study=study_id(study), count=count)
        if metric or goal or by:
            name = metric or (await self.study(study)).study.metric
            request.metric.CopyFrom(ranking(name, goal, by))
        response = await self.connection.call(self.connection.stub.BestTrials, request)
        return leaderboard(response)

    async def curve(self, trial: TrialRef, metric: str = "", max_points: int = 0) -> Curve:
        """A metric of a trial by step.

        Args:
            trial: as in `trial`.
            metric: its name; empty for the study's signal.
            max_points: thin it out evenly to this many points; 0 for all.

        Raises:
            NotFound: there is no such trial, or it has not reported this metric.
        """
        request = asked(
            pb.GetCurveRequest, trial=trial_id(trial), metric=metric, max_points=max_points
        )
        found = record(Curve, await self.connection.call(self.connection.stub.GetCurve, request))
        known = found.metrics_available
        if metric and known and metric not in known:
            near = nearest(metric, known)
            hint = f"; did you mean {printable(near)}?" if near else ""
            name, names = printable(trial_id(trial)), ", ".join(map(printable, known))
            raise NotFound(f"{name} has no metric {printable(metric)}: it has {names}{hint}")
        return found

    async def why(self, trial: TrialRef) -> Explanation:
        """Why a trial runs or waits, in the policy's own words.

        Args:
            trial: as in `trial`.

        Raises:
            NotFound: there is no such trial.
        """
        request = asked(pb.ExplainTrialRequest, trial=trial_id(trial))
        return record(
            Explanation, await self.connection.call(self.connection.stub.ExplainTrial, request)
        )

    async def why_study(self, study: StudyRef) -> Explanation:
        """Why a study's trials run or wait: who is on a device, who is next, and why that one.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
        detail = await self.study(study)
        waiting = [trial for trial in detail.trials if not trial.state.final]
        first = (*detail.next_up, *(t.id for t in waiting), detail.trials[0].id)[0]
        found = await self.why(first)
        lines = [repr(detail.study).strip("<>")]
        on_devices = [trial.id for trial in detail.trials if trial.state.on_device]
        if on_devices:
            more = f" and {count(len(on_devices) - _NAMED, 'other')}" if on_devices[_NAMED:] else ""
            lines.append(f"on devices: {', '.join(on_devices[:_NAMED])}{more}")
        if waiting:
            names_it = found.summary.startswith(f"{first} ")
            words = one_line(found.summary)
            lines.append(words if names_it else f"{first}: {words}")
        return replace(found, trial=detail.study.id, summary="\n".join(lines), last_decision="")

    async def nodes(self) -> list[Node]:
        """The nodes with their devices."""
        request = pb.ListNodesRequest()
        response = await self.connection.call(self.connection.stub.ListNodes, request)
        return [record(Node, message) for message in response.nodes]

    # Following.

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
        """The journal's events, of one study or of all. Reconnects by itself.

        Args:
            study: as in `study`; None for all.
            after: only events after this sequence number.
            reports: include each report of a loss.
            once: end with the newest event; otherwise it never ends.
            reconnect_seconds: how long to wait before each attempt to reconnect.
            on_gap: called with the reason when the connection breaks.

        Raises:
            NotFound: there is no such study.
        """
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
        """A study's events until it has finished. Reconnects by itself.

        Args:
            study, after, reports, reconnect_seconds, on_gap: as in `events`.

        Raises:
            NotFound: there is no such study.
        """
        return follow_study(
            self.connection,
            study_id(study),
            after=after,
            reports=reports,
            reconnect_seconds=reconnect_seconds,
            on_gap=on_gap,
        )

    async def wait(self, study: StudyRef, *, progress: bool = False) -> StudyDetail:
        """Return once the study has finished.

        Args:
            study: as in `study`.
            progress: show a bar meanwhile, on stderr or in the notebook, and what its author should
                know, such as that its trials cannot run.

        Raises:
            NotFound: there is no such study.
        """
        detail = await self.study(study)
        if not progress:
            async for _ in self.follow(study, after=detail.journal_sequence, reports=False):
                pass
            return await self.study(study)
        with notebook.bar(detail.study.id) as show:

            async def look() -> None:
                while True:
                    await asyncio.sleep(_LOOK_SECONDS)
                    with suppress(HermesError):  # `follow` tells what is wrong, and waits
                        seen = await self.study(study)
                        show(seen.progress, seen.study.notices)

            show(detail.progress, detail.study.notices)
            async with beside(look()):
                async for _ in self.follow(study, after=detail.journal_sequence, reports=False):
                    pass
            detail = await self.study(study)
            show(detail.progress, ())
        return detail

    async def logs(
        self,
        trial: TrialRef,
        *,
        offset: int = 0,
        lines: int | None = None,
        follow: bool = False,
        rank: int = 0,
        on_gap: OnGap | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a trial's program printed.

        Args:
            trial: as in `trial`.
            offset: the byte to start from; if negative, this many bytes before the end.
            lines: start with this many last lines instead, within the last 16 MiB.
            follow: go on with what it prints until it ends.
            rank: of which of its processes, if it has one for each device.
            on_gap: called with the reason when the connection breaks.

        Raises:
            NotFound: there is no such trial.
            UsageError: no process of the trial can have that rank.
        """
        link, known = self.connection, trial_id(trial)
        if lines is not None:
            offset = await begin_of_lines(link, known, lines, rank=rank, on_gap=on_gap)
        chunks = follow_logs(link, known, offset=offset, follow=follow, rank=rank, on_gap=on_gap)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    # Fetching.

    async def export(self, study: StudyRef) -> AsyncGenerator[bytes, None]:
        """A study as JSON Lines: itself, its trials, its journal and its points.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
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
        """Write a trial's checkpoint as a new directory.

        Args:
            trial: as in `trial`.
            destination: the directory; new or empty.
            checkpoint: its id; empty for the newest.
            force: the directory may hold files, of which those of the same names are replaced.
            on_progress: called with the number of bytes received so far.

        Returns:
            The files, of which those for other programs load without Hermes.

        Raises:
            NotFound: there is no such trial, or it has no such checkpoint.
            UsageError: the directory can't be written to.
        """
        return await download(
            checkpoint_files(self.connection, trial_id(trial), checkpoint),
            path_of("destination", destination).absolute(),
            force=force,
            on_progress=on_progress,
        )

    async def files(
        self, trial: TrialRef, *patterns: str, written_only: bool = False
    ) -> list[TrialFile]:
        """The files of a trial's working copy, on the node where it ran last.

        Args:
            trial: as in `trial`.
            patterns: only those that have one of these paths, lie in one of these folders, or fit
                one of these patterns, in which `*` stands for anything; all if there are none.
            written_only: without files that came with the program and have not changed.

        Raises:
            NotFound: there is no such trial, or no such file.
        """
        only = {"names_only": True, "written_only": written_only}
        pieces = work_files(self.connection, trial_id(trial), patterns, **only)
        async with aclosing(pieces):
            return [
                TrialFile(piece.name, piece.size_bytes, piece.modified_unix_seconds)
                async for piece in pieces
            ]

    async def download_files(
        self,
        trial: TrialRef,
        destination: str | os.PathLike[str],
        *patterns: str,
        written_only: bool = False,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """Write the files that `files` lists as a new directory.

        Args:
            trial, patterns, written_only: as in `files`.
            destination, force, on_progress: as in `download_checkpoint`.

        Returns:
            The files, each as it was when it began to be read.

        Raises:
            NotFound: there is no such trial, or no such file.
            UsageError: the directory can't be written to.
        """
        return await download(
            work_files(self.connection, trial_id(trial), patterns, written_only=written_only),
            path_of("destination", destination).absolute(),
            force=force,
            on_progress=on_progress,
        )

    async def read_file(self, trial: TrialRef, path: str) -> AsyncGenerator[bytes, None]:
        """The content of a file of a trial's working copy, piece by piece.

        Args:
            trial: as in `trial`.
            path: its path in the working copy.

        Raises:
            NotFound: there is no such trial or file.
            UsageError: several files have this path as a pattern.
        """
        found = [file.path for file in await self.files(trial, path)]
        if len(found) > 1:
            raise UsageError(f"{printable(path)}: expected one file, these are several")
        async with aclosing(work_files(self.connection, trial_id(trial), (path,))) as pieces:
            async for piece in pieces:
                if piece.name in found:  # another may have come since
                    yield piece.data

    # Submitting.

    async def submit(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        again: bool = False,
        dry_run: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study.

        A study that is identical to an earlier one is not run twice: the answer names the earlier
        one.

        Args:
            study: the path of a study file or of a script, or a mapping with a study file's keys.
            directory: for a mapping, the folder of its program; the current one if None.
            again: run it although an identical study exists.
            dry_run: only check and expand it. If no head answers, this machine does that, and a
                note says that nodes and pools were not looked at.
            environment: variables for the trials, over those that they inherit. They are a part of
                the study: with other values it is not identical.

        Raises:
            StudyFileError: it is not a valid study, as this machine or the head found.
            SnapshotError: the program's folder can't be sent.
            Refused: the head does not accept it now.
        """
        prepared = await _prepared(study, path_of("directory", directory or ".").absolute())
        if dry_run:
            submission, _ = await self._checked(prepared, environment, again=again)
            return submission
        return await self._submitted(prepared, environment, again=again)

    async def _submitted(
        self,
        prepared: Prepared,
        environment: Mapping[str, str] | None,
        *,
        again: bool,
        dry_run: bool = False,
    ) -> Submission:
        await self._check_version()
        request = self._request(prepared, environment)
        request.validate_only, request.again = dry_run, again
        if not request.spec.search.asked:  # else nothing is run
            with _code(prepared, request) as code:
                if not dry_run:
                    await upload(self.connection, code)
                    request.code_sha256 = code.sha256
                    request.code_identity_sha256 = code.identity
        submission = await self._submit(request, prepared)
        notes = (*prepared.notes, *submission.notes)
        return replace(submission, notes=notes)

    async def _checked(
        self, prepared: Prepared, environment: Mapping[str, str] | None, *, again: bool = False
    ) -> tuple[Submission, bool]:
        """What a study would be, and whether a head said so: where none answers, this machine
        checks and expands it, and a note says what was left out."""
        try:
            return await self._submitted(prepared, environment, again=again, dry_run=True), True
        except Unreachable as error:
            return await self._expanded(prepared, environment, error), False

    async def preview(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Preview:
        """What a study would be, and when to expect results. Nothing is stored.

        If no head answers, this machine checks and expands it; then there is no forecast.

        Args:
            study, directory, environment: as in `submit`.

        Raises:
            StudyFileError: it is not a valid study.
            SnapshotError: the program's folder can't be sent.
        """
        prepared = await _prepared(study, path_of("directory", directory or ".").absolute())
        submission, by_head = await self._checked(prepared, environment)
        policy = policy_of(prepared, submission)
        if by_head:
            expected = await forecast(self, prepared, policy, submission)
        else:
            expected = Forecast(None, reason="no forecast: it needs a head with an earlier study")
        return Preview(await with_doubts(prepared, submission), policy, expected)

    async def _expanded(
        self, prepared: Prepared, environment: Mapping[str, str] | None, why: Unreachable
    ) -> Submission:
        """What a study would be for a head that has nothing yet."""
        request = self._request(prepared, environment)
        with _code(prepared, request):
            pass  # what could not be sent is refused as on submit
        try:
            response = await expanded(request)
        except UsageError as error:
            raise StudyFileError(prepared.located(error.problems)) from None
        note = (
            f"{str(why).splitlines()[0]}; checked without one, so not whether a node or pool can"
            " take its trials, nor whether it was submitted before"
        )
        submission = record(Submission, response)
        return replace(submission, notes=(note, *prepared.notes, *submission.notes))

    def _request(
        self, prepared: Prepared, environment: Mapping[str, str] | None
    ) -> pb.SubmitStudyRequest:
        """All of a submission but its code."""
        spec = StudySpec()
        spec.CopyFrom(prepared.spec)
        if not spec.conda:  # whose interpreter is each node's own
            here = self.connection.address.embedded
            spec.python = interpreter(spec.python, prepared.directory, here=here)
        return pb.SubmitStudyRequest(
            request_id=new_request_id(),
            spec=spec,
            submit_directory=str(prepared.directory),
            program_sha256=program_sha256(prepared),
            environment=_named_texts(inherited_environment(spec, os.environ)),
            given_environment=_named_texts(environment or {}),
        )

    async def clone(
        self,
        study: StudyRef,
        changes: Mapping[str, object] | Prepared | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study once more, with its own code and variables.

        Args:
            study: as in `study`.
            changes: new values by the keys of the study file, with dots for what lies deeper:
                `{"schedule.policy": "asha", "parameters.lr.values": [0.1, 0.2]}`.
            environment: variables over the study's own.

        Raises:
            NotFound: there is no such study.
            StudyFileError: a value is not valid.
            Refused: the head does not accept it now.
        """
        await self._check_version()
        original = (await self.study(study)).study
        prepared = changes if isinstance(changes, Prepared) else _changed(original, changes or {})
        same_program = program(study_data(prepared.spec)) == program(original.spec)
        request = pb.SubmitStudyRequest(
            request_id=new_request_id(),
            spec=prepared.spec,
            program_sha256=original.program_sha256 if same_program else "",
            code_sha256=original.code_sha256,
            submit_directory=original.submit_directory,
            again=True,
            given_environment=_named_texts(environment or {}),
            environment_of=original.id,
        )
        return await self._submit(request, prepared)

    async def replay(
        self, study: StudyRef, policies: str = "asha", devices: int | None = None
    ) -> dict[str, Any]:
        """How other policies would have run a study, in virtual time over its own curves.

        Args:
            study: as in `study`.
            policies: names with commas between them, each with its settings after a colon:
                `asha:eta=2,fifo`.
            devices: how many there are; as many as it ran on if None.

        Returns:
            What `hermesctl study replay -o json` prints.

        Raises:
            NotFound: there is no such study.
            UsageError: it can't be replayed, or there is no such policy.
        """
        found = (await self.study(study)).study
        flags = ["--policy", policies] + (["--devices", str(devices)] if devices else [])
        told = await simulated(found.id, self.export(found), "replay", *flags)
        # The answer has a version of its own; whoever shows it has another.
        document = {key: value for key, value in told.items() if key != "version"}
        others = [each.id async for each in self.studies() if ran_meanwhile(found, each)]
        return {**document, "meanwhile": others}

    async def compare(
        self, *studies: StudyRef, metric: str = "", goal: str = "", by: str = ""
    ) -> StudyComparison:
        """Studies side by side: their results, how soon these came, and how their files differ.

        Args:
            studies: two or more, as in `study`.
            metric, goal, by: rank by these, as in `best`; by the first study's own if empty, and by
                the last value where the metric is not the signal of all of them.

        Raises:
            NotFound: there is no such study.
            UsageError: fewer than two studies, or one has not reported the metric.
        """
        if len(studies) < 2:
            raise UsageError("compare: expected two studies or more")
        traces: list[StudyTrace] = []
        found = [(await self.study(ref)).study for ref in studies]
        own = await self.best(found[0], 1, metric=metric, goal=goal, by=by)
        metric, goal = own.metric, own.metric_goal
        # What is smoothed in one study can't be compared with another's last value.
        same = all(signal_of(study.spec).name == metric for study in found)
        by = by or ("last" if own.metric_mode == "smoothed" and not same else own.metric_mode)
        for study in found:
            board = await self.best(study, 1, metric=metric, goal=goal, by=by)
            name = "" if metric not in study.reported else metric
            curve = Curve("", (), (), ())
            if board and board[0].step:
                curve = await self.curve(board[0], name)
            traces.append(traced(study, board, curve, [event async for event in self._told(study)]))
        return compared(traces)

    async def _told(self, study: Study) -> AsyncGenerator[Event, None]:
        """The events of a study so far, with its reports; after its end there are none."""
        end = study.finished_unix_seconds
        async with aclosing(self.events(study, reports=True, once=True)) as events:
            async for event in events:
                yield event
                is_end = event.kind is EventKind.STUDY_FINISHED
                if is_end and end is not None and event.at_unix_seconds >= end:
                    return

    # Changing a study.

    async def pause(self, *targets: Target) -> list[str]:
        """Suspend trials until they are resumed.

        Args:
            targets: trials, or studies for all of their trials; records or ids.

        Returns:
            The ids of those that were neither paused nor over.

        Raises:
            NotFound: one of them does not exist.
        """
        return await self._each(self.connection.stub.PauseTrials, pb.PauseTrialsRequest, targets)

    async def resume(self, *targets: Target) -> list[str]:
        """Let paused trials compete for devices again.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that were paused.

        Raises:
            NotFound: one of them does not exist.
        """
        return await self._each(self.connection.stub.ResumeTrials, pb.ResumeTrialsRequest, targets)

    async def stop(self, *targets: Target) -> ChangedTrials:
        """End trials; their results stay. Works with a head of any version.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that were not over; its `notes` say what was lost with them.

        Raises:
            NotFound: one of them does not exist.
        """
        stopped = ChangedTrials()
        for selection in selections(targets):
            request = pb.StopTrialsRequest(request_id=new_request_id(), selection=selection)
            answer = await self.connection.call(self.connection.stub.StopTrials, request)
            stopped += answer.trials
            stopped.notes += answer.notes
        return stopped

    async def retry(self, *targets: Target) -> list[str]:
        """Run failed, stopped or cancelled trials again, from their last checkpoint.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that will run.

        Raises:
            NotFound: one of them does not exist.
        """
        return await self._each(self.connection.stub.RetryTrials, pb.RetryTrialsRequest, targets)

    async def tag(
        self, *targets: Target, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> list[str]:
        """Add tags to trials, and remove others.

        Args:
            targets: as in `pause`.
            add: tags to give: words without spaces, commas and slashes.
            remove: tags to take away.

        Returns:
            The ids of the trials.

        Raises:
            NotFound: one of them does not exist.
            UsageError: a tag is not valid.
        """
        return await self._mark(targets, add_tags=add, remove_tags=remove)

    async def note(self, *targets: Target, text: str) -> list[str]:
        """Write a note on trials, which replaces the one that they have.

        Args:
            targets: as in `pause`.
            text: the note; empty to take it away.

        Returns:
            The ids of the trials.

        Raises:
            NotFound: one of them does not exist.
        """
        return await self._mark(targets, note=text)

    async def _mark(self, targets: Sequence[Target], **marks: object) -> list[str]:
        await self._check_version()
        marked: list[str] = []
        for selection in selections(tuple(targets)):
            request = asked(pb.MarkTrialsRequest, request_id=new_request_id(), **marks)
            request.selection.CopyFrom(selection)
            marked += (await self.connection.call(self.connection.stub.MarkTrials, request)).trials
        return marked

    async def _each(
        self,
        method: Callable[..., Awaitable[_Changed]],
        request: Callable[..., Message],
        targets: tuple[Target, ...],
    ) -> list[str]:
        """Ask for the trials of one study after the other; returns those that it made a
        difference to."""
        await self._check_version()
        changed: list[str] = []
        for selection in selections(targets):
            asked = request(request_id=new_request_id(), selection=selection)
            changed += (await self.connection.call(method, asked)).trials
        return changed

    async def extend(
        self,
        *targets: Target | Mapping[str, object],
        stop: Changes | None = None,
        parameters: Changes | None = None,
        new: Changes | None = None,
        run_cap: int | None = None,
        axes: Changes | None = None,
    ) -> ChangedTrials:
        """Let trials train longer, or change what a running study is to do.

        Finished trials go on from their last checkpoint; one whose program has ended by itself
        needs a length that rises. A study that runs goes by new stop rules at once. After a change
        of `run_cap` or `axes`, trials that have not begun are drawn again, or ended if they are too
        many.

        Args:
            targets: as in `pause`; the last may be a mapping, which is then `parameters`.
            stop: stop rules by the keys of the study file, `{"max_steps": 1000}`.
            parameters: new values of hyper-parameters, `{"epochs": 20}`.
            new: arguments of the program that the study has no parameter for.
            run_cap: how many trials the study is to have.
            axes: new bounds of a random search, `{"lr": {"max": 0.01}}`.

        Returns:
            The ids of the trials that changed; its `notes` say what became of them.

        Raises:
            NotFound: one of them does not exist.
            UsageError: the arguments contradict each other.
            StudyFileError: a value is not valid.
            Refused: a trial can't be extended.
        """
        requests = extension(targets, parameters, new, stop, run_cap, axes)
        await self._check_version()
        changed = ChangedTrials()
        for request in requests:
            request.request_id = new_request_id()
            answer = await self.connection.call(self.connection.stub.ExtendStudy, request)
            changed += answer.trials
            changed.notes += answer.notes
        return changed

    async def add(
        self,
        study: StudyRef,
        parameters: Changes | None = None,
        *,
        new: Changes | None = None,
        count: int | None = None,
    ) -> Submission:
        """Add trials to a study, even if it has finished.

        Args:
            study: as in `study`.
            parameters: values or axes in place of the study's own of these names, as in a study
                file: `{"lr": 3e-4}`, `{"lr": [1e-4, 3e-4]}`, `{"lr": {"min": 0.1, "max": 0.5}}`.
            new: arguments of the program that the study has no parameter for.
            count: how many to draw, or how many new points of a grid to take at most.

        Returns:
            The study, with only the new trials.

        Raises:
            NotFound: there is no such study.
            UsageError: there is nothing to add.
            StudyFileError: a value is not valid.
            Refused: the quota does not allow it.
        """
        request = addition(parameters, new)
        request.MergeFrom(asked(pb.AddTrialsRequest, study=study_id(study), count=count))
        await self._check_version()
        request.request_id = new_request_id()
        answer = await self.connection.call(
            self.connection.stub.AddTrials, request, timeout_seconds=_SUBMIT_TIMEOUT_SECONDS
        )
        trials = tuple(record(Trial, each) for each in answer.trials)
        return Submission(answer.study, trials, "", tuple(answer.notes))

    async def ask(self, study: StudyRef) -> Trial:
        """The next trial of a study whose trials your own loop trains (`search: {asked: true}`).

        Its searcher proposes it from all results that were reported until then.

        Args:
            study: as in `study`.

        Returns:
            The trial, whose `params` are to be tried; `tell` reports the result.

        Raises:
            NotFound: there is no such study.
            Refused: its trials run on nodes, or all of them were asked for.
        """
        await self._check_version()
        request = asked(pb.AskTrialRequest, study=study_id(study), request_id=new_request_id())
        answer = await self.connection.call(
            self.connection.stub.AskTrial, request, timeout_seconds=_SUBMIT_TIMEOUT_SECONDS
        )
        return record(Trial, answer.trial)

    async def tell(
        self, trial: TrialRef, metrics: Mapping[str, float] | None = None, *, failure: str = ""
    ) -> Trial:
        """Report the result of a trial that was asked for, which ends it.

        Args:
            trial: as in `trial`.
            metrics: `{"loss": 0.31}`, the study's metric among them.
            failure: why it failed, if it did.

        Returns:
            The trial, with its rank.

        Raises:
            NotFound: there is no such trial.
            UsageError: there is neither a metric nor a failure, or it is over.
        """
        await self._check_version()
        request = asked(
            pb.TellTrialRequest, trial=trial_id(trial), request_id=new_request_id(), failure=failure
        )
        for name, value in (metrics or {}).items():
            request.metrics.add(name=name, value=float(value))
        answer = await self.connection.call(self.connection.stub.TellTrial, request)
        return record(Trial, answer.trial)

    async def fork(
        self,
        trial: TrialRef,
        parameters: Changes | None = None,
        *,
        new: Changes | None = None,
        step: int | None = None,
    ) -> Fork:
        """Add a trial that goes on from where another one is.

        Args:
            trial: the other one, as in `trial`; it may run, wait or be over, and isn't changed.
            parameters: values in place of that trial's: `{"learning_rate": 3e-4}`.
            new: the same beyond the bounds of the study, or of arguments that it has no parameter
                for.
            step: of the checkpoint to go on from; if not given, of the newest. Of a trial that
                runs or is parked one is written first, as it is now, if that can be done within
                20 s.

        Returns:
            The new trial, which waits for its turn. Its `notes` say why, if it begins earlier
            than where the other one is.

        Raises:
            NotFound: there is no such trial.
            StudyFileError: a value is not valid.
            Refused: there is no checkpoint, or the quota does not allow it.
        """
        request = fork(parameters, new)
        request.MergeFrom(asked(pb.ForkTrialRequest, trial=trial_id(trial), step=step))
        await self._check_version()
        request.request_id = new_request_id()
        answer = await self.connection.call(self.connection.stub.ForkTrial, request)
        made = record(Trial, answer.trial)
        known = {each.name: getattr(made, each.name) for each in fields(made)}
        return Fork(**known, notes=tuple(answer.notes))

    async def set_metric(
        self, study: StudyRef, metric: str, *, goal: str = "", by: str = ""
    ) -> MetricChoice:
        """Have a study's leaderboard rank by another metric from now on.

        This does not change what policies read; the answer's notes say so where it matters.

        Args:
            study: as in `study`.
            metric: a metric that its trials have reported.
            goal: `minimize` or `maximize`; if empty, the study's goal for that metric, else
                `minimize`.
            by: which value counts: `last`, `best`, or, of the study's signal, `smoothed`, the mean
                of its last tenth. If empty, `smoothed` for the signal, else `last`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
            Refused: no trial has reported anything yet.
        """
        await self._check_version()
        request = asked(pb.SetMetricRequest, request_id=new_request_id(), study=study_id(study))
        request.metric.CopyFrom(ranking(metric, goal, by))
        return record(
            MetricChoice, await self.connection.call(self.connection.stub.SetMetric, request)
        )

    async def set_signal(self, study: StudyRef, metric: str, *, goal: str = "") -> str:
        """Have policies read another metric of a study from now on, including its curves so far.

        Args:
            study: as in `study`.
            metric: a metric that its trials have reported.
            goal: as in `set_metric`.

        Returns:
            The goal, `minimize` or `maximize`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
            Refused: no trial has reported anything yet, or the study has a `stop.target`.
        """
        await self._check_version()
        request = asked(pb.SetSignalRequest, request_id=new_request_id(), study=study_id(study))
        wanted = ranking(metric, goal, "")
        request.signal.CopyFrom(Signal(name=wanted.name, goal=wanted.goal))
        response = await self.connection.call(self.connection.stub.SetSignal, request)
        return enum_word(Goal.DESCRIPTOR, response.signal.goal)

    async def remove(self, study: StudyRef) -> None:
        """Delete a study with everything that it left on disks.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
            Refused: some of its trials are not over.
        """
        request = asked(pb.RemoveStudyRequest, request_id=new_request_id(), study=study_id(study))
        await self.connection.call(self.connection.stub.RemoveStudy, request)

    # Nodes and people.

    async def users(self) -> list[User]:
        """What each user has, has used lately and may have; to a user only themselves."""
        return await people.users(self.connection)

    async def members(self) -> list[Member]:
        """The nodes and people with a certificate, by name; to a user only themselves."""
        return await people.members(self.connection)

    async def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """Invite a person to log in, once.

        Args:
            name: the person's name.
            role: `user`, `operator` or `admin`.
            days: how long the invitation is good for.

        Returns:
            The token and the address for `hermesctl login`.

        Raises:
            UsageError: the name or the role is not valid.
            Refused: the head has no certificates of its own.
        """
        return await people.invite(self.connection, _person(role), name, days * _DAY_SECONDS)

    async def revoke(self, name: str, role: str | None = None) -> None:
        """End a person's access at once.

        Args:
            name: the person's name.
            role: only in this role; None for all.

        Raises:
            NotFound: they have no access.
        """
        roles = [_person(each) for each in ([role] if role else PERSON_ROLES)]
        await people.revoke(self.connection, roles, name)

    async def drain(self, node: str) -> Node:
        """Start nothing new on a node, and have its trials leave it.

        Each run goes on to the end of its quantum and is then written to disk; parked trials are
        written at once. If the node drains already, what it could not write is tried again.

        Args:
            node: its name.

        Returns:
            The node as it is now.

        Raises:
            NotFound: there is no such node.
        """
        request = asked(pb.DrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.DrainNode, request)
        return record(Node, answer.node)

    async def undrain(self, node: str) -> Node:
        """Use a draining node again.

        Args:
            node: its name.

        Raises:
            NotFound: there is no such node.
            Refused: it is not draining.
        """
        request = asked(pb.UndrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.UndrainNode, request)
        return record(Node, answer.node)

    async def lose(self, node: str, for_good: bool = False) -> Node:
        """Have a silent node's trials go on elsewhere now, before its lease is over.

        Only for a machine that is off: what still runs there would run a second time elsewhere
        until its own lease ends it.

        Args:
            node: its name.
            for_good: it is not expected back: its files count as gone, and it is no longer listed.

        Raises:
            NotFound: there is no such node.
            Refused: it is connected.
        """
        request = asked(
            pb.LoseNodeRequest, request_id=new_request_id(), node=node, for_good=for_good
        )
        answer = await self.connection.call(self.connection.stub.LoseNode, request)
        return record(Node, answer.node)

    async def release(self, place: str) -> Node:
        """Take a node with its devices, or a device, out of quarantine.

        What failed there is forgotten.

        Args:
            place: a node's name, or a device's (`gpu2/cpu0`).

        Returns:
            The node.

        Raises:
            NotFound: there is no such place.
            Refused: nothing is held against it.
        """
        node, _, device = place.partition("/")
        request = pb.ReleaseNodeRequest(request_id=new_request_id(), node=node, device=device)
        answer = await self.connection.call(self.connection.stub.ReleaseNode, request)
        return record(Node, answer.node)

    async def wait_drained(self, node: str) -> Node:
        """Return once nothing runs or is parked on a draining node, or it is to be used again.

        Args:
            node: its whole name.

        Raises:
            NotFound: there is no such node.
        """
        while True:
            found = next((each for each in await self.nodes() if each.id == node), None)
            if found is None:
                raise NotFound(f"there is no node {node}")
            if found.drained or not found.draining:
                return found
            await asyncio.sleep(_LOOK_SECONDS)

    async def _submit(self, request: pb.SubmitStudyRequest, prepared: Prepared) -> Submission:
        try:
            response = await self.connection.call(
                self.connection.stub.SubmitStudy, request, _SUBMIT_TIMEOUT_SECONDS
            )
        except UsageError as error:
            if not error.problems:
                raise
            raise StudyFileError(prepared.located(error.problems)) from None
        submission = record(Submission, response)
        if response.identical_to and not submission.trials:
            trials = (await self.study(response.identical_to)).trials
            submission = replace(submission, trials=trials)
        return submission

    async def _check_version(self) -> None:
        if not self._compatible:
            check_skew(client_version(), (await self.server_info()).version)
            self._compatible = True


def _person(role: str) -> Role:
    """The role of this name, if a person may have it. Raises UsageError."""
    if role in PERSON_ROLES:
        return Role(role)
    raise refused("role", role, f"one of {', '.join(PERSON_ROLES)}")


def _changed(original: Study, changes: Mapping[str, object]) -> Prepared:
    """A study with new values for some of its keys. Raises StudyFileError."""
    tree = tree_of(original.spec, original.id)
    for key, value in changes.items():
        (entry,) = tree_of({key: value}, "changes").entries
        tree = with_value(tree, keys_on(key, tree), entry.node)
    return from_changed_spec(Document(tree, ()), Path(original.submit_directory))


async def _prepared(study: StudySource, directory: Path) -> Prepared:
    """Raises StudyFileError with all that this machine finds wrong."""
    try:
        return _read(study, directory)
    except UnsoundStudy as error:
        raise await with_further(error) from None


def _read(study: StudySource, directory: Path) -> Prepared:
    match study:
        case Prepared():
            return study
        case StudySpec():
            return from_data(study_data(study), directory)
        case Mapping():
            return from_data(study, directory)
        case _:
            path = path_of("study", study)
            return from_file(path, open_study(path), Path.cwd())


def _code(
    prepared: Prepared, request: pb.SubmitStudyRequest
) -> AbstractContextManager[CodeSnapshot]:
    """The code that goes with a request, packed; raises SnapshotError."""
    own = own_files(prepared)
    return snapshot(prepared.directory, tuple(request.spec.data), own_files=own)


def _named_texts(texts: Mapping[str, str]) -> list[NamedValue]:
    named = []
    for name, text in texts.items():
        if "\0" in str(text):
            raise refused(f"environment.{name}", text, NO_NUL)
        try:
            named.append(NamedValue(name=name, value=Value(string_value=text)))
        except (TypeError, ValueError):
            raise refused(f"environment.{name}", text, "text in UTF-8") from None
    return named
