"""A node that is stopped while trials run: it is given nothing more, and the next one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, multiplying, running

STEPS = 100
RATES = [0.001, 0.002, 0.003, 0.004, 0.005]
LAUNCHED = control.PUBLIC_EVENT_KIND_LAUNCHED
YIELDED = control.PUBLIC_EVENT_KIND_YIELDED
FAILED = control.PUBLIC_EVENT_KIND_FAILED
JOINED = control.PUBLIC_EVENT_KIND_NODE_JOINED


async def submit(cluster: Cluster) -> str:
    """More trials than devices, which change every third of a second."""
    third = types_pb2.NamedValue(name="quantum_seconds", value=types_pb2.Value(double_value=0.3))
    return await cluster.submit(
        "stopped",
        {"train.py": multiplying(f"step < {STEPS}")},
        {"rate": RATES},
        schedule=types_pb2.Schedule(policy=types_pb2.Plugin(name="round_robin", settings=[third])),
    )


async def journal(cluster: Cluster) -> list[control.PublicEvent]:
    """All that has happened, to people."""
    request = control.WatchJournalRequest(once=True)
    return [event async for said in cluster.stub.WatchJournal(request) for event in said.events]


@pytest.mark.timeout(120)
async def test_nothing_is_launched_on_a_node_that_stops_and_no_run_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state: Path = tmp_path_factory.mktemp("h")
    async with running(state, kind=Cluster) as cluster:
        study = await submit(cluster)

        async def under_way() -> bool:
            trials = (await cluster.study(study)).trials
            return sum(trial.step > 0 for trial in trials) > cluster.slots

        await cluster.until(under_way)
        await cluster.stop()
        log = (state / "test-out.log").read_text()
        assert "some trials did not end in time" not in log

        await cluster.start()
        answer = await cluster.finished(study)
        kinds = [event.kind for event in await journal(cluster)]
        assert {trial.state for trial in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
        assert [trial.step for trial in answer.trials] == [STEPS] * len(RATES)
        assert FAILED not in kinds
        stopping = kinds.index(YIELDED)
        again = kinds.index(JOINED, stopping)
        assert LAUNCHED not in kinds[stopping:again]
        assert LAUNCHED in kinds[again:]
