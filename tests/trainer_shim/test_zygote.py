"""A zygote forks hosts that outlive it, and knows when it must not be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Zygote, environment
from trainer_shim.zygote import warm_start_allowed


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    cold = Zygote(tmp_path / "z.sock")
    yield cold
    cold.close()


@pytest.mark.parametrize(
    ("env", "script", "word"),
    [
        ({}, "import keras", None),
        ({"TF_VAR_region": "eu"}, "", None),
        ({"TF_DETERMINISTIC_OPS": "1"}, "", "TF_DETERMINISTIC_OPS"),
        ({"KERAS_BACKEND": "jax"}, "", "KERAS_BACKEND"),
        ({"PYTHONHASHSEED": "1"}, "", "PYTHONHASHSEED"),
        ({}, "import os\nos.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'", "TF_ENABLE_ONEDNN_OPTS"),
        ({}, "def broken(", "cannot read"),
    ],
)
def test_framework_variables_demand_a_cold_start(
    tmp_path: Path, env: dict[str, str], script: str, word: str | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    reason = warm_start_allowed(env, str(path))
    assert reason is None if word is None else word in (reason or "")


def test_hosts_outlive_their_zygote(make_trial: MakeTrial, tmp_path: Path, zygote: Zygote) -> None:
    assert len(list(Path(f"/proc/{zygote.process.pid}/task").iterdir())) == 1
    script = "import time\nopen('up', 'w').close()\ntime.sleep(1e6)"
    trial = make_trial(script).launch(zygote)
    trial.start()
    zygote.close()
    assert zygote.process.returncode == 0
    assert not (tmp_path / "z.sock").exists()
    status = Path(f"/proc/{trial.host_pid}/status").read_text()
    assert f"PPid:\t{zygote.process.pid}\n" not in status
    trial.suspend("park")
    trial.until("parked")
    trial.quit()


def test_a_refusal_says_why(make_trial: MakeTrial, tmp_path: Path, zygote: Zygote) -> None:
    cold = make_trial("", env=environment(TF_XLA_FLAGS="x"))
    assert "TF_XLA_FLAGS" in zygote.spawn(cold.spec)["reason"]
    other = make_trial("", argv=["/bin/sh", "-c", "exit"])
    assert "script" in zygote.spawn(other.spec)["reason"]
    gone = tmp_path / "nowhere" / "spec.json"
    assert zygote.spawn(gone)["kind"] == "refused"


@pytest.mark.tensorflow
def test_a_zygote_with_the_framework_has_neither_grpc_nor_run_anything(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        zygote = Zygote(tmp_path / "z.sock", "keras")
    script = """
import json, sys
from tensorflow.python.eager import context
seen = [m for m in ("grpc", "keras") if m in sys.modules]
json.dump([seen, context.context()._context_handle is None], open("seen", "w"))
"""
    env = environment(TF_CPP_MIN_LOG_LEVEL="3")
    trial = make_trial(script, argv=[sys.executable, "train.py"], env=env).launch(zygote)
    trial.start()
    trial.until("completed")
    zygote.close()
    assert (trial.directory / "work" / "seen").read_text() == '[["keras"], true]'
