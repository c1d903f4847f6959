"""A node that goes for good hears what is still needed of it, and is forgotten when it has gone."""

from __future__ import annotations

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World
from tests.study_specs import spec

GOES = node_pb2.Yielded(place="box", reason="it goes back", parting=True)


async def lease(node: Node) -> node_pb2.Lease:
    await node.beat()
    return await node.lease()


async def goes(node: Node) -> None:
    goodbye = node_pb2.Goodbye(reason="done", for_good=True)
    await node.call.write(node_pb2.AttachRequest(goodbye=goodbye))
    await node.ended()


async def test_it_hears_with_each_lease_of_how_many_trials_something_is_there(head: World) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec({"lr": {"value": 1.0}}))
    launch = await node.start()
    assert not (await lease(node)).HasField("left_behind"), "it did not ask"
    run = {"trial": launch.trial, "attempt": launch.attempt}
    known = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT, framework="keras")
    await node.say(fidelity_known=known)
    await node.say(yielded=GOES)
    await node.settle()
    assert (await lease(node)).left_behind == 1
    await node.say(run_failed=node_pb2.RunFailed(**run, error_kind="error", detail="no"))
    await node.settle()
    assert (await lease(node)).left_behind == 0


async def test_one_that_has_left_is_not_shown_any_more_until_it_comes_again(head: World) -> None:
    node = Node(head)
    await node.hello()
    await node.say(yielded=GOES)
    await node.settle()
    await goes(node)
    other = Node(head, "other")
    await other.hello()
    listed = await head.control.ListNodes(pb.ListNodesRequest())
    assert [each.id for each in listed.nodes] == ["other"]
    again = Node(head)
    await again.hello()
    listed = await head.control.ListNodes(pb.ListNodesRequest())
    assert sorted((each.id, each.resting) for each in listed.nodes) == [("box", ""), ("other", "")]


async def test_a_hello_says_again_that_the_node_goes(head: World) -> None:
    node = Node(head)
    await node.hello(yields=[node_pb2.Yielded(place="box", reason="it goes back")], parting=True)
    assert (await lease(node)).left_behind == 0
