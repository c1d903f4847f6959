"""The explicit interface without Hermes: the same program, never suspended."""

from __future__ import annotations

import subprocess
import sys

import pytest

import trainer_shim
from tests.trainer_shim.driving import ROOT

PROGRAM = """
import trainer_shim
trial = trainer_shim.attach()
def save(folder):
    raise AssertionError("without Hermes nothing is saved")
for step in range(3):
    trial.report(step + 1, loss=1.0, save=save, accuracy=0.5)
print(trial.params, trial.resume)
"""


@pytest.mark.parametrize(
    ("variables", "printed"),
    [({}, "{} None"), ({"HERMES_PARAMETERS": '{"a": 1}'}, "{'a': 1} None")],
)
def test_a_program_runs_alone(variables: dict[str, str], printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == printed


def test_the_package_offers_three_names() -> None:
    assert sorted(trainer_shim.__all__) == ["Resume", "Trial", "attach"]
