"""A zygote forks hosts that outlive it, and knows when it must not be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import ROOT, Zygote, environment
from trainer_shim.zygote import cold_script, unfit


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    cold = Zygote(tmp_path / "z.sock")
    yield cold
    cold.close()


SHIM = str(ROOT)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ({}, {"TF_VAR_region": "eu", "LR": "0.1"}, None),
        ({"PYTHONHASHSEED": "0", "PYTHONPATH": SHIM}, {}, None),
        ({"PYTHONPATH": f"{SHIM}:/lib"}, {"PYTHONPATH": "/lib"}, None),
        ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2"}, None),
        ({}, {"TF_DETERMINISTIC_OPS": "1"}, "TF_DETERMINISTIC_OPS"),
        ({"KERAS_BACKEND": "jax"}, {}, "KERAS_BACKEND"),
        ({}, {"TORCH_CUDNN_V8_API_DISABLED": "1"}, "TORCH_CUDNN_V8_API_DISABLED"),
        ({}, {"PYTHONPATH": "/lib"}, "PYTHONPATH"),
        ({"PYTHONHASHSEED": "1"}, {}, "PYTHONHASHSEED"),
        ({"LD_LIBRARY_PATH": "/one"}, {"LD_LIBRARY_PATH": "/other"}, "LD_LIBRARY_PATH"),
    ],
)
def test_what_is_read_at_the_start_must_be_the_same(
    ours: dict[str, str], theirs: dict[str, str], word: str | None
) -> None:
    reason = unfit(ours, theirs)
    assert reason is None if word is None else word in (reason or "")


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("import keras", None),
        ("import os\nos.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'", "TF_ENABLE_ONEDNN_OPTS"),
        ("def broken(", "cannot read"),
    ],
)
def test_a_script_that_may_set_framework_variables_starts_cold(
    tmp_path: Path, script: str, word: str | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    reason = cold_script(str(path))
    assert reason is None if word is None else word in (reason or "")


def test_hosts_outlive_their_zygote(make_trial: MakeTrial, tmp_path: Path, zygote: Zygote) -> None:
    assert len(list(Path(f"/proc/{zygote.pid}/task").iterdir())) == 1
    script = "import time\nopen('up', 'w').close()\ntime.sleep(1e6)"
    trial = make_trial(script).launch(zygote)
    trial.start()
    zygote.close()
    assert not (tmp_path / "z.sock").exists()
    status = Path(f"/proc/{trial.host_pid}/status").read_text()
    assert f"PPid:\t{zygote.pid}\n" not in status
    trial.suspend("park")
    trial.until("parked")
    trial.quit()


def test_a_refusal_says_why(make_trial: MakeTrial, tmp_path: Path, zygote: Zygote) -> None:
    other = make_trial("", argv=[sys.executable, "t.py"], env=environment(TF_XLA_FLAGS="x"))
    (other.directory / "work" / "t.py").touch()
    answer = zygote.spawn(other.spec)
    assert answer["kind"] == "unfit"
    assert "TF_XLA_FLAGS" in answer["reason"]
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
