"""A node that lies is believed about its own trials alone, and about no other's."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from hermesd.core.model import Phase
from hermesd.head.fleet import rate_limit
from hermesd.head.fleet.rate_limit import RateLimit
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, world
from tests.study_specs import spec


async def test_it_speaks_for_no_trial_of_another_node(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        honest = Node(head, "honest")
        await honest.hello()
        await head.submit(spec({"lr": {"value": 1.0}}))
        launch = await honest.start()
        run = {"trial": launch.trial, "attempt": launch.attempt}
        liar = Node(head, "liar")
        await liar.hello()
        before = head.state.trials[launch.trial]
        lies = (
            {"run_completed": pb.RunCompleted(**run, step=9)},
            {"run_failed": pb.RunFailed(**run, error_kind="exception", detail="no")},
            {"run_suspended": pb.RunSuspended(**run, tier=types.TIER_KILL)},
            {"report": pb.Report(**run, step=10**6, busy_seconds=1.0)},
            {
                "checkpointed": pb.Checkpointed(
                    **run, checkpoint=types.Checkpoint(id=f"{launch.trial}@a1-s9", step=9)
                )
            },
        )
        for lie in lies:
            await liar.say(**lie)
        await liar.settle()
        after = head.state.trials[launch.trial]
        assert (after.phase, after.step, after.checkpoint) == (Phase.RUNNING, before.step, None)
        await honest.say(run_completed=pb.RunCompleted(**run, step=3))
        await honest.settle()
        assert head.state.trials[launch.trial].phase is Phase.COMPLETED


async def test_it_fills_no_log_with_nonsense(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        liar = Node(head, "liar")
        await liar.hello()
        checkpoint = types.Checkpoint(id="../\x1b[2J", step=9)
        with capture_logs() as said:
            for _ in range(200):
                await liar.say(
                    checkpointed=pb.Checkpointed(trial="x/1", attempt=1, checkpoint=checkpoint)
                )
            await liar.settle()
        lines = [each for each in said if each["event"] == "implausible message dropped"]
        assert len(lines) == rate_limit.NONSENSE_A_MINUTE


def test_of_nonsense_a_few_lines_a_minute_are_logged() -> None:
    now = [0.0]
    account = RateLimit("box", lambda: now[0])
    for _ in range(2):
        told = [account.is_worth_a_line() for _ in range(50)]
        assert told == [True] * rate_limit.NONSENSE_A_MINUTE + [False] * (50 - sum(told))
        now[0] += 60.0
