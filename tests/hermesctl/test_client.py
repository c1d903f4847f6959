"""The SDK against a real gRPC server: what is sent, what is retried, what is raised."""

from __future__ import annotations

import io
import math
import os
import sys
import tarfile
import uuid
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from hermesctl import (
    AsyncClient,
    Client,
    NotFound,
    Refused,
    StudyFileError,
    Unreachable,
    UsageError,
)
from hermesctl.errors import HermesError
from hermesctl.sdk import follow
from hermesctl.sdk.records import TrialState
from hermesctl.searches import Results
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, HeadThread, event, trial

OUTAGE = (grpc.StatusCode.UNAVAILABLE, "going away")


async def test_submit_sends_the_code_and_the_spec(head: FakeHead, project: Path) -> None:
    async with AsyncClient() as client:
        submission = await client.submit(project / "study.yaml", environment={"SEED": "1"})
    assert submission.study == "digits"
    assert [t.id for t in submission.trials] == ["digits/1", "digits/2"]
    assert submission.trials[1].params == {"lr": 0.05, "optimizer": "adam"}
    assert submission.notes == ("a note",)
    (request,) = head.of(pb.SubmitStudyRequest)
    assert uuid.UUID(request.request_id)
    assert request.spec.program == "train.py"
    assert Path(request.spec.python).is_absolute()
    assert request.submit_directory == str(project)
    given = {e.name: e.value.string_value for e in request.given_environment}
    assert given == {"SEED": "1"}
    with tarfile.open(fileobj=io.BytesIO(head.blobs[request.code_sha256])) as tar:
        assert tar.getnames() == ["study.yaml", "train.py"]


def test_each_method_of_the_client_on_asyncio_blocks_in_the_other() -> None:
    def public(kind: type) -> set[str]:
        names = (name for each in kind.__mro__ for name in vars(each))
        return {name for name in names if not name.startswith("_")}

    assert public(AsyncClient) - public(Client) == set()


def test_a_clone_has_new_values_by_the_keys_of_the_file(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.studies["digits"].spec.CopyFrom(
        types.StudySpec(
            program="train.py", schedule=types.Schedule(policy=types.Plugin(name="hermes"))
        )
    )
    with Client() as client:
        changes = {"name": "again", "schedule.policy": "asha", "parameters.lr.values": [1, 2]}
        submission = client.clone("digits", changes, {"SEED": "1"})
        assert submission.study == "digits"
        with pytest.raises(StudyFileError, match=r"schedule.polcy.*did you mean policy"):
            client.clone("digits", {"schedule.polcy": "asha"})
        with pytest.raises(NotFound):
            client.clone("nothing")
    (request,) = head.of(pb.SubmitStudyRequest)
    assert (request.spec.program, request.spec.name) == ("train.py", "again")
    assert request.spec.schedule.policy.name == "asha"
    assert [v.int_value for v in request.spec.parameters[0].values] == [1, 2]
    assert request.environment_of == "digits"
    assert [e.name for e in request.given_environment] == ["SEED"]


def test_a_preview_with_and_without_a_head(serving: HeadThread, project: Path) -> None:
    file = project / "study.yaml"
    with Client() as client:
        there = client.preview(file)
    assert [t.id for t in there.submission.trials] == ["digits/1", "digits/2"]
    assert there.submission.notes == ()
    serving.down()
    with Client(patience_seconds=0) as client:
        alone = client.preview(file)
        assert "no head answers" in alone.submission.notes[0]
        assert [t.params for t in alone.submission.trials] == [{"lr": 0.1}, {"lr": 0.05}]
        assert (alone.policy, alone.forecast.expected) == ("best_first", None)
        with pytest.raises(StudyFileError, match="run_cap"):
            client.preview({"program": "train.py", "method": "random"}, directory=project)


def test_only_a_person_is_invited(head: FakeHead) -> None:
    with Client() as client:
        with pytest.raises(UsageError, match="role: node: expected one of user, operator, admin"):
            client.invite("alice", role="node")
        with pytest.raises(UsageError, match="role: boss: expected one of"):
            client.revoke("alice", role="boss")


async def test_a_conda_environment_goes_by_its_name_alone(head: FakeHead, project: Path) -> None:
    async with AsyncClient() as client:
        await client.submit({"program": "train.py", "conda": "vision"}, directory=project)
    (request,) = head.of(pb.SubmitStudyRequest)
    assert (request.spec.conda, request.spec.python) == ("vision", "")


async def test_secrets_stay_with_the_submitter_unless_named(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_API_TOKEN", "hidden")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("MY_KEY", "named by the command")
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    spec = {"program": "train.py", "command": ["${program}", "${envvar:MY_KEY}"]}
    async with AsyncClient() as client:
        await client.submit(spec, directory=project)
    (request,) = head.of(pb.SubmitStudyRequest)
    sent = {e.name for e in request.environment}
    assert {"MY_KEY", "TF_DETERMINISTIC_OPS", "PATH"} <= sent
    assert not {"TF_API_TOKEN", "AWS_SECRET_ACCESS_KEY"} & sent


@pytest.mark.parametrize("form", ["path", "dict", "spec"])
async def test_a_study_may_be_a_path_a_dict_or_a_spec(
    head: FakeHead, project: Path, form: str
) -> None:
    spec = types.StudySpec(program="train.py", method=types.SEARCH_METHOD_GRID)
    source = {
        "path": str(project / "train.py"),
        "dict": {"program": "train.py", "method": "grid"},
        "spec": spec,
    }[form]
    async with AsyncClient() as client:
        await client.submit(source, directory=project, dry_run=True)
    (request,) = head.of(pb.SubmitStudyRequest)
    request.spec.ClearField("python")
    assert request.spec == spec
    assert request.validate_only
    assert not head.blobs


async def test_a_retry_keeps_its_request_id(head: FakeHead, project: Path) -> None:
    head.failures["SubmitStudy"] = [OUTAGE, OUTAGE]
    head.failures["PutBlob"] = [OUTAGE]
    async with AsyncClient() as client:
        assert (await client.submit(project / "study.yaml")).study == "digits"
    requests = head.of(pb.SubmitStudyRequest)
    assert len(requests) == 3
    assert len({r.request_id for r in requests}) == 1
    first, second = head.of(pb.PutBlobRequest)
    assert first.data == second.data


async def test_two_mutations_have_two_request_ids(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2))
    async with AsyncClient() as client:
        assert await client.pause("digits") == ["digits/1", "digits/2"]
        assert await client.pause("digits/2") == ["digits/2"]
    ids = {r.request_id for r in head.of(pb.PauseTrialsRequest)}
    assert len(ids) == 2


async def test_field_errors_come_with_the_line_they_are_about(
    head: FakeHead, project: Path
) -> None:
    head.failures["SubmitStudy"] = [(grpc.StatusCode.INVALID_ARGUMENT, "1 error")]
    head.field_errors = [
        pb.FieldError(field_path="parameters.lr.values[1]", value="0.05", expected="a larger value")
    ]
    async with AsyncClient() as client:
        with pytest.raises(StudyFileError, match=r"study\.yaml:7:19: parameters\.lr\.values\[1\]"):
            await client.submit(project / "study.yaml")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, UsageError),
        (grpc.StatusCode.FAILED_PRECONDITION, Refused),
        (grpc.StatusCode.UNAUTHENTICATED, Refused),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Refused),
        (grpc.StatusCode.UNIMPLEMENTED, Refused),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unreachable),
        (grpc.StatusCode.UNAVAILABLE, Unreachable),
        (grpc.StatusCode.CANCELLED, Unreachable),
        (grpc.StatusCode.INTERNAL, HermesError),
        (grpc.StatusCode.UNKNOWN, HermesError),
    ],
)
async def test_every_status_has_its_error(
    head: FakeHead, code: grpc.StatusCode, error: type[HermesError]
) -> None:
    head.failures["GetStudy"] = [(code, "words \x1b[31m")]
    async with AsyncClient(patience_seconds=0) as client:
        with pytest.raises(HermesError) as caught:
            await client.study("digits")
    assert type(caught.value) is error
    assert "\x1b" not in str(caught.value)


async def test_no_socket_is_said_at_once(state: Path) -> None:
    async with AsyncClient(patience_seconds=1e9) as client:
        with pytest.raises(Unreachable, match=r"no such socket\n.*hermesctl local start"):
            await client.nodes()


async def test_a_local_head_that_is_there_and_does_not_serve_is_not_to_be_started(
    state: Path,
) -> None:
    state.mkdir(parents=True, exist_ok=True)
    with (state / "running.lock").open("w") as lock:
        lock.write(str(os.getpid()))
        lock.flush()
        async with AsyncClient(patience_seconds=0) as client:
            with pytest.raises(Unreachable) as caught:
                await client.nodes()
    said = str(caught.value)
    assert f"its process {os.getpid()} is there: {state / 'local.log'} says why" in said
    assert "local start" not in said


async def test_a_socket_that_nobody_serves_is_named(serving: HeadThread) -> None:
    serving.down()
    serving.socket.touch()
    async with AsyncClient(patience_seconds=0) as client:
        with pytest.raises(Unreachable, match=f"no head answers at unix:{serving.socket}"):
            await client.nodes()


async def test_an_incompatible_head_is_refused_but_can_be_stopped(
    head: FakeHead, project: Path
) -> None:
    head.version = "7.3.0"
    head.add_study("digits", trial(1))
    async with AsyncClient() as client:
        with pytest.raises(Refused, match=r"7\.3\.0, this is version 0\.1\.0"):
            await client.submit(project / "study.yaml")
        assert await client.stop("digits") == ["digits/1"]
        assert (await client.study("digits")).study.id == "digits"


async def test_all_pages_are_read(head: FakeHead) -> None:
    for name in ("a", "b", "c"):
        head.add_study(name, trial(1, name))
    async with AsyncClient() as client:
        assert [s.id async for s in client.studies()] == ["a", "b", "c"]
        newest = await client.latest_study()
    assert newest is not None
    assert newest.id == "c"
    assert newest.counts == {TrialState.WAITING: 1}


async def test_follow_reconnects_from_the_last_event(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    reported, finished = pb.PUBLIC_EVENT_KIND_REPORTED, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED
    head.events = [event(n, reported, trial="digits/1", loss=1 / n) for n in range(1, 8)]
    head.events.append(event(8, finished))
    head.break_after = [3, 0, 2]
    gaps: list[str] = []
    seen = []
    async with AsyncClient() as client:
        async for one in client.follow("digits", on_gap=lambda e: gaps.append(str(e))):
            seen.append(one.sequence)
            if one.sequence == 8:
                head.studies["digits"].finished = True
    assert seen == list(range(1, 9))
    assert len(gaps) == 2, "a break is told once, however often the head is asked in it"
    assert [r.after_sequence for r in head.of(pb.WatchJournalRequest)][:4] == [0, 3, 3, 5]


async def test_follow_survives_a_head_that_is_restarted(serving: HeadThread) -> None:
    head = serving.head
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED, trial="digits/1")]
    seen: list[int] = []
    async with AsyncClient() as client:
        async for one in client.follow("digits"):
            seen.append(one.sequence)
            if one.sequence == 1:
                serving.down()
                head.events.append(event(2, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED))
                head.studies["digits"].finished = True
                serving.up()
    assert seen == [1, 2]


async def test_follow_of_a_finished_study_ends_and_an_earlier_finish_does_not_count(
    head: FakeHead,
) -> None:
    head.add_study("digits", trial(1), finished=True)
    finished, extended = pb.PUBLIC_EVENT_KIND_STUDY_FINISHED, pb.PUBLIC_EVENT_KIND_EXTENDED
    head.events = [event(1, finished), event(2, extended), event(3, finished)]
    async with AsyncClient() as client:
        assert [e.sequence async for e in client.follow("digits")] == [1, 2, 3]
        assert [e async for e in client.follow("digits", after=3)] == []
        assert (await client.wait("digits")).study.finished


async def test_events_that_share_a_journal_entry_are_all_seen(head: FakeHead) -> None:
    head.add_study("digits", trial(1), finished=False)
    completed, finished = pb.PUBLIC_EVENT_KIND_COMPLETED, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED
    head.events = [event(1, finished), event(1, completed, trial="digits/1"), event(2, completed)]
    kinds = []
    async with AsyncClient() as client:
        async for one in client.follow("digits"):
            kinds.append(str(one.kind))
            head.studies["digits"].finished = True
        again = [(e.sequence, str(e.kind)) async for e in client.events(after=0, once=True)]
    assert kinds == ["study-finished", "completed", "completed"]
    assert again == [(1, "study-finished"), (1, "completed"), (2, "completed")]


async def test_trials_of_several_studies_are_asked_for_study_by_study(head: FakeHead) -> None:
    async with AsyncClient() as client:
        await client.stop("a/1", "b/1", "a/2", "c")
    selections = [r.selection for r in head.of(pb.StopTrialsRequest)]
    assert [list(s.trials) for s in selections] == [["a/1", "a/2"], ["b/1"], []]
    assert selections[2].study == "c"


async def test_follow_gives_up_on_a_head_that_stays_away(serving: HeadThread) -> None:
    head = serving.head
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
    async with AsyncClient(patience_seconds=0) as client:
        stream = client.follow("digits", reconnect_seconds=0)
        assert (await anext(stream)).sequence == 1
        serving.down()
        with pytest.raises(Unreachable):
            await anext(stream)


async def test_leaving_a_stream_early_ends_it_at_the_head(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
    async with AsyncClient() as client:
        async with aclosing(client.follow("digits")) as stream:
            await anext(stream)
        await client.nodes()  # the connection lives on
        assert head.cancelled.wait(30)


async def test_a_slow_reader_gets_everything(head: FakeHead) -> None:
    head.add_study("digits", trial(1), finished=True)
    reason = "x" * 10_000
    head.events = [event(n, pb.PUBLIC_EVENT_KIND_STARTED, reason=reason) for n in range(1, 2001)]
    async with AsyncClient() as client:
        stream = client.follow("digits")
        first = await anext(stream)
        # While nobody reads, other calls go on and the head is held back, not filled up.
        assert [node.id for node in await client.nodes()] == ["box"]
        assert [first.sequence] + [e.sequence async for e in stream] == list(range(1, 2001))


async def test_logs_go_on_from_the_last_byte(head: FakeHead) -> None:
    head.output = bytes(range(256))
    head.break_after = [5, 0, 3, 0]
    async with AsyncClient() as client:
        assert b"".join([c async for c in client.logs("digits/1")]) == head.output
        assert b"".join([c async for c in client.logs("digits/1", offset=-9)]) == head.output[-9:]
    assert [r.offset for r in head.of(pb.TailLogsRequest)] == [0, 14, 28, -9]


async def test_each_process_of_a_trial_has_a_log(head: FakeHead) -> None:
    head.output = b"one\n"
    async with AsyncClient() as client:
        assert b"".join([c async for c in client.logs("digits/1", lines=1, rank=3)]) == b"one\n"
    assert {request.rank for request in head.of(pb.TailLogsRequest)} == {3}


async def test_the_last_lines_of_a_log_are_looked_for_in_its_end(
    head: FakeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_WINDOWS_BYTES", (20, 40, 100))
    head.output = b"start\n" + b"\r 50%" * 200  # a progress bar, which ends no line
    async with AsyncClient() as client:
        shown = b"".join([chunk async for chunk in client.logs("digits/1", lines=1)])
        assert shown == head.output[-160:]
        size = len(head.output)
        offsets = [request.offset for request in head.of(pb.TailLogsRequest)]
        assert offsets == [-20, size - 60, size - 160, size - 160]
        for lines in range(9):
            head.output = b"".join(b"%d\n" % (10**each) for each in range(12))
            head.break_after = [1, 0]
            shown = b"".join([chunk async for chunk in client.logs("digits/1", lines=lines)])
            assert shown == b"".join(head.output.splitlines(True)[12 - lines :])


async def test_a_checkpoint_is_downloaded_whole_or_not_at_all(
    head: FakeHead, tmp_path: Path
) -> None:
    def chunk(name: str, offset: int, data: bytes) -> pb.DownloadCheckpointResponse:
        return pb.DownloadCheckpointResponse(name=name, offset=offset, data=data)

    head.checkpoint = [chunk("a.keras", 0, b"12"), chunk("a.keras", 2, b"3"), chunk("d/b", 0, b"")]
    head.checkpoint.append(chunk("", 0, b""))
    destination = tmp_path / "best"
    async with AsyncClient() as client:
        files = await client.download_checkpoint("digits/1", destination)
        assert [str(f.relative_to(destination)) for f in files] == ["a.keras", "d/b"]
        assert (destination / "a.keras").read_bytes() == b"123"
        with pytest.raises(UsageError, match="expected a new directory"):
            await client.download_checkpoint("digits/1", destination)
        (destination / "mine").touch()
        head.checkpoint = [chunk("a.keras", 0, b"4"), chunk("d/b", 0, b"56")]
        received: list[int] = []
        await client.download_checkpoint(
            "digits/1", destination, force=True, on_progress=received.append
        )
        assert received == [1, 3]
        assert (destination / "a.keras").read_bytes() == b"4"
        assert {p.name for p in destination.iterdir()} == {"a.keras", "d", "mine"}
        for nowhere in (destination / "mine", destination / "mine" / "below"):
            with pytest.raises(UsageError, match=r"expected a directory|Not a directory"):
                await client.download_checkpoint("digits/1", nowhere, force=True)
        head.checkpoint = [chunk("a", 0, b"12"), chunk("a", 3, b"3")]
        with pytest.raises(HermesError, match="gap"):
            await client.download_checkpoint("digits/1", tmp_path / "gap")
        head.checkpoint = []
        with pytest.raises(HermesError, match="no files"):
            await client.download_checkpoint("digits/1", tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", "a/../../x", "."])
async def test_a_head_cannot_write_elsewhere(head: FakeHead, tmp_path: Path, name: str) -> None:
    head.checkpoint = [pb.DownloadCheckpointResponse(name=name, data=b"x")]
    async with AsyncClient() as client:
        with pytest.raises(HermesError, match="a file name that is not one"):
            await client.download_checkpoint("digits/1", tmp_path / "out" / "best")
    assert not list((tmp_path / "out").iterdir())


async def test_a_file_of_any_name_is_downloaded(head: FakeHead, tmp_path: Path) -> None:
    """What might harm a terminal is escaped, and what is too long for a file's name is cut."""
    sent = ["a\u202fpm.png", "b\u00a0c", "d\ne/f\x1b[2J", "g\\xff" * 80 + ".png", "h" * 255]
    head.files = [pb.GetFilesResponse(name=name, data=name.encode()) for name in sent]
    async with AsyncClient() as client:
        files = await client.download_files("digits/1", tmp_path / "out")
    assert [file.read_text() for file in files] == sent
    names = [str(file.relative_to(tmp_path / "out")) for file in files]
    assert names[:3] == ["a\u202fpm.png", "b\u00a0c", r"d\ne/f\x1b[2J"]
    assert len(names[3]) == 255
    assert names[3].endswith(r"\xffg\xff.png")
    assert names[4] == sent[4]


async def test_several_files_are_read_as_none(head: FakeHead) -> None:
    head.files = [pb.GetFilesResponse(name=name, data=b"x") for name in "ab"]
    async with AsyncClient() as client:
        with pytest.raises(UsageError, match="expected one file"):
            await anext(client.read_file("digits/1", "*"))
        head.files = head.files[:1]
        assert [data async for data in client.read_file("digits/1", "a")] == [b"x"]


async def test_trials_are_added_by_values_lists_and_axes(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    async with AsyncClient() as client:
        added = await client.add(
            "digits",
            {"lr": 3e-4, "units": [16, 32], "drop": {"min": 0.1, "max": 0.5}},
            new={"momentum": 0.9},
            count=20,
        )
        with pytest.raises(StudyFileError, match=r"parameters\.drop\.mim: unknown key.*min"):
            await client.add("digits", {"drop": {"mim": 0.1}})
        with pytest.raises(UsageError, match="count: -: expected a whole number"):
            await client.add("digits", {"lr": 1}, count="-")  # type: ignore[arg-type]
    assert ([one.id for one in added.trials], added.notes) == (["digits/1"], ("1 more is there",))
    (request,) = head.of(pb.AddTrialsRequest)
    lr, units, drop = request.parameters
    assert (lr.name, lr.value.double_value) == ("lr", 3e-4)
    assert [each.int_value for each in units.values] == [16, 32]
    assert (drop.min.double_value, drop.max.double_value) == (0.1, 0.5)
    assert (request.new_parameters[0].name, request.count) == ("momentum", 20)
    assert not pb.AddTrialsRequest().HasField("count")


async def test_extend_speaks_the_study_files_words(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    async with AsyncClient() as client:
        await client.extend("digits", stop={"max_seconds": "2h"}, parameters={"epochs": 20})
        with pytest.raises(StudyFileError, match=r"stop\.max_step: unknown key.*max_steps"):
            await client.extend("digits", stop={"max_step": 3})
    (request,) = head.of(pb.ExtendStudyRequest)
    assert request.stop.max_seconds == 7200
    assert request.parameters == [types.NamedValue(name="epochs", value=types.Value(int_value=20))]


async def test_what_the_head_says_becomes_records(head: FakeHead) -> None:
    head.add_study("digits", trial(1, signal=math.nan, fidelity=types.FIDELITY_PARK_ONLY))
    async with AsyncClient() as client:
        (found,) = (await client.study("dig")).trials
        explanation = await client.why("digits/1")
        curve = await client.curve("digits/1", metric="accuracy")
    assert found.signal is not None
    assert math.isnan(found.signal)
    assert found.metric is None
    assert found.fidelity == "park-only"
    assert explanation.ranking[0].words == "loss 0.2"
    assert (curve.metric, curve.steps) == ("accuracy", (1, 2, 3))


def test_the_blocking_client_does_the_same(head: FakeHead, project: Path) -> None:
    with Client() as client:
        submission = client.submit(project / "study.yaml")
        assert [t.number for t in client.trials(submission)] == [1, 2]
        head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
        for one in client.follow(submission):
            assert one.sequence == 1
            break
        assert head.cancelled.wait(30)
        with pytest.raises(NotFound):
            client.study("nothing")
        assert client.best(submission, 1)[0].id == "digits/1"
        assert b"".join(client.export(submission)).count(b"\n") == 2
    client.close()


async def test_the_blocking_client_works_inside_a_running_loop(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    with Client() as client:
        assert [s.id for s in client.studies()] == ["digits"]


def test_an_extension_may_be_told_in_several_ways(head: FakeHead) -> None:
    head.add_study("loop", trial(1, "loop"))
    with Client() as client:
        assert client.extend("loop", {"steps": 100}) == ["loop/1"]
        assert client.extend("loop", parameters={"steps": 100}) == ["loop/1"]
        assert client.extend("loop/1", stop={"max_steps": 7}) == ["loop/1"]
    first, second, third = head.of(pb.ExtendStudyRequest)
    assert [(v.name, v.value.int_value) for v in first.parameters] == [("steps", 100)]
    assert first.parameters == second.parameters
    assert not first.HasField("stop")
    assert (third.stop.max_steps, list(third.parameters)) == (7, [])


@pytest.mark.parametrize(
    ("targets", "changes", "words"),
    [
        (("loop", 3), {}, "3: expected a study, a trial or the id of one"),
        (("loop", ["steps"]), {}, r"\['steps'\]: expected a study"),
        ((None, {"steps": 1}), {}, "None: expected a study"),
        (({"steps": 1},), {}, "extend: expected a study, a trial or the id of one"),
        (("loop", {"steps": 1}), {"parameters": {"steps": 2}}, "expected one mapping"),
        (("loop",), {"stop": 100}, 'stop: 100: expected a mapping such as {"max_steps": 1000}'),
        (("loop",), {"parameters": "steps"}, "parameters: 'steps': expected a mapping"),
        (("loop", {"steps": object()}), {}, "parameters: steps: .*expected text, a number"),
        (("loop",), {"stop": {"max_step": 1}}, "did you mean max_steps?"),
    ],
)
def test_an_extension_that_cannot_be_meant_is_an_error_of_ours(
    head: FakeHead, targets: tuple[object, ...], changes: dict[str, object], words: str
) -> None:
    with Client() as client, pytest.raises(UsageError, match=words):
        client.extend(*targets, **changes)  # type: ignore[arg-type]
    assert not head.of(pb.ExtendStudyRequest)


def test_a_study_that_was_there_already_is_answered_with_its_trials(
    head: FakeHead, project: Path
) -> None:
    head.identical_to = "digits"
    head.add_study("digits", trial(1), trial(2))
    with Client() as client:
        submission = client.submit(project / "study.yaml")
    assert repr(submission) == "<Submission digits: 2 trials, submitted before>"


async def test_the_metric_of_a_study_is_changed_once_though_the_connection_breaks(
    head: FakeHead,
) -> None:
    head.add_study("digits", trial(1))
    head.failures["SetMetric"] = [OUTAGE]
    async with AsyncClient() as client:
        chosen = await client.set_metric("digits", "acc", goal="maximize", by="best")
    assert (chosen.metric, chosen.goal, chosen.mode) == ("acc", "maximize", "best")
    assert chosen.notes == ("policies read loss",)
    first, again = head.of(pb.SetMetricRequest)
    assert first == again


def test_a_study_without_trials_has_no_best_one(head: FakeHead) -> None:
    head.add_study("digits")
    with Client() as client, pytest.raises(UsageError, match="no trial of digits has a value of"):
        _ = Results(client, "digits").best


def test_a_search_is_printed_as_its_leaderboard(
    head: FakeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.add_study("digits", *(trial(n, metric=n / 8, rank=n) for n in range(1, 23)))
    monkeypatch.setenv("COLUMNS", "60")
    displayed: list[object] = []
    notebook = SimpleNamespace(display=displayed.append)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with Client() as client:
        lines = str(Results(client, "digits")).splitlines()
    assert not displayed, "a notebook shows what is printed, and nothing else"
    assert lines[0].split()[:3] == ["rank", "trial", "val_loss"]
    assert lines[1].split()[:3] == ["1", "digits/1", "0.125"]
    assert (len(lines), lines[-1]) == (1 + 20 + 2 + 1, "… and 2 more"), lines


def test_a_search_whose_trials_failed_says_why(head: FakeHead) -> None:
    failed = partial(trial, state=types.TRIAL_STATE_FAILED)
    broken = [failed(n, reason="ValueError: boom") for n in (1, 2)]
    head.add_study("digits", *broken, failed(3, reason="killed"), trial(4, metric=1.0))
    with Client() as client:
        lines = str(Results(client, "digits")).splitlines()
    assert lines[-2:] == ["2 failed: ValueError: boom", "1 failed: killed"]


def test_scripts_look_at_and_change_the_metric(head: FakeHead) -> None:
    head.add_study("digits", trial(1, metric=0.5))
    with Client() as client:
        assert client.set_metric("digits", "acc").metric == "acc"
        board = client.best("digits", metric="val_acc", goal="maximize")
    assert ([t.id for t in board], board.metric, board.metric_goal) == (
        ["digits/1"],
        "val_acc",
        "maximize",
    )
