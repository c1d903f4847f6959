"""The examples, and the searches that docs/coming-from writes for other tools and for Hermes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
FILES = sorted(
    path.relative_to(EXAMPLES)
    for name in ("study.yaml", "sweep.yaml")
    for path in EXAMPLES.glob(f"*/{name}")
    if path.parent.name != "digits"  # `make demo` runs it
)
PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "coming-from").glob("*.md")}

pytestmark = [pytest.mark.examples, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def here() -> Iterator[dict[str, str]]:
    """The environment of somebody whose head and node run, with this Python as theirs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory(prefix="hermes-") as state:
        environment = {**os.environ, "HERMES_STATE": state, "PATH": path, "PYTHONWARNINGS": ""}
        environment.pop("HERMES_HEAD", None)
        local = ["hermesctl", "local"]
        subprocess.run([*local, "start", "--slots", "2"], env=environment, check=True)
        try:
            yield environment
        finally:
            subprocess.run([*local, "stop"], env=environment, check=True)


def test_every_example_is_in_the_list_and_has_its_study_file() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.M)
    assert set(listed) == folders == {path.parent.name for path in FILES} | {"digits"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_an_example_runs_and_is_ranked_by_its_metric(file: Path, here: dict[str, str]) -> None:
    command = ["hermesctl", "submit", EXAMPLES / file, "--trials", "2", "--wait", "-o", "json"]
    run = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    best = json.loads(run.stdout)["best"]
    assert [trial["state"] for trial in best] == ["completed"] * 2
    assert all(trial["metric"] is not None and trial["step"] > 1 for trial in best)


def test_every_page_is_in_the_list() -> None:
    text = (ROOT / "docs" / "coming-from.md").read_text()
    assert set(re.findall(r"^\| \[.*\]\(coming-from/(.*)\.md\)", text, re.M)) == set(PAGES)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], re.DOTALL)


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("loop", "scikit-learn"),
        ("wandb-sweeps", "scikit-learn"),
        ("optuna", None),
        ("ray-tune", "scikit-learn"),
        ("hydra", "hydra"),
        ("slurm-arrays", "scikit-learn"),
    ],
)
def test_the_search_as_the_page_writes_it_here(
    page: str, example: str | None, here: dict[str, str], tmp_path: Path
) -> None:
    """Of each search two trials are enough; a Slurm lends nothing here."""
    folder = ROOT
    if example is not None:
        folder = shutil.copytree(EXAMPLES / example, tmp_path / "study")
        for name, text in zip(("sweep.yaml", "study.yaml"), blocks(page, "yaml") * 2, strict=False):
            (folder / name).write_text(text)
    script = blocks(page, "bash")[-1]
    if page == "slurm-arrays":
        script = script.partition("\n")[2]
    run = subprocess.run(
        ["bash", "-ec", script.replace("--follow", "--trials 2 --wait -o json")],
        **{"cwd": folder, "env": here, "capture_output": True, "text": True, "check": False},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [trial["state"] for trial in json.loads(run.stdout)["best"]] == ["completed"] * 2


@pytest.mark.parametrize(
    ("page", "example", "fewer"),
    [
        ("loop", "scikit-learn", ("0.0001 0.001 ", "")),
        ("hydra", "hydra", ("0.0001,0.001,", "")),
    ],
)
def test_the_search_as_the_page_writes_it_there(
    page: str, example: str, fewer: tuple[str, str], here: dict[str, str], tmp_path: Path
) -> None:
    folder = shutil.copytree(EXAMPLES / example, tmp_path / "study")
    script = blocks(page, "bash")[0].replace(*fewer)
    run = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=here, capture_output=True, text=True, check=True
    )
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    assert (run.stdout + logs).count("epoch 19: ") == 2


def test_the_search_as_a_slurm_array_would_run_it(here: dict[str, str], tmp_path: Path) -> None:
    """Of six tasks the last two."""
    folder = shutil.copytree(EXAMPLES / "scikit-learn", tmp_path / "study")
    for task in ("4", "5"):
        run = subprocess.run(
            ["bash", "-ec", blocks("slurm-arrays", "bash")[0]],
            cwd=folder, env={**here, "SLURM_ARRAY_TASK_ID": task},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert run.stdout.count("val_acc=") == 20


def test_the_search_as_ray_runs_it(here: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="no ray here")
    data = """
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
images, labels = load_digits(return_X_y=True)
x, x_val, y, y_val = train_test_split(images / 16, labels, random_state=0)
"""
    code = blocks("ray-tune", "python")[0].replace("num_samples=8", "num_samples=2")
    (tmp_path / "search.py").write_text(data + code)
    run = subprocess.run(
        [sys.executable, "search.py"], cwd=tmp_path, env={**here, "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "'alpha'" in run.stdout.splitlines()[-1]


def test_the_objective_runs_by_optuna_alone(here: dict[str, str]) -> None:
    command = [sys.executable, "objective.py"]
    run = subprocess.run(
        command, cwd=EXAMPLES / "optuna", env=here, capture_output=True, text=True, check=True
    )
    assert "penalty" in run.stdout
    text = (EXAMPLES / "optuna" / "objective.py").read_text()
    for line in blocks("optuna", "python")[0].splitlines():
        assert line.strip() in ("...", *map(str.strip, text.splitlines())), line
