"""A node that joins late gets trials that are parked on the other one, and both lose nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from hermesd.core.model import Phase
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, multiplying
from tests.e2e.test_lost_node import becomes, node
from tests.head.heads import world

RATES = [0.001, 0.002, 0.003]
STEPS = 300


@pytest.mark.timeout(120)
async def test_a_parked_trial_goes_on_at_a_node_that_joins_late(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("s")
    (root / "head").mkdir()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        await stack.enter_async_context(node("a", head, None))
        await becomes(lambda: len(head.state.slots) == 1)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        quantum = types_pb2.NamedValue(
            name="quantum_seconds", value=types_pb2.Value(double_value=1.0)
        )
        study = await cluster.submit(
            "turns",
            {"train.py": multiplying(f"step < {STEPS}")},
            {"rate": RATES},
            schedule=types_pb2.Schedule(
                policy=types_pb2.Plugin(name="round_robin", settings=[quantum])
            ),
        )
        trials = [f"{study}/{number}" for number in (1, 2, 3)]

        def are_parked() -> bool:
            """All have run, and two wait in memory."""
            known = [head.state.trials[trial] for trial in trials]
            return all(each.step for each in known) and len(head.state.parked) == 2

        await becomes(are_parked)
        await stack.enter_async_context(node("b", head, None))

        def runs_on_both() -> bool:
            runs = [each for each in head.state.trials.values() if each.phase is Phase.RUNNING]
            return {head.state.node_of(each) for each in runs} == {"a", "b"}

        await becomes(runs_on_both)
        moved = [each for each in trials if head.state.node_of(head.state.trials[each]) == "b"]
        answer = await cluster.finished(study)
        assert {trial.state for trial in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
        assert not any(head.state.trials[trial].failures for trial in trials)
        for trial, rate in zip(answer.trials, RATES, strict=True):
            curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial=trial.id))
            truth, state = {}, 1.0
            for step in range(1, STEPS + 1):
                state *= 1 - rate
                truth[step] = state
            assert dict(zip(curve.steps, curve.values, strict=True)) == truth
        for trial in moved:
            output = (root / "b" / "trials" / trial / "output.log").read_text()
            assert int(output.split()[1]) > 0, "it went on from where it was parked"
