"""Whoever is about to submit a study hears which nodes lack what it requires."""

from __future__ import annotations

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, request_id
from tests.study_specs import spec

DATA = "/data/imagenet"


def looked(node: Node, reason: str) -> node_pb2.Looked:
    return node_pb2.Looked(node=node.name, sights=[node_pb2.Sight(path=DATA, reason=reason)])


async def preview(head: World) -> list[str]:
    wanted = spec(requires=types.Requires(paths=[DATA]))
    request = pb.SubmitStudyRequest(request_id=request_id(), spec=wanted, validate_only=True)
    return list((await head.control.SubmitStudy(request)).notes)


async def test_a_preview_names_the_nodes_that_lack_a_path(head: World) -> None:
    node, other = Node(head, "a"), Node(head, "b")
    for each in (node, other):
        await each.hello()
    asked = preview(head)
    await other.say(looked=looked(other, ""))
    await node.say(looked=looked(node, "No such file or directory"))
    notes = await asked
    assert f"node a lacks {DATA}: No such file or directory" in notes
    assert not any("node b" in note or "its trials wait" in note for note in notes)
    for each in (node, other):
        each.call.cancel()


async def test_a_preview_says_that_no_node_has_the_submitters_interpreter(head: World) -> None:
    path = "/home/alice/bin/python3"
    node = Node(head, "a")
    await node.hello()
    request = pb.SubmitStudyRequest(
        request_id=request_id(), spec=spec(python=path), validate_only=True
    )
    call = head.control.SubmitStudy(request)
    assert list((await node.expect("look")).look.paths) == [path]
    sight = node_pb2.Sight(path=path, reason="No such file or directory")
    await node.say(looked=node_pb2.Looked(node="a", sights=[sight]))
    assert list((await call).notes)[-3:] == [
        f"node a lacks {path}: No such file or directory",
        "nodes run their own interpreters: name theirs with `python:`",
        "no node has all that the study requires: its trials wait",
    ]
    node.call.cancel()


async def test_a_node_is_asked_at_the_preview_and_waited_for(head: World) -> None:
    node = Node(head, "a")
    await node.hello()
    call = head.control.SubmitStudy(
        pb.SubmitStudyRequest(
            request_id=request_id(),
            spec=spec(requires=types.Requires(paths=[DATA])),
            validate_only=True,
        )
    )
    look = (await node.expect("look")).look
    assert (list(look.paths), look.briefly) == ([DATA], True)
    await node.say(looked=looked(node, "Permission denied"))
    notes = list((await call).notes)
    assert f"node a lacks {DATA}: Permission denied" in notes
    assert "no node has all that the study requires: its trials wait" in notes
    node.call.cancel()


async def test_why_names_the_node_and_the_path(head: World) -> None:
    node = Node(head, "a")
    await node.hello()
    await node.say(looked=looked(node, "No such file or directory"))
    study = (await head.submit(spec(requires=types.Requires(paths=[DATA])))).study
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=f"{study}/1"))
    assert [(left.place, left.reason) for left in why.left_out] == [
        ("a", f"it lacks what the study requires: {DATA}: No such file or directory")
    ]
    node.call.cancel()


async def test_a_node_shows_what_it_lacks(head: World) -> None:
    node = Node(head, "a")
    await node.hello()
    await node.say(looked=looked(node, "No such file or directory"))
    await node.settle()
    (shown,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    assert list(shown.lacking) == [f"{DATA}: No such file or directory"]
    node.call.cancel()


async def test_an_environment_is_not_made_for_a_preview(head: World) -> None:
    node = Node(head, "a")
    await node.hello()
    wanted = spec(requirements="demo==1\n")
    request = pb.SubmitStudyRequest(request_id=request_id(), spec=wanted, validate_only=True)
    notes = list((await head.control.SubmitStudy(request)).notes)
    (name,) = (note.split()[0] for note in notes if "is made on each node" in note)
    await head.submit(wanted)
    (venv,) = (await node.expect("look")).look.venvs
    assert (venv.name, venv.requirements) == (name, "demo==1\n")
    sight = node_pb2.Sight(path=name, reason="No matching distribution found for demo")
    await node.say(looked=node_pb2.Looked(node="a", sights=[sight]))
    await node.settle()
    request.request_id = request_id()
    notes = list((await head.control.SubmitStudy(request)).notes)
    assert f"node a lacks {name}: No matching distribution found for demo" in notes
    node.call.cancel()


async def test_a_preview_asks_for_a_conda_environment_and_waits_for_the_answer(
    head: World,
) -> None:
    node = Node(head, "a")
    await node.hello()
    wanted = spec(conda="vision")
    call = head.control.SubmitStudy(
        pb.SubmitStudyRequest(request_id=request_id(), spec=wanted, validate_only=True)
    )
    assert list((await node.expect("look")).look.condas) == ["vision"]
    need = "conda environment vision"
    sight = node_pb2.Sight(path=need, reason="it is not here; there are speech")
    await node.say(looked=node_pb2.Looked(node="a", sights=[sight]))
    notes = list((await call).notes)
    assert f"node a lacks {need}: it is not here; there are speech" in notes
    assert "no node has all that the study requires: its trials wait" in notes
    node.call.cancel()


async def test_a_node_speaks_of_its_own_paths_alone(head: World) -> None:
    node = Node(head, "a")
    await node.hello()
    await node.say(looked=node_pb2.Looked(node="b", sights=[node_pb2.Sight(path=DATA)]))
    await node.settle()
    assert not head.state.sights
    node.call.cancel()
