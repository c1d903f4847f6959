"""The SDK on asyncio: everything that can be asked of a head, and done.

A mutation has one request id however often it is sent, so a retry never has two effects; a stream
goes on by itself from where it was; every failure is a HermesError.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from hermesctl.errors import NotFound, StudyFileError, Unreachable, UsageError
from hermesctl.sdk import from_wire, local, notebook, records
from hermesctl.sdk.address import embedded_head, find_head
from hermesctl.sdk.comparison import StudyComparison, StudyTrace, compared, traced
from hermesctl.sdk.connection import PATIENCE_SECONDS, Connection, new_request_id
from hermesctl.sdk.events import Event
from hermesctl.sdk.expand import expanded
from hermesctl.sdk.follow import RECONNECT_SECONDS, OnGap, follow_logs, follow_study, watch
from hermesctl.sdk.forecast import Forecast, Preview, forecast, policy_of, with_doubts
from hermesctl.sdk.likeness import program, ran_meanwhile
from hermesctl.sdk.records import (
    ChangedTrials,
    Curve,
    Explanation,
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
    from_changed_spec,
    from_data,
    from_file,
    inherited_environment,
    interpreter,
    open_study,
    own_files,
    program_sha256,
)
from hermesctl.study_file.trees import tree_of, with_value
from hermesctl.study_file.write import plugin_label, study_data
from hermesctl.text import nearest, printable
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import Goal, NamedValue, Signal, StudySpec, Value
from hermesd.security.identity import Role

StudySource: TypeAlias = str | os.PathLike[str] | Mapping[str, object] | StudySpec | Prepared

_SUBMIT_TIMEOUT_SECONDS = 300.0
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

    async def wait(self, study: StudyRef, *, progress: bool = False) -> StudyDetail:
        """Return once the study has finished; with `progress` a bar shows how far it is."""
        detail = await self.study(study)
        if not progress:
            async for _ in self.follow(study, after=detail.journal_sequence, reports=False):
                pass
            return await self.study(study)
        with notebook.bar(detail.study.id) as show:
            show(detail.progress)
            told = time.monotonic()
            async for _ in self.follow(study, after=detail.journal_sequence):
                if time.monotonic() - told >= _LOOK_SECONDS:
                    show((await self.study(study)).progress)
                    told = time.monotonic()
            detail = await self.study(study)
            show(detail.progress)
        return detail

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
            checkpoint_files(self.connection, trial_id(trial), checkpoint),
            path_of("destination", destination).absolute(),
            force=force,
            on_progress=on_progress,
        )

    async def files(self, trial: TrialRef, *patterns: str) -> list[TrialFile]:
        """The files of a trial's working copy, on the node where it ran last: all of them, or those
        that are one of the paths, lie in one of the folders or fit one of the patterns given, in
        which `*` stands for anything. Raises NotFound where there is none."""
        pieces = work_files(self.connection, trial_id(trial), patterns, names_only=True)
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
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """Write the files that `files` lists as a new directory; returns them, each as it was when
        it was begun to be read. `force` and `on_progress` as of `download_checkpoint`."""
        return await download(
            work_files(self.connection, trial_id(trial), patterns),
            path_of("destination", destination).absolute(),
            force=force,
            on_progress=on_progress,
        )

    async def read_file(self, trial: TrialRef, path: str) -> AsyncGenerator[bytes, None]:
        """What a file of a trial's working copy holds, piece by piece. Raises NotFound where there
        is none, UsageError where there are several."""
        name = ""
        async with aclosing(work_files(self.connection, trial_id(trial), (path,))) as pieces:
            async for piece in pieces:
                if name not in ("", piece.name):
                    raise UsageError(f"{printable(path)}: expected one file, these are several")
                name = piece.name
                yield piece.data

    # --- submitting ----------------------------------------------------------------------------

    async def submit(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        again: bool = False,
        dry_run: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study: a file's path, or a dict with a study file's keys and the `directory`
        of its program (default: the present one).

        An identical study that is there already is answered with instead of being run twice,
        unless `again`. With `dry_run` the study is only checked and expanded; where no head
        answers, this machine does that, and a note says that nodes and pools were not looked at.
        `environment` is for the trials, beside what programs usually depend on, and a part of the
        study: with another value it is not identical.
        Raises StudyFileError for what is no study, whether that is found here or by the head,
        and Refused for what the head won't have now.
        """
        prepared = _prepared(study, path_of("directory", directory or ".").absolute())
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
        """What a study would be, and when it can be expected to have something; nothing is stored.

        `study`, `directory` and `environment` are those of `submit`, and so is what is raised, but
        that a head need not answer: then this machine checks and expands it, as its notes say, and
        nothing is known of when.
        """
        prepared = _prepared(study, path_of("directory", directory or ".").absolute())
        submission, by_head = await self._checked(prepared, environment)
        policy = policy_of(prepared, submission)
        if by_head:
            expected = await forecast(self, prepared, policy, submission)
        else:
            expected = Forecast(None, reason="no forecast: that takes a head with an earlier study")
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
            f"{str(why).splitlines()[0]}; checked without one, so not whether any node or pool can"
            " take its trials, or whether it was submitted before"
        )
        submission = _submission(response)
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
        """Submit a study once more, over the very same code and with its variables.

        `changes` are new values by the keys of the study file, with dots for what lies deeper:
        `{"name": "again", "schedule.policy": "asha", "parameters.lr.values": [0.1, 0.2]}`.
        `environment` is over the study's own variables. Raises as `submit` does, and NotFound.
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
        """What other policies would have made of a study, in virtual time over its own curves.

        `policies` are names with commas between, each with its settings after a colon as in
        `asha:eta=2`; `devices` are as many as it ran on by default. The answer has the keys of
        `hermesctl study replay -o json`. Raises UsageError for what cannot be replayed, and
        NotFound.
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
        """Two or more studies side by side: what each came to, its best trial's curve at the same
        steps and its best value at the same times, and in what their files differ.

        They are ranked by the metric of the first, or by `metric`, `goal` and `by` as of `best`.
        Raises UsageError for fewer than two or a metric that one has not reported, NotFound.
        """
        if len(studies) < 2:
            raise UsageError("compare: expected two studies or more")
        traces: list[StudyTrace] = []
        for ref in studies:
            study = (await self.study(ref)).study
            board = await self.best(study, 1, metric=metric, goal=goal, by=by)
            metric, goal, by = board.metric, board.metric_goal, board.metric_mode
            name = "" if metric not in study.reported else metric
            curve = Curve("", (), (), ())
            if board and board[0].step:
                curve = await self.curve(board[0], name)
            async with aclosing(self.events(study, reports=True, once=True)) as events:
                traces.append(traced(study, board, curve, [event async for event in events]))
        return compared(traces)

    # --- changing a study ----------------------------------------------------------------------

    async def pause(self, *targets: Target) -> list[str]:
        """Suspend trials, or all of a study's, until they are resumed; returns those that were
        neither paused nor over."""
        return await self._each(self.connection.stub.PauseTrials, pb.PauseTrialsRequest, targets)

    async def resume(self, *targets: Target) -> list[str]:
        """Let paused trials compete for devices again; returns those that were paused."""
        return await self._each(self.connection.stub.ResumeTrials, pb.ResumeTrialsRequest, targets)

    async def stop(self, *targets: Target) -> ChangedTrials:
        """End trials, their results stay; returns those that were not over, and in its `notes` what
        was lost with them. Works with a head of any version."""
        stopped = ChangedTrials()
        for selection in selections(targets):
            request = pb.StopTrialsRequest(request_id=new_request_id(), selection=selection)
            answer = await self.connection.call(self.connection.stub.StopTrials, request)
            stopped += answer.trials
            stopped.notes += answer.notes
        return stopped

    async def retry(self, *targets: Target) -> list[str]:
        """Run failed, stopped or cancelled trials again, from their last checkpoint."""
        return await self._each(self.connection.stub.RetryTrials, pb.RetryTrialsRequest, targets)

    async def tag(
        self, *targets: Target, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> list[str]:
        """Give trials tags, or all of a study's, and take others from them; returns the trials.

        A tag is a word without spaces, commas and slashes. Raises UsageError for one that won't
        do, NotFound.
        """
        return await self._mark(targets, add_tags=add, remove_tags=remove)

    async def note(self, *targets: Target, text: str) -> list[str]:
        """Write a note to trials, over the one that they have; an empty text takes it away."""
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
        """Let trials go on for longer, or change what a study is to do; returns those changed.

        `targets` are studies, trials or their ids. `stop` sets stop rules, by the keys of the
        study file ({"max_steps": 1000}); `parameters` gives hyper-parameters new values
        ({"epochs": 20}), and may stand right after the targets instead; `new` gives the program
        arguments that the study has no parameter for. Finished trials go on from their last
        checkpoint; one whose program has ended by itself needs a length that rises.

        A study that runs goes by new stop rules at once. `run_cap` is how many trials it is to
        have, `axes` sets bounds of a random search ({"lr": {"max": 0.01}}): trials that have not
        begun are drawn again, or ended if they are too many. The `notes` of the answer say what
        became of them. Raises UsageError for what can't be meant, StudyFileError for values that
        won't do, NotFound, and Refused where a trial can't be extended.
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
        """Give a study further trials, also one that has finished; the answer has them alone.

        `parameters` are values or axes in the place of the study's of those names, as in a study
        file: {"lr": 3e-4}, {"lr": [1e-4, 3e-4]}, {"lr": {"min": 0.1, "max": 0.5}}; all others are
        the study's own. `new` are arguments of the program that the study has no parameter for. A
        grid gives the points that no trial has, at most `count`; of a random search `count` more
        are drawn. Raises UsageError and StudyFileError for what won't do, NotFound, and Refused
        where the quota does not allow them.
        """
        request = addition(parameters, new)
        request.MergeFrom(asked(pb.AddTrialsRequest, study=study_id(study), count=count))
        await self._check_version()
        request.request_id = new_request_id()
        answer = await self.connection.call(
            self.connection.stub.AddTrials, request, timeout_seconds=_SUBMIT_TIMEOUT_SECONDS
        )
        trials = tuple(map(from_wire.trial, answer.trials))
        return Submission(answer.study, trials, "", tuple(answer.notes))

    async def set_metric(
        self, study: StudyRef, metric: str, *, goal: str = "", by: str = ""
    ) -> MetricChoice:
        """Have a study's leaderboard rank by another metric that its trials have reported.

        `goal` is `minimize` or `maximize`; without one the goal that the study gives that metric,
        else `minimize`. `by` is which value counts, `last` or `best`, or of the study's signal
        `smoothed`, the mean of its last tenth; without one `smoothed` for the signal, else `last`.
        What policies read is not changed; the answer's notes say so where it matters.

        Raises UsageError for a metric that nobody reported, Refused while nobody reported any.
        """
        await self._check_version()
        request = asked(pb.SetMetricRequest, request_id=new_request_id(), study=study_id(study))
        request.metric.CopyFrom(ranking(metric, goal, by))
        return from_wire.metric_choice(
            await self.connection.call(self.connection.stub.SetMetric, request)
        )

    async def set_signal(self, study: StudyRef, metric: str, *, goal: str = "") -> str:
        """Have policies read another metric that a study's trials have reported; returns the goal,
        `minimize` or `maximize`, which is found as in `set_metric` if none is given.

        The trials' curves so far are read anew. Raises UsageError for a metric that nobody
        reported, Refused while nobody reported any or for a study with a `stop.target`.
        """
        await self._check_version()
        request = asked(pb.SetSignalRequest, request_id=new_request_id(), study=study_id(study))
        wanted = ranking(metric, goal, "")
        request.signal.CopyFrom(Signal(name=wanted.name, goal=wanted.goal))
        response = await self.connection.call(self.connection.stub.SetSignal, request)
        return from_wire.enum_word(Goal.DESCRIPTOR, response.signal.goal)

    async def remove(self, study: StudyRef) -> None:
        """Forget a study with all that it left on disks."""
        request = asked(pb.RemoveStudyRequest, request_id=new_request_id(), study=study_id(study))
        await self.connection.call(self.connection.stub.RemoveStudy, request)

    # --- nodes and people ----------------------------------------------------------------------

    async def users(self) -> list[User]:
        """What each user has, has used lately and may have; to a user themselves alone."""
        return await records.users(self.connection)

    async def members(self) -> list[Member]:
        """The nodes and people with a certificate, by name; to a user themselves alone."""
        return await records.members(self.connection)

    async def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """A token, good once and for so many days, by which a person may log in: a `user`, an
        `operator` or an `admin`. Raises UsageError, and Refused by a head without certificates."""
        return await records.invite(self.connection, _person(role), name, days * _DAY_SECONDS)

    async def revoke(self, name: str, role: str | None = None) -> None:
        """End a person's access at once, in one role or in all. Raises NotFound where they have
        none."""
        roles = [_person(each) for each in ([role] if role else PERSON_ROLES)]
        await records.revoke(self.connection, roles, name)

    async def drain(self, node: str) -> Node:
        """Give a node nothing new and have it give up what it has; the node, as it is now.

        Each run goes on to the end of its quantum and is then written down, and what is parked is
        written down at once. Again for a draining node: it tries again what it could not write.
        """
        request = asked(pb.DrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.DrainNode, request)
        return from_wire.node(answer.node)

    async def undrain(self, node: str) -> Node:
        """Put a draining node to use again. Raises Refused for one that is not draining."""
        request = asked(pb.UndrainNodeRequest, request_id=new_request_id(), node=node)
        answer = await self.connection.call(self.connection.stub.UndrainNode, request)
        return from_wire.node(answer.node)

    async def lose(self, node: str, for_good: bool = False) -> Node:
        """Have a silent node's trials go on elsewhere now, instead of when its lease is out.

        Only for a machine that is off: what runs there still would run a second time elsewhere
        until its own lease ends it. With `for_good` it is not expected back: its files count as
        gone, and it is listed no more. Raises NotFound, and Refused for a node that is connected.
        """
        request = asked(
            pb.LoseNodeRequest, request_id=new_request_id(), node=node, for_good=for_good
        )
        answer = await self.connection.call(self.connection.stub.LoseNode, request)
        return from_wire.node(answer.node)

    async def release(self, place: str) -> Node:
        """Take a node (with all its devices) or a device (`gpu2/cpu0`) out of quarantine.

        What failed there is forgotten. Raises NotFound, and Refused if nothing is held against it.
        """
        node, _, device = place.partition("/")
        request = pb.ReleaseNodeRequest(request_id=new_request_id(), node=node, device=device)
        answer = await self.connection.call(self.connection.stub.ReleaseNode, request)
        return from_wire.node(answer.node)

    async def wait_drained(self, node: str) -> Node:
        """Return once nothing runs or is parked on a draining node, or it is to be used again.

        `node` is its whole name. Raises NotFound if there is none.
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
        submission = _submission(response)
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


def _submission(response: pb.SubmitStudyResponse) -> Submission:
    return Submission(
        study=response.study or response.identical_to,
        trials=tuple(map(from_wire.trial, response.trials)),
        identical_to=response.identical_to,
        notes=tuple(response.notes),
        policy=plugin_label(response.policy, response.placement),
        fitting_devices=response.fitting_devices,
        misfits=tuple(response.misfits),
    )


def _changed(original: Study, changes: Mapping[str, object]) -> Prepared:
    """A study with new values for some of its keys. Raises StudyFileError."""
    tree = tree_of(original.spec, original.id)
    for key, value in changes.items():
        (entry,) = tree_of({key: value}, "changes").entries
        tree = with_value(tree, key.split("."), entry.node)
    return from_changed_spec(Document(tree, ()), Path(original.submit_directory))


def _prepared(study: StudySource, directory: Path) -> Prepared:
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
