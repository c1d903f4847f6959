"""Kill anything at any time: every trial goes on, none runs twice, and the results are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running

# Each step multiplies the state; a step lost or repeated shows in every later loss. The lock
# proves that no second process of the same trial was ever alive beside this one.
SCRIPT = """
import argparse, fcntl, json, os, pathlib, time
import trainer_shim

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
lock = open(pathlib.Path(LOCKS) / f"{rate}.lock", "a+")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    pathlib.Path(LOCKS, f"{rate}.twice").touch()
    raise

trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())

def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))

while step < 300:
    time.sleep(0.005)
    state, step = state * (1 - rate), step + 1
    trial.report(step, loss=state, save=save)
"""
RATES = [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]
STEPS = 300


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


def expected(rate: float) -> list[float]:
    losses, state = [], 1.0
    for _ in range(STEPS):
        state *= 1 - rate
        losses.append(state)
    return losses


async def start(cluster: Cluster, locks: Path) -> str:
    return await cluster.submit(
        "chaos",
        {"train.py": SCRIPT.replace("LOCKS", repr(str(locks)))},
        {"rate": RATES},
        suspend=types_pb2.Suspend(durability_seconds=1.0),
        schedule=types_pb2.Schedule(
            policy=types_pb2.Plugin(
                name="round_robin",
                settings=[
                    types_pb2.NamedValue(
                        name="quantum_seconds", value=types_pb2.Value(double_value=0.3)
                    )
                ],
            )
        ),
    )


async def check(cluster: Cluster, study: str, locks: Path) -> None:
    """Every trial completed with exactly the losses of an undisturbed run."""
    answer = await cluster.finished(study)
    assert {trial.state for trial in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
    assert not list(locks.glob("*.twice")), "a trial ran twice at once"
    for trial, rate in zip(answer.trials, RATES, strict=True):
        curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial=trial.id))
        points = dict(zip(curve.steps, curve.values, strict=True))
        truth = expected(rate)
        assert set(points) == set(range(1, STEPS + 1))
        assert all(value == truth[step - 1] for step, value in points.items())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", ["head", "node", "host", "trainer"])
async def test_killing_one_process_changes_no_result(victim: str, state: Path, locks: Path) -> None:
    async with running(state, kind=Cluster) as cluster:
        study = await start(cluster, locks)
        for share in (0.2, 0.5):
            goal = share * STEPS * len(RATES)

            async def far_enough(goal: float = goal) -> bool:
                return await cluster.steps(study) >= goal and bool(cluster.pids(victim))

            await cluster.until(far_enough)
            cluster.kill(cluster.pids(victim)[:1])
        await check(cluster, study, locks)


@pytest.mark.timeout(120)
async def test_killing_everything_at_once_loses_nothing_durable(state: Path, locks: Path) -> None:
    async with running(state, kind=Cluster) as cluster:
        study = await start(cluster, locks)

        async def half_way() -> bool:
            return await cluster.steps(study) >= STEPS * len(RATES) / 2

        await cluster.until(half_way)
        everything = ["local", "head", "node", "zygote", "host", "trainer"]
        cluster.kill([pid for kind in everything for pid in cluster.pids(kind)])
        await cluster.stop()
        await cluster.start()
        await check(cluster, study, locks)


BAD = (
    ("raise ValueError('the third layer is missing')", types_pb2.TRIAL_STATE_FAILED, "third"),
    ("print('nothing to report')", types_pb2.TRIAL_STATE_COMPLETED, "no metric seen"),
    ("import os; os.kill(os.getpid(), 11)", types_pb2.TRIAL_STATE_FAILED, "SIGSEGV"),
    ("import sys; sys.exit(7)", types_pb2.TRIAL_STATE_FAILED, "7"),
    (
        "import itertools, time, trainer_shim; t = trainer_shim.attach()\n"
        "for i in itertools.count(1): time.sleep(0.01); t.report(i, loss=float('nan'))",
        types_pb2.TRIAL_STATE_STOPPED,
        "not finite",
    ),
)
LOUD = "print('loading'); raise RuntimeError('no such file: weights')"


@pytest.mark.timeout(120)
async def test_a_bad_program_ends_with_a_state_a_reason_and_its_last_lines(state: Path) -> None:
    async with running(state, slots=1) as cluster:
        for script, state_wanted, words in BAD:
            study = await cluster.submit("bad", {"train.py": script}, {"rate": [0.1]})
            (trial,) = (await cluster.finished(study)).trials
            assert trial.state == state_wanted
            assert words in trial.reason
        study = await cluster.submit("loud", {"train.py": LOUD}, {"rate": [0.1]})
        await cluster.finished(study)
        answer = await cluster.stub.GetTrial(control.GetTrialRequest(trial=f"{study}/1"))
        assert "loading" in answer.output_tail
        assert "no such file: weights" in answer.output_tail


ASTRAY = """
import os, time
from trainer_shim import child_interpreters as reach
agent = reach.claim()
if agent.restore:
    agent.failed("restore", "the program ran other functions", "OtherProgram")
    os._exit(1)
import trainer_shim
trial = trainer_shim.attach()
for step in range(1, 300):
    time.sleep(0.01)
    trial.report(step, loss=1 / step, save=lambda folder: None)
"""


@pytest.mark.timeout(60)
async def test_a_trial_whose_restores_fail_alike_begins_anew_and_stays_parked(state: Path) -> None:
    async with running(state, slots=1) as cluster:
        durable = types_pb2.Suspend(durability_seconds=1.0)
        study = await cluster.submit(
            "astray", {"train.py": ASTRAY}, {"rate": [0.1]}, suspend=durable
        )
        known: set[str] = set()
        while len(known) < 2:  # the head's: what it has not heard of it does not restore
            request = control.GetTrialRequest(trial=f"{study}/1")
            known.add((await cluster.stub.GetTrial(request)).trial.checkpoint.id)
            known.discard("")
        cluster.kill(cluster.pids("trainer"))
        (trial,) = (await cluster.finished(study)).trials
        assert trial.state == types_pb2.TRIAL_STATE_COMPLETED
        assert trial.fidelity == types_pb2.FIDELITY_PARK_ONLY
        answer = await cluster.stub.GetTrial(control.GetTrialRequest(trial=trial.id))
        assert answer.trial.fidelity_reason == (
            "kept parked rather than checkpointed: it failed to restore twice in the same way: "
            "the program ran other functions"
        )
        restores = [
            old for old in answer.trial.failures if old.detail == "the program ran other functions"
        ]
        assert len(restores) == 3, "two from the newest checkpoint, one from that before"


KERAS = """
import time
import keras
import numpy
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
class Sleep(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if {sleeps} and batch == 2:
            time.sleep(1e6)
x = numpy.ones((64, 2), "float32")
model.fit(x, x.sum(1), batch_size=16, epochs=1, callbacks=[Sleep()], verbose=0)
{after}
"""
SILENT = {
    "in its loop": """
import time
import trainer_shim
trial = trainer_shim.attach()
trial.report(1, loss=0.5)
time.sleep(1e6)
""",
    "in a callback": KERAS.format(sleeps="True", after="pass"),
    "after its fit": KERAS.format(sleeps="False", after="time.sleep(1e6)"),
}


@pytest.mark.timeout(300)
@pytest.mark.tensorflow
async def test_a_program_that_sleeps_uses_up_its_time(state: Path) -> None:
    stop = types_pb2.Stop(max_seconds=2.0)
    async with running(state, slots=1) as cluster:
        for where, program in SILENT.items():
            files = {"train.py": program}
            study = await cluster.submit("silent", files, {"rate": [0.1]}, stop=stop)
            (trial,) = (await cluster.finished(study)).trials
            assert trial.state == types_pb2.TRIAL_STATE_STOPPED, where
            assert trial.reason == "stop.max_seconds = 2 is reached", where


# Can only be parked, and ends at another moment of its quanta than the next one does.
SHORT = """
import argparse, os, time
import trainer_shim

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=float)
steps = int(parser.parse_args().steps)
with open(BEGUN, "a") as file:
    print(steps, file=file)
trial = trainer_shim.attach()
for step in range(1, steps + 1):
    time.sleep(0.01)
    trial.report(step, loss=1.0 / step)
"""


@pytest.mark.timeout(120)
async def test_whatever_ends_as_it_is_parked_is_trained_once(state: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    lengths = [float(steps) for steps in range(20, 52, 2)]
    setting = types_pb2.NamedValue(name="quantum_seconds", value=types_pb2.Value(double_value=0.3))
    policy = types_pb2.Plugin(name="round_robin", settings=[setting])
    async with running(state) as cluster:
        study = await cluster.submit(
            "short",
            {"train.py": SHORT.replace("BEGUN", repr(str(begun)))},
            {"steps": lengths},
            schedule=types_pb2.Schedule(policy=policy),
        )
        answer = await cluster.finished(study)
    assert {trial.state for trial in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
    assert [trial.step for trial in answer.trials] == lengths
    assert sorted(map(float, begun.read_text().split())) == lengths, "none was begun twice"
