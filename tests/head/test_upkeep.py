"""Nodes are drained and put to use again over the wire, and people see how far that is."""

from __future__ import annotations

from pathlib import Path

import grpc

from hermesd.head.security.guard import METHODS
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.identity import Role
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}
FAILED_EVENT = pb.PUBLIC_EVENT_KIND_FAILED
STOPPED_EVENT = pb.PUBLIC_EVENT_KIND_STOPPED


async def drain(head: World, node: str = "box", **fields: str) -> pb.Node:
    request = pb.DrainNodeRequest(request_id=fields.get("request_id", request_id()), node=node)
    return (await head.control.DrainNode(request)).node


async def parked_trial(head: World, node: Node) -> node_pb2.Launch:
    """A trial that can be restored, paused and parked on the node."""
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    known = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT, framework="keras")
    await node.say(fidelity_known=known)
    selection = pb.Selection(trials=[launch.trial])
    pause = pb.PauseTrialsRequest(request_id=request_id(), selection=selection)
    await head.control.PauseTrials(pause)
    await node.expect("suspend")
    await node.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_PARK, step=5))
    await node.settle()
    return launch


async def test_a_node_is_drained_until_it_is_undrained(head: World, node: Node) -> None:
    launch = await parked_trial(head, node)
    run = {"trial": launch.trial, "attempt": launch.attempt}
    shown = await drain(head, "bo")
    assert (shown.id, shown.draining, list(shown.parked)) == ("box", True, ["digits/1"])
    assert list(shown.stuck) == []
    asked = (await node.expect("write_down")).write_down
    assert (asked.trial, asked.attempt) == ("digits/1", launch.attempt)
    saved = types.Checkpoint(id="c1", **run, step=5, sha256="5ha", size_bytes=1, nodes=["box"])
    suspended = node_pb2.RunSuspended(**run, tier=types.TIER_CHECKPOINT, step=5, checkpoint=saved)
    await node.say(run_suspended=suspended)
    await node.settle()
    (shown,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    assert (shown.draining, list(shown.parked), shown.only_copies) == (True, [], 1)
    resume = pb.ResumeTrialsRequest(
        request_id=request_id(), selection=pb.Selection(trials=["digits/1"])
    )
    await head.control.ResumeTrials(resume)
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_WAITING
    undrain = pb.UndrainNodeRequest(request_id=request_id(), node="box")
    assert not (await head.control.UndrainNode(undrain)).node.draining
    assert (await node.expect("launch")).launch.checkpoint.id == "c1"
    seen = await events(head, pb.PUBLIC_EVENT_KIND_NODE_UNDRAINED)
    assert [event.device for event in seen if event.kind == pb.PUBLIC_EVENT_KIND_NODE_DRAINED] == [
        "box"
    ]


async def test_a_head_that_is_restarted_drains_still(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await Node(head).hello()
        await drain(head)
    async with world(tmp_path) as head:
        assert head.state.nodes["box"].draining
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE))
        assert (await head.trial("digits/1")).state == types.TRIAL_STATE_WAITING
        (shown,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
        assert shown.draining
        node.call.cancel()


async def test_what_cannot_leave_is_named(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(fidelity_known=node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_PARK_ONLY))
    await node.settle()
    shown = await drain(head)
    assert list(shown.stuck) == ["digits/1"]
    assert [device.trial for device in shown.devices] == ["digits/1"]


async def test_a_repeated_request_has_one_effect(head: World) -> None:
    await Node(head).hello()
    await drain(head, request_id="again")
    committed = head.running.head.committed
    assert (await drain(head, request_id="again")).draining
    assert head.running.head.committed == committed


async def test_what_makes_no_sense_is_refused(head: World) -> None:
    await Node(head).hello()
    code, words = await status(drain(head, "boxx"))
    assert code is CODE.NOT_FOUND
    assert "did you mean box?" in words
    request = pb.UndrainNodeRequest(request_id=request_id(), node="box")
    code, words = await status(head.control.UndrainNode(request))
    assert (code, words) == (CODE.FAILED_PRECONDITION, "node box is not draining")
    code, words = await status(head.control.DrainNode(pb.DrainNodeRequest(node="box")))
    assert code is CODE.INVALID_ARGUMENT
    assert "request_id" in words


async def fail(node: Node, detail: str) -> str:
    """Take the next launch and fail; the trial."""
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    failed = node_pb2.RunFailed(
        **run, error_kind="exception", detail=detail, error_signature=detail, step=1
    )
    await node.say(run_failed=failed)
    await node.settle()
    return launch.trial


async def release(head: World, node: str, device: str = "") -> pb.Node:
    request = pb.ReleaseNodeRequest(request_id=request_id(), node=node, device=device)
    return (await head.control.ReleaseNode(request)).node


async def test_a_suspect_device_is_shown_with_its_evidence_and_released(head: World) -> None:
    node, other = Node(head), Node(head, "spare")
    await node.hello()
    for study in ("digits", "beside", "faces"):
        await head.submit(spec(ONE, name=study))
    await other.hello()
    await other.start()
    first = await fail(node, "Traceback\nECC error 1")
    second = await fail(node, "ECC error 2")
    assert (first, second) == ("digits/1", "faces/1")
    shown = (await head.control.ListNodes(pb.ListNodesRequest())).nodes[0]
    (device,) = shown.devices
    assert device.quarantine.reason == (
        "digits/1 failed there: ECC error 1; faces/1 failed there: ECC error 2"
    )
    assert device.quarantine.until_unix_seconds > head.running.head.clock()
    assert [(strike.trial, strike.detail) for strike in device.strikes] == [
        ("digits/1", "ECC error 1"),
        ("faces/1", "ECC error 2"),
    ]
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
    assert [each.place for each in why.left_out] == ["box/cpu:0", "box/cpu:0"]
    assert why.left_out[1].reason == "it failed there: ECC error 1"
    (device,) = (await release(head, "box", "cpu:0")).devices
    assert not device.HasField("quarantine")
    assert not device.strikes
    code, words = await status(release(head, "box"))
    assert (code, words) == (
        CODE.FAILED_PRECONDITION,
        "box is not in quarantine, and no failures count against it",
    )
    code, words = await status(release(head, "box", "cpu:9"))
    assert code is CODE.NOT_FOUND
    seen = await events(head, pb.PUBLIC_EVENT_KIND_TRUSTED)
    (told,) = [each for each in seen if each.kind == pb.PUBLIC_EVENT_KIND_QUARANTINED]
    assert told.device == "box/cpu:0"
    assert seen[-1].reason == "released by a person"
    for each in (node, other):
        each.call.cancel()


async def test_a_node_that_a_study_excludes_is_shown_and_released(head: World, node: Node) -> None:
    message = spec(ONE)
    message.retry.rules.add(match="uncorrectable*ECC", do=types.RETRY_ACTION_EXCLUDE_NODE)
    await head.submit(message)
    await fail(node, "Traceback\nuncorrectable ECC error")
    (shown,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    assert [(each.study, each.reason) for each in shown.exclusions] == [
        (
            "digits",
            "digits/1 failed there (retry.rules: exclude_node): uncorrectable ECC error",
        )
    ]
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
    assert [each.place for each in why.left_out] == ["box", "box/cpu:0"]
    assert not (await release(head, "box")).exclusions
    assert (await node.start()).attempt == 2


async def test_the_third_failure_may_end_the_study(head: World, node: Node) -> None:
    message = spec({"lr": {"values": [1.0, 2.0]}})
    message.retry.max_failures = 1
    message.retry.on_third_failure = types.ON_THIRD_FAILURE_STUDY
    await head.submit(message)
    await fail(node, "it broke")
    assert (await head.trial("digits/2")).state == types.TRIAL_STATE_STOPPED
    seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
    (stopped,) = [each for each in seen if each.kind == pb.PUBLIC_EVENT_KIND_STOPPED]
    assert (stopped.trial, stopped.reason) == (
        "digits/2",
        "digits/1 failed for good (retry.on_third_failure: study)",
    )


async def test_a_failure_that_the_first_trials_share_ends_the_study_and_is_told(
    head: World,
    node: Node,
) -> None:
    await head.submit(spec({"lr": {"values": [1.0, 2.0, 3.0, 4.0, 5.0]}}))
    error = "the program called sys.exit(2): train.py: error: unrecognized arguments: --lr="
    for rate in (1.0, 2.0, 3.0):
        launch = await node.start()
        run = {"trial": launch.trial, "attempt": launch.attempt}
        failure = {"error_kind": "usage", "detail": f"{error}{rate}", "step": 0}
        await node.say(run_failed=node_pb2.RunFailed(**run, **failure))
    seen = await events(head, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)
    ends = {e.trial: e for e in seen if e.kind in (FAILED_EVENT, STOPPED_EVENT)}
    assert [ends[f"digits/{n}"].kind for n in range(1, 6)] == [FAILED_EVENT] * 3 + [
        STOPPED_EVENT
    ] * 2
    assert error in ends["digits/5"].reason
    shown = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    (notice,) = shown.study.notices
    assert notice.startswith(
        "stopped, as the first 3 trials failed alike before their first step"
        f" (digits/1, digits/2, digits/3): {error}1.0; fix that and submit again"
    )
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/4"))
    assert list(why.notices) == [notice]


async def lose(head: World, node: str = "box", name: str = "", for_good: bool = False) -> pb.Node:
    request = pb.LoseNodeRequest(request_id=name or request_id(), node=node, for_good=for_good)
    return (await head.control.LoseNode(request)).node


async def test_a_node_that_a_person_says_is_off_is_not_waited_for(head: World) -> None:
    node, other = Node(head), Node(head, "other")
    await node.hello()
    await head.submit(spec(ONE))
    assert (await node.start()).trial == "digits/1"
    await other.hello()
    assert await status(lose(head)) == (
        CODE.FAILED_PRECONDITION,
        "node box is connected, so it is not off; `hermesctl node drain box` empties it",
    )
    node.call.cancel()
    await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    shown = await lose(head, "bo", name="r1")
    assert (shown.id, shown.connected) == ("box", False)
    assert (await other.expect("launch")).launch.attempt == 2
    assert not (await lose(head, "bo", name="r1")).connected, "the same request again"
    assert await status(lose(head)) == (CODE.FAILED_PRECONDITION, "node box is lost already")
    seen = await events(head, pb.PUBLIC_EVENT_KIND_NODE_LOST)
    assert seen[-1].device == "box"
    other.call.cancel()


async def test_a_node_that_is_off_for_good_is_listed_no_more_until_it_joins_anew(
    head: World,
) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    await node.start()
    run = {"trial": "digits/1", "attempt": 1}
    kept = types.Checkpoint(id="digits/1@5", trial="digits/1", attempt=1, step=5, nodes=["box"])
    await node.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=kept))
    await node.settle()
    assert await status(lose(head, for_good=True)) == (
        CODE.FAILED_PRECONDITION,
        "node box is connected, so it is not off; `hermesctl node drain box` empties it",
    )
    node.call.cancel()
    await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    await lose(head)
    assert (await lose(head, "bo", name="r1", for_good=True)).id == "box", (
        "though it is lost already"
    )
    assert (await lose(head, "bo", name="r1", for_good=True)).id == "box", "the same request again"
    assert (await head.control.ListNodes(pb.ListNodesRequest())).nodes == []
    assert (await status(lose(head)))[0] is CODE.NOT_FOUND
    assert head.state.trials["digits/1"].checkpoint is None, "its disk is gone"
    again = Node(head)
    await again.hello()
    (listed,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    assert (listed.id, listed.connected) == ("box", True)
    again.call.cancel()


def test_users_do_not_see_to_nodes() -> None:
    for name in ("DrainNode", "UndrainNode", "LoseNode", "ReleaseNode"):
        assert METHODS[f"/hermes.v1.ControlService/{name}"] == {Role.OPERATOR, Role.ADMIN}
