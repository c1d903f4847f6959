"""Other tools' search files become study files, and what could not be carried over is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hermesctl.cli import app

WANDB = """
program: train.py
project: vision
method: bayes
metric: {name: val/loss, goal: minimize, target: 0.1}
early_terminate: {type: hyperband, min_iter: 3}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  depth: {values: [18, 34, null]}
  optimizer:
    parameters:
      name: {values: [adam, sgd]}
      decay: {value: 0.01}
"""
KATIB = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: mnist-search, namespace: kubeflow}
spec:
  objective: {type: maximize, goal: 0.99, objectiveMetricName: accuracy}
  algorithm: {algorithmName: bayesianoptimization}
  earlyStopping: {algorithmName: medianstop}
  maxTrialCount: 12
  parallelTrialCount: 3
  parameters:
    - name: rate
      parameterType: double
      feasibleSpace: {min: "0.01", max: "1", distribution: logUniform}
    - {name: layers, parameterType: int, feasibleSpace: {min: "2", max: "5"}}
    - {name: optimizer, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
    - {name: batch, parameterType: discrete, feasibleSpace: {list: ["16", "32"]}}
  trialTemplate:
    primaryContainerName: main
    trialParameters:
      - {name: learningRate, reference: rate}
      - {name: layerCount, reference: layers}
      - {name: chosen, reference: optimizer}
      - {name: size, reference: batch}
    trialSpec:
      kind: Job
      spec:
        template:
          spec:
            containers:
              - name: main
                image: example/mnist
                command:
                  - python3
                  - /opt/mnist.py
                  - --epochs=2
                  - "--lr=${trialParameters.learningRate}"
                  - "--layers=${trialParameters.layerCount}"
                  - --optimizer
                  - "${trialParameters.chosen}"
                  - "--batch-size=${trialParameters.size}"
"""
DETERMINED = """
name: mnist
entrypoint: python3 train.py
hyperparameters:
  learning_rate: {type: log, base: 10, minval: -4, maxval: -1}
  dropout: {type: double, minval: 0.1, maxval: 0.5}
  optimizer:
    kind: {type: categorical, vals: [adam, sgd]}
    momentum: 0.9
  batch_size: {type: const, val: 64}
searcher:
  name: adaptive_asha
  metric: accuracy
  smaller_is_better: false
  max_trials: 16
  max_length: {batches: 900}
max_restarts: 2
environment: {image: example}
"""
NNI = """
experimentName: search
searchSpaceFile: space.json
trialCommand: python3 train.py
maxTrialNumber: 30
trialConcurrency: 2
tuner: {name: Evolution, classArgs: {optimize_mode: minimize}}
assessor: {name: Medianstop}
trainingService: {platform: local}
"""
SPACE = """
{"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
 "units": {"_type": "randint", "_value": [16, 65]},
 "noise": {"_type": "qnormal", "_value": [0, 1, 0.5]},
 "block": {"_type": "choice", "_value": [
   {"_name": "plain"}, {"_name": "wide", "factor": {"_type": "quniform", "_value": [1, 4, 1]}}]},
 "pair": {"_type": "choice", "_value": [{"a": 1, "b": 2}]}}
"""
HYDRA = """
defaults:
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: tpe
hydra:
  mode: MULTIRUN
  sweeper:
    direction: maximize
    n_trials: 20
    n_jobs: 1
    params:
      model.lr: tag(log, interval(1e-4, 1e-1))
      model.depth: range(2, 7, 2)
      optimizer: adam, sgd
      dropout: choice(0.1, 0.5)
      epochs: 5
      data: glob(*)
"""
OPTUNA = """
import optuna
LARGEST = 0.1

def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, LARGEST, log=True)
    kind = trial.suggest_categorical("kind", ["svc", "forest", "knn"])
    if kind == "svc":
        c = trial.suggest_float("c", 0.5, 2.0, step=0.5)
    elif kind == "forest":
        depth = trial.suggest_int("depth", 2, 32, log=True)
    else:
        k = trial.suggest_int("k", 1, 9)
    for layer in range(3):
        trial.suggest_int(f"units_{layer}", 4, 128)
    return 1.0

raise SystemExit("it is never run")
study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.CmaEsSampler(),
    pruner=optuna.pruners.MedianPruner(),
)
study.optimize(objective, n_trials=40)
"""
RAY = """
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler

space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "layers": tune.randint(1, 5),
    "width": tune.choice([64, 128]),
    "optimizer": {"name": tune.choice(["adam", "sgd"]), "decay": 0.01},
    "twice": tune.sample_from(lambda spec: spec.config.lr * 2),
}
tuner = tune.Tuner(
    train, param_space=space,
    tune_config=tune.TuneConfig(
        metric="acc", mode="max", num_samples=25, scheduler=AsyncHyperBandScheduler()
    ),
)
"""
LOG = "log_uniform_values"
EXPECTED: dict[str, dict[str, Any]] = {
    "wandb": {
        "program": "train.py", "method": "tpe", "project": "vision",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "early_terminate": {"type": "hyperband", "min_iter": 3},
        "parameters": {
            "lr": {"distribution": LOG, "min": 0.0001, "max": 0.1},
            "depth": {"values": [18, 34]},
            "optimizer": {
                "parameters": {"name": {"values": ["adam", "sgd"]}, "decay": {"value": 0.01}}
            },
        },
    },
    "katib": {
        "name": "mnist-search", "method": "gp", "run_cap": 12,
        "command": ["python3", "/opt/mnist.py", "--epochs=2", "${args}"],
        "metric": {"name": "accuracy", "goal": "maximize"}, "stop": {"target": 0.99},
        "schedule": {"policy": "median"},
        "parameters": {
            "lr": {"min": 0.01, "max": 1.0, "distribution": LOG},
            "layers": {"min": 2, "max": 5},
            "optimizer": {"values": ["sgd", "adam"]},
            "batch-size": {"values": [16, 32]},
        },
    },
    "determined": {
        "name": "mnist", "command": ["python3", "train.py", "${args}"], "method": "random",
        "run_cap": 16, "metric": {"name": "accuracy", "goal": "maximize"},
        "schedule": {"policy": {"name": "asha", "eta": 4, "min_rung": "1/256"}},
        "retry": {"max_failures": 3},
        "parameters": {
            "learning_rate": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "dropout": {"min": 0.1, "max": 0.5},
            "optimizer.kind": {"values": ["adam", "sgd"]},
            "optimizer.momentum": {"value": 0.9},
            "batch_size": {"value": 64},
        },
    },
    "nni": {
        "name": "search", "command": ["python3", "train.py", "${args}"], "method": "genetic",
        "run_cap": 30, "metric": {"name": "default", "goal": "minimize"},
        "schedule": {"policy": "median"},
        "parameters": {
            "lr": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "units": {"min": 16, "max": 64},
            "noise": {"distribution": "q_normal", "mu": 0, "sigma": 1, "q": 0.5},
            "block": {"values": ["plain", "wide"]},
            "block.factor": {
                "min": 1.0, "max": 4.0, "distribution": "q_uniform", "q": 1,
                "when": {"block": "wide"},
            },
        },
    },
    "hydra": {
        "program": "train.py", "command": ["${interpreter}", "${program}", "${args_no_hyphens}"],
        "method": "tpe", "run_cap": 20, "metric": {"name": "value", "goal": "maximize"},
        "parameters": {
            "model.lr": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "model.depth": {"values": [2, 4, 6]},
            "optimizer": {"values": ["adam", "sgd"]},
            "dropout": {"values": [0.1, 0.5]},
            "epochs": {"value": 5},
        },
    },
    "optuna": {
        "program": "search.py", "method": "cmaes", "run_cap": 40,
        "metric": {"name": "value", "goal": "maximize"},
        "schedule": {"policy": {"name": "median", "min_trials": 5}},
        "parameters": {
            "lr": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "kind": {"values": ["svc", "forest", "knn"]},
            "c": {"values": [0.5, 1.0, 1.5, 2.0], "when": {"kind": "svc"}},
            "depth": {
                "min": 2, "max": 32, "distribution": "q_log_uniform_values",
                "when": {"kind": "forest"},
            },
            "k": {"min": 1, "max": 9, "when": {"kind": "knn"}},
        },
    },
    "ray": {
        "program": "search.py", "method": "random", "run_cap": 25,
        "metric": {"name": "acc", "goal": "maximize"},
        "schedule": {"policy": {"name": "asha", "eta": 4}},
        "parameters": {
            "lr": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "layers": {"min": 1, "max": 4},
            "width": {"values": [64, 128]},
            "optimizer.name": {"values": ["adam", "sgd"]},
            "optimizer.decay": {"value": 0.01},
        },
    },
}  # fmt: skip
FILES = {
    "wandb": WANDB, "katib": KATIB, "determined": DETERMINED, "nni": NNI, "hydra": HYDRA,
    "optuna": OPTUNA, "ray": RAY,
}  # fmt: skip
NOTES = {
    "wandb": ["depth: the value null was left out", "left out: metric.target"],
    "katib": ["left out: the image example/mnist", "each trial that reaches it"],
    "determined": ["the first rung is at 1/256 of what a trial", "left out: environment"],
    "nni": ["left out: pair, whose values are several", "left out: trainingService"],
    "hydra": ["left out: data, as glob(*) is not understood", "script with @hydra.main"],
    "optuna": ["left out: line 15, whose suggest_int is given a value that is not written out"],
    "ray": ["left out: twice (line 10), whose value is not written out"],
}


def converted(
    tmp_path: Path, tool: str, text: str, name: str = "search.yaml"
) -> tuple[dict[str, Any], str]:
    """The study file, and what was said with it."""
    (tmp_path / "space.json").write_text(SPACE)
    file = tmp_path / ("search.py" if tool in ("optuna", "ray") else name)
    file.write_text(text)
    run = CliRunner().invoke(app, ["convert", str(file), "--from", tool])
    assert run.exit_code == 0, run.output
    return yaml.safe_load(run.stdout), run.stderr


@pytest.mark.parametrize("tool", FILES)
def test_a_search_is_the_same_and_the_rest_is_named(tmp_path: Path, tool: str) -> None:
    data, said = converted(tmp_path, tool, FILES[tool])
    assert data == EXPECTED[tool]
    for words in NOTES[tool]:
        assert words in " ".join(said.split())
    assert "to fix:" not in said


SWEEP = """
import math, wandb
metric = {"name": "loss", "goal": "minimize"}
base = {"optimizer": {"values": ["adam", "sgd"]}}
space = {
    **base,
    "lr": {"distribution": "log_uniform_values", "min": 0.001, "max": 0.1},
    "width": {"min": 1, "max": math.floor(8.5)},
}
sweep = {"method": "bayes", "run_cap": 9, "command": "\\n- python3\\n- run.py\\n- ${args}"}
sweep["metric"] = metric
sweep["parameters"] = space
wandb.agent(wandb.sweep(sweep))
"""
EXPERIMENT = """
from nni.experiment import Experiment
space = {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}}
experiment = Experiment("local")
experiment.config.trial_command = "python3 train.py"
experiment.config.search_space = space
experiment.config.tuner.name = "TPE"
experiment.config.tuner.class_args["optimize_mode"] = "maximize"
experiment.config.max_trial_number = 10
experiment.config.max_experiment_duration = hours
experiment.run(8080)
"""


def test_what_starts_a_search_of_wandb_or_nni_may_be_a_program(tmp_path: Path) -> None:
    data, said = converted(tmp_path, "wandb", SWEEP, "search.py")
    space = data.pop("parameters")
    assert data == {
        "command": ["python3", "run.py", "${args}"], "method": "tpe", "run_cap": 9,
        "metric": {"name": "loss", "goal": "minimize"},
    }  # fmt: skip
    assert space["optimizer"] == {"values": ["adam", "sgd"]}
    assert space["lr"] == {"distribution": LOG, "min": 0.001, "max": 0.1}
    assert "left out: parameters.width.max (line 8), whose value is not written out" in said
    data, said = converted(tmp_path, "nni", EXPERIMENT, "search.py")
    assert data == {
        "command": ["python3", "train.py", "${args}"], "method": "tpe", "run_cap": 10,
        "metric": {"name": "default", "goal": "maximize"},
        "parameters": {"lr": {"min": 0.0001, "max": 0.1, "distribution": LOG}},
    }  # fmt: skip
    assert "left out: maxExperimentDuration (line 10)" in said


def test_casts_and_named_ends_of_hydra_are_understood(tmp_path: Path) -> None:
    text = """
hydra:
  sweeper:
    direction: ${mode}imize
    params:
      depth: int(interval(2, 9))
      width: range(start=8, stop=33, step=8)
      fold: shuffle(range(1, 4))
"""
    data, said = converted(tmp_path, "hydra", text)
    assert data["parameters"] == {
        "depth": {"min": 2, "max": 9},
        "width": {"values": [8, 16, 24, 32]},
        "fold": {"values": [1, 2, 3]},
    }
    assert "left out: the goal ${mode}imize, which is not understood" in said


@pytest.mark.parametrize("tool", ["katib", "nni", "optuna"])
def test_what_it_writes_is_a_study_that_can_be_drawn(tmp_path: Path, tool: str) -> None:
    (tmp_path / "space.json").write_text(SPACE)
    (tmp_path / "train.py").touch()
    file = tmp_path / ("search.py" if tool in ("optuna", "ray") else "search.yaml")
    file.write_text(FILES[tool])
    study = tmp_path / "study.yaml"
    words = ["convert", str(file), "--from", tool, "--to", str(study)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 2, "it is there already"
    (tmp_path / "none").mkdir()
    run = CliRunner(env={"HERMES_STATE": str(tmp_path / "none"), "HERMES_HEAD": None}).invoke(
        app, ["preview", str(study), "-o", "json"]
    )
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("katib", "kind: Job\n", "expected `kind: Experiment`"),
        ("wandb", "{", "not YAML"),
        ("wandb", "method: grid\n", "no hyper-parameters were found"),
        ("determined", "hyperparameters: [1]\n", "expected a file for determined"),
        (
            "nni",
            "searchSpaceFile: none.json\n",
            "none.json: not readable: No such file or directory",
        ),
        ("hydra", "defaults: []\n", "expected a configuration with `hydra: sweeper:`"),
        ("ray", "def (:", "not Python"),
        ("optuna", "import optuna\n", "no hyper-parameters were found"),
        ("optuna", "SQLite format 3\0\x10", "not Python"),
        ("optuna", "SQLite\udcff", "expected text: a script or a YAML file, not a database"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(
    tmp_path: Path, tool: str, text: str, words: str
) -> None:
    file = tmp_path / "search"
    file.write_bytes(text.encode(errors="surrogateescape"))
    run = CliRunner().invoke(app, ["convert", str(file), "--from", tool])
    assert run.exit_code == 2
    assert words in run.output.replace("\n", " ")
    assert "Traceback" not in run.output


def objective(*lines: str, above: str = "") -> str:
    """A program whose objective begins with these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"import optuna\n{above}\ndef objective(trial):\n{body}"


def katib(space: str, kind: str = "int") -> str:
    return (
        f"kind: Experiment\nspec:\n  parameters:\n"
        f"  - {{name: x, parameterType: {kind}, feasibleSpace: {space}}}\n"
    )


@pytest.mark.parametrize(
    ("tool", "text", "axis"),
    [
        ("optuna", objective('trial.suggest_int("x", 1, 9, step=2)'), [1, 3, 5, 7, 9]),
        ("optuna", objective('trial.suggest_int("x", 1, 9, 3)'), [1, 4, 7]),
        ("optuna", objective('trial.suggest_float("x", 0.1, 0.9, step=0.4)'), [0.1, 0.5, 0.9]),
        ("optuna", objective('trial.suggest_float("x", 0, 2, step=1)'), [0.0, 1.0, 2.0]),
        ("katib", katib('{min: "1", max: "9", step: "4"}'), [1, 5, 9]),
        ("katib", katib('{min: "0.1", max: "0.9", step: "0.4"}', "double"), [0.1, 0.5, 0.9]),
        ("hydra", "hydra: {sweeper: {search_space: {x: {type: int, low: 1, high: 8, step: 3}}}}",
         [1, 4, 7]),
        ("hydra", "hydra: {sweeper: {params: {x: 'range(0.1, 0.8, 0.2)'}}}", [0.1, 0.3, 0.5, 0.7]),
    ],
)  # fmt: skip
def test_steps_are_counted_from_the_lower_bound(
    tmp_path: Path, tool: str, text: str, axis: list[float]
) -> None:
    data, said = converted(tmp_path, tool, text)
    assert data["parameters"]["x"] == {"values": axis}
    assert "to fix:" not in said


def test_of_very_many_steps_those_that_no_distribution_has_are_named(tmp_path: Path) -> None:
    text = objective(
        'trial.suggest_int("even", 2, 100_000, step=2)',
        'trial.suggest_int("odd", 1, 100_000, step=2)',
    )
    data, said = converted(tmp_path, "optuna", text)
    even = {"min": 2, "max": 100_000, "distribution": "q_uniform", "q": 2}
    assert data["parameters"] == {"even": even}
    assert "left out: odd, as no distribution has its 50,000 values" in said.replace("\n", " ")
    ranges = "hydra: {sweeper: {params: {x: 'range(0, 5000)', y: 'range(1, 5000, 2)', z: '1, 2'}}}"
    data, said = converted(tmp_path, "hydra", ranges)
    assert data["parameters"] == {"x": {"min": 0, "max": 4999}, "z": {"values": [1, 2]}}
    assert "left out: y, as no distribution has its 2,500 values" in said.replace("\n", " ")


NUMBER = 'trial.suggest_int("n", 1, N)'


@pytest.mark.parametrize(
    "text",
    [
        objective(NUMBER, above="N = 10\nN *= 5\n"),
        objective(NUMBER, above="N = 10\nfor N in range(3): pass\n"),
        objective(NUMBER, above="N = 10\nwith open('f') as N: pass\n"),
        objective(NUMBER, above="N = 10\ntry: pass\nexcept OSError as N: pass\n"),
        objective(NUMBER, above="N = 10\nfrom sizes import N\n"),
        objective(NUMBER, above="N = 10\ndef change():\n    global N\n"),
        objective(NUMBER, above="N = 10\nprint(N := 4)\n"),
        objective(NUMBER, above="N = 10\nN, M = 4, 5\n"),
        objective(NUMBER, above="N = 10\nN: int = 5\n"),
        objective(NUMBER, above="N = 10\ndef other(N=5): pass\n"),
        objective(NUMBER, above="N = 10\nmatch 4:\n    case N: pass\n"),
        objective(NUMBER, above="def other():\n    N = 10\n"),
        objective(NUMBER, above="class Sizes:\n    N = 10\n"),
        objective('trial.suggest_categorical("n", N)', above="N = [1, 2]\nN.append(3)\n"),
        objective('trial.suggest_categorical("n", N)', above="N = [1, 2]\nN[0] = 3\n"),
    ],
)
def test_a_name_that_may_have_another_value_is_not_known(tmp_path: Path, text: str) -> None:
    text += '    trial.suggest_int("m", 1, 2)\n'
    data, said = converted(tmp_path, "optuna", text)
    assert data["parameters"] == {"m": {"min": 1, "max": 2}}
    assert "is not written out" in " ".join(said.split()), said


def test_a_name_given_one_value_in_or_around_the_function_is_known(tmp_path: Path) -> None:
    inner = objective('N = 7; trial.suggest_int("n", LOW, N)', above="LOW = 2\n")
    assert converted(tmp_path, "optuna", inner)[0]["parameters"] == {"n": {"min": 2, "max": 7}}
    outer = (
        "def main():\n    N = 7\n    def objective(trial):\n        trial.suggest_int('n', 1, N)\n"
    )
    assert converted(tmp_path, "optuna", outer)[0]["parameters"] == {"n": {"min": 1, "max": 7}}


def test_settings_of_a_search_that_do_not_stand_there_are_named(tmp_path: Path) -> None:
    text = objective('trial.suggest_int("n", 1, 2)') + (
        "sampler = optuna.samplers.RandomSampler()\n"
        "if slow: sampler = optuna.samplers.GPSampler()\n"
        "study = optuna.create_study(sampler=sampler, direction=sys.argv[1])\n"
        "study.optimize(objective, n_trials=10 * many)\n"
    )
    said = converted(tmp_path, "optuna", text)[1].replace("\n", " ")
    for key in ("sampler (line 7)", "direction (line 7)", "n_trials (line 8)"):
        assert f"left out: {key}, whose value is not written out" in said


KIND = 'kind = trial.suggest_categorical("kind", ["a", "b"])'
ITEM = KIND.replace("kind =", 'p = {}; p["kind"] =')
BELOW = 'trial.suggest_int("n", 1, 2)'
FLAG = 'flag = trial.suggest_categorical("flag", [True, False])'


@pytest.mark.parametrize(
    ("lines", "when"),
    [
        ((KIND, 'if kind != "a":'), {"kind": "b"}),
        ((KIND, 'if not kind == "a":'), {"kind": "b"}),
        ((KIND, 'if kind not in ("b",):'), {"kind": "a"}),
        ((KIND, 'if trial.params["kind"] == "a":'), {"kind": "a"}),
        ((f"if {KIND.partition(' = ')[2]} == 'b':",), {"kind": "b"}),
        ((ITEM, 'p["other"] = 3', "if p['kind'] == 'b':"), {"kind": "b"}),
        ((f'p = {{"kind": {KIND.partition(" = ")[2]}}}', 'if p["kind"] == "b":'), {"kind": "b"}),
        ((FLAG, "if flag:"), {"flag": True}),
        ((FLAG, "if not flag:"), {"flag": False}),
        ((FLAG, KIND, 'if flag and kind == "a":'), {"flag": True, "kind": "a"}),
    ],
)
def test_conditions_on_what_was_asked_for_become_a_when(
    tmp_path: Path, lines: tuple[str, ...], when: dict[str, object]
) -> None:
    data, said = converted(tmp_path, "optuna", objective(*lines, f"    {BELOW}"))
    assert data["parameters"]["n"] == {"min": 1, "max": 2, "when": when}
    assert "condition" not in said


@pytest.mark.parametrize(
    "lines",
    [
        (KIND, "if kind:", f"    {BELOW}"),
        (KIND, 'if kind == "a" and deep:', f"    {BELOW}"),
        (ITEM, 'p["kind"] = "a"', 'if p["kind"] == "a":', f"    {BELOW}"),
        (ITEM, "p = {}", 'if p["kind"] == "a":', f"    {BELOW}"),
        (ITEM, "p.update(q)", 'if p["kind"] == "a":', f"    {BELOW}"),
        (KIND, "if deep:", f"    {BELOW}"),
        (KIND, "if deep:", "    pass", "else:", f"    {BELOW}"),
        (KIND, 'kind = "a"', 'if kind == "a":', f"    {BELOW}"),
        # Another one's.
        (KIND, 'if best.params["kind"] == "a":', f"    {BELOW}"),
        (KIND, 'if study.best_trial.params["kind"] == "a":', f"    {BELOW}"),
        (KIND, 'if find(trial).params["kind"] == "a":', f"    {BELOW}"),
        (KIND, 'if kind in "ab":', f"    {BELOW}"),
        (KIND, f"deep and {BELOW}"),
        (KIND, f"n = {BELOW} if deep else 1"),
        (KIND, "while deep:", f"    {BELOW}"),
        (KIND, "match kind:", '    case "a":', f"        {BELOW}"),
        (KIND, "if deep: return 1.0", BELOW),
    ],
)
def test_a_condition_that_is_not_understood_is_named(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    data, said = converted(tmp_path, "optuna", objective(*lines))
    assert data["parameters"]["n"] == {"min": 1, "max": 2}
    line = next(i for i, one in enumerate(lines) if "suggest_int" in one or one[-1] == ":")
    line = next((i for i, one in enumerate(lines) if one.startswith(("if", "match"))), line)
    assert f"left out: the condition of line {line + 4}," in said.replace("\n", " ")


def test_a_condition_on_what_an_objects_own_trial_was_asked_for_becomes_a_when(
    tmp_path: Path,
) -> None:
    lines = (KIND, 'if trial.params["kind"] == "a":', f"    {BELOW}")
    text = objective(*(line.replace("trial.", "self.trial.") for line in lines))
    data, said = converted(tmp_path, "optuna", text)
    assert data["parameters"]["n"] == {"min": 1, "max": 2, "when": {"kind": "a"}}
    assert "condition" not in said


def test_a_condition_within_an_expression_becomes_a_when(tmp_path: Path) -> None:
    text = objective(KIND, f'n = {BELOW} if kind == "b" else 0', "if slow: raise ValueError")
    data, said = converted(tmp_path, "optuna", text)
    assert data["parameters"]["n"] == {"min": 1, "max": 2, "when": {"kind": "b"}}
    assert "condition" not in said


def determined(space: str, searcher: str = "random") -> str:
    return f"hyperparameters:\n  x: {space}\nsearcher: {{name: {searcher}}}\n"


@pytest.mark.parametrize("entry", [
    "python3 -m determined.launch.torch_distributed python3 train.py --epochs 3",
    "[python3, -m, determined.launch.deepspeed, --, python3, train.py, --epochs, 3]",
    "python3 -m determined.launch.torch_distributed --nnodes 1 -- python3 train.py --epochs 3",
])  # fmt: skip
def test_a_launcher_of_determineds_is_left_out_and_its_slots_become_devices(
    tmp_path: Path, entry: str
) -> None:
    text = determined("{type: double, minval: 0, maxval: 1}")
    text += f"entrypoint: {entry}\nresources: {{slots_per_trial: 2}}\n"
    data, said = converted(tmp_path, "determined", text)
    assert data["resources"] == {"devices": 2}
    assert data["command"] == ["python3", "train.py", "--epochs", "3", "${args}"]
    assert "left out: determined.launch." in said


def test_the_class_that_a_launcher_of_determineds_is_given_is_named(tmp_path: Path) -> None:
    text = determined("{type: double, minval: 0, maxval: 1}")
    text += "entrypoint: python3 -m determined.launch.horovod --autotune -- --trial model:Net\n"
    data, said = converted(tmp_path, "determined", text)
    assert data["program"] == "model.py"
    assert "model:Net is a class for Determined" in said


def test_a_launcher_of_determineds_that_is_given_nothing_names_no_command(tmp_path: Path) -> None:
    text = determined("{type: double, minval: 0, maxval: 1}")
    for behind in ("", " --", " --autotune -- --trial"):
        entry = f"entrypoint: python3 -m determined.launch.horovod{behind}\n"
        data, said = converted(tmp_path, "determined", text + entry)
        assert (data["program"], "command" in data) == ("train.py", False)
        assert "program: the file doesn't name it" in said


LAUGHS = "".join(f"x{i}: &x{i} [{f'*x{i - 1}, ' * 10}]\n" for i in range(1, 10))
MERGES = "".join(f"x{i}: &x{i} {{<<: [{f'*x{i - 1}, ' * 10}]}}\n" for i in range(1, 10))
LONG = f"x0: &x0 {'a' * 10_000}\nparameters: {{x: {{values: [{'*x0, ' * 1_000}]}}}}\n"
PYTHON_LAUGHS = "x0 = ['a']\n" + "".join(
    f"x{i} = [{f'x{i - 1}, ' * 10}]\n" for i in range(1, 10)
)  # fmt: skip


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Python's recursion limit as a command has it: other tests' libraries raise it for good."""
    raised = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(raised)


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("optuna", objective('trial.suggest_categorical("x", ages)', above="ages = [ages]"),
         "search:2: ages: expected a value that is not made of itself"),
        ("optuna", objective('trial.suggest_categorical("x", x9)', above=PYTHON_LAUGHS),
         "expected at most 256 KiB where each name is written out"),
        ("optuna", objective('trial.suggest_int("x", 1, 1e999)'),
         "x.high: inf: expected a whole number of 64 bits"),
        ("optuna", objective('trial.suggest_int("x", 1, 9, step=0)'), "x: 1 to 9 by 0: expected"),
        ("optuna", "x = " + "+".join(["1"] * 900), "less nesting"),
        ("ray", "tune.run(f, config={'x': tune.choice([list(range(9999)) for i in range(9999)])})",
         "expected at most 256 KiB where each name is written out"),
        ("ray", "tune.run(f, config={'x': tune.choice([i for i in range(10**12)])})",
         "no hyper-parameters were found"),
        ("wandb", "method: grid\nparameters: &a {x: {parameters: *a}}\n",
         ": an alias: expected at most 100 levels"),
        ("wandb", f"x0: &x0 [a]\n{LAUGHS}parameters: {{x: {{values: *x9}}}}\n",
         "expected at most 2 MiB where each alias"),
        ("wandb", f"x0: &x0 {{a: 1}}\n{MERGES}parameters: {{x: *x9}}\n",
         "expected at most 2 MiB where each alias"),
        ("wandb", LONG, "expected at most 2 MiB where each alias"),
        ("wandb", f"parameters: {{x: {{value: 1{':1' * 9000}}}}}\n",
         "expected a number of at most 100 digits"),
        ("determined", determined("{type: log, minval: 400, maxval: 401}"),
         "search: x.minval: 400: expected an exponent of the base"),
        ("determined", determined("{type: log, minval: -1, maxval: 1e9}"),
         "search: x.maxval: 1e9: expected an exponent of the base"),
        ("determined", determined("{type: log, minval: -1000000000, maxval: 1}"),
         "search: x.minval: -1000000000: expected an exponent of the base"),
        ("determined", determined("{type: log, base: -2, minval: 1, maxval: 2}"),
         "search: x.base: -2: expected a number above 0"),
        ("determined", determined("{type: int, minval: 1, maxval: 9, count: 1e12}", "grid"),
         "search: x.count: 1e12: expected from 1 to 10,000"),
        ("determined", determined("{type: int, minval: low, maxval: 9}"),
         "search: x.minval: low: expected a whole number of 64 bits"),
        ("hydra", "hydra: {sweeper: {params: {x: 'range(0, 1, 0)'}}}",
         "search: x: range(0, 1, 0): expected a range of at least one value"),
        ("katib", katib("{min: .inf, max: 1}"), "x.feasibleSpace.min: inf: expected a whole"),
        ("nni", "searchSpace: {x: {_type: randint, _value: [0, .inf]}}\n",
         "search: x: inf: expected a whole number of 64 bits"),
    ],
)  # fmt: skip
def test_what_has_no_end_or_no_number_is_refused_where_it_stands(
    tmp_path: Path, usual_depth: None, tool: str, text: str, words: str
) -> None:
    file = tmp_path / "search"
    file.write_text(text)
    run = CliRunner().invoke(app, ["convert", str(file), "--from", tool])
    assert run.exit_code == 2, run.output
    assert words in run.output.replace("\n", " ")
    assert str(file) in run.output.replace("\n", "")


RAY_KEY_BY_KEY = """
space = dict(rate=tune.loguniform(1e-4, 1e-1), model=dict(size=tune.choice([16, 32])))
space["dropout"] = tune.uniform(0, 1)
algorithm.training(gamma=tune.uniform(0.9, 0.99))
best = tune.schedulers.ASHAScheduler(
    metric="accuracy", mode="max", max_t=10, grace_period=2, reduction_factor=2
)
tune.run(train, config=space, num_samples=3, scheduler=best, resources_per_trial={"gpu": 1})
"""


def test_a_space_of_ray_may_be_made_key_by_key_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    study, notes = converted(tmp_path, "ray", RAY_KEY_BY_KEY)
    assert sorted(study["parameters"]) == ["dropout", "model.size", "rate"]
    assert study["metric"] == {"name": "accuracy", "goal": "maximize"}
    assert "left out: tune.uniform(0.9, 0.99) (line 4), which is in no dict" in notes
    assert study["schedule"] == {"policy": {"name": "asha", "eta": 2, "min_rung": "1/5"}}
    assert "the first rung is at 1/5 of what a trial's program trains for" in notes
    assert "ASHAScheduler." not in notes, "nothing of it is left out"
    assert "a device is one GPU" in notes
    assert "resources" not in study


RAY_CALCULATED = """
import random
import numpy as np
from ray import tune

base = 2
def main(samples=10, most=5, gpus=1):
    config = {
        "width": tune.choice([base**i for i in range(4, 7)]),
        "dropout": tune.choice([i / 5 for i in range(3)]),
        "layers": tune.grid_search(list(range(1, 9, 3))),
        "hidden": tune.sample_from(lambda _: 2 ** np.random.randint(2, 5)),
        "heads": tune.sample_from(lambda spec: random.randint(1, 3)),
        "cell": tune.sample_from(lambda _: random.choice(["gru", "lstm"])),
        "both": tune.sample_from(lambda _: np.random.randint(2) * np.random.randint(3)),
        "huge": tune.choice([9 ** i for i in range(98, 100)]),
        "none": tune.choice([1 / i for i in range(3)]),
        "some": tune.choice([i for i in range(9) if i % 2]),
        "step": tune.choice([1, samples]),
    }
    tune.run(train, config=config, num_samples=samples, resources_per_trial={"gpu": gpus})

main(30, gpus=2)
"""


def test_values_that_are_calculated_from_numbers_of_the_file_are_carried_over(
    tmp_path: Path,
) -> None:
    study, notes = converted(tmp_path, "ray", RAY_CALCULATED)
    values = {name: axis["values"] for name, axis in study["parameters"].items()}
    assert values == {
        "width": [16, 32, 64],
        "dropout": [0.0, 0.2, 0.4],
        "layers": [1, 4, 7],
        "hidden": [4, 8, 16],
        "heads": [1, 2, 3],
        "cell": ["gru", "lstm"],
    }
    assert (study["run_cap"], study["resources"]) == (90, {"devices": 2, "processes": "one"})
    for name in ("both", "huge", "none", "some", "step"):
        assert f"left out: {name} (line" in notes


RAY_DRAWS = """
{}
from ray import tune
tune.run(f, config={{"x": tune.sample_from(lambda _: {}), "y": tune.choice([1, 2])}})
"""


@pytest.mark.parametrize(
    ("imports", "drawn", "values"),
    [
        ("import random", "random.randint(1, 3)", [1, 2, 3]),
        ("import random as rnd", "rnd.randint(1, 3)", [1, 2, 3]),
        ("from random import randint", "randint(1, 3)", [1, 2, 3]),
        ("from numpy import random", "random.randint(1, 3)", [1, 2]),
        ("import numpy.random as npr", "npr.randint(1, 3)", [1, 2]),
        ("import torch", "torch.randint(1, 3)", None),
        ("rng = make()", "rng.randint(1, 3)", None),
        ("import random, numpy.random as random", "random.randint(1, 3)", None),
    ],
)
def test_what_a_draw_of_ray_s_may_come_to_is_told_by_what_was_imported(
    imports: str, drawn: str, values: list[int] | None, tmp_path: Path
) -> None:
    study, notes = converted(tmp_path, "ray", RAY_DRAWS.format(imports, drawn))
    assert study["parameters"].get("x") == (values and {"values": values})
    assert ("left out: x (line" in notes) is (values is None)


RAY_CALLED = """
from ray import tune
def main(samples=10, gpus=1.0):
    tune.run(f, config={{"x": tune.uniform(0, 1)}}, num_samples=samples,
             resources_per_trial={{"gpu": gpus}})
{}
"""


@pytest.mark.parametrize(
    ("calls", "run_cap"),
    [
        ("", 10),
        ("main()", 10),
        ("main(5)", 5),
        ("main(5); main(samples=5)", 5),
        ("main(1); main(50)", 20),  # what convert gives where nothing is known
        ("main(); main(50)", 20),
        ("main(**options)", 20),
    ],
)
def test_how_many_trials_ray_runs_is_what_all_calls_give(
    calls: str, run_cap: int, tmp_path: Path
) -> None:
    study, notes = converted(tmp_path, "ray", RAY_CALLED.format(calls))
    assert study["run_cap"] == run_cap
    assert ("left out: num_samples (line" in notes) is (run_cap == 20)


def test_whole_numbers_of_gpus_are_devices_however_written(tmp_path: Path) -> None:
    study, notes = converted(tmp_path, "ray", RAY_CALLED.format("main(5, 2.0)"))
    assert study["resources"] == {"devices": 2, "processes": "one"}
    assert "left out: the resources" not in notes


@pytest.mark.parametrize(
    ("scheduler", "policy", "left"),
    [
        ("ASHAScheduler()", {"name": "asha", "eta": 4}, ""),  # Ray's own; here it is 3
        ("ASHAScheduler(reduction_factor=3.0)", {"name": "asha", "eta": 3}, ""),
        ("ASHAScheduler(reduction_factor=unknown)", "asha", "reduction_factor"),
        ("ASHAScheduler(reduction_factor=2.5, max_t=9)", "asha", "reduction_factor, S.max_t"),
        (
            "ASHAScheduler(time_attr='epoch', max_t=9, brackets=2)",
            {"name": "asha", "eta": 4, "min_rung": "1/9"},
            "brackets",
        ),
        ("ASHAScheduler(grace_period=3)", {"name": "asha", "eta": 4}, "grace_period"),
        ("HyperBandScheduler()", {"name": "hyperband", "eta": 3}, ""),
        (
            "HyperBandScheduler(max_t=27)",
            {"name": "hyperband", "eta": 3, "min_rung": "1/27"},
            "",
        ),
        (
            "MedianStoppingRule(grace_period=5, min_samples_required=4)",
            {"name": "median", "min_trials": 4},
            "grace_period",
        ),
    ],
)
def test_of_the_settings_of_rays_schedulers_what_a_policy_has_is_kept_and_the_rest_named(
    scheduler: str, policy: Any, left: str, tmp_path: Path
) -> None:
    text = 'tune.run(f, config={"x": tune.uniform(0, 1)}, num_samples=3, scheduler=%s)'
    study, notes = converted(tmp_path, "ray", text % scheduler)
    assert study["schedule"]["policy"] == policy
    name = scheduler.partition("(")[0]
    said = [line for line in notes.splitlines() if f"left out: {name}" in line]
    assert [line.partition("left out: ")[2] for line in said] == (
        [f"{name}.{left}".replace("S.", f"{name}.")] if left else []
    )


@pytest.mark.parametrize(
    ("kind", "before", "after", "policy", "left"),
    [
        (
            "optuna",
            "MedianPruner()",
            "HyperbandPruner(min_resource=2, max_resource=30, bootstrap_count=1)",
            {"name": "hyperband", "eta": 3, "min_rung": "1/15"},
            "HyperbandPruner.bootstrap_count",
        ),
        (
            "katib",
            "earlyStopping: {algorithmName: medianstop}",
            "earlyStopping:\n    algorithmName: medianstop\n    algorithmSettings:"
            ' [{name: min_trials_required, value: "4"}, {name: start_step, value: "6"}]',
            {"name": "median", "min_trials": 4},
            "medianstop.start_step",
        ),
        (
            "nni",
            "tuner: {name: Evolution, classArgs: {optimize_mode: minimize}}\n"
            "assessor: {name: Medianstop}",
            "advisor: {name: Hyperband, classArgs: {R: 60, exec_mode: serial}}",
            {"name": "hyperband", "eta": 3, "min_rung": "1/60"},
            "Hyperband.exec_mode",
        ),
        (
            "determined",
            "max_length: {batches: 900}",
            "max_length: {batches: 20}\n  max_rungs: 9\n  divisor: 2\n  mode: conservative",
            {"name": "asha", "eta": 2, "min_rung": "1/16"},
            "adaptive_asha.mode",
        ),
    ],
)
def test_so_are_those_of_other_tools(
    kind: str, before: str, after: str, policy: Any, left: str, tmp_path: Path
) -> None:
    text = FILES[kind]
    assert before in text
    study, notes = converted(tmp_path, kind, text.replace(before, after))
    assert study["schedule"]["policy"] == policy
    assert f"left out: {left}" in notes


SEVERAL_GOALS = {
    "optuna": """
import optuna
def objective(trial):
    return trial.suggest_float("x", 0, 1), 2
sampler = optuna.samplers.TPESampler(seed=7, constraints_func=bounds)
study = optuna.create_study(directions=["minimize", "maximize", "?"], sampler=sampler)
study.optimize(objective, n_trials=5, timeout=60)
""",
    "hydra": """
defaults: [{override /hydra/sweeper: optuna}]
hydra:
  sweeper:
    sampler: {seed: 7, constraints_func: bounds}
    direction: [minimize, maximize, '?']
    n_trials: 5
    timeout: 60
    params: {x: "interval(0, 1)"}
""",
}


@pytest.mark.parametrize("tool", SEVERAL_GOALS)
def test_several_goals_are_objectives_and_a_sampler_s_settings_are_named(
    tmp_path: Path, tool: str
) -> None:
    study, notes = converted(tmp_path, tool, SEVERAL_GOALS[tool])
    assert study["metric"] == {"name": "value", "goal": "minimize"}
    assert study["objectives"] == {"value_1": "maximize"}
    assert (study["method"], study["seed"], study["run_cap"]) == ("tpe", 7, 5)
    assert "constraints_func" in notes
    assert "timeout" in notes
    assert "left out: the goal ?, which is not understood" in notes


@pytest.mark.parametrize(
    ("sweeper", "method", "goal"),
    [
        ("ax_config: {max_trials: 30, experiment: {minimize: false}, ", "gp", "maximize"),
        ("optim: {budget: 30, maximize: true}, search_space: {", "random", "maximize"),
    ],
)
def test_sweepers_of_hydra_say_in_their_own_words_how_many_and_which_way(
    tmp_path: Path, sweeper: str, method: str, goal: str
) -> None:
    name = "ax" if "ax_config" in sweeper else "nevergrad"
    inner = "params: {x: {type: range, bounds: [0, 1]}}" if name == "ax" else ""
    space = inner or "x: {lower: 0.0, upper: 1.0}"
    text = f"defaults: [{{override hydra/sweeper: {name}}}]\nhydra: {{sweeper: {{{sweeper}"
    study, _ = converted(tmp_path, "hydra", f"{text}{space}}}}}}}")
    assert (study["method"], study["run_cap"], study["metric"]["goal"]) == (method, 30, goal)


def test_a_program_of_several_kinds_of_processes_runs_what_they_run(tmp_path: Path) -> None:
    text = "searchSpacePath: space.json\ntrial: {codeDir: ., gpuNum: 1, worker: {command: ./go}}"
    study, notes = converted(tmp_path, "nni", text)
    assert study["command"] == ["./go", "${args}"]
    assert "left out: trial.gpuNum" in notes


def test_population_based_training_is_named_as_a_policy(tmp_path: Path) -> None:
    text = katib("{min: '1', max: '2'}") + "  algorithm: {algorithmName: pbt}\n"
    _, notes = converted(tmp_path, "katib", text)
    assert "left out: pbt; the policy `pbt` needs `ready`, the steps of a round" in notes


@pytest.mark.parametrize(
    ("tool", "text", "expected", "notes"),
    [
        pytest.param(
            "optuna",
            "import optuna\n"
            "def objective(trial):\n    return trial.suggest_float('x', -5, 5)\n"
            "study = optuna.create_study(storage='sqlite:///a.db', study_name='found')\n"
            "study.optimize(objective, n_trials=9)\n",
            {"name": "found", "run_cap": 9},
            ["left out: storage"],
            id="a study in a database",
        ),
        pytest.param(
            "optuna",
            "def space(trial):\n    return {'rate': trial.suggest_float('rate', 0.1, 0.2)}\n"
            "trainer.hyperparameter_search(hp_space=space, n_trials=20, backend='optuna',\n"
            "    direction=['minimize', 'maximize'], sampler=own)\n",
            {"run_cap": 20, "objectives": {"value_1": "maximize"}},
            ["left out: sampler"],
            id="the search of a Trainer",
        ),
        pytest.param(
            "ray",
            "from ray import tune\n"
            "tune.run(train, name='both', num_samples=3, config={\n"
            "    'rate': tune.uniform(0, 1), 'a': tune.grid_search([1, 2]),\n"
            "    'inner': {'b': tune.grid_search([1, 2, 3, 4])}})\n",
            {"name": "both", "run_cap": 24},
            ["grid_search beside what is drawn: its values are drawn, too"],
            id="a grid that is drawn at several times",
        ),
        pytest.param(
            "wandb",
            "import wandb\n"
            "config = {'method': 'random', 'parameters': {'x': {'min': 0.0, 'max': 1.0}}}\n"
            "wandb.agent(wandb.sweep(config), function=main, count=7)\n",
            {"run_cap": 7},
            [],
            id="the count of an agent",
        ),
        pytest.param(
            "nni",
            "searchSpace: {x: {_type: uniform, _value: [0, 1]}}\n"
            "tuner: {codeDir: ., classFileName: own.py, className: OwnTuner}\n",
            {"method": "random"},
            ["OwnTuner: no similar method is known; random is used instead"],
            id="a tuner of one's own",
        ),
        pytest.param(
            "hydra",
            "hydra: {sweeper: {_target_: a.optuna_sweeper.OptunaSweeper, n_trials: 4,"
            " sampler: {seed: '${seed}'}, params: {x: 'interval(0, 1)'}}}\n",
            {"run_cap": 4},
            ["left out: hydra.sweeper.sampler.seed"],
            id="a seed that is elsewhere",
        ),
    ],
)
def test_nothing_of_a_search_is_lost_without_a_word(
    tmp_path: Path, tool: str, text: str, expected: dict[str, Any], notes: list[str]
) -> None:
    name = "search.py" if text.startswith("import") else "search.yaml"
    data, told = converted(tmp_path, tool, text, name)
    assert {key: data.get(key) for key in expected} == expected
    told = " ".join(told.split())
    assert [note for note in notes if note not in told] == []
