"""The node's stream: what is safe is acknowledged, who is silent is known, nobody is two."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from hermesd.core.events import NodeJoined, NodeSilent
from hermesd.core.model import Device, Phase, RunId
from hermesd.core.progress import METRICS_KEPT
from hermesd.head.fleet import session as session_module
from hermesd.head.fleet.session import OUTBOX_LIMIT
from hermesd.head.fleet.stream import compatible
from hermesd.head.journal.store import opened
from hermesd.head.server import _farewell
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head import heads
from tests.head.heads import Node, World, events, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}


async def silent(head: World, node: str = "box") -> None:
    """Wait until the head knows that the node is silent."""
    seen = 0
    while head.state.nodes[node].connected:
        seen = await head.running.head.beyond(seen)


async def test_hello_is_answered_and_heartbeats_earn_leases(head: World) -> None:
    node = Node(head)
    welcome = await node.hello(facts=["cgroups: v2"])
    assert (welcome.lease_seconds, welcome.lease_grace_seconds) == (600.0, 120.0)
    await node.beat(at=42.5)
    lease = await node.lease()
    assert (lease.sent_boottime_seconds, lease.lease_seconds) == (42.5, 600.0)
    listed = await head.control.ListNodes(pb.ListNodesRequest())
    assert [(n.id, n.connected, list(n.facts)) for n in listed.nodes] == [
        ("box", True, ["cgroups: v2"])
    ]
    node.call.cancel()


async def test_an_event_is_acknowledged_when_it_is_in_the_journal(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    before = head.running.head.journal.last
    for step in range(1, 50):
        await node.report(launch, step, [1 / step])
    await node.settle()
    lines = await head.running.head.journal.read(before)
    assert len([line for line in lines if type(line.entry).__name__ == "Reported"]) == 49
    assert head.state.trials["digits/1"].step == 49


async def test_nothing_is_said_before_it_is_on_the_disk(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(head, slots=2)
    await node.hello()
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.settle()
    journal, gate = head.running.head.journal, asyncio.Semaphore(0)
    append, written = journal.append, asyncio.Event()

    async def slow(*arguments: Any) -> int:
        written.set()
        await gate.acquire()
        return await append(*arguments)

    monkeypatch.setattr(journal, "append", slow)
    async with asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(head.submit(spec(ONE, name="other")))
        await written.wait()
        before = node.acknowledged
        await node.report(launch, 1, [0.5])
        await node.say(run_completed=node_pb2.RunCompleted(trial="stale/1", attempt=9))
        await node.say()
        await node.beat()
        # The heartbeat is answered at once; what wants the disk is not.
        await node.lease()
        assert node.acknowledged == before
        assert not submitting.done()
        written.clear()
        gate.release()
    assert (await node.expect("launch")).launch.trial == "other/1"
    # The report is being written now; what was rejected behind it waits for it.
    await written.wait()
    await node.beat()
    await node.lease()
    assert node.acknowledged == before
    gate.release()
    await node.settle()
    node.call.cancel()


async def test_stale_and_malformed_messages_are_acknowledged_and_change_nothing(
    head: World,
    node: Node,
) -> None:
    await head.submit(spec(ONE))
    await node.start()
    for message in (
        {"run_completed": node_pb2.RunCompleted(trial="digits/1", attempt=7)},
        {"run_completed": node_pb2.RunCompleted(trial="nobody/1", attempt=1)},
        {"run_completed": node_pb2.RunCompleted(trial="digits/1", attempt=-1)},
        {"run_suspended": node_pb2.RunSuspended(trial="digits/1", attempt=1)},
        {"quantum_ended": node_pb2.QuantumEnded(trial="digits/1", attempt=1, grant=9)},
        {"device_failed": node_pb2.DeviceFailed(device="other/cpu:0")},
        {},
    ):
        await node.say(**message)
    await node.settle()
    assert head.state.trials["digits/1"].phase is Phase.RUNNING
    head.state.check()


async def test_a_node_speaks_only_of_its_own_runs(head: World) -> None:
    honest, liar = Node(head), Node(head, "liar", slots=0)
    await honest.hello()
    await liar.hello()
    await head.submit(spec(ONE))
    await honest.start()
    await honest.settle()
    run = {"trial": "digits/1", "attempt": 1}
    await liar.say(run_completed=node_pb2.RunCompleted(**run))
    await liar.settle()
    assert head.state.trials["digits/1"].run.id == RunId("digits/1", 1)
    # Nor of one that is parked elsewhere, or was there once.
    saved = node_pb2.Checkpointed(
        **run, checkpoint=types.Checkpoint(id="digits/1@x", trial="digits/1", attempt=1, step=9)
    )
    known = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT)
    lies: list[dict[str, Any]] = [
        {"checkpointed": saved},
        {"fidelity_known": known},
        {"park_lost": node_pb2.ParkLost(**run)},
    ]
    await honest.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_PARK, step=3))
    await honest.settle()
    for lie in lies:
        await liar.say(**lie)
    await liar.settle()
    assert head.state.trials["digits/1"].step == 3
    await honest.start()
    await honest.settle()
    for lie in lies:
        await liar.say(**lie)
    await liar.settle()
    trial = head.state.trials["digits/1"]
    assert (trial.attempt, trial.checkpoint, str(trial.fidelity)) == (2, None, "unknown")
    honest.call.cancel()
    liar.call.cancel()


async def test_only_a_word_of_what_is_anothers_is_an_error(head: World) -> None:
    """A node that was away may speak of stays that nobody remembers."""
    node, liar = Node(head), Node(head, "liar", slots=0)
    await node.hello()
    await liar.hello()
    await head.submit(spec(ONE))
    await node.start()
    run = {"trial": "digits/1", "attempt": 1}
    await node.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_PARK, step=3))
    await node.start()
    await node.settle()
    word = node_pb2.FidelityKnown(**run, fidelity=types.FIDELITY_EXACT)
    with capture_logs() as said:
        await node.say(fidelity_known=word)
        await node.settle()
        assert [entry["log_level"] for entry in said] == ["debug"]
        word.attempt = 2
        await liar.say(fidelity_known=word)
        await liar.settle()
    assert [entry["log_level"] for entry in said] == ["debug", "error"]
    assert str(head.state.trials["digits/1"].fidelity) == "unknown"
    node.call.cancel()
    liar.call.cancel()


async def test_a_late_word_of_a_run_that_was_lost_is_its_nodes_to_say(head: World) -> None:
    node, liar = Node(head), Node(head, "liar", slots=0)
    await node.hello()
    await liar.hello()
    await head.submit(spec(ONE))
    await node.start()
    run = {"trial": "digits/1", "attempt": 1}
    lost = node_pb2.RunFailed(**run, error_kind="lost", detail="gone", step=9)
    await node.say(run_failed=lost)
    await node.start()
    await node.settle()
    for step, teller in ((9, liar), (5, node)):
        kept = types.Checkpoint(id=f"digits/1@{step}", trial="digits/1", attempt=1, step=step)
        await teller.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=kept))
        await teller.settle()
    assert head.state.trials["digits/1"].checkpoint.step == 5
    # A checkpoint is of the trial that it is said of.
    foreign = types.Checkpoint(id="digits/2@7", trial="digits/2", attempt=1, step=7)
    run["attempt"] = 2
    await node.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=foreign))
    await node.settle()
    assert head.state.trials["digits/1"].checkpoint.step == 5
    node.call.cancel()
    liar.call.cancel()


async def test_a_node_that_says_what_none_does_neither_ends_the_head_nor_reaches_others(
    head: World,
) -> None:
    """Each of these would end the head, at each of its restarts again, or name a file of others."""
    node, other = Node(head), Node(head, "other")
    await node.hello()
    await head.submit(spec(ONE))
    run = {"trial": "digits/1", "attempt": 1}
    await node.start()
    saved = {"trial": "digits/1", "attempt": 1, "step": 5, "sha256": "5ha", "size_bytes": 1}
    for kept in (
        types.Checkpoint(**saved, id="digits/1@../../../evil", nodes=["box"]),
        types.Checkpoint(**saved, id="digits/1@a", nodes=["box", "ghost"]),
        types.Checkpoint(**{**saved, "size_bytes": 2**63 - 1}, id="digits/1@a", nodes=["box"]),
    ):
        await node.say(checkpointed=node_pb2.Checkpointed(**run, checkpoint=kept))
    planned = node_pb2.RunStarted(**run, start_seconds=0.1, planned_steps=2**63 - 1)
    await node.say(run_started=planned)
    last = node_pb2.RunFailed(**run, error_kind="lost", newest_attempt=2**31 - 1)
    await node.say(run_failed=last)
    await node.settle()
    trial = head.state.trials["digits/1"]
    assert (trial.checkpoint, trial.planned_steps, trial.attempt) == (None, None, 1)
    far = node_pb2.LiveRun(trial="digits/1", attempt=2**31 - 1, condition=1)
    code, words = await status(other.hello(runs=[far]))
    assert (code, "NodeJoined.live.run.attempt" in words) == (CODE.INVALID_ARGUMENT, True)
    assert "other" not in head.state.nodes
    await node.report(node_pb2.Launch(**run), 1, [0.5])
    await node.settle()
    node.call.cancel()


async def test_of_ever_new_metrics_the_first_thousand_are_kept(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    for step in range(1, 12):
        names = {f"loss_{step}_{each}": float(step) for each in range(100)}
        await node.report(launch, step, [1.0], **names)
    await node.settle()
    known = head.state.trials["digits/1"].metrics
    assert len(known) == METRICS_KEPT
    assert (known["loss"].step, "loss_1_0" in known, "loss_11_0" in known) == (11, True, False)
    stored = await head.running.head.journal.metrics("digits/1")
    assert {one for one in stored if not one.startswith("hermes/")} == set(known)


async def test_half_closing_the_stream_makes_the_node_silent(head: World) -> None:
    node = Node(head)
    await node.hello()
    await node.call.done_writing()
    await silent(head)
    await node.ended()


async def test_cancelling_the_stream_makes_the_node_silent(head: World) -> None:
    node = Node(head)
    await node.hello()
    node.call.cancel()
    await silent(head)
    lines = await head.running.head.journal.read(0)
    assert isinstance(lines[-1].entry, NodeSilent)


async def test_goodbye_says_why(head: World) -> None:
    node = Node(head)
    await node.hello()
    await node.call.write(node_pb2.AttachRequest(goodbye=node_pb2.Goodbye(reason="reboot")))
    seen = await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    assert seen[-1].reason == "it said goodbye: reboot"


async def test_a_peer_that_stops_is_silent_after_a_while(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(session_module, "WATCH_SECONDS", 0.05)
    node = Node(head)
    await node.hello()
    await silent(head)
    seen = await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    assert seen[-1].reason == "no heartbeat for 0.3 s"
    await node.ended()


async def test_time_that_the_head_itself_slept_is_not_the_nodes_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(session_module, "boottime", lambda: now[0])
    monkeypatch.setattr(session_module, "boottime", lambda: now[0])
    slept = iter([60.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    session = heads.session()

    async def sleep(seconds: float) -> None:
        now[0] += next(slept)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Exception, match="no heartbeat"):
        await session_module.watch(session)
    assert now[0] == pytest.approx(65.0, abs=1.0)


async def test_a_second_session_of_a_node_is_refused_while_the_first_is_heard(head: World) -> None:
    first, second = Node(head), Node(head)
    await first.hello()
    code, words = await status(second.hello())
    assert code is CODE.FAILED_PRECONDITION
    assert "node box is attached already" in words
    await first.beat()
    await first.lease()
    first.call.cancel()


async def test_a_second_session_takes_the_place_of_a_silent_one(head: World) -> None:
    first, second = Node(head), Node(head)
    await first.hello()
    session = head.running.sessions.find("box")
    assert session is not None
    session.heard -= 1000
    await second.hello()
    await first.ended()
    await second.beat()
    await second.lease()
    assert head.state.nodes["box"].connected
    second.call.cancel()


async def test_commands_are_said_again_after_a_new_hello(head: World) -> None:
    node = Node(head)
    await node.hello()
    await head.submit(spec(ONE))
    lost = (await node.expect("launch")).launch
    node.call.cancel()
    await silent(head)
    again = Node(head)
    run = node_pb2.LiveRun(
        trial="digits/1",
        attempt=1,
        condition=node_pb2.RUN_CONDITION_STARTING,
        devices=["box/cpu:0"],
    )
    await again.hello(runs=[run])
    launch = (await again.expect("launch")).launch
    assert (launch.trial, launch.attempt) == (lost.trial, lost.attempt)
    again.call.cancel()


async def test_a_launch_is_sent_once_to_a_node_that_has_just_said_hello(head: World) -> None:
    await head.submit(spec(ONE))
    node = Node(head)
    await node.hello()
    await node.expect("launch")
    await node.beat()
    assert (await node.next()).HasField("lease")
    node.call.cancel()


async def test_an_unknown_run_is_killed(head: World) -> None:
    node = Node(head)
    stray = node_pb2.LiveRun(
        trial="gone/1", attempt=3, condition=node_pb2.RUN_CONDITION_RUNNING, devices=["box/cpu:0"]
    )
    await node.hello(runs=[stray])
    kill = (await node.expect("kill")).kill
    assert (kill.trial, kill.attempt) == ("gone/1", 3)
    node.call.cancel()


async def test_a_restarted_head_takes_its_nodes_for_silent_until_they_say_hello(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE))
        launch = await node.start()
        await node.report(launch, 1, [0.5])
        await node.settle()
    async with world(tmp_path) as head:
        await silent(head)
        assert head.state.trials["digits/1"].phase is Phase.RUNNING
        node = Node(head)
        live = node_pb2.LiveRun(
            trial="digits/1",
            attempt=1,
            condition=node_pb2.RUN_CONDITION_RUNNING,
            devices=["box/cpu:0"],
        )
        await node.hello(runs=[live])
        await node.report(launch, 2, [0.25])
        await node.complete(launch, 2)
        await node.settle()
        assert head.state.trials["digits/1"].phase is Phase.COMPLETED
        curve = await head.control.GetCurve(pb.GetCurveRequest(trial="digits/1"))
        assert list(curve.values) == [0.5, 0.25]
        node.call.cancel()


async def test_a_head_that_was_killed_knows_at_once_that_nobody_is_attached(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        device = Device("box/cpu:0", "box", "cpu", 2**30)
        await journal.append([(1.0, NodeJoined("box", "boot-1", (device,), ()), "")])
    async with world(tmp_path) as head:
        await silent(head)
        await head.running.head.beyond(1)
        last = (await head.running.head.journal.read(1))[0]
        assert last.entry == NodeSilent("box", "the head was restarted")
        assert head.running.head.scheduler.deadline == pytest.approx(last.at + 780.0)


async def test_a_stopping_head_says_so(head: World) -> None:
    node = Node(head)
    await node.hello()
    await _farewell(head.running)
    assert (await node.expect("going_away")).going_away.reason == "the head stops"
    await node.ended()


BAD_HELLOS: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({"version": "9.0.0"}, CODE.FAILED_PRECONDITION, "the node 9.0.0"),
    ({"version": ""}, CODE.FAILED_PRECONDITION, "one minor version apart"),
    ({"node": ""}, CODE.INVALID_ARGUMENT, "node and boot_id"),
    ({"boot_id": ""}, CODE.INVALID_ARGUMENT, "node and boot_id"),
    (
        {"devices": [types.Device(id="other/cpu:0", node="other", kind="cpu")]},
        CODE.INVALID_ARGUMENT,
        "a device of box",
    ),
    ({"runs": [node_pb2.LiveRun(trial="d/1")]}, CODE.INVALID_ARGUMENT, "attempt"),
]


@pytest.mark.parametrize(("fields", "code", "words"), BAD_HELLOS)
async def test_a_hello_that_will_not_do(
    head: World, fields: dict[str, Any], code: grpc.StatusCode, words: str
) -> None:
    refused = await status(Node(head).hello(**fields))
    assert refused[0] is code
    assert words in refused[1]
    assert head.state.nodes == {}


async def test_the_first_message_is_a_hello(head: World) -> None:
    for first in (
        node_pb2.AttachRequest(heartbeat=node_pb2.Heartbeat()),
        node_pb2.AttachRequest(),
    ):
        node = Node(head)
        await node.call.write(first)
        assert (await status(node.expect("welcome")))[0] is CODE.INVALID_ARGUMENT
    closed = Node(head)
    await closed.call.done_writing()
    assert (await status(closed.expect("welcome")))[0] is CODE.INVALID_ARGUMENT


async def test_another_machine_of_the_name_waits_while_the_first_may_run_trials(
    head: World,
) -> None:
    """Such as has a copy of its state directory: what runs on the first was launched anew."""
    first = Node(head)
    await first.hello(machine=["id-1", "card-1"])
    await head.submit(spec(ONE))
    launch = await first.start()
    await first.settle()
    first.call.cancel()
    await silent(head)
    copied = {"boot_id": "boot-2", "machine": ["id-2", "card-2"]}
    code, words = await status(Node(head).hello(**copied))
    assert code is CODE.FAILED_PRECONDITION
    assert "another machine of the name box has 1 trial" in words
    run = node_pb2.LiveRun(trial=launch.trial, attempt=1, condition=node_pb2.RUN_CONDITION_RUNNING)
    again = Node(head)  # the very same, with another network card
    await again.hello(machine=["id-1", "card-3"], runs=[run])
    assert head.state.trials["digits/1"].phase is Phase.RUNNING
    again.call.cancel()
    await silent(head)
    lose = pb.LoseNodeRequest(request_id=request_id(), node="box")
    await head.control.LoseNode(lose)
    other = Node(head)
    await other.hello(**copied)
    assert (await other.expect("launch")).launch.attempt == 2
    other.call.cancel()


async def test_a_second_hello_on_the_stream_ends_it(head: World) -> None:
    node = Node(head)
    await node.hello()
    assert (await status(node.hello()))[0] is CODE.INVALID_ARGUMENT
    await silent(head)


async def test_a_node_that_does_not_read_is_let_go(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SILENCE_SECONDS", math.inf)  # it is heard all the time
    monkeypatch.setattr(session_module, "WATCH_SECONDS", 0.05)
    node = Node(head)
    await node.hello()
    session = head.running.sessions.find("box")
    assert session is not None
    for _ in range(OUTBOX_LIMIT + 1):
        session.send(node_pb2.AttachResponse(kill=node_pb2.KillRun(trial="x" * 20_000)))
    await silent(head)
    seen = await events(head, pb.PUBLIC_EVENT_KIND_NODE_SILENT)
    assert seen[-1].reason == "it does not read its messages"
    assert head.running.sessions.find("box") is None
    again = Node(head)
    await again.hello()
    await node.ended()
    again.call.cancel()


async def test_usage_is_shown_with_the_device(head: World, node: Node) -> None:
    usage = node_pb2.DeviceUsage(
        device="box/cpu:0", usage=types.Usage(utilization=0.5, memory_bytes=7)
    )
    report = node_pb2.UsageReport(
        devices=[usage], warnings=["nobody knows who: " + "x" * 9_999] * 99
    )
    await node.call.write(node_pb2.AttachRequest(usage=report))
    await node.beat()
    await node.lease()
    listed = await head.control.ListNodes(pb.ListNodesRequest())
    assert listed.nodes[0].devices[0].usage.memory_bytes == 7
    warnings = listed.nodes[0].warnings
    assert (len(warnings), max(map(len, warnings))) == (8, 500)
    assert warnings[0].startswith("nobody knows who: x")


@pytest.mark.parametrize(
    ("theirs", "fit"),
    [
        ("1.4.0", True),
        ("1.5.9", True),
        ("1.3.0", True),
        ("1.6.0", False),
        ("2.4.0", False),
        ("x", False),
    ],
)
def test_versions_may_be_one_minor_apart(theirs: str, fit: bool) -> None:
    assert compatible("1.4.2", theirs) is fit
    assert request_id() != request_id()


async def test_a_connection_that_breaks_under_a_write_ends_the_stream_like_any_other() -> None:
    class Broken:
        async def write(self, message: node_pb2.AttachResponse) -> None:
            raise grpc.aio.InternalError("Failed execute_batch")

    session = heads.session("box", "ipv4:10.0.0.2:1")
    session.send(node_pb2.AttachResponse())
    with pytest.raises(session_module.SessionEnded, match="the stream broke"):
        await session_module.write(session, Broken())
