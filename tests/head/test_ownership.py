"""What is somebody else's is not there: named, listed, followed or exported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hermesd.head.api import files
from hermesd.head.fleet import relay
from hermesd.head.security.access import FAILED_THERE
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import (
    control_pb2_grpc,
    enroll_pb2,
    enroll_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
)
from hermesd.pb.hermes.v1.enroll_pb2 import (
    IDENTITY_ROLE_ADMIN,
    IDENTITY_ROLE_OPERATOR,
    IDENTITY_ROLE_USER,
)
from hermesd.pb.hermes.v1.types_pb2 import TIER_PARK, Requires
from hermesd.security.enrollment import enroll
from hermesd.security.identity import NotEnrolled
from tests.head.heads import Node, World, request_id, status, world
from tests.head.test_enroll import Open, connected
from tests.head.test_transport import free_port
from tests.study_specs import spec

CODE = grpc.StatusCode
# Fields of requests that hold the name of a study, or of a trial.
STUDIES, TRIALS = {"study", "environment_of"}, {"trial", "trials"}


@dataclass
class People:
    """A head with a node, and the stubs of those who use it."""

    head: Open
    node: Node
    alice: Any
    bob: Any
    operator: Any
    channels: dict[str, grpc.aio.Channel]


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    """Alice has the study `digits`; of its trials one has failed and one runs."""
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    async with AsyncExitStack() as stack:
        settings = {"embedded": False, "listen": listen, "enroll": reception}
        up = await stack.enter_async_context(world(tmp_path / "head", **settings))
        head = Open(up.running, up.channel, up.control, up.nodes, up.directory)
        head.address = listen
        channels = {}
        for name, role in (
            ("alice", IDENTITY_ROLE_USER),
            ("bob", IDENTITY_ROLE_USER),
            ("olga", IDENTITY_ROLE_OPERATOR),
            ("root", IDENTITY_ROLE_ADMIN),
        ):
            member = await head.member(role, name, tmp_path / name)
            channels[name] = await stack.enter_async_context(connected(member))
        stubs: dict[str, Any] = {
            name: control_pb2_grpc.ControlServiceStub(channel) for name, channel in channels.items()
        }
        box = await head.member(enroll_pb2.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
        channels["box"] = await stack.enter_async_context(connected(box))
        node = await _attached(head, channels["box"])
        await _submit(stubs["alice"])
        launch = await node.start()
        await node.report(launch, 1, [2.0, 1.0])
        await node.settle()
        yield People(head, node, stubs["alice"], stubs["bob"], stubs["olga"], channels)
        node.call.cancel()


async def _attached(head: World, channel: grpc.aio.Channel, **fields: Any) -> Node:
    stub: Any = node_pb2_grpc.NodeServiceStub(channel)
    node = Node(World(head.running, channel, None, stub, head.directory), "box", slots=2)
    await node.hello(**fields)
    return node


async def _submit(stub: Any, **fields: Any) -> Any:
    request = pb.SubmitStudyRequest(request_id=request_id(), spec=spec(**fields))
    return await stub.SubmitStudy(request)


async def test_what_a_node_lacks_for_others_is_not_told(people: People) -> None:
    """A path says what they work on, an installer's words may hold a password."""
    path, why = "/home/alice/of-a-secret-project", "No such file or directory"
    sights = [node_pb2.Sight(path=path, reason=why)]
    await people.node.say(looked=node_pb2.Looked(node="box", sights=sights))
    await people.node.settle()
    await _submit(people.alice, requires=Requires(paths=[path]))
    told = []
    for who in (people.alice, people.operator, people.bob):
        (box,) = (await who.ListNodes(pb.ListNodesRequest())).nodes
        told.append(list(box.lacking))
    assert told == [[f"{path}: {why}"], [f"{path}: {why}"], []]


def naming(descriptor: Descriptor) -> bool:
    """Whether a request names a study or a trial, in itself or in a selection."""
    return any(
        field.name in STUDIES | TRIALS
        or (field.message_type is not None and field.name == "selection")
        for field in descriptor.fields
    )


def methods() -> Iterator[MethodDescriptor]:
    """The methods that people may call and that name a study or a trial."""
    for method in pb.DESCRIPTOR.services_by_name["ControlService"].methods:
        if naming(method.input_type):
            yield method


def filled(descriptor: Descriptor, study: str) -> Iterator[Message]:
    """Requests that name the study or its first trial, one for each field that can."""
    for field in descriptor.fields:
        request = GetMessageClass(descriptor)()
        if "request_id" in descriptor.fields_by_name:
            request.request_id = request_id()
        if "spec" in descriptor.fields_by_name:
            request.spec.CopyFrom(spec(name="other"))
        if field.name in STUDIES:
            setattr(request, field.name, study)
            yield request
        elif field.name in TRIALS:
            setattr(request, field.name, f"{study}/1")
            yield request
        elif field.name == "selection":
            for selection in (
                pb.Selection(study=study),
                pb.Selection(trials=[f"{study}/1"]),
            ):
                fresh = GetMessageClass(descriptor)()
                fresh.CopyFrom(request)
                fresh.request_id = request_id()
                fresh.selection.CopyFrom(selection)
                yield fresh


async def outcome(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> Any:
    """How a call of a method begins or ends: its status and its words; nothing if it goes well."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer = GetMessageClass(method.output_type)
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    make: Any = kind(
        path, request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )  # fmt: skip
    call = make(request, timeout=20)
    try:
        if method.server_streaming:
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return None


def test_the_walk_knows_every_field_that_names_a_study_or_a_trial() -> None:
    known = STUDIES | TRIALS | {"selection"}
    for method in pb.DESCRIPTOR.services_by_name["ControlService"].methods:
        for field in method.input_type.fields:
            if "study" in field.name or "trial" in field.name:
                assert field.name in known, f"{method.name}.{field.name}"
    assert len(list(methods())) >= 16


async def test_to_others_a_study_is_what_never_was(people: People) -> None:
    for method in methods():
        for mine, none in zip(
            filled(method.input_type, "digits"), filled(method.input_type, "nosuch"), strict=True
        ):
            foreign = await outcome(people.channels["bob"], method, mine)
            nothing = await outcome(people.channels["bob"], method, none)
            assert foreign is not None, method.name
            assert nothing is not None, method.name
            assert foreign[0] is CODE.NOT_FOUND, method.name
            assert foreign == (nothing[0], nothing[1].replace("nosuch", "digits")), method.name
    assert people.head.state.studies.keys() == {"digits"}
    trials = people.head.state.trials.values()
    assert not any(trial.paused or trial.ending or trial.phase.final for trial in trials)


@pytest.mark.parametrize("name", ["alice", "olga", "root"])
async def test_the_owner_and_those_who_see_to_the_head_find_it(
    people: People, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TAIL_SECONDS", 0.1)  # the node answers nothing that it is asked
    monkeypatch.setattr(relay, "PATIENCE_SECONDS", 0.1)
    for method in methods():
        if "request_id" in method.input_type.fields_by_name:
            continue  # they would find it changed
        for request in filled(method.input_type, "digits"):
            if found := await outcome(people.channels[name], method, request):
                assert not found[1].startswith("no study"), method.name
    request = pb.PauseTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
    stub: Any = control_pb2_grpc.ControlServiceStub(people.channels[name])
    assert len((await stub.PauseTrials(request)).trials) == 4


async def test_lists_and_prefixes_are_of_what_is_ones_own(people: People) -> None:
    await _submit(people.bob, name="dogs")
    for stub, names in (
        (people.alice, ["digits"]),
        (people.bob, ["dogs"]),
        (people.operator, ["digits", "dogs"]),
    ):
        listed = await stub.ListStudies(pb.ListStudiesRequest())
        assert [study.id for study in listed.studies] == names
    listed = await people.operator.ListStudies(pb.ListStudiesRequest())
    assert [study.owner for study in listed.studies] == ["alice", "bob"]
    # Of the two that begin so, each has one.
    assert (await people.bob.GetStudy(pb.GetStudyRequest(study="d"))).study.id == "dogs"
    code, words = await status(people.operator.GetStudy(pb.GetStudyRequest(study="d")))
    assert code is CODE.INVALID_ARGUMENT
    assert "digits, dogs" in words


async def test_the_same_study_of_another_is_no_twin(people: People) -> None:
    twin = await _submit(people.bob)
    assert (twin.study, twin.identical_to) == ("digits-2", "")
    assert (await _submit(people.bob)).identical_to == "digits-2"


async def test_another_users_request_is_not_ones_own(people: People) -> None:
    request = pb.PauseTrialsRequest(request_id="same", selection=pb.Selection(study="digits"))
    assert (await people.alice.PauseTrials(request)).trials
    assert (await status(people.bob.PauseTrials(request)))[0] is CODE.ALREADY_EXISTS


async def test_a_follower_hears_of_nobody_elses_trials(people: People) -> None:
    await _submit(people.bob, name="dogs")
    launch = await people.node.start()
    await people.node.settle()
    assert launch.trial.startswith("d")

    async def heard(stub: Any) -> list[pb.PublicEvent]:
        call = stub.WatchJournal(pb.WatchJournalRequest(once=True, reports=True))
        return [event async for response in call for event in response.events]

    for stub, mine, theirs in (
        (people.alice, "digits", "dogs"),
        (people.bob, "dogs", "digits"),
    ):
        events = await heard(stub)
        assert {event.study for event in events if event.study} == {mine}
        assert not any(theirs in str(event) for event in events)
        assert pb.PUBLIC_EVENT_KIND_NODE_JOINED in {event.kind for event in events}
    assert {e.study for e in await heard(people.operator) if e.study} == {"digits", "dogs"}


async def test_of_a_removed_study_its_owner_alone_still_hears(people: People) -> None:
    everything = pb.Selection(study="digits")
    await people.alice.StopTrials(
        pb.StopTrialsRequest(request_id=request_id(), selection=everything)
    )
    for run in [trial.run.id for trial in people.head.state.trials.values() if trial.run]:
        where = {"trial": run.trial, "attempt": run.attempt}
        await people.node.say(run_completed=node_pb2.RunCompleted(**where, step=2))
    await people.node.settle()
    gone = pb.RemoveStudyRequest(request_id=request_id(), study="digits")
    await people.alice.RemoveStudy(gone)
    for stub, expected in ((people.alice, {"digits"}), (people.bob, set())):
        call = stub.WatchJournal(pb.WatchJournalRequest(once=True))
        events = [event async for response in call for event in response.events]
        assert {event.study for event in events if event.study} == expected


async def test_a_node_shows_of_others_that_a_device_is_taken(people: People) -> None:
    async def devices(stub: Any) -> list[tuple[str, bool]]:
        (box,) = (await stub.ListNodes(pb.ListNodesRequest())).nodes
        return [(device.trial, device.others) for device in box.devices]

    assert await devices(people.alice) == [("digits/1", False), ("digits/2", False)]
    assert await devices(people.bob) == [("", True), ("", True)]
    assert await devices(people.operator) == [("digits/1", False), ("digits/2", False)]


async def failed(node: Node, trial: str, detail: str) -> None:
    """The first run of a trial ends badly."""
    run = {"trial": trial, "attempt": 1, "error_kind": "Error", "detail": detail}
    await node.say(run_failed=node_pb2.RunFailed(**run, error_signature=detail))
    await node.settle()


async def test_why_a_place_is_avoided_names_nobody_elses_trials(people: People) -> None:
    # One of alice's and one of bob's fail on one of the devices, while another runs on the other.
    await _submit(people.bob, name="dogs")
    await failed(people.node, "digits/1", "ECC error 1")
    while (await people.node.start()).trial != "dogs/1":
        pass
    await failed(people.node, "dogs/1", "ECC error 2")

    async def said(stub: Any) -> str:
        nodes = await stub.ListNodes(pb.ListNodesRequest())
        call = stub.WatchJournal(pb.WatchJournalRequest(once=True))
        events = [str(event) async for response in call for event in response.events]
        return f"{nodes} {events}"

    words = "digits/1 failed there: ECC error 1; dogs/1 failed there: ECC error 2"
    assert words in await said(people.operator)
    for whose, own, others in (
        (people.alice, "ECC error 1", ("dogs", "ECC error 2")),
        (people.bob, "ECC error 2", ("digits", "ECC error 1")),
    ):
        told = await said(whose)
        assert own in told
        assert FAILED_THERE in told
        assert not any(word in told for word in others)


async def exported(stub: Any) -> str:
    pieces = stub.ExportStudy(pb.ExportStudyRequest(study="digits"))
    return b"".join([piece.data async for piece in pieces]).decode()


async def test_an_export_holds_nothing_of_other_studies(people: People) -> None:
    await _submit(people.bob, name="dogs")
    # Bob has used less: alice's trial makes room for his.
    run: dict[str, Any] = {"trial": "digits/1", "attempt": 1, "step": 2}
    await people.node.say(quantum_ended=node_pb2.QuantumEnded(**run))
    await people.node.expect("suspend")
    asked = people.head.state.trials["digits/1"].run.asked
    assert asked.successor == "dogs/1"
    leaving = await exported(people.alice)
    assert '"kind":"Suspend"' in leaving
    assert "dogs" not in leaving
    assert "dogs/1" in await exported(people.operator)
    await people.node.say(run_suspended=node_pb2.RunSuspended(**run, tier=TIER_PARK))
    while (await people.node.start()).trial != "dogs/1":
        pass
    # The node comes again, and says what it runs: something of each of them.
    await people.node.settle()
    people.node.call.cancel()
    while (await people.operator.ListNodes(pb.ListNodesRequest())).nodes[0].connected:
        pass  # while it is, another stream of the same node is refused
    runs = [
        node_pb2.LiveRun(
            trial=trial, attempt=1, condition=node_pb2.RUN_CONDITION_RUNNING, devices=[device]
        )
        for device, trial in (("box/cpu:0", "dogs/1"), ("box/cpu:1", "digits/2"))
    ]
    again = await _attached(people.head, people.channels["box"], runs=runs)
    text = await exported(people.alice)
    again.call.cancel()
    assert "digits/1" in text
    assert '"kind":"NodeJoined"' in text
    assert "dogs" not in text


async def test_a_user_sees_their_own_certificate_alone(people: People) -> None:
    async def listed(name: str) -> set[str]:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(people.channels[name])
        answer = await stub.ListIdentities(enroll_pb2.ListIdentitiesRequest())
        return {one.name for one in answer.identities}

    assert await listed("bob") == {"bob"}
    assert await listed("olga") == {"alice", "bob", "olga", "root", "box"}


async def test_an_operator_drains_and_invites_nobody(people: People) -> None:
    drain = pb.DrainNodeRequest(request_id=request_id(), node="box")
    code, words = await status(people.alice.DrainNode(drain))
    assert code is CODE.PERMISSION_DENIED
    assert words == "user alice may not do this: it takes an operator or an admin"
    assert (await people.operator.DrainNode(drain)).node.draining
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(people.channels["olga"])
    invitation = enroll_pb2.InviteRequest(role=IDENTITY_ROLE_USER, name="eve")
    code, words = await status(stub.Invite(invitation))
    assert code is CODE.PERMISSION_DENIED
    assert words.endswith("only nodes for their own trials: anything else takes an admin")
    revoking = enroll_pb2.RevokeRequest(role=IDENTITY_ROLE_USER, name="bob")
    code, words = await status(stub.Revoke(revoking))
    assert (code, words.endswith("anything else takes an admin")) == (CODE.PERMISSION_DENIED, True)


async def test_an_open_invitation_gives_nobody_the_studies_of_another(
    people: People, tmp_path: Path
) -> None:
    token = await people.head.invite(IDENTITY_ROLE_OPERATOR)
    with pytest.raises(NotEnrolled, match="already, and the token is for a new name"):
        await asyncio.to_thread(enroll, people.head.address, token, "alice", tmp_path / "eve")
