"""What a node says of another study that had the name of one of ours is dropped."""

from __future__ import annotations

from pathlib import Path

from hermesd.core.model import Phase
from hermesd.pb.hermes.v1 import node_pb2
from tests.head.heads import Node, world
from tests.study_specs import spec

ONE = {"lr": {"value": 1.0}}


async def test_an_outcome_of_another_study_of_that_name_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await head.submit(spec(ONE))
        node = Node(head)
        await node.hello()
        launch = await node.start()
        assert launch.identity
        done = node_pb2.RunCompleted(trial=launch.trial, attempt=launch.attempt, step=100)
        await node.say(run_completed=done, identity="theirs")
        await node.settle()
        assert head.state.trials[launch.trial].phase is Phase.RUNNING
        await node.say(run_completed=done, identity=launch.identity)
        await node.settle()
        assert head.state.trials[launch.trial].phase is Phase.COMPLETED
        node.call.cancel()


async def test_no_two_studies_are_one(tmp_path: Path) -> None:
    said = set()
    for name in ("a", "b"):
        async with world(tmp_path / name) as head:
            await head.submit(spec(ONE))
            said.add(head.state.studies["digits"].identity)
    assert len(said) == 2
