"""Submitting, looking at, extending and removing studies, over a real socket."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd import study as submissions
from hermesd.core.events import Submitted
from hermesd.head.journal.store import Journal
from hermesd.head.reader import SMALL
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import Pieces
from tests.core.playbook import tables
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec, value

CODE = grpc.StatusCode
ALL = pb.Selection(study="digits")


async def test_a_study_is_submitted_and_seen(head: World) -> None:
    made = await head.submit()
    assert made.study == "digits"
    assert [trial.id for trial in made.trials] == [f"digits/{n}" for n in (1, 2, 3, 4)]
    got = await head.control.GetStudy(pb.GetStudyRequest(study="dig"))
    assert got.study.spec.schedule.policy.name == "best_first"
    assert got.study.spec.schedule.placement.name == "free"
    got.study.spec.ClearField("schedule")
    assert got.study.spec == spec()
    assert [(c.state, c.count) for c in got.study.counts] == [(types.TRIAL_STATE_WAITING, 4)]
    assert got.next_up
    assert not got.study.finished
    listed = await head.control.ListStudies(pb.ListStudiesRequest())
    assert [study.id for study in listed.studies] == ["digits"]


async def test_a_retry_has_one_effect_and_the_same_answer(head: World) -> None:
    request = pb.SubmitStudyRequest(request_id="r1", spec=spec(), again=True)
    first = await head.control.SubmitStudy(request)
    assert await head.control.SubmitStudy(request) == first
    assert len(head.state.studies) == 1


async def test_a_retry_after_a_restart_has_one_effect(tmp_path: Path) -> None:
    request = pb.SubmitStudyRequest(request_id="r1", spec=spec())
    async with world(tmp_path) as head:
        first = await head.control.SubmitStudy(request)
    async with world(tmp_path) as head:
        assert (await head.control.SubmitStudy(request)).study == first.study
        assert len(head.state.studies) == 1


async def test_a_request_id_is_not_good_for_another_request(head: World) -> None:
    await head.submit(request_id="r1")
    refused = await status(head.submit(spec(run_cap=2), request_id="r1"))
    assert refused == (CODE.ALREADY_EXISTS, "request id r1 was used for another request")
    stop = pb.StopTrialsRequest(request_id="r1", selection=pb.Selection(study="digits"))
    assert (await status(head.control.StopTrials(stop)))[0] is CODE.ALREADY_EXISTS
    assert len(head.state.studies) == 1


LARGE = {"lr": {"min": 0.1, "max": 1.0}}


async def test_a_large_study_is_made_beside_the_loop_and_found_again_whole(tmp_path: Path) -> None:
    large = spec(LARGE, method=types.SEARCH_METHOD_RANDOM, run_cap=SMALL + 1)
    async with world(tmp_path) as head:
        made = await head.submit(large, request_id="r1")
        assert [trial.id for trial in made.trials] == [f"digits/{n}" for n in range(1, SMALL + 2)]
        state = tables(head.state)
    async with world(tmp_path) as head:
        assert tables(head.state) == state
        head.state.check()
        assert (await head.submit(large, request_id="r1")).study == "digits"
        lines = await head.running.head.journal.read(0)
        (line,) = [line for line in lines if isinstance(line.entry, Submitted)]
        assert line.entry.study.submitted == line.at  # type: ignore[union-attr]


async def test_large_studies_of_one_name_that_are_made_at_once_get_names_of_their_own(
    head: World,
) -> None:
    both = [spec(LARGE, method=types.SEARCH_METHOD_RANDOM, run_cap=SMALL + n) for n in (1, 2)]
    made = await asyncio.gather(*map(head.submit, both))
    assert sorted(each.study for each in made) == ["digits", "digits-2"]
    for each in made:
        ids = [f"{each.study}/{number}" for number in range(1, len(each.trials) + 1)]
        assert [trial.id for trial in each.trials] == ids == list(head.state.members[each.study])


async def test_of_a_large_study_that_nobody_waits_for_any_more_there_is_all_or_nothing(
    head: World,
) -> None:
    large = spec(LARGE, method=types.SEARCH_METHOD_RANDOM, run_cap=20 * SMALL)
    call = head.control.SubmitStudy(pb.SubmitStudyRequest(request_id="r1", spec=large))
    await head.submit()
    call.cancel()
    again = await head.submit(large, request_id="r1")
    assert len(head.state.members[again.study]) == 20 * SMALL
    assert len(head.state.studies) == 2


async def test_the_same_study_is_recognized_unless_it_is_wanted_again(head: World) -> None:
    await head.submit()
    second = await head.submit()
    assert (second.identical_to, second.study, list(second.trials)) == ("digits", "", [])
    assert (await head.submit(again=True)).study == "digits-2"


async def stored(head: World, content: bytes) -> str:
    async def chunks() -> AsyncIterator[pb.PutBlobRequest]:
        yield pb.PutBlobRequest(data=content)

    return (await head.control.PutBlob(chunks())).sha256


async def test_another_study_file_beside_the_same_code_is_the_same_study(head: World) -> None:
    code = hashlib.sha256(b"code").hexdigest()
    first = {"code_sha256": await stored(head, b"code + file"), "code_identity_sha256": code}
    await head.submit(**first)
    second = first | {"code_sha256": await stored(head, b"code + other file")}
    assert (await head.submit(**second)).identical_to == "digits"
    assert (await head.submit(code_sha256=await stored(head, b"code"))).identical_to == "digits"
    refused, words = await status(head.submit(code_identity_sha256="code"))
    assert refused is CODE.INVALID_ARGUMENT
    assert "code_identity_sha256" in words


async def test_a_study_that_differs_by_its_code_alone_is_told_of_the_other(head: World) -> None:
    given = {"given_environment": variables(FOO="1"), "submit_directory": "/home/me"}
    made = await head.submit(code_sha256=await stored(head, b"one"), **given)
    assert not made.notes
    changed = {**given, "code_sha256": await stored(head, b"two")}
    made = await head.submit(**changed)
    (note,) = made.notes
    assert made.study == "digits-2"
    assert note.startswith("the same as digits, except for files of its directory: ")
    assert ".hermesignore" in note
    assert not (await head.submit(**changed, again=True)).notes
    third = {**changed, "code_sha256": await stored(head, b"three")}
    (note,) = (await head.submit(**third)).notes
    assert note.startswith("the same as digits-3, "), "the newest"
    assert not (await head.submit(**third | {"given_environment": variables(FOO="2")})).notes
    assert not (await head.submit(spec(seed=1), **third)).notes


def variables(**texts: str) -> list[types.NamedValue]:
    return [types.NamedValue(name=n, value=types.Value(string_value=v)) for n, v in texts.items()]


async def test_given_variables_make_another_study_and_inherited_ones_do_not(head: World) -> None:
    await head.submit(given_environment=variables(FOO="1"))
    other = await head.submit(given_environment=variables(FOO="2"))
    assert other.study == "digits-2"
    inherited = variables(FOO="3", TERM="vt100")
    same = await head.submit(environment=inherited, given_environment=variables(FOO="1"))
    assert same.identical_to == "digits"
    program = head.state.studies["digits-2"].program
    assert dict(program.environment)["FOO"] == "2"


async def test_a_clone_has_the_variables_of_its_original(head: World) -> None:
    await head.submit(environment=variables(PATH="/bin"), given_environment=variables(FOO="1"))
    changed = variables(BAR="2")
    await head.submit(again=True, environment_of="digits", given_environment=changed)
    program = head.state.studies["digits-2"].program
    assert dict(program.environment) == {"PATH": "/bin", "FOO": "1", "BAR": "2"}
    # What is submitted later without them is not the clone.
    assert (await head.submit()).study == "digits-3"


async def test_validate_only_stores_nothing(head: World) -> None:
    preview = await head.submit(validate_only=True)
    assert (preview.study, len(preview.trials)) == ("digits", 4)
    assert head.state.studies == {}
    assert head.running.head.committed == 0


async def test_bad_fields_come_with_their_paths(head: World) -> None:
    bad = spec({"lr": {"min": 2.0, "max": 1.0}}, run_cap=0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await head.submit(bad)
    assert caught.value.code() is CODE.INVALID_ARGUMENT
    packed = dict(caught.value.trailing_metadata())["hermes-errors-bin"]
    errors = pb.FieldErrors.FromString(packed).errors
    assert [(e.field_path, e.value) for e in errors] == [("run_cap", "0"), ("parameters.lr", "")]


@pytest.mark.parametrize("bad", ["", "x" * 200, "a\nb"])
async def test_a_request_id_is_wanted(head: World, bad: str) -> None:
    request = pb.SubmitStudyRequest(request_id=bad, spec=spec())
    code, words = await status(head.control.SubmitStudy(request))
    assert code is CODE.INVALID_ARGUMENT
    assert words.startswith("request_id")


async def test_code_is_uploaded_once_and_named_by_its_content(head: World) -> None:
    data = [b"x" * 200_000, b"y" * 100]

    async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
        for piece in data:
            yield pb.PutBlobRequest(data=piece)

    stored = await head.control.PutBlob(pieces())
    assert stored.sha256 == hashlib.sha256(b"".join(data)).hexdigest()
    assert stored.size_bytes == 200_100
    assert (await head.control.PutBlob(pieces())) == stored
    got = [r.data async for r in head.nodes.GetBlob(node_pb2.GetBlobRequest(sha256=stored.sha256))]
    assert b"".join(got) == b"".join(data)
    assert (await head.submit(code_sha256=stored.sha256)).study == "digits"


async def test_code_that_is_not_there_is_refused(head: World) -> None:
    code, words = await status(head.submit(code_sha256="../../etc/passwd"))
    assert code is CODE.INVALID_ARGUMENT
    assert words.startswith("code_sha256")
    call = head.nodes.GetBlob(node_pb2.GetBlobRequest(sha256="0" * 64))
    assert (await status(call.read()))[0] is CODE.NOT_FOUND


async def test_a_blob_over_the_limit_leaves_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, blob_limit_bytes=1000) as head:

        async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
            for _ in range(3):
                yield pb.PutBlobRequest(data=b"x" * 400)

        code, words = await status(head.control.PutBlob(pieces()))
        assert code is CODE.RESOURCE_EXHAUSTED
        assert "more than 1000 bytes" in words
        assert list((tmp_path / "blobs").iterdir()) == []


async def test_only_a_finished_study_is_removed_and_its_name_not_used_again(head: World) -> None:
    await head.submit()
    remove = pb.RemoveStudyRequest(request_id=request_id(), study="digits")
    code, words = await status(head.control.RemoveStudy(remove))
    assert code is CODE.FAILED_PRECONDITION
    assert "4 unfinished trials: stop it first" in words
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
    assert len((await head.control.StopTrials(stop)).trials) == 4
    assert (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study.finished
    again = pb.RemoveStudyRequest(request_id=request_id(), study="digits")
    await head.control.RemoveStudy(again)
    await head.control.RemoveStudy(again)
    assert (await status(head.control.GetStudy(pb.GetStudyRequest(study="digits"))))[0] is (
        CODE.NOT_FOUND
    )
    assert (await head.submit()).study == "digits-2"


async def test_removal_takes_points_and_code_and_tells_the_nodes(tmp_path: Path) -> None:
    async with world(tmp_path) as head:

        async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
            yield pb.PutBlobRequest(data=b"code")

        code = (await head.control.PutBlob(pieces())).sha256
        node = Node(head)
        await node.hello()
        await head.submit(spec({"lr": {"value": 1.0}}), code_sha256=code)
        launch = await node.start()
        await node.report(launch, 1, [0.5, 0.4])
        await node.complete(launch)
        await node.settle()
        assert await head.running.head.journal.metrics("digits/1")
        await head.control.RemoveStudy(pb.RemoveStudyRequest(request_id="rm", study="digits"))
        dropped = (await node.expect("release")).release
        assert (dropped.trial, dropped.forget) == ("digits/1", True)
        assert await head.running.head.journal.metrics("digits/1") == []
        assert list((tmp_path / "blobs").iterdir()) == []
        node.call.cancel()


async def test_a_study_is_extended_when_it_is_finished(head: World) -> None:
    await head.submit()
    change = pb.ExtendStudyRequest(
        request_id=request_id(),
        selection=pb.Selection(study="digits"),
        new_parameters=[types.NamedValue(name="epochs", value=value(20))],
    )
    code, words = await status(head.control.ExtendStudy(change))
    assert code is CODE.FAILED_PRECONDITION
    assert "4 of 4 trials are not finished" in words
    everything = pb.Selection(study="digits")
    await head.control.StopTrials(
        pb.StopTrialsRequest(request_id=request_id(), selection=everything)
    )
    assert len((await head.control.ExtendStudy(change)).trials) == 4
    trial = await head.trial("digits/1")
    assert trial.argv[-1] == "--epochs=20"
    assert trial.state == types.TRIAL_STATE_WAITING


async def test_the_file_of_a_study_has_what_all_of_its_trials_were_extended_to(
    head: World,
) -> None:
    await head.submit(spec({"epochs": {"value": 10}, "lr": {"values": [1.0, 2.0]}}))

    async def extend(trials: pb.Selection, **values: float) -> dict[str, types.Parameter]:
        await head.control.StopTrials(pb.StopTrialsRequest(request_id=request_id(), selection=ALL))
        parameters = [types.NamedValue(name=n, value=value(v)) for n, v in values.items()]
        change = pb.ExtendStudyRequest(
            request_id=request_id(), selection=trials, parameters=parameters
        )
        if "heads" in values:
            change.ClearField("parameters")
            change.new_parameters.extend(parameters)
        await head.control.ExtendStudy(change)
        got = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
        return {axis.name: axis for axis in got.study.spec.parameters}

    assert (await extend(pb.Selection(trials=["digits/1"]), epochs=20))["epochs"].value == value(10)
    assert (await extend(ALL, epochs=30))["epochs"].value == value(30)
    assert (await extend(ALL, heads=4))["heads"].value == value(4)


async def test_long_lists_come_in_pages(head: World) -> None:
    for cap in range(1, 6):
        await head.submit(spec(run_cap=cap))
    token, seen = "", []
    while True:
        request = pb.ListStudiesRequest(page_size=2, page_token=token)
        page = await head.control.ListStudies(request)
        seen.append([study.id for study in page.studies])
        token = page.next_page_token
        if not token:
            break
    assert seen == [["digits", "digits-2"], ["digits-3", "digits-4"], ["digits-5"]]
    for bad in ("x", "-1", "9" * 30):
        refused = await status(head.control.ListStudies(pb.ListStudiesRequest(page_token=bad)))
        assert refused[0] is CODE.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nothing", CODE.NOT_FOUND, "no study nothing"),
        ("digist", CODE.NOT_FOUND, "did you mean digits"),
        ("", CODE.INVALID_ARGUMENT, "an id or the beginning of one"),
        ("d", CODE.INVALID_ARGUMENT, "the beginning of one id only, not of data, digits"),
        ("digits/2", CODE.INVALID_ARGUMENT, "a study, not one of its trials: digits"),
    ],
)
async def test_names_that_mean_no_study(
    head: World, name: str, code: grpc.StatusCode, words: str
) -> None:
    await head.submit()
    await head.submit(spec(name="data"))
    refused = await status(head.control.GetStudy(pb.GetStudyRequest(study=name)))
    assert refused[0] is code
    assert words in refused[1]
    assert (await head.control.GetStudy(pb.GetStudyRequest(study="di"))).study.id == "digits"


async def test_code_that_is_removed_while_a_study_is_submitted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as head:

        async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
            yield pb.PutBlobRequest(data=b"code")

        code = (await head.control.PutBlob(pieces())).sha256
        draft = submissions.draft_in_pieces

        def slow(submission: submissions.Submission) -> Pieces[submissions.Draft]:
            # As when the last study with this code is removed just now.
            (tmp_path / "blobs" / code).unlink()
            return draft(submission)

        monkeypatch.setattr(submissions, "draft_in_pieces", slow)
        refused, words = await status(head.submit(spec(), code_sha256=code))
        assert (refused, code[:12] in words) == (CODE.INVALID_ARGUMENT, True)
        assert head.state.studies == {}


async def test_what_lies_of_a_removed_study_goes_even_if_who_removed_it_does_not_wait(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await head.submit()
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
    await head.control.StopTrials(stop)
    forget, began, left = Journal.forget_points, asyncio.Event(), asyncio.Event()
    forgotten = asyncio.Event()

    async def slow(*arguments: Any) -> None:
        began.set()
        await left.wait()
        await forget(*arguments)
        forgotten.set()

    monkeypatch.setattr(Journal, "forget_points", slow)
    removal = head.control.RemoveStudy(
        pb.RemoveStudyRequest(request_id=request_id(), study="digits")
    )
    await began.wait()
    removal.cancel()
    for _ in range(2):  # by then the head knows
        await head.control.ServerInfo(pb.ServerInfoRequest())
    left.set()
    await asyncio.wait_for(forgotten.wait(), 10)
