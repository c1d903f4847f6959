"""What a node leaves to others: the head has it given back, and tells people."""

from __future__ import annotations

import grpc

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, events, status
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}


async def shown(head: World) -> pb.Node:
    (node,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    return node


async def test_a_device_that_others_use_is_given_back_and_used_again(head: World) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    known = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT, framework="keras")
    await node.say(fidelity_known=known)
    reason = "process 7 (python) of bob uses it"
    await node.say(yielded=node_pb2.Yielded(place="box/cpu:0", reason=reason))
    asked = (await node.expect("suspend")).suspend
    assert (asked.tier, asked.deadline_seconds) == (types.TIER_CHECKPOINT, 15.0)
    assert asked.reason == f"box/cpu:0: {reason}"
    assert [device.yielded for device in (await shown(head)).devices] == [reason]
    saved = types.Checkpoint(id="c1", **run, step=5, sha256="5ha", size_bytes=1, nodes=["box"])
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            **run, tier=types.TIER_CHECKPOINT, step=5, checkpoint=saved
        )
    )
    await node.settle()
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=launch.trial))
    assert f"can be used now (box/cpu:0: {reason})" in why.summary
    await node.say(reclaimed=node_pb2.Reclaimed(place="box/cpu:0"))
    assert (await node.expect("launch")).launch.checkpoint.id == "c1"
    seen = await events(head, pb.PUBLIC_EVENT_KIND_RECLAIMED)
    (told,) = [each for each in seen if each.kind == pb.PUBLIC_EVENT_KIND_YIELDED]
    assert (told.device, told.reason) == ("box/cpu:0", reason)


async def test_a_node_out_of_its_hours_gets_nothing_and_says_so_with_its_hello(
    head: World,
) -> None:
    node = Node(head)
    reason = "it serves Sat-Sun; again from Sat 00:00"
    await node.hello(yields=[node_pb2.Yielded(place="box", reason=reason)])
    await head.submit(spec(ONE))
    assert (await shown(head)).resting == reason
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
    assert f"no device of its pool default can be used now (box rests: {reason})" in why.summary
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_WAITING
    await node.say(reclaimed=node_pb2.Reclaimed(place="box"))
    assert (await node.start()).trial == "digits/1"


async def test_a_node_yields_nothing_of_another(head: World) -> None:
    box, rogue = Node(head), Node(head, "rogue")
    await box.hello()
    await rogue.hello()
    for place in ("box", "box/cpu:0", "boxes/0"):
        await rogue.say(yielded=node_pb2.Yielded(place=place, reason="mine"))
    await rogue.settle()
    assert head.state.nodes["box"].open
    assert all(slot.sound for slot in head.state.slots.values())
    third = Node(head, "third")
    code, words = await status(third.hello(yields=[node_pb2.Yielded(place="box", reason="mine")]))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "hello.yields = box: expected third or a device of it" in words
