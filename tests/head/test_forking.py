"""What a fork begins from when its parent is somewhere else by now, over a real socket."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from hermesd.core.events import NodeLost
from hermesd.head.api import forking
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, request_id
from tests.study_specs import spec

REASON = "its device is lent to others"


def checkpoint(launch: node_pb2.Launch, step: int) -> types.Checkpoint:
    return types.Checkpoint(
        id=f"{launch.trial}@s{step}", trial=launch.trial, attempt=launch.attempt, step=step,
        sha256="ab", size_bytes=1, nodes=["box"],
    )  # fmt: skip


async def at_step_4(head: World, node: Node, *, saved: bool) -> node_pb2.Launch:
    """It has come to step 4, and has a checkpoint of step 2 or none."""
    await head.submit(spec({"lr": {"value": 1.0}}))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    exact = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT, framework="keras")
    await node.say(fidelity_known=exact)
    await node.report(launch, 1, [0.5, 0.4, 0.3, 0.2])
    if saved:
        await node.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=checkpoint(launch, 2)))
    await node.settle()
    return launch


async def refuse(node: Node, launch: node_pb2.Launch) -> None:
    """Say that nothing can be written down, as soon as the head asks for it."""
    asked = (await node.expect("save")).save
    assert (asked.trial, asked.attempt) == (launch.trial, launch.attempt)
    for attempt in (launch.attempt + 1, launch.attempt):  # first of a run that nobody asks about
        said = node_pb2.NotSaved(trial=launch.trial, attempt=attempt, reason=REASON)
        await node.call.write(node_pb2.AttachRequest(not_saved=said))


async def test_a_fork_waits_no_longer_once_nothing_can_be_written(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "SAVED_SECONDS", 3600.0)
    launch = await at_step_4(head, node, saved=True)
    request = pb.ForkTrialRequest(trial=launch.trial, request_id=request_id())
    made, _ = await asyncio.gather(head.control.ForkTrial(request), refuse(node, launch))
    assert (made.trial.forked_from, made.trial.forked_at_step) == ("digits/1", 2)
    said = f"digits/1 is at step 4, of which there is no checkpoint: {REASON}"
    assert list(made.notes) == [said]


async def test_if_there_is_no_older_one_either_the_error_says_why(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "SAVED_SECONDS", 3600.0)
    launch = await at_step_4(head, node, saved=False)
    request = pb.ForkTrialRequest(trial=launch.trial, request_id=request_id())
    refused, _ = await asyncio.gather(
        head.control.ForkTrial(request), refuse(node, launch), return_exceptions=True
    )
    assert isinstance(refused, grpc.aio.AioRpcError)
    assert f"of which none could be written now: {REASON}" in str(refused.details())


async def test_without_an_answer_the_newest_serves_after_a_while(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "SAVED_SECONDS", 0.2)
    launch = await at_step_4(head, node, saved=True)
    request = pb.ForkTrialRequest(trial=launch.trial, request_id=request_id())
    made = await head.control.ForkTrial(request)
    assert made.trial.forked_at_step == 2
    assert made.notes[0].endswith("no checkpoint: none came within 0.2 s")


async def test_of_a_node_that_is_away_nothing_is_waited_for(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "SAVED_SECONDS", 3600.0)
    launch = await at_step_4(head, node, saved=True)
    node.call.cancel()
    while head.state.nodes["box"].connected:
        await head.running.head.beyond(head.running.head.committed)
    request = pb.ForkTrialRequest(trial=launch.trial, request_id=request_id())
    made = await head.control.ForkTrial(request)
    assert made.trial.forked_at_step == 2
    assert made.notes[0].endswith("no checkpoint: node box is not connected")


async def test_an_image_is_told_to_be_of_no_use_for_other_parameters(
    head: World, node: Node
) -> None:
    launch = await at_step_4(head, node, saved=True)
    run = {"trial": launch.trial, "attempt": launch.attempt}
    image = checkpoint(launch, 4)
    image.image_of = "box"
    await node.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=image))
    await node.settle()
    other = types.NamedValue(name="lr", value=types.Value(double_value=0.5))
    request = pb.ForkTrialRequest(trial=launch.trial, new_parameters=[other])
    request.request_id = request_id()
    made = await head.control.ForkTrial(request)
    assert made.trial.forked_at_step == 2
    none = "of which there is no checkpoint that can take other parameters"
    assert list(made.notes) == [f"digits/1 is at step 4, {none}"]
    same = pb.ForkTrialRequest(trial=launch.trial, request_id=request_id())
    assert (await head.control.ForkTrial(same)).trial.forked_at_step == 4


async def test_a_fork_whose_node_is_lost_does_not_begin_anew_on_another(
    head: World, node: Node
) -> None:
    launch = await at_step_4(head, node, saved=True)
    request = pb.ForkTrialRequest(trial=launch.trial, step=2, request_id=request_id())
    made = (await head.control.ForkTrial(request)).trial
    await node.complete(launch)
    copy = (await node.expect("copy")).copy
    copied = {"node": "box", "trial": made.id, "checkpoint": copy.checkpoint.id}
    await node.say(copied=node_pb2.Copied(**copied))
    own = (await node.expect("launch")).launch
    assert (own.trial, own.checkpoint.step) == (made.id, 2)
    started = node_pb2.RunStarted(trial=own.trial, attempt=own.attempt, step=2)
    await node.say(run_started=started)
    await node.settle()
    node.call.cancel()
    while head.state.nodes["box"].connected:
        await head.running.head.beyond(head.running.head.committed)
    await head.running.head.tell(NodeLost("box"))
    other = Node(head, "other")
    await other.hello()
    again = (await other.expect("launch")).launch
    assert (again.trial, again.checkpoint.step) == (made.id, 2)
    assert [each.node for each in again.sources] == ["box"], "else it would begin at step 0"
    other.call.cancel()
