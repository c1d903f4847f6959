"""A study that names a conda environment runs its trials in it, whatever ran the daemons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import running

PROGRAM = """
import os, sys
import trainer_shim

print("ran in", sys.executable, os.environ["CONDA_DEFAULT_ENV"], flush=True)
trainer_shim.attach().report(1, loss=0.5)
"""


@pytest.mark.timeout(120)
async def test_trials_of_a_study_with_conda_run_in_that_environment(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "envs" / "vision"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("CONDA_ENVS_PATH", str(tmp_path / "envs"))
    state = tmp_path_factory.mktemp("h")
    async with running(state, slots=1) as cluster:
        study = await cluster.submit(
            "digits", {"train.py": PROGRAM}, {"rate": [0.1]}, python="", conda="vision"
        )
        answer = await cluster.finished(study)
    states = [types_pb2.TrialState.Name(trial.state) for trial in answer.trials]
    output = "\n".join(path.read_text() for path in state.rglob("output.log"))
    assert states == ["TRIAL_STATE_COMPLETED"], answer
    assert f"ran in {prefix}/bin/python vision" in output
