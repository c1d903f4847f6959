"""What a program gives to a logger is told of the trial, and the logger has it as without Hermes.

The packages here are stand-ins with the public calls of TensorBoard's writers, Weights & Biases and
MLflow, in the modules that define these calls in the real ones: they write what they are given into
a file. tqdm is the real one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, environment
from tests.trainer_shim.test_side_metrics import points

WROTE = """
import json
def wrote(*given):
    with open("wrote.jsonl", "a") as file:
        print(json.dumps(given), file=file)
"""
WRITER = f"""{WROTE}
class SummaryWriter:
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        wrote("scalar", tag, scalar_value, global_step)
    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        wrote("scalars", main_tag, tag_scalar_dict, global_step)
"""
PACKAGES = {
    "tensorboardX/writer.py": WRITER,
    "tensorboardX/__init__.py": "from .writer import SummaryWriter",
    "tensorboard/plugins/scalar/summary_v2.py": f"""{WROTE}
def scalar(name, data, step=None, description=None):
    wrote("tf", name, data, step)
""",
    "tensorboard/summary.py": "from tensorboard.plugins.scalar.summary_v2 import scalar",
    "wandb/sdk/wandb_run.py": f"""{WROTE}
class Run:
    def log(self, data, step=None, commit=None):
        wrote("wandb", data, step)
""",
    "wandb/__init__.py": """
from wandb.sdk.wandb_run import Run
log = None
def init():
    global log
    run = Run()
    log = run.log
    return run
""",
    "mlflow/tracking/fluent.py": f"""{WROTE}
def log_metric(key, value, step=None):
    wrote("mlflow", key, value, step)
def log_metrics(metrics, step=None):
    wrote("mlflow", metrics, step)
""",
    "mlflow/__init__.py": "from mlflow.tracking.fluent import log_metric, log_metrics",
}
LOOP = """
import trainer_shim
{setup}
trial = trainer_shim.attach()
first = 0
if trial.resume:
    first = int(open(trial.resume.path + "/step").read())
def save(folder):
    with open(folder + "/step", "w") as file:
        file.write(str(step))
for step in range(first + 1, 5):
    value = step / 8
    {body}
    trial.report(step, loss=1 / step, save=save)
"""


def lay_out(folder: Path) -> Path:
    """The stand-ins, in a folder for PYTHONPATH."""
    for path, text in PACKAGES.items():
        module = folder / path
        module.parent.mkdir(parents=True, exist_ok=True)
        for package in module.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()
        module.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("setup", "body", "told", "wrote"),
    [
        pytest.param(
            "from tensorboardX import SummaryWriter; writer = SummaryWriter()",
            "writer.add_scalar('Loss/test', value, step); "
            "writer.add_scalars('acc', {'top1': value, 'top5': 1}, global_step=step)",
            {"Loss/test": 0.25, "acc/top1": 0.25, "acc/top5": 1.0},
            [["scalar", "Loss/test", 0.25, 2], ["scalars", "acc", {"top1": 0.25, "top5": 1}, 2]],
            id="tensorboard",
        ),
        pytest.param(
            "from tensorboard import summary",
            "summary.scalar('acc', value, step=1000 * step)",
            {"acc": 0.25},
            [["tf", "acc", 0.25, 2000]],
            id="tensorflow",
        ),
        pytest.param(
            "import wandb; run = wandb.init()",
            "wandb.log({'val': {'acc': value}, 'image': 'a.png', 'epoch': step}); "
            "run.log({'f1': 1})",
            {"val.acc": 0.25, "f1": 1.0},
            [
                ["wandb", {"val": {"acc": 0.25}, "image": "a.png", "epoch": 2}, None],
                ["wandb", {"f1": 1}, None],
            ],
            id="wandb",
        ),
        pytest.param(
            "import mlflow",
            "mlflow.log_metric('acc', value, step=7); mlflow.log_metrics({'f1': value, 'step': 1})",
            {"acc": 0.25, "f1": 0.25},
            [["mlflow", "acc", 0.25, 7], ["mlflow", {"f1": 0.25, "step": 1}, None]],
            id="mlflow",
        ),
    ],
)
def test_what_a_logger_is_given_is_told_once(
    make_trial: MakeTrial,
    tmp_path: Path,
    setup: str,
    body: str,
    told: dict[str, float],
    wrote: list[object],
) -> None:
    """Under the step where the trial stands, which is the one before the report that follows, also
    by the process that goes on from a checkpoint."""
    packages = lay_out(tmp_path / "packages")
    env = environment(PYTHONPATH=str(packages))
    trial = make_trial(LOOP.format(setup=setup, body=body), env=env).launch()
    trial.start(limit=2)
    trial.until("parked")
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    trial.until("completed")
    seen = points(trial)
    assert {name: value for name, value in seen[1].items() if name != "loss"} == told
    assert all(seen[step].keys() - {"loss"} == told.keys() for step in range(4))
    lines = (trial.directory / "work" / "wrote.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines][len(wrote) : 2 * len(wrote)] == wrote
    assert len(lines) == 4 * len(wrote)


BARS = """
import trainer_shim
from tqdm.auto import tqdm
trial = trainer_shim.attach()
bar = tqdm(range(1, 4), mininterval=1e9)
for step in bar:
    trial.report(step, loss=1.0)
    bar.set_postfix(val_loss=1 / 3, acc=f"{step / 8:.2f}", epoch=step, refresh=False)
    bar.set_postfix_str(f"f1={step / 4}, speed=3.5", refresh=False)
"""


@pytest.mark.torch
def test_the_postfix_of_a_bar_is_told_as_it_was_given(make_trial: MakeTrial) -> None:
    """Not rounded as it is shown, and whether the bar is drawn or not. In the tests with PyTorch,
    where tqdm is installed."""
    trial = make_trial(BARS).launch()
    trial.start()
    trial.until("completed")
    seen = points(trial)
    assert {step: seen[step]["f1"] for step in (1, 2, 3)} == {1: 0.25, 2: 0.5, 3: 0.75}
    assert seen[2] == {"loss": 1.0, "val_loss": 1 / 3, "acc": 0.25, "f1": 0.5}


def test_a_logger_that_fails_fails_as_without_hermes(make_trial: MakeTrial, tmp_path: Path) -> None:
    packages = lay_out(tmp_path / "packages")
    body = """
    try:
        writer.add_scalar()
    except TypeError as error:
        print("RAISED", error)"""
    setup = "from tensorboardX import SummaryWriter; writer = SummaryWriter()"
    env = environment(PYTHONPATH=str(packages))
    trial: Trial = make_trial(LOOP.format(setup=setup, body=body), env=env).launch()
    trial.start()
    trial.until("completed")
    assert trial.output.count("RAISED SummaryWriter.add_scalar() missing 2 required") == 4
