"""A name that another head gives again: nothing of the study that had it before is taken over."""

from collections.abc import Awaitable, Callable

from hermesd.config.schema import NodeConfig
from hermesd.core.events import NodeJoined, RunCompleted, RunFailed, RunStarted
from hermesd.core.model import RunId
from hermesd.node.storage import checkpoints
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import node_pb2 as pb

from .conftest import Head, Node, becomes

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]

SHORT = ("python", "train.py", "50", "0.001")


async def test_a_trial_begins_without_the_files_of_another_that_had_its_name(
    head: Head, node: Node, launch: Launch, config: NodeConfig
) -> None:
    run = launch(argv=SHORT, identity="theirs")
    first = await head.hears(RunCompleted, run)
    folder = TrialFolder(config.state_dir / "trials", config.runtime_path, run.trial)
    before = [found.path for found in checkpoints.newest(folder.checkpoints)]
    assert (first.step, folder.identity, len(before)) == (50, "theirs", 1)
    (folder.path / "left").touch()
    after = len(head.events)
    launch(argv=("python", "train.py", "30", "0.001"), identity="ours")
    second = await head.hears(RunCompleted, run, after)
    assert second.step == 30
    assert second.checkpoint is not None
    assert second.checkpoint.step == 30
    assert (folder.identity, (folder.path / "left").exists()) == ("ours", False)
    assert [found.step for found in checkpoints.newest(folder.checkpoints)] == [30]


async def test_a_run_of_another_study_is_ended_when_its_name_is_launched_again(
    head: Head, node: Node, launch: Launch, running: Running
) -> None:
    run = await running(identity="theirs")
    after = len(head.events)
    launch(argv=SHORT, identity="ours")
    assert (await head.hears(RunCompleted, run, after)).step == 50
    assert [each.step for each in head.events[after:] if isinstance(each, RunStarted)] == [0]


async def test_an_attempt_of_the_same_study_is_still_started_once(
    head: Head, node: Node, launch: Launch
) -> None:
    run = launch(argv=SHORT, identity="ours")
    await head.hears(RunCompleted, run)
    after = len(head.events)
    launch(argv=SHORT, identity="ours")
    newer = launch(argv=SHORT, attempt=2, identity="ours")
    await head.hears(RunCompleted, newer)
    assert not [e for e in head.events[after:] if isinstance(e, RunStarted) and e.run == run]
    failed = [e for e in head.events[after:] if isinstance(e, RunFailed)]
    assert [(e.run, e.newest_attempt) for e in failed] in ([], [(run, 1)])


async def test_a_restored_head_is_told_what_a_daemon_before_this_one_has_run(
    head: Head, config: NodeConfig, no_survivors: None, launch: Launch
) -> None:
    async with Node(config):
        await head.hears(NodeJoined)
        await head.hears(RunCompleted, launch(argv=SHORT, attempt=7))
        after = len(head.events)
    async with Node(config):
        await head.hears(NodeJoined, after=after)
        failed = await head.hears(RunFailed, launch(argv=SHORT, attempt=3))
        assert failed.newest_attempt == 7
        await head.hears(RunCompleted, launch(argv=SHORT, attempt=8))


async def test_what_is_held_is_said_at_every_connect_and_forgotten_when_asked(
    head: Head, node: Node, launch: Launch, config: NodeConfig
) -> None:
    for trial in ("digits/1", "digits/2"):
        done = await head.hears(RunCompleted, launch(trial=trial, argv=SHORT, identity="ours"))
        assert done.checkpoint is not None
    head.held.clear()  # a node that is slow to look what it has may have seen the first
    head.hang_up()
    await head.until(lambda: len(head.held) == 2)
    assert {(each.trial, each.identity) for each in head.held} == {
        ("digits/1", "ours"),
        ("digits/2", "ours"),
    }
    assert {each.checkpoint_step for each in head.held} == {done.checkpoint.step}
    assert {each.checkpoint_attempt for each in head.held} == {done.run.attempt}
    head.send(pb.Forget(trials=["digits/1", "no trial", "digits/2"]))
    trials = config.state_dir / "trials"
    await becomes(lambda: not list(trials.glob("*/*")))
