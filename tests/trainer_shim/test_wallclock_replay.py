"""What a program names by the clock before it trains has one name in all processes of its trial."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Zygote, environment
from tests.trainer_shim.suspending import QUIET, warm_zygote
from tests.trainer_shim.test_workdir_rollback import run

READING = """
import datetime, json, os, pathlib, sys, threading, time, uuid
from datetime import date, datetime as when
from time import time as seconds
import trainer_shim
told = [time.time(), seconds(), time.time_ns(), time.strftime("%X"), time.ctime(), time.asctime(),
        time.localtime(), time.gmtime(None), when.now().isoformat(), str(when.today()),
        str(when.now(datetime.timezone.utc)), datetime.datetime.utcnow().isoformat("_", "auto"),
        f"{date.today()}", f"{time.time()} {uuid.uuid4()} {uuid.uuid4().hex[:8]}"]
assert abs(told[0] - told[2] / 1e9) < 5 and when.fromtimestamp(told[0]) <= when.now()
assert abs(time.mktime(time.strptime(told[4])) - told[0]) < 5
assert time.strftime("%Y", time.gmtime(0)) == "1970" and time.ctime(0) != time.ctime()
assert abs((when.now() - when.now(datetime.timezone.utc).astimezone().replace(tzinfo=None))
           .total_seconds()) < 5
for turn in range(3):
    told.append(time.time_ns())
assert len(set(told[-3:])) == 3
pathlib.Path("site-packages").mkdir(exist_ok=True)
pathlib.Path("site-packages", "signing.py").write_text(
    "import time\\ndef stamp():\\n    return time.time_ns()\\n")
sys.path.append("site-packages")
import signing
true = [signing.stamp()]
before = json.loads(open("../read").readline())[1][0] if os.path.exists("../read") else 0
for turn in range(2 if before else 1):
    waited = time.time_ns() - told[-1]
    assert 0 <= waited < signing.stamp() - before, "it thinks that it waits since it first began"
thread = threading.Thread(target=lambda: true.append(time.time_ns()))
thread.start()
thread.join()
trial = trainer_shim.attach()
step, names = trial.resume.step if trial.resume else 0, set()
while step < 3:
    step += 1
    trial.report(step, save=lambda path: None)
    true.append(seconds() * 1e9)
    names.add(uuid.uuid4())
assert len(names) == step - (trial.resume.step if trial.resume else 0)
assert type(vars(datetime.datetime)["now"]).__name__ == "classmethod_descriptor"
with open("../read", "a") as file:
    file.write(json.dumps([told, true]) + "\\n")
"""


def test_each_process_reads_the_first_ones_times_until_it_trains(make_trial: MakeTrial) -> None:
    """Its own lines do, in whatever way; a library, a thread and a later line read the true one."""
    trial = make_trial(READING).launch()
    trial.start(limit=1)
    trial.until("parked")
    trial.send("checkpoint", id="first")
    checkpoint = trial.until("checkpointed")["path"]
    trial.resume()
    trial.until("completed")
    trial.start(restore=checkpoint, limit=2)
    trial.until("parked")
    trial.suspend("checkpoint")  # what is told is told on
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    trial.until("completed")
    lines = (trial.directory / "read").read_text().splitlines()
    (told, first), (again, second) = map(json.loads, lines)
    assert again == told
    assert max(first) < min(second)


# As users write it: all of a run in a folder named by the time, and the newest state beside it.
TIMED = """
import datetime, os, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
run = os.path.join("runs", f"{datetime.datetime.now():%Y%m%d-%H%M%S-%f}")
os.makedirs(run)
log = open(os.path.join(run, "log.txt"), "w")
begun = time.time()
torch.manual_seed(4)
x = torch.randn(40, 5)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
body, head = model[0].parameters(), model[2].parameters()
optimizer = torch.optim.AdamW([{"params": body}, {"params": head, "lr": 0.01}], lr=0.02)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
history = {"loss": [], "rate": []}
for epoch in range(3):
    for data, target in loader:
        loss = nn.functional.mse_loss(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss.item())
    scheduler.step()
    history["rate"].append(scheduler.get_last_lr())
    log.write(f"epoch {epoch}: {history['loss'][-1]:.6f}\\n")
    np.save(os.path.join(run, "losses.npy"), history["loss"])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch,
                "scheduler": scheduler.state_dict(), "history": history}, "runs/last.pt")
assert 0 < time.time() - begun < 1000
log.close()
"""
KERAS = """
import datetime
import keras, numpy as np, os
run = f"runs/{datetime.datetime.now():%Y%m%d-%H%M%S-%f}"
os.makedirs(run)
x = np.random.default_rng(1).normal(size=(40, 3)).astype("float32")
model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])
model.compile("adam", "mse")
keras.utils.set_random_seed(3)
model.fit(x, x.sum(axis=1), batch_size=8, epochs=3, verbose=0,
          callbacks=[keras.callbacks.CSVLogger(f"{run}/log.csv")])
np.save(f"{run}/weights.npy", model.get_weights()[0])
"""


def named_alike(found: dict[str, bytes]) -> dict[str, bytes]:
    """The files with one name for the time; there is one time."""
    times = {time for name in found for time in re.findall(r"\d{8}-\d{6}-\d{6}", name)}
    assert len(times) == 1, sorted(found)
    return {name.replace(*times, "TIME"): content for name, content in found.items()}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as started:
        yield started


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize("steps", [(2,), (5, 9), (10, 14)], ids=str)
def test_a_pytorch_run_has_one_folder_and_its_files_are_the_same(
    make_trial: MakeTrial, warm: Zygote, steps: tuple[int, ...]
) -> None:
    """To the last byte, those of `torch.save` too."""
    env = environment(**QUIET)
    undisturbed = named_alike(run(make_trial(TIMED, env=env), zygote=warm))
    assert {"runs/last.pt", "runs/TIME/log.txt", "runs/TIME/losses.npy"} <= undisturbed.keys()
    assert undisturbed["runs/TIME/log.txt"].count(b"\n") == 3
    assert named_alike(run(make_trial(TIMED, env=env), *steps, zygote=warm)) == undisturbed


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_keras_run_has_one_folder(make_trial: MakeTrial, zygote: Zygote) -> None:
    env = environment(**QUIET)
    undisturbed = named_alike(run(make_trial(KERAS, env=env, seed=1), zygote=zygote))
    assert undisturbed["runs/TIME/log.csv"].count(b"\n") == 4
    suspended = make_trial(KERAS, env=env, seed=1)
    assert named_alike(run(suspended, 3, 8, zygote=zygote)) == undisturbed
