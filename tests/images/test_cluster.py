"""Programs that nothing is known of, on real nodes: what is done to them changes no result."""

from __future__ import annotations

import importlib.util
import random
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hermesd.core import resume_points
from hermesd.core.model import Checkpoint, Fidelity
from hermesd.core.trial import Trial
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster
from tests.e2e.test_lost_node import LEASE, becomes, killed, node
from tests.head.heads import world
from tests.images.driving import criu

STEPS = 250
PROGRAM = f"""
import argparse, os, random, tempfile, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
random.seed(1)
draws = (random.random() for _ in range(10**9))
state = 1.0
count = os.path.join(tempfile.mkdtemp(), "count")
with open("log.csv", "w") as log:
    for step in range({STEPS}):
        assert step == 0 or open(count).read() == str(step)
        with open(count, "w") as file:
            file.write(str(step + 1))
        state *= 1 - rate * next(draws)
        print(f"loss={{state!r}}", flush=True)
        log.write(f"{{step}},{{state!r}}\\n")
        log.flush()
        time.sleep(0.02)
"""


FIT = """
import argparse, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import time
import keras
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(parser.parse_args().rate), "mse")
told = []
def tell(batch, logs):
    told.append(batch)
    time.sleep(0.02)
    model.stop_training = os.path.exists("enough")
watch = keras.callbacks.LambdaCallback(on_train_batch_end=tell)
model.fit(x, x.sum(axis=1), batch_size=8, epochs=10**6, verbose=0, callbacks=[watch])
"""


def truth(rate: float) -> list[float]:
    draws, state, losses = random.Random(1), 1.0, []
    for _ in range(STEPS):
        state *= 1 - rate * draws.random()
        losses.append(state)
    return losses


@pytest.fixture(autouse=True)
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CRIU that the nodes find, too."""
    monkeypatch.setenv("HERMES_NODE_CRIU", criu(tmp_path))


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
        losses = truth(0.01)
        rows = (states[other] / "trials" / trial / "work" / "log.csv").read_text().split()
        assert rows == [f"{step},{loss!r}" for step, loss in enumerate(losses)]
        curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial=trial))
        assert list(curve.values)[-1] == losses[-1]


@pytest.mark.timeout(240)
async def test_an_image_that_no_node_fits_gives_way_to_the_checkpoint_before_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("no tensorflow here")
    monkeypatch.setattr(resume_points, "PATIENCE_SECONDS", 2.0)
    root = tmp_path_factory.mktemp("g")
    (root / "head").mkdir()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        # It makes checkpoints of frameworks alone, and the other one images.
        with monkeypatch.context() as without:
            without.setenv("HERMES_NODE_CRIU", "off")
            states = {"a": await stack.enter_async_context(node("a", head, None))}
        await becomes(lambda: len(head.state.slots) == 1)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        study = await cluster.submit(
            "fit",
            {"train.py": FIT},
            {"rate": [0.01]},
            schedule=types_pb2.Schedule(policy=types_pb2.Plugin(name="fifo")),
            suspend=types_pb2.Suspend(durability_seconds=1.0),
        )

        def trial() -> Trial:
            return head.state.trials[f"{study}/1"]

        def saved() -> Checkpoint | None:
            return trial().checkpoint

        await becomes(lambda: saved() is not None)
        states["b"] = await stack.enter_async_context(node("b", head, None))
        await becomes(lambda: "b" in head.state.nodes and head.state.nodes["b"].image_features)
        await cluster.stub.DrainNode(control.DrainNodeRequest(node="a", request_id="1"))
        await becomes(lambda: (found := saved()) is not None and found.image_of == "b")
        older = trial().before_image
        assert older is not None, "what it came from is kept"
        await cluster.stub.DrainNode(control.DrainNodeRequest(node="b", request_id="2"))
        await becomes(lambda: trial().run is None)
        await cluster.stub.UndrainNode(control.UndrainNodeRequest(node="a", request_id="3"))
        await becomes(lambda: head.state.node_of(trial()) == "a" and trial().run is not None)
        assert trial().checkpoint == older
        await becomes(lambda: trial().step > older.step)
        (states["a"] / "trials" / study / "1" / "work" / "enough").touch()
        answer = await cluster.finished(study)
    assert [each.state for each in answer.trials] == [types_pb2.TRIAL_STATE_COMPLETED]
