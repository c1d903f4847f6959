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


def test_what_cannot_be_reported_is_left_out_and_said_once() -> None:
    """As under Hermes, which test_host has."""
    program = """
import trainer_shim
report = trainer_shim.attach().report
for value in (10**400, 10**5000):
    report(1, loss=value)
report(2, accuracy=None, **{chr(0xd800): 1.0})
report(2, accuracy=float("nan"))
report(1, accuracy=0.5)
report("three")
print("over")
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, "over\n")
    said = run.stderr.splitlines()
    assert len(said) == 4
    assert said[0].startswith("hermes: trial.report: value of 'loss': 1000")
    assert said[1].startswith(
        "hermes: trial.report: value of 'accuracy': None: expected one number"
    )
    assert "lone surrogates" in said[2]
    assert "step: 1: expected 2 or more" in said[3]


def test_the_package_offers_three_names() -> None:
    assert sorted(trainer_shim.__all__) == ["Resume", "Trial", "attach"]
