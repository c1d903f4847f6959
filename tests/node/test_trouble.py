"""What goes wrong with one trial, on the disk or in what its host says, costs that trial alone."""

import asyncio
import inspect
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hermesd.config.schema import NodeConfig
from hermesd.core.events import (
    NodeJoined,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import RunId, Tier
from hermesd.core.trial import CODE
from hermesd.node import frames
from hermesd.node.machine import processes
from hermesd.node.outbox import ROOM
from hermesd.node.runner import host_link
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.deep_trees import TOO_DEEP, dig

from .conftest import CPU1, PROGRAM, SHORT, Head, Node, becomes, daemon_process, worker_of

DIGGING = f"""
import os
from pathlib import Path
{inspect.getsource(dig)}
if not os.path.exists("data"):
    dig(Path("data"), {TOO_DEEP})
"""
Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]


def folder_of(config: NodeConfig, trial: str = "digits/1") -> Path:
    return config.state_dir / "trials" / trial


def journal_of(config: NodeConfig, trial: str = "digits/1") -> Path:
    return config.state_dir / "runs" / trial


def fill(folder: Path) -> None:
    """The next journal of a run is written to a disk without a byte of room."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.partial").symlink_to("/dev/full")


async def test_a_full_disk_at_a_start_fails_that_run_and_no_other(
    head: Head, node: Node, launch: Launch, running: Running
) -> None:
    rival = await running(trial="digits/2", device=CPU1)
    fill(journal_of(node.config))
    failed = await head.hears(RunFailed, launch())
    assert failed.error_kind == "not_started"
    assert failed.detail.startswith("No space left on device: ")
    assert failed.detail.endswith("digits/1/run.partial")
    after = len(head.events)
    await head.hears(Reported, rival, after)
    (journal_of(node.config) / "run.partial").unlink()
    await head.hears(RunCompleted, launch(attempt=2, argv=SHORT))


async def test_an_interpreter_that_is_not_there_is_said_in_a_line(
    head: Head, node: Node, launch: Launch
) -> None:
    failed = await head.hears(RunFailed, launch(python="/no/such/python3"))
    assert failed.error_kind == "unmet"
    assert failed.detail == "/no/such/python3: No such file or directory"


async def test_code_that_no_machine_can_unpack_is_said_to_be_that(
    head: Head, node: Node, launch: Launch
) -> None:
    failed = await head.hears(RunFailed, launch(beside=("d/" * 600 + "leaf.py",)))
    assert failed.error_kind == CODE
    assert "lies 600 directories deep, expected at most 200" in failed.detail


async def test_a_tree_that_a_program_digs_costs_neither_it_nor_another_trial(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    run = await running(program=DIGGING + PROGRAM)
    checkpoint = (await suspended(run, Tier.CHECKPOINT)).checkpoint
    await head.hears(RunCompleted, launch(trial="digits/2", argv=SHORT, device=CPU1))
    after = len(head.events)
    second = launch(attempt=2, checkpoint=checkpoint, program=DIGGING + PROGRAM)
    await head.hears(Reported, second, after)
    await suspended(second, Tier.CHECKPOINT)
    head.send(pb.Forget(trials=[run.trial]))
    await becomes(lambda: not folder_of(node.config).exists())


async def test_a_full_disk_when_a_parked_trial_goes_on_costs_that_trial_alone(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    rival = await running(trial="digits/2", device=CPU1)
    first = await running()
    await suspended(first, Tier.PARK)
    _, worker = worker_of(node)
    fill(journal_of(node.config))
    second = launch(attempt=2, parked=first)
    failed = await head.hears(RunFailed, second)
    assert failed.error_kind == "not_started"
    assert "No space left on device" in failed.detail
    await processes.exited(worker)
    after = len(head.events)
    await head.hears(Reported, rival, after)
    (journal_of(node.config) / "run.partial").unlink()
    await head.hears(RunCompleted, launch(attempt=3, argv=SHORT))


async def test_a_park_that_cannot_be_written_down_is_a_park_all_the_same(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    run = await running()
    (journal_of(node.config) / "parked").symlink_to("/nowhere/at/all")
    assert (await suspended(run, Tier.PARK)).tier is Tier.PARK
    await head.hears(RunStarted, launch(attempt=2, parked=run))


async def test_a_run_that_cannot_be_settled_holds_up_nobody(
    head: Head, node: Node, launch: Launch, running: Running
) -> None:
    run = await running()
    (journal_of(node.config) / "last.pb" / "in the way").mkdir(parents=True)
    host, worker = worker_of(node)
    os.kill(worker, signal.SIGKILL)
    await head.hears(RunFailed, run)
    await processes.exited(host)
    await head.hears(RunCompleted, launch(trial="digits/2", argv=SHORT))


async def test_an_outcome_that_makes_no_sense_is_a_lost_run(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = await running()
    host, worker = worker_of(config)
    for pid in (daemon.pid, host, worker):
        os.kill(pid, signal.SIGKILL)
    await daemon.wait()
    lines = (
        {"kind": "suspended", "attempt": 1, "seq": 9, "tier": "hibernate", "step": 3},
        ["completed"],
    )
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder_of(config) / "events.jsonl").write_text(text)
    async with Node(config):
        failed = await head.hears(RunFailed, run)
        assert failed.error_kind == "lost"
        assert "hibernate" in failed.detail


async def test_more_words_than_a_head_takes_at_once_hold_up_no_start(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = await running()
    daemon.kill()
    await daemon.wait()
    for pid in worker_of(config):
        os.kill(pid, signal.SIGKILL)
    report = {"kind": "reported", "attempt": 1, "signal": {}, "busy_seconds": 0.1}
    reports = [
        {**report, "seq": n, "first_step": n, "last_step": n, "points": [[n, {"loss": 0.5}]]}
        for n in range(10_000, 10_000 + ROOM + 50)
    ]
    done = {"kind": "completed", "attempt": 1, "seq": 20_000, "step": 20_000}
    text = "".join(f"{json.dumps(line)}\n" for line in (*reports, done))
    (folder_of(config) / "events.jsonl").write_text(text)
    async with Node(config):
        await head.hears(RunCompleted, run)
        assert head.steps(run.trial)[-len(reports) :] == [each["seq"] for each in reports]


@pytest.mark.parametrize("damage", [b"", b"\xff\xff\xff", None])
async def test_a_damaged_journal_costs_its_run_alone(
    head: Head,
    config: NodeConfig,
    launch: Launch,
    running: Running,
    suspended: Suspended,
    no_survivors: None,
    damage: bytes | None,
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    first = await running()
    kept = (await suspended(first, Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    lost = await running(attempt=2, checkpoint=kept)
    rival = await running(trial="digits/2", device=CPU1)
    daemon.kill()
    await daemon.wait()
    journal = journal_of(config) / "run.pb"
    if damage is None:
        damage = journal.read_bytes()[:40]
    journal.write_bytes(damage)
    _, worker = worker_of(config)
    (config.state_dir / "trials" / "lost+found" / "x").mkdir(parents=True)
    async with Node(config):
        joined = await head.hears(NodeJoined, count=2)
        assert [live.run for live in joined.live] == [rival], "what is not named is lost"
        await processes.exited(worker)
        assert (journal_of(config) / "run.pb.damaged").read_bytes() == damage
        again = launch(attempt=lost.attempt + 1, checkpoint=kept)
        assert (await head.hears(RunStarted, again)).step == kept.step


async def test_a_host_that_has_hung_up_is_still_known_by_its_number(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frames.read(reader)
        writer.write(frames.encode({"kind": "attached", "worker_pid": None}))
        writer.close()

    async with await asyncio.start_unix_server(hang_up, tmp_path / "sock"):
        link = await host_link.attach(tmp_path / "sock", 0, os.geteuid())
    assert link is not None

    def has_noticed() -> bool:
        link.send("ack", seq=1)
        return bool(link.writer.get_extra_info("socket").fileno() < 0)

    await becomes(has_noticed)
    assert (link.host_pid, link.worker_pid) == (os.getpid(), 0)


async def test_a_host_that_does_not_answer_costs_its_run_alone(
    head: Head,
    config: NodeConfig,
    launch: Launch,
    running: Running,
    no_survivors: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = await running()
    host, worker = worker_of(config)
    os.kill(host, signal.SIGSTOP)
    daemon.kill()
    await daemon.wait()
    monkeypatch.setattr(host_link, "ANSWER_SECONDS", 0.0)
    async with Node(config):
        monkeypatch.undo()
        joined = await head.hears(NodeJoined, count=2)
        assert [(live.run, live.condition) for live in joined.live] == [(run, "ended")]
        assert (await head.hears(RunFailed, run)).error_kind == "lost"
        for pid in (host, worker):
            await processes.exited(pid)
        await head.hears(RunStarted, launch(attempt=2))


async def test_a_host_that_answers_late_holds_up_no_other(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    runs = {await running(), await running(trial="digits/2", device=CPU1)}
    host, _ = worker_of(config)
    os.kill(host, signal.SIGSTOP)
    daemon.kill()
    await daemon.wait()

    async def go_on_once_all_are_found() -> None:
        names = {str(run) for run in runs}
        await becomes(lambda: {entry.get("run") for entry in logs} >= names)
        os.kill(host, signal.SIGCONT)

    with capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(go_on_once_all_are_found())
            async with Node(config):
                joined = await head.hears(NodeJoined, count=2)
                assert {(one.run, one.condition) for one in joined.live} == {
                    (run, "running") for run in runs
                }


async def test_what_was_won_is_there_for_the_next_try_and_nothing_begins_anew(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    """A trial that is to go on from its result, by a program that cannot."""
    first = await running(program=EITHER)
    kept = (await suspended(first, Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    other = ("python", "train.py", "other")
    for attempt in (2, 3, 4):
        run = launch(attempt=attempt, program=EITHER, argv=other, checkpoint=kept, result=kept.id)
        failed = await head.hears(RunFailed, run)
        assert (failed.error_kind, failed.detail) == ("restore", "it is asked for other data")
    going = await running(attempt=5, program=EITHER, checkpoint=kept, result=kept.id)
    for started in head.events:
        assert not isinstance(started, RunStarted) or started.run != going or started.step > 0
    later = (await suspended(going, Tier.CHECKPOINT)).checkpoint
    assert later is not None
    checkpoints = folder_of(node.config) / "checkpoints"
    assert (checkpoints / kept.id.rpartition("@")[2]).is_dir()
    for each in (kept, later):
        (checkpoints / each.id.rpartition("@")[2] / "manifest.json").write_text("")
    run = launch(attempt=6, program=EITHER, checkpoint=later, result=kept.id)
    lost = await head.hears(RunFailed, run)
    assert lost.error_kind == "restore"
    assert lost.detail.startswith("the checkpoint of its result cannot be used: ")


async def test_a_checkpoint_that_another_number_of_devices_cannot_use_is_not_set_aside(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    kept = (await suspended(await running(program=EITHER), Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    assert kept.devices == 1
    other = ("python", "train.py", "other")
    for attempt in (2, 3):
        of_two = replace(kept, devices=2)
        run = launch(attempt=attempt, program=EITHER, argv=other, checkpoint=of_two)
        assert (await head.hears(RunFailed, run)).error_kind == "restore"
    run = launch(attempt=4, program=EITHER, checkpoint=kept)
    assert (await head.hears(RunStarted, run)).step == kept.step


async def test_no_run_goes_on_from_a_checkpoint_that_is_further_than_its_head_knows(
    head: Head, node: Node, launch: Launch, running: Running, suspended: Suspended
) -> None:
    """That head's state is an older copy: what was reported up to there is not in its journal."""
    kept = (await suspended(await running(), Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    gone = replace(kept, id="digits/1@a1-gone", step=kept.step - 1)
    started = await head.hears(RunStarted, launch(attempt=2, checkpoint=gone))
    assert started.step == 0


EITHER = f"""
import os, sys
from trainer_shim import child_interpreters as reach
if sys.argv[1] == "other":
    reach.claim().failed("restore", "it is asked for other data", "OtherProgram")
    os._exit(1)
{PROGRAM}
"""
