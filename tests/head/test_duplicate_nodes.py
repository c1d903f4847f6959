"""Two daemons of one node: one of them is refused, and who looks after it is told."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from hermesd.core.model import Phase
from hermesd.head.fleet import duplicate_nodes
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.head.heads import Node, World, status, world
from tests.head.test_nodes import ONE, silent
from tests.study_specs import spec

CODE = grpc.StatusCode


async def heard(node: Node) -> None:
    await node.beat()
    await node.lease()


async def warnings(head: World) -> list[str]:
    (node,) = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
    return list(node.warnings)


async def with_a_trial(head: World, **hello: object) -> Node:
    """A node that is silent by now, with a trial that may go on there."""
    node = Node(head)
    await node.hello(**hello)
    await head.submit(spec(ONE))
    await node.start()
    await node.settle()
    node.call.cancel()
    await silent(head)
    return node


async def test_a_second_daemon_is_told_apart_when_the_first_is_heard_on(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_nodes, "PROOF_SECONDS", 0.0)
    first, copy = Node(head), {"boot_id": "boot-2", "disk": "aa.1"}
    await first.hello(disk="aa.1")
    with capture_logs() as said:
        code, words = await status(Node(head).hello(**copy))
        assert (code, "is attached already" in words) == (CODE.FAILED_PRECONDITION, True)
        assert await warnings(head) == []
        await heard(first)
        for _ in range(2):
            code, words = await status(Node(head).hello(**copy))
            assert code is CODE.ALREADY_EXISTS
            assert "node box is served by another daemon" in words
            assert "this is another machine" in words
    assert [each["event"] for each in said].count("two daemons answer as one node") == 1
    (warning,) = await warnings(head)
    assert warning.startswith("another machine answers as this node, from ")
    await heard(first)
    assert head.state.nodes["box"].connected
    first.call.cancel()


async def test_a_daemon_that_was_started_anew_is_none_too_many(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of the one before may take a while to end."""
    monkeypatch.setattr(duplicate_nodes, "PROOF_SECONDS", 0.0)
    first = Node(head)
    await first.hello(transfer_key=b"1")
    assert (await status(Node(head).hello(transfer_key=b"2")))[0] is CODE.FAILED_PRECONDITION
    first.call.cancel()
    await silent(head)
    second = Node(head)
    await second.hello(transfer_key=b"2")
    # Nor a third, by what was seen of the first.
    assert (await status(Node(head).hello(transfer_key=b"3")))[0] is CODE.FAILED_PRECONDITION
    second.call.cancel()


async def test_another_state_directory_waits_while_trials_of_the_first_may_run(
    head: World,
) -> None:
    await with_a_trial(head, disk="aa.1")
    code, words = await status(Node(head).hello(disk="bb.1"))
    assert code is CODE.FAILED_PRECONDITION
    assert "another state directory of this machine of the name box has 1 trial" in words
    assert head.state.trials["digits/1"].phase is Phase.RUNNING
    # Made anew in its place, by a daemon that has ended what ran there.
    anew = Node(head)
    await anew.hello(disk="aa.2")
    assert (await anew.expect("launch")).launch.attempt == 2
    anew.call.cancel()


async def test_a_copy_of_a_machine_that_was_up_all_the_while_is_no_reboot_of_it(
    head: World,
) -> None:
    await with_a_trial(head, machine=["id-1"], disk="aa.1")
    copy = {"machine": ["id-1"], "disk": "aa.1", "boot_id": "boot-2"}
    code, words = await status(Node(head).hello(**copy, boottime_seconds=3600.0))
    assert code is CODE.FAILED_PRECONDITION
    assert "another machine of the name box has 1 trial" in words
    rebooted = Node(head)
    await rebooted.hello(**copy, boottime_seconds=0.1)
    assert (await rebooted.expect("launch")).launch.attempt == 2
    rebooted.call.cancel()


async def test_after_a_start_of_the_head_a_reboot_is_believed(tmp_path: Path) -> None:
    """Nobody knows how long the machine was off before."""
    async with world(tmp_path) as head:
        await with_a_trial(head, machine=["id-1"])
    async with world(tmp_path) as head:
        await silent(head)
        node = Node(head)
        await node.hello(machine=["id-1"], boot_id="boot-2", boottime_seconds=3600.0)
        assert (await node.expect("launch")).launch.attempt == 2
        node.call.cancel()


async def test_of_what_a_hostile_node_makes_up_little_is_kept(head: World) -> None:
    first = Node(head)
    await first.hello()
    for each in range(40):
        await status(Node(head).hello(boot_id=f"boot-{each}"))
    assert len(head.running.sessions._rivals._known["box"]) <= 16
    first.call.cancel()
