"""A node daemon with real hosts and real programs, and a head that says what it wants."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import structlog

from hermesd.config.schema import NodeConfig
from hermesd.config.slots import SlotSetting
from hermesd.core.commands import Kill, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.events import (
    Checkpointed,
    FidelityKnown,
    NodeJoined,
    ParkLost,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    Spoilt,
)
from hermesd.core.model import Fidelity, Goal, Quantum, RunId, Tier
from hermesd.core.node.messages import Save
from hermesd.core.trial import RESTORE
from hermesd.node import loop
from hermesd.node.daemon import AlreadyRunning, run_node, untested_frameworks
from hermesd.node.machine import processes
from hermesd.pb.hermes.v1 import node_pb2 as pb

from .conftest import CPU0, CPU1, PROGRAM, SHORT, Head, Node, becomes, host_of, worker_of

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node begins to tell at once what is in use, and does so again and again."""
    monkeypatch.setattr(loop, "USAGE_SECONDS", 0.1)


async def test_hello_says_what_this_machine_has(
    often: None, head: Head, node: Node, config: NodeConfig
) -> None:
    joined = await head.hears(NodeJoined)
    assert [device.id for device in joined.devices] == [CPU0, CPU1]
    assert joined.live == ()
    assert any("CPU slots" in fact for fact in joined.facts)
    assert any("checkpoints are written" in fact for fact in joined.facts)
    await head.until(lambda: bool(head.usage))
    assert {usage.device for usage in head.usage[0].devices} == {CPU0, CPU1}
    await head.until(lambda: head.usage[-1].HasField("disk"))
    assert head.usage[-1].disk.budget_bytes == config.disk_budget_bytes


def test_a_framework_of_an_untested_version_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, version in (("torch", "Version: 2.99.1\n"), ("jax", ""), ("lightning", None)):
        record = tmp_path / f"{name}-9.dist-info"
        record.mkdir()
        if version is not None:
            (record / "METADATA").write_text(f"Name: {name}\n{version}")
    (told,) = [fact for fact in untested_frameworks() if " torch " in fact]
    assert told.startswith(f"{sys.executable}: resuming is tested with torch 2.6 to ")
    assert "this is 2.99.1: the nearest tested version is" in told


async def test_a_run_from_launch_to_completion(head: Head, node: Node, launch: Launch) -> None:
    run = launch(argv=SHORT)
    started = await head.hears(RunStarted, run)
    assert started.step == 0
    done = await head.hears(RunCompleted, run)
    assert done.step == 50
    assert head.steps(run.trial) == list(range(1, 51))
    assert head.steps(run.trial, "total") == list(range(1, 51))
    chunks = [chunk for report, _ in head.points for chunk in report.chunks]
    assert sum(chunk.size for chunk in chunks) == 50
    assert chunks[-1].low == pytest.approx(1 / 50)
    known = await head.hears(FidelityKnown, run)
    assert known.fidelity is Fidelity.AUTHOR


async def test_park_resume_checkpoint_restore_complete(
    head: Head, node: Node, running: Running, launch: Launch, suspended: Suspended
) -> None:
    first = await running()
    parked = await suspended(first, Tier.PARK)
    assert parked.tier is Tier.PARK
    assert parked.checkpoint is None
    assert parked.step == head.steps("digits/1")[-1]
    rival = await running(trial="digits/2")

    second = launch(attempt=2, parked=first, device=CPU1)
    again = await head.hears(RunStarted, second)
    assert again.step == parked.step
    await head.hears(Reported, second)
    kept = await suspended(second, Tier.CHECKPOINT)
    assert kept.tier is Tier.CHECKPOINT
    assert kept.checkpoint is not None
    assert kept.checkpoint.step == kept.step
    await suspended(rival)

    steps = str(kept.step + 20)
    third = launch(
        attempt=3, checkpoint=kept.checkpoint, argv=("python", "train.py", steps, "0.001")
    )
    restored = await head.hears(RunStarted, third)
    assert restored.step == kept.step
    done = await head.hears(RunCompleted, third)
    assert head.steps("digits/1") == list(range(1, done.step + 1)), "nothing lost, nothing twice"
    assert head.steps("digits/1", "total") == list(range(1, done.step + 1))
    totals = [one for _, series in head.points for one in series if one.metric == "total"]
    assert totals[-1].values[-1] == sum(range(1, done.step + 1))


async def test_a_maximized_signal_turns_for_the_head_but_not_for_people(
    head: Head, node: Node, running: Running
) -> None:
    run = await running(goal=Goal.MAXIMIZE)
    report, points = head.points[0]
    assert report.run == run
    assert report.chunks[0].high < 0
    assert all(value > 0 for series in points for value in series.values)


async def test_quanta_end_and_exact_ones_park_by_themselves(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(quantum=Quantum(seconds=0.05))
    ended = await head.hears(QuantumEnded, run)
    assert ended.grant == 0
    assert head.steps(run.trial)[-1] == ended.step > 0, "the head knows what it has reached"
    exactly = launch(trial="digits/2", device=CPU1, quantum=Quantum(until_step=30, exact=True))
    parked = await head.hears(RunSuspended, exactly)
    assert (parked.tier, parked.step, parked.cause) == (Tier.PARK, 30, "limit")
    assert head.steps("digits/2")[-1] == 30
    rung = launch(trial="digits/3", device=CPU1, quantum=Quantum(until_step=20))
    assert (await head.hears(QuantumEnded, rung)).step == 20, "long before its second is over"
    head.send(Renew(rung, 1, Quantum(until_step=400), "promoted"))
    assert (await head.hears(QuantumEnded, rung, count=2)).step == 400


async def test_a_program_that_prepares_for_long_has_its_quantum_when_it_trains(
    head: Head, node: Node, launch: Launch, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    wait = f"while not os.path.exists({str(ready)!r}): time.sleep(0.005)\n"
    program = PROGRAM.replace("trial = trainer_shim", f"{wait}trial = trainer_shim")
    run = launch(program=program, quantum=Quantum(seconds=0.5))
    await head.hears(RunStarted, run)  # it has been quiet for long, and may never show a step
    await head.hears(Reported, run)  # which its host says for it, some seconds later
    assert not [event for event in head.events if isinstance(event, QuantumEnded)]
    now = asyncio.get_running_loop().time
    begun = now()
    ready.touch()
    assert (await head.hears(QuantumEnded, run)).step > 0
    assert now() - begun >= 0.5


async def test_an_exact_limit_moved_while_the_program_runs_is_kept_exactly(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(
        argv=("python", "train.py", "100000", "0.02"),
        quantum=Quantum(until_step=100, exact=True),
    )
    first = await head.hears(Reported, run)
    assert first.step < 100
    further = Quantum(until_step=150, exact=True)
    head.send(Renew(run, 1, further, "a milestone was passed", extends=True))
    parked = await head.hears(RunSuspended, run)
    assert (parked.tier, parked.step, parked.cause) == (Tier.PARK, 150, "limit")
    assert head.steps(run.trial) == list(range(1, 151))


async def test_stop_kill_and_release(
    head: Head, node: Node, running: Running, suspended: Suspended
) -> None:
    stopped = await running()
    head.send(Stop(stopped, 10.0, "cancelled"))
    left = await head.hears(RunSuspended, stopped)
    assert left.tier is Tier.CHECKPOINT
    killed = await running(trial="digits/2")
    head.send(Kill(killed, "n1", "a stray"))
    assert (await head.hears(RunSuspended, killed)).tier is Tier.KILL
    parked = await running(trial="digits/3")
    await suspended(parked, Tier.PARK)
    head.send(Release("digits/3", "n1", forget=True))
    folder = node.config.state_dir / "trials" / "digits" / "3"
    assert folder.is_dir()
    await becomes(lambda: not folder.exists())


BAD_PROGRAMS = {
    "raises": ("raise ValueError('bad seed')", "exception", "ValueError: bad seed"),
    "exits": ("import sys; sys.exit(3)", "exit", "exit status 3"),
    "dies": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal", "SIGSEGV"),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
async def test_a_program_that_ends_badly(head: Head, node: Node, launch: Launch, name: str) -> None:
    program, kind, words = BAD_PROGRAMS[name]
    run = launch(program=program)
    failed = await head.hears(RunFailed, run)
    assert failed.error_kind == kind
    assert words in failed.signature + failed.detail


async def test_a_program_that_says_nothing_and_ends_well(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(program="print('hello')")
    assert (await head.hears(RunCompleted, run)).step == 0
    assert not any(event.metrics or event.chunks or points for event, points in head.points)


async def test_an_interpreter_that_is_not_there(head: Head, node: Node, launch: Launch) -> None:
    run = launch(python="/nowhere/python")
    failed = await head.hears(RunFailed, run)
    assert failed.error_kind == "unmet"
    assert "/nowhere/python" in failed.detail


async def test_a_device_and_a_name_that_are_not_ours(
    head: Head, node: Node, launch: Launch
) -> None:
    elsewhere = await head.hears(RunFailed, launch(device="n2/cpu0"))
    assert "'n2/cpu0' is not here" in elsewhere.detail
    escaping = await head.hears(RunFailed, launch(trial="../1"))
    assert "'../1'" in escaping.detail
    head.send(Release("../1", "n1", forget=True))
    await head.hears(RunCompleted, launch(trial="digits/2", argv=SHORT))


async def test_data_that_is_not_there_and_code_that_is_not_what_it_says(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(data=("images",))
    assert "images" in (await head.hears(RunFailed, run)).detail
    other = launch(trial="digits/2", program="print(1)")
    for name in head.blobs:
        head.blobs[name] = head.blobs[name] + b"x"
    failed = await head.hears(RunFailed, other)
    assert "what came is" in failed.detail


async def test_a_program_that_hangs_at_its_start_can_be_suspended_and_killed(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(program="import threading; threading.Event().wait()")
    folder = node.config.state_dir / "trials" / "digits" / "1"
    await becomes((folder / "spec.json").exists)
    head.send(Kill(run, "n1", "enough"))
    assert (await head.hears(RunSuspended, run)).tier is Tier.KILL


FORKING = """
import os, subprocess, sys, time, trainer_shim
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                             start_new_session=i > 0) for i in range(2)]
print("children", *(child.pid for child in children), flush=True)
trial = trainer_shim.attach()
step = 0
while True:
    step += 1
    time.sleep(0.002)
    trial.report(step, loss=1.0)
"""


async def test_a_run_that_is_ended_while_it_starts_leaves_nothing(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch()
    journal = node.config.state_dir / "runs" / "digits" / "1"
    await becomes((journal / "run.pb").exists)
    head.send(Kill(run, "n1", "enough"))
    assert (await head.hears(RunSuspended, run)).tier is Tier.KILL
    again = launch(attempt=2)
    await head.hears(Reported, again)
    host_of(node.config)  # there is just one


async def test_the_children_of_a_program_end_with_it(
    head: Head, node: Node, running: Running
) -> None:
    run = await running(program=FORKING)
    output = node.config.state_dir / "trials" / "digits" / "1" / "output.log"
    pids = [int(word) for word in output.read_text().split()[1:3]]
    head.send(Kill(run, "n1", "enough"))
    await head.hears(RunSuspended, run)
    for pid in pids:
        await processes.exited(pid)


async def test_a_program_that_prints_a_lot(head: Head, node: Node, launch: Launch) -> None:
    run = launch(program="for _ in range(3000): print('x' * 65536)")
    await head.hears(RunCompleted, run)
    folder = node.config.state_dir / "trials" / "digits" / "1"
    written = sum(path.stat().st_size for path in folder.glob("output.log*"))
    assert written <= 65 << 20


async def test_the_head_is_told_which_processes_are_a_trial_s(
    often: None, head: Head, node: Node, running: Running
) -> None:
    run = await running()
    pid = worker_of(node)[1]

    def is_told() -> bool:
        told = {each.trial: list(each.pids) for each in head.usage[-1].processes}
        return told == {run.trial: [pid]}

    await head.until(lambda: bool(head.usage) and is_told())


async def test_kill_9_of_a_trainer(head: Head, node: Node, running: Running) -> None:
    run = await running()
    os.kill(worker_of(node)[1], signal.SIGKILL)
    failed = await head.hears(RunFailed, run)
    assert failed.error_kind == "killed"
    assert not failed.signature, "no fault of the program's"
    assert "SIGKILL" in failed.detail


async def test_kill_9_of_a_host_ends_its_trainer_too(
    head: Head, node: Node, running: Running
) -> None:
    run = await running()
    host, worker = worker_of(node)
    os.kill(host, signal.SIGKILL)
    failed = await head.hears(RunFailed, run)
    assert failed.error_kind == "lost"
    await processes.exited(worker)


async def test_a_parked_trial_whose_host_was_killed_is_lost(
    head: Head, node: Node, running: Running, suspended: Suspended
) -> None:
    run = await running()
    await suspended(run, Tier.PARK)
    os.kill(worker_of(node)[0], signal.SIGKILL)
    assert (await head.hears(ParkLost, run)).run == run


async def test_a_program_that_ends_while_it_is_to_be_written_down_has_completed(
    head: Head, node: Node, running: Running, launch: Launch, tmp_path: Path
) -> None:
    """Stopped in its last iteration, it goes on to the next boundary: there is none."""
    stuck, over = tmp_path / "stuck", tmp_path / "over"
    last = f"""
open({str(stuck)!r}, "w").close()
while not os.path.exists({str(over)!r}):
    time.sleep(0.005)
"""
    program = PROGRAM.replace('print("done"', f'{last}print("done"')
    run = await running(program=program, argv=("python", "train.py", "3", "0.001"))
    await becomes(stuck.exists)
    head.send(Suspend(run, Tier.PARK, 0.1, None, "its quantum is over"))
    assert (await head.hears(RunSuspended, run)).tier is Tier.PARK
    head.send(WriteDown(run, "n1"))
    over.touch()
    assert (await head.hears(RunCompleted, run)).step == 3
    assert not [event for event in head.events if isinstance(event, ParkLost)]


async def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    head: Head, node: Node, running: Running, launch: Launch, suspended: Suspended
) -> None:
    first = await running()
    older = (await suspended(first, Tier.CHECKPOINT)).checkpoint
    assert older is not None
    second = await running(attempt=2, checkpoint=older)
    newer = (await suspended(second, Tier.CHECKPOINT)).checkpoint
    assert newer is not None
    folder = node.config.state_dir / "trials" / "digits" / "1" / "checkpoints"
    for path in (folder / newer.id.rpartition("@")[2]).rglob("state.json"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    third = launch(attempt=3, checkpoint=newer)
    assert (await head.hears(RunStarted, third)).step == older.step
    assert (await head.hears(Checkpointed, third)).checkpoint.id == older.id
    await suspended(third, Tier.CHECKPOINT)
    (folder / newer.id.rpartition("@")[2] / "manifest.json").unlink()


async def test_a_fork_none_of_whose_checkpoints_can_be_used_is_not_begun_anew(
    head: Head, node: Node, running: Running, launch: Launch, suspended: Suspended
) -> None:
    kept = (await suspended(await running(), Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    folder = node.config.state_dir / "trials" / "digits" / "1" / "checkpoints"
    for path in folder.rglob("state.json"):
        path.write_text("rot")
    fork = launch(attempt=2, checkpoint=kept, never_anew=True)
    failed = await head.hears(RunFailed, fork)
    assert (failed.error_kind, kept.id in failed.detail) == (RESTORE, True)
    (spoilt,) = (event for event in head.events if isinstance(event, Spoilt))
    assert (spoilt.checkpoint, spoilt.instead) == (kept.id, None)
    assert head.events.index(spoilt) < head.events.index(failed), "the head then knows why"
    other = launch(attempt=3, checkpoint=kept)
    assert (await head.hears(RunStarted, other)).step == 0


async def test_a_checkpoint_that_was_asked_for_and_cannot_be_written_is_answered(
    head: Head, node: Node, running: Running
) -> None:
    run = await running()
    folder = node.config.state_dir / "trials" / "digits" / "1" / "checkpoints"
    head.send(Save(run))
    await head.hears(Checkpointed, run)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    head.send(Save(run))
    await head.until(lambda: bool(head.not_saved))
    (said,) = head.not_saved
    assert (said.trial, said.attempt) == (run.trial, run.attempt)
    assert said.reason


async def test_a_stream_that_was_cut_repeats_what_was_not_acknowledged(
    head: Head, node: Node, running: Running, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    run = await running(argv=("python", "train.py", "100000", "0.005", str(enough)))
    head.deaf = True
    before = len(head.sequences)
    await head.hears(Reported, run, before)
    head.hang_up()
    joined = await head.hears(NodeJoined, count=2)
    assert [(live.run, live.condition) for live in joined.live] == [(run, "running")]
    # What a head that has been set back must hear.
    assert (head.hello.heard_head, head.hello.heard_journal_sequence) == ("this one", 4711)
    head.deaf = False
    enough.touch()
    repeated = head.sequences.index(0, before)
    done = await head.hears(RunCompleted, run)
    unacknowledged = [s for s in head.sequences[before:repeated] if s]
    again = [s for s in head.sequences[repeated:] if s][: len(unacknowledged)]
    assert again == unacknowledged
    assert sorted(set(head.steps(run.trial))) == list(range(1, done.step + 1))


async def test_a_second_daemon_is_refused(head: Head, node: Node, config: NodeConfig) -> None:
    with pytest.raises(AlreadyRunning, match="another node daemon"):
        await run_node(config, os.environ, asyncio.Event(), lambda: None)


async def test_stopping_leaves_hosts_running_and_says_goodbye(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    async with Node(config):
        await head.hears(NodeJoined)
        run = await running()
    assert head.goodbyes == ["the node daemon stops"]
    host, worker = worker_of(config)
    async with Node(config):
        joined = await head.hears(NodeJoined, count=2)
        assert [(live.run, live.condition) for live in joined.live] == [(run, "running")]
        assert worker_of(config) == (host, worker)
        after = len(head.events)
        await head.hears(Reported, run, after)
        steps = sorted(set(head.steps(run.trial)))
        assert steps == list(range(1, steps[-1] + 1)), "what was trained in between is told"


async def test_an_embedded_node_writes_everything_down_when_it_stops(
    head: Head, config: NodeConfig, running: Running, suspended: Suspended, no_survivors: None
) -> None:
    embedded = config.model_copy(update={"embedded": True})
    async with Node(embedded):
        await head.hears(NodeJoined)
        parked = await running(trial="digits/2")
        await suspended(parked, Tier.PARK)
        run = await running()
        host, worker = worker_of(config)
    for pid in (host, worker):
        await processes.exited(pid)
    left = await head.hears(RunSuspended, run)
    assert left.tier is Tier.CHECKPOINT
    assert (await head.hears(RunSuspended, parked, count=2)).tier is Tier.CHECKPOINT
    async with Node(embedded):
        assert (await head.hears(NodeJoined, count=2)).live == ()


def received(head: Head, ticket: int) -> bytes:
    return b"".join(chunk.data for chunk in head.chunks if chunk.ticket == ticket)


def finished(head: Head, ticket: int) -> bool:
    return any(chunk.last for chunk in head.chunks if chunk.ticket == ticket)


async def test_output_is_sent_from_its_end_and_followed(
    head: Head, node: Node, launch: Launch
) -> None:
    program = (
        "import os, time\nfor i in range(100): print('line', i, flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nprint('the end')\n"
    )
    run = launch(program=program)
    trial = node.config.state_dir / "trials" / "digits" / "1"
    output = trial / "output.log"
    await becomes(lambda: output.exists() and b"line 99\n" in output.read_bytes())
    tail = pb.LogRange(offset=-16, follow=True)
    head.send(pb.SendFile(ticket=1, trial=run.trial, log=tail))
    await head.until(lambda: received(head, 1) == b"line 98\nline 99\n")
    head.send(pb.SendFile(ticket=2, trial=run.trial, log=pb.LogRange(offset=8)))
    await head.until(lambda: finished(head, 2))
    assert received(head, 2) == output.read_bytes()[8:]
    (trial / "work" / "go").touch()
    await head.until(lambda: finished(head, 1))
    assert received(head, 1) == b"line 98\nline 99\nthe end\n"
    (trial / "output.log.rank1").write_bytes(b"another\n")
    head.send(pb.SendFile(ticket=3, trial=run.trial, log=pb.LogRange(rank=1)))
    await head.until(lambda: finished(head, 3))
    assert received(head, 3) == b"another\n"


async def test_a_checkpoint_is_sent_file_by_file(
    head: Head, node: Node, running: Running, suspended: Suspended
) -> None:
    run = await running()
    kept = (await suspended(run, Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    head.send(pb.SendFile(ticket=3, trial=run.trial, checkpoint=kept.id))
    await head.until(lambda: finished(head, 3))
    names = {chunk.name for chunk in head.chunks if chunk.ticket == 3}
    assert "manifest.json" in names
    assert any(name.endswith("state.json") for name in names)
    for wanted in ("digits/1@../../digits", "digits/1@none"):
        head.chunks.clear()
        head.send(pb.SendFile(ticket=4, trial=run.trial, checkpoint=wanted))
        await head.until(lambda: finished(head, 4))
        assert "no such checkpoint" in head.chunks[0].error


THREADED = """
import threading, time, trainer_shim
threading.Thread(target=threading.Event().wait, daemon=True).start()
trial = trainer_shim.attach()
step = 0
while True:
    step += 1
    time.sleep(0.002)
    trial.report(step, loss=1.0)
"""


def cores_of_threads(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core here")
async def test_a_program_stays_on_its_slots_cores_wherever_it_goes_on(
    head: Head,
    config: NodeConfig,
    launch: Launch,
    running: Running,
    suspended: Suspended,
    no_survivors: None,
) -> None:
    one, other = sorted(os.sched_getaffinity(0))[:2]
    slots = config.model_copy(
        update={"cpu_slots": (SlotSetting((one,)), SlotSetting((one, other)))}
    )
    async with Node(slots):
        joined = await head.hears(NodeJoined)
        assert [device.cores for device in joined.devices] == [(one,), (one, other)]
        first = await running(program=THREADED, device=CPU0)
        _, worker = worker_of(config)
        assert cores_of_threads(worker) == [{one}, {one}]
        await suspended(first, Tier.PARK)
        second = launch(attempt=2, parked=first, device=CPU1, program=THREADED)
        await head.hears(RunStarted, second)
        assert cores_of_threads(worker) == [{one, other}, {one, other}]
        await suspended(second, Tier.PARK)
        third = launch(attempt=3, parked=second, device=CPU0, program=THREADED)
        await head.hears(RunStarted, third)
        assert cores_of_threads(worker) == [{one}, {one}]


async def test_a_node_that_joined_nobody_and_names_nobody_says_so(tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()
    for head in (None, "unix:/nowhere"):
        known = {} if head is None else {"head": head}
        config = NodeConfig(state_dir=tmp_path, cpu_slots=[], gpus=False, **known)
        with structlog.testing.capture_logs() as said:
            await run_node(config, os.environ, stop, lambda: None)
        warned = [line for line in said if line["event"] == "no head was joined or set"]
        assert bool(warned) is (head is None)
        assert all("hermesd node join" in line["remedy"] for line in warned)
