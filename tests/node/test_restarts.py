"""What outlives a node daemon, its hosts and programs, and what the next daemon makes of it."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.core.commands import Release
from hermesd.core.events import (
    Checkpointed,
    NodeJoined,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import RunId, Tier
from hermesd.node import outbox
from hermesd.node.daemon import group_name
from hermesd.node.machine import cgroups

from .conftest import CPU0, CPU1, SHORT, Head, Node, becomes, daemon_process, host_of, worker_of

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]


async def test_kill_9_of_the_daemon_loses_nothing(
    head: Head,
    config: NodeConfig,
    launch: Launch,
    running: Running,
    suspended: Suspended,
    tmp_path: Path,
    no_survivors: None,
) -> None:
    first = await daemon_process(config)
    await head.hears(NodeJoined)
    parked = await running(trial="digits/2")
    await suspended(parked, Tier.PARK)
    enough = tmp_path / "enough"
    run = await running(argv=("python", "train.py", "100000", "0.005", str(enough)))
    before = worker_of(config)
    first.kill()
    await first.wait()
    second = await daemon_process(config)
    joined = await head.hears(NodeJoined, count=2)
    assert {(live.run, live.condition) for live in joined.live} == {
        (run, "running"),
        (parked, "parked"),
    }
    assert worker_of(config) == before
    enough.touch()
    done = await head.hears(RunCompleted, run)
    assert sorted(set(head.steps(run.trial))) == list(range(1, done.step + 1))
    again = launch(trial="digits/2", attempt=2, parked=parked)
    await head.hears(RunStarted, again)
    second.kill()
    await second.wait()


async def test_what_a_parked_trial_holds_counts_again_after_a_restart(
    head: Head, config: NodeConfig, running: Running, suspended: Suspended, no_survivors: None
) -> None:
    async with Node(config):
        await head.hears(NodeJoined)
        run = await running()
        await suspended(run, Tier.PARK)
        await becomes(lambda: (config.state_dir / "runs" / "digits" / "1" / "parked").exists())
    short_of_memory = config.model_copy(update={"parked_memory_bytes": 1 << 20})
    after = len(head.events)
    async with Node(short_of_memory):
        demoted = await head.hears(RunSuspended, run, after)
        assert (demoted.tier, demoted.cause) == (Tier.CHECKPOINT, "demoted")


async def test_kill_9_of_everything_is_a_lost_run_with_its_checkpoint(
    head: Head, config: NodeConfig, running: Running, suspended: Suspended, no_survivors: None
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    first = await running()
    kept = (await suspended(first, Tier.CHECKPOINT)).checkpoint
    run = await running(attempt=2, checkpoint=kept)
    host, worker = worker_of(config)
    for pid in (daemon.pid, host, worker):
        os.kill(pid, signal.SIGKILL)
    await daemon.wait()
    async with Node(config):
        joined = await head.hears(NodeJoined, count=2)
        assert [(live.run, live.condition) for live in joined.live] == [(run, "ended")]
        saved = await head.hears(Checkpointed, run)
        assert kept is not None
        assert saved.checkpoint.id == kept.id
        assert (await head.hears(RunFailed, run)).error_kind == "lost"


def groups_of(config: NodeConfig) -> Path:
    """The cgroup that holds those of a node's trials; skips the test where there can be none."""
    groups = cgroups.detect(group_name(config))
    if not isinstance(groups, cgroups.Hierarchy):
        pytest.skip(groups.fact)
    return groups.root


async def test_no_cgroup_stays_when_a_node_ends_whose_head_is_deaf(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    groups = groups_of(config)
    async with Node(config.model_copy(update={"at_stop": "end"})):
        await head.hears(NodeJoined)
        await running()
        assert [path.name for path in groups.glob("*@*")] == ["digits@1"]
        head.deaf = True
    assert not groups.exists()


async def test_a_cgroup_that_a_killed_node_has_left_goes_and_a_live_trial_s_stays(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    groups = groups_of(config)
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = await running()
    daemon.kill()
    await daemon.wait()
    (groups / "digits@2" / "run" / "work").mkdir(parents=True)
    async with Node(config):
        assert [live.run for live in (await head.hears(NodeJoined, count=2)).live] == [run]
        assert [path.name for path in groups.glob("*@*")] == ["digits@1"]


async def test_an_outcome_survives_the_death_of_all_who_knew_it(
    head: Head, config: NodeConfig, launch: Launch, no_survivors: None
) -> None:
    head.deaf = True
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = launch(argv=SHORT)
    await head.hears(RunCompleted, run)
    folder = config.state_dir / "trials" / "digits" / "1"
    daemon.kill()
    await daemon.wait()
    os.kill(host_of(config), signal.SIGKILL)
    head.deaf = False
    async with Node(config):
        await head.hears(RunCompleted, run, count=2)
        await becomes((config.state_dir / "runs" / "digits" / "1" / "last.pb").exists)
        head.send(Release(run.trial, "n1", forget=True))
        await becomes(lambda: not folder.exists())


async def test_a_checkpoint_made_after_its_hosts_death_is_not_gone_on_from(
    head: Head,
    config: NodeConfig,
    running: Running,
    suspended: Suspended,
    no_survivors: None,
    tmp_path: Path,
) -> None:
    """Its process reported to nobody what it had done before: that would be missing for ever."""
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    kept = (await suspended(await running(), Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    enough = tmp_path / "enough"
    argv = ("python", "train.py", "100000", "0.005", str(enough))
    run = await running(attempt=2, checkpoint=kept, argv=argv)
    daemon.kill()
    await daemon.wait()
    host, worker = worker_of(config)
    os.kill(host, signal.SIGSTOP)
    enough.touch()
    saved = config.state_dir / "trials" / "digits" / "1" / "checkpoints"
    await becomes(lambda: list(saved.glob("end-s*[0-9]")))
    for pid in (host, worker):
        os.kill(pid, signal.SIGKILL)
    async with Node(config):
        assert (await head.hears(Checkpointed, run)).checkpoint.id == kept.id
        assert (await head.hears(RunFailed, run)).error_kind == "lost"


async def test_outcomes_of_the_dead_wait_for_nobody_when_a_daemon_comes_anew(
    head: Head,
    config: NodeConfig,
    launch: Launch,
    no_survivors: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head.deaf = True
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    runs = [launch(f"digits/{n}", argv=SHORT, device=on) for n, on in ((1, CPU0), (2, CPU1))]
    for run in runs:
        await head.hears(RunCompleted, run)
    daemon.kill()
    await daemon.wait()
    for run in runs:
        os.kill(host_of(config, run.trial), signal.SIGKILL)
    head.deaf = False
    monkeypatch.setattr(outbox, "ROOM", 1)  # full with the first message, before there is a stream
    async with Node(config):
        for run in runs:
            await head.hears(RunCompleted, run, count=2)


async def test_a_trial_that_ended_while_all_were_away_is_known_to_its_last_step(
    head: Head, config: NodeConfig, running: Running, no_survivors: None
) -> None:
    daemon = await daemon_process(config)
    await head.hears(NodeJoined)
    run = await running(argv=("python", "train.py", "500", "0.005"))
    daemon.kill()
    await daemon.wait()
    written = config.state_dir / "trials" / "digits" / "1" / "events.jsonl"
    await becomes(lambda: b'"completed"' in written.read_bytes())
    os.kill(host_of(config), signal.SIGKILL)
    async with Node(config):
        await head.hears(RunCompleted, run)
        assert sorted(set(head.steps(run.trial))) == list(range(1, 501))
        last = [report for report, _ in head.points if report.metrics][-1]
        assert dict(last.metrics)["loss"] == 1.0 / 500
        # A report that is said again has the number that it had.
        numbers = {report.number: report.step for report, _ in head.points}
        assert list(numbers.values()) == sorted(numbers.values())
        assert list(numbers) == sorted(numbers)
