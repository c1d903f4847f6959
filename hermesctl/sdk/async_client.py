"""The SDK on asyncio: what async_reader asks, what async_upkeep does, and every other change.

Rule: a mutation has one request id however often it is sent, so a retry never has two effects.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from hermesctl.errors import HermesError, StudyFileError, Unreachable, UsageError
from hermesctl.sdk import from_wire, local
from hermesctl.sdk.address import embedded_head, find_head
from hermesctl.sdk.async_upkeep import AsyncUpkeep
from hermesctl.sdk.connection import PATIENCE_SECONDS, Connection, new_request_id, problems_of
from hermesctl.sdk.forecast import Forecast, Preview, forecast, policy_of, with_doubts
from hermesctl.sdk.likeness import program, ran_meanwhile
from hermesctl.sdk.records import MetricChoice, Stopped, Study, Submission
from hermesctl.sdk.requests import (
    Changes,
    StudyRef,
    Target,
    asked,
    extension,
    path_of,
    ranking,
    refused,
    selections,
    study_id,
)
from hermesctl.sdk.simulation import simulated
from hermesctl.sdk.token import find_token
from hermesctl.sdk.transfer import upload
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
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import NamedValue, StudySpec, Value

# --- What a study would be where no head answers: asked of `hermesd expand`, a process of its
# own.
#
# Rule: nothing is checked or expanded here; `hermesd` is of the same wheel and says what a head
# of its own version would.

COMMAND = (sys.executable, "-m", "hermesd.cli", "expand")
_REFUSED = 2


async def expanded(request: pb.SubmitStudyRequest) -> pb.SubmitStudyResponse:
    """The answer to a request that is only to be validated.

    Raises UsageError with what is wrong, HermesError if it fails.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, said = await process.communicate(request.SerializeToString())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _REFUSED and (problems := problems_of(answer)):
        raise UsageError("", problems)
    if process.returncode:
        words = printable(said.decode(errors="replace"), keep="\n")
        raise HermesError(
            f"the study cannot be expanded (exit code {process.returncode}):\n{words}"
        )
    return pb.SubmitStudyResponse.FromString(answer)


StudySource: TypeAlias = str | os.PathLike[str] | Mapping[str, object] | StudySpec | Prepared

_SUBMIT_TIMEOUT_SECONDS = 300.0


class _Changed(Protocol):
    """An answer that names the trials that a request made a difference to."""

    @property
    def trials(self) -> Sequence[str]: ...


class AsyncClient(AsyncUpkeep):
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
        super().__init__(
            Connection(
                address,
                token=find_token(os.environ, address),
                patience_seconds=patience_seconds,
            )
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

    async def pause(self, *targets: Target) -> list[str]:
        """Suspend trials, or all of a study's, until they are resumed; returns those that were
        neither paused nor over."""
        return await self._each(self.connection.stub.PauseTrials, pb.PauseTrialsRequest, targets)

    async def resume(self, *targets: Target) -> list[str]:
        """Let paused trials compete for devices again; returns those that were paused."""
        return await self._each(self.connection.stub.ResumeTrials, pb.ResumeTrialsRequest, targets)

    async def stop(self, *targets: Target) -> Stopped:
        """End trials, their results stay; returns those that were not over, and in its `notes` what
        was lost with them. Works with a head of any version."""
        stopped = Stopped()
        for selection in selections(targets):
            request = pb.StopTrialsRequest(request_id=new_request_id(), selection=selection)
            answer = await self.connection.call(self.connection.stub.StopTrials, request)
            stopped += answer.trials
            stopped.notes += answer.notes
        return stopped

    async def retry(self, *targets: Target) -> list[str]:
        """Run failed, stopped or cancelled trials again, from their last checkpoint."""
        return await self._each(self.connection.stub.RetryTrials, pb.RetryTrialsRequest, targets)

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
    ) -> list[str]:
        """Let trials go on for longer; returns those that will.

        `targets` are studies, trials or their ids. `stop` raises stop rules, by the keys of the
        study file ({"max_steps": 1000}); `parameters` gives hyper-parameters new values
        ({"epochs": 20}), and may stand right after the targets instead. Finished trials go on
        from their last checkpoint. Raises UsageError for what can't be meant, StudyFileError for
        values that won't do, NotFound, and Refused where a trial can't be extended.
        """
        chosen, rules, values = extension(targets, stop, parameters)
        await self._check_version()
        ids: list[str] = []
        for selection in chosen:
            request = pb.ExtendStudyRequest(
                request_id=new_request_id(), selection=selection, stop=rules, parameters=values
            )
            ids += (await self.connection.call(self.connection.stub.ExtendStudy, request)).trials
        return ids

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

    async def remove(self, study: StudyRef) -> None:
        """Forget a study with all that it left on disks."""
        request = asked(pb.RemoveStudyRequest, request_id=new_request_id(), study=study_id(study))
        await self.connection.call(self.connection.stub.RemoveStudy, request)

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
