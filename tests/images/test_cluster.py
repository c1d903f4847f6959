"""Programs that nothing is known of, on real nodes: what is done to them changes no result."""

from __future__ import annotations

import random
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hermesd.core.model import Fidelity
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster
from tests.e2e.test_lost_node import LEASE, becomes, killed, node
from tests.head.heads import world
from tests.images.driving import criu

STEPS = 250
PROGRAM = f"""
import argparse, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
random.seed(1)
draws = (random.random() for _ in range(10**9))
state = 1.0
with open("log.csv", "w") as log:
    for step in range({STEPS}):
        state *= 1 - rate * next(draws)
        print(f"loss={{state!r}}", flush=True)
        log.write(f"{{step}},{{state!r}}\\n")
        log.flush()
        time.sleep(0.02)
"""


def _truth(rate: float) -> list[float]:
    draws, state, losses = random.Random(1), 1.0, []
    for _ in range(STEPS):
        state *= 1 - rate * draws.random()
        losses.append(state)
    return losses


@pytest.fixture(autouse=True)
def tool(tmp_path: Path) -> str:
    """The CRIU that the nodes find, too."""
    return criu(tmp_path)


@pytest.mark.timeout(120)
async def test_it_goes_on_at_the_other_node_when_its_own_is_gone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("i")
    (root / "head").mkdir()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        head.running.head.scheduler.lease = LEASE
        states = {name: await stack.enter_async_context(node(name, head, None)) for name in "ab"}
        await becomes(lambda: len(head.state.slots) == 2)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        study = await cluster.submit(
            "blind",
            {"train.py": PROGRAM},
            {"rate": [0.01, 0.02]},
            suspend=types_pb2.Suspend(durability_seconds=1.0),
        )
        trial = f"{study}/1"

        await becomes(lambda: head.state.trials[trial].copied is not None)
        assert head.state.trials[trial].fidelity is Fidelity.EXACT
        victim = head.state.node_of(head.state.trials[trial])
        (other,) = set(states) - {victim}
        killed(states[victim])
        shutil.rmtree(states[victim])
        answer = await cluster.finished(study)
        assert {each.state for each in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
        losses = _truth(0.01)
        rows = (states[other] / "trials" / trial / "work" / "log.csv").read_text().split()
        assert rows == [f"{step},{loss!r}" for step, loss in enumerate(losses)]
        curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial=trial))
        assert list(curve.values)[-1] == losses[-1]
