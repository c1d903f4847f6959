"""Nodes are told which of the trials that they keep run soonest."""

from __future__ import annotations

from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World
from tests.study_specs import spec


async def suspended(node: Node) -> str:
    """Take the next launch and suspend it by a checkpoint; its trial."""
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    kept = types.Checkpoint(
        id=f"{launch.trial}@a1", trial=launch.trial, attempt=1, step=3, nodes=[node.name]
    )
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            **run, tier=types.TIER_CHECKPOINT, step=3, checkpoint=kept, cause="request"
        )
    )
    return str(launch.trial)


async def test_a_node_hears_which_of_the_trials_that_it_keeps_is_next(
    head: World,
) -> None:
    turns = types.Schedule(policy=types.Plugin(name="round_robin"))
    await head.submit(spec({"lr": {"values": [1.0, 2.0, 3.0]}}, schedule=turns))
    node = Node(head)
    await node.hello()
    first = await suspended(node)
    second = await suspended(node)
    await node.start()
    hint = (await node.expect("upcoming")).upcoming
    while len(hint.trials) < 2:
        hint = (await node.expect("upcoming")).upcoming
    assert list(hint.trials) == [first, second]
    assert hint.turns == 1
