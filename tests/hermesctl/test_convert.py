"""Other tools' search files become study files, and what could not be carried over is said."""

from __future__ import annotations

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
        "program": "train.py", "method": "tpe", "run_cap": 20, "project": "vision",
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
        "schedule": {"policy": "asha"}, "retry": {"max_failures": 3},
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
        "metric": {"name": "value", "goal": "maximize"}, "schedule": {"policy": "median"},
        "parameters": {
            "lr": {"min": 0.0001, "max": 0.1, "distribution": LOG},
            "kind": {"values": ["svc", "forest", "knn"]},
            "c": {
                "min": 0.5, "max": 2.0, "distribution": "q_uniform", "q": 0.5,
                "when": {"kind": "svc"},
            },
            "depth": {
                "min": 2, "max": 32, "distribution": "q_log_uniform_values",
                "when": {"kind": "forest"},
            },
            "k": {"min": 1, "max": 9, "when": {"kind": "knn"}},
        },
    },
    "ray": {
        "program": "search.py", "method": "random", "run_cap": 25,
        "metric": {"name": "acc", "goal": "maximize"}, "schedule": {"policy": "asha"},
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
    "wandb": ["depth: the value None was left out", "left out: metric.target"],
    "katib": ["left out: the image example/mnist", "each trial that reaches it"],
    "determined": ["left out: searcher.max_length", "left out: environment"],
    "nni": ["left out: pair, whose values are several", "left out: trainingService"],
    "hydra": ["left out: data, as glob(*) is not understood", "script with @hydra.main"],
    "optuna": ["left out: line 15, whose suggest_int is given what does not stand there"],
    "ray": ["left out: twice (line 10), whose value does not stand there"],
}


def converted(tmp_path: Path, tool: str, text: str) -> tuple[dict[str, Any], str]:
    """The study file, and what was said with it."""
    (tmp_path / "space.json").write_text(SPACE)
    file = tmp_path / ("search.py" if tool in ("optuna", "ray") else "search.yaml")
    file.write_text(text)
    run = CliRunner().invoke(app, ["convert", str(file), "--from", tool])
    assert run.exit_code == 0, run.output
    return yaml.safe_load(run.stdout), run.stderr


@pytest.mark.parametrize("tool", FILES)
def test_a_search_is_the_same_and_the_rest_is_named(tmp_path: Path, tool: str) -> None:
    data, said = converted(tmp_path, tool, FILES[tool])
    assert data == EXPECTED[tool]
    for words in NOTES[tool]:
        assert words in said.replace("\n", " ")
    assert "to be mended" not in said


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
        ("nni", "searchSpaceFile: none.json\n", "none.json: not readable"),
        ("hydra", "defaults: []\n", "expected a configuration with `hydra: sweeper:`"),
        ("ray", "def (:", "not Python"),
        ("optuna", "import optuna\n", "no hyper-parameters were found"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(
    tmp_path: Path, tool: str, text: str, words: str
) -> None:
    file = tmp_path / "search"
    file.write_text(text)
    run = CliRunner().invoke(app, ["convert", str(file), "--from", tool])
    assert run.exit_code == 2
    assert words in run.output.replace("\n", " ")
