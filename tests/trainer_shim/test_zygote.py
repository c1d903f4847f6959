"""A zygote forks hosts that outlive it, and knows when it must not be used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import ROOT, Zygote, environment
from tests.trainer_shim.suspending import IMPORTING_KERAS
from trainer_shim.host import zygote as process
from trainer_shim.host.warm_start_rules import cold_program
from trainer_shim.host.zygote import unfit


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
        ({}, {"HF_HOME": "/models"}, "HF_HOME"),
        ({"PYTHONHASHSEED": "1"}, {}, "PYTHONHASHSEED"),
        ({"LD_LIBRARY_PATH": "/one"}, {"LD_LIBRARY_PATH": "/other"}, "LD_LIBRARY_PATH"),
        ({"HERMES_CPU_CORES": "0,1"}, {"HERMES_CPU_CORES": "2,3"}, None),
        ({"HERMES_CPU_CORES": "0,1"}, {"HERMES_CPU_CORES": "2"}, "2 of the cores, not 1"),
        ({"HERMES_CPU_CORES": "0"}, {}, "1 of the cores, not all"),
    ],
)
def test_what_is_read_at_the_start_must_be_the_same(
    ours: dict[str, str], theirs: dict[str, str], word: str | None
) -> None:
    reason = unfit(ours, theirs)
    assert reason is None if word is None else word in (reason or "")


SETS = "import os\nos.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'"
PACKAGE = {"lab/__init__.py": "", "lab/settings.py": SETS}


@pytest.mark.parametrize(
    ("files", "program", "word"),
    [
        ({"train.py": "import keras"}, ["train.py"], None),
        ({"train.py": SETS}, ["train.py"], "train.py names the variable TF_ENABLE_ONEDNN_OPTS"),
        ({"train.py": "def broken("}, ["train.py"], "cannot read"),
        (
            {"train.py": "import os\nos.environ.update(OMP_NUM_THREADS='1')"},
            ["train.py"],
            "OMP_NUM",
        ),
        ({"train.py": "from conf import *", "conf.py": SETS}, ["train.py"], "conf.py names"),
        ({"train.py": "import torch", "conf.py": SETS}, ["train.py"], None),
        ({"train.py": "def main():\n import lab.settings", **PACKAGE}, ["train.py"], "settings.py"),
        ({"run/train.py": "import one", "run/one.py": SETS}, ["run/train.py"], "one.py"),
        ({"lab/train.py": "from . import settings", **PACKAGE}, ["-m", "lab.train"], "settings.py"),
        ({"lab/__main__.py": "from .settings import *", **PACKAGE}, ["-m", "lab"], "settings.py"),
        ({"lab/train.py": "import keras", **PACKAGE}, ["-m", "lab.train", "TF_X"], None),
        ({"one/two/conf.py": SETS, "train.py": "import one.two.conf"}, ["train.py"], "conf.py"),
        ({"train.py": "from dotenv import load_dotenv"}, ["train.py"], "dotenv"),
        ({"train.py": 'import os\nos.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"'}, ["train.py"], None),
        ({"path/conf.py": SETS, "train.py": "import conf"}, ["train.py"], "conf.py"),
    ],
)
def test_a_program_that_may_set_framework_variables_starts_cold(
    tmp_path: Path, files: dict[str, str], program: list[str], word: str | None
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    reason = cold_program(program, str(tmp_path), {"PYTHONPATH": f"{SHIM}:path"})
    assert reason is None if word is None else word in (reason or "")


def test_an_installed_program_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By -m, and by a console script; what that imports of other packages is not."""
    site = tmp_path / "lib" / "site-packages"
    for package, text in (("lab", "import lab.conf, other, torch"), ("other", SETS)):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(text)
    (site / "lab" / "conf.py").write_text("from lab import cli")
    monkeypatch.syspath_prepend(str(site))
    assert cold_program(["-m", "lab.conf"], str(tmp_path), {}) is None
    (site / "lab" / "cli.py").write_text(SETS)
    assert "cli.py" in (cold_program(["-m", "lab.conf"], str(tmp_path), {}) or "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    script = tmp_path / "bin" / "lab"
    script.write_text("import re, sys\nfrom lab import conf\nsys.exit(conf)")
    assert "cli.py" in (cold_program([str(script)], str(tmp_path), {}) or "")


def test_an_import_of_the_programs_own_is_why_it_is_refused(
    make_trial: MakeTrial, zygote: Zygote
) -> None:
    trial = make_trial("import conf")
    (trial.directory / "work" / "conf.py").write_text(SETS)
    answer = zygote.spawn(trial.spec)
    assert answer["kind"] == "refused"
    assert "conf.py" in answer["reason"]


SPAWNING = """
import multiprocessing, os, sys, tempfile
def seen(_):
    main = sys.modules["__main__"]
    return os.getcwd(), sys.argv, main.__name__, main.__file__, sys.path, tempfile.gettempdir()
if __name__ == "__main__":
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        here = pool.map(seen, [0])
    print("SEEN", here, __file__, sys.argv, tempfile.gettempdir())
"""


@pytest.mark.parametrize("form", [["train.py", "word"], ["-m", "lab.train"]], ids=["script", "-m"])
def test_spawned_processes_are_those_of_a_plain_run(
    make_trial: MakeTrial, tmp_path: Path, form: list[str]
) -> None:
    """Though the zygote was somewhere else when it imported what spawns them."""
    warm = Zygote(tmp_path / "spawn.sock", "multiprocessing.spawn")
    env = environment(TMPDIR=str(tmp_path))
    trial = make_trial(SPAWNING, argv=[sys.executable, *form], env=env)
    work = trial.directory / "work"
    (work / "lab").mkdir()
    (work / "lab" / "train.py").write_text(SPAWNING)
    command = [sys.executable, *form]
    plain = subprocess.check_output(command, cwd=work, env=env, text=True)
    trial.launch(warm)
    trial.start()
    trial.until("completed")
    warm.close()
    said = trial.output.replace(f", '{SHIM}'", "")  # so that its children can import trainer_shim
    assert said == plain.replace(f", '{SHIM}'", "")


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
    for text in ("[]", "null", '{"trial": "s/1"}', "no JSON"):
        other.spec.write_text(text)
        assert "cannot read" in zygote.spawn(other.spec)["reason"], text


@pytest.mark.tensorflow
def test_a_zygote_with_the_framework_has_neither_grpc_nor_run_anything(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in IMPORTING_KERAS.items():
            patch.setenv(name, value)
        zygote = Zygote(tmp_path / "z.sock", "keras")
    script = """
import json, sys
from tensorflow.python.eager import context
seen = [m for m in ("grpc", "keras") if m in sys.modules]
json.dump([seen, context.context()._context_handle is None], open("seen", "w"))
"""
    env = environment(**IMPORTING_KERAS)
    trial = make_trial(script, argv=[sys.executable, "train.py"], env=env).launch(zygote)
    trial.start()
    trial.until("completed")
    assert (trial.directory / "work" / "seen").read_text() == '[["keras"], true]'
    # What it has imported is no framework of a program that uses none.
    plain = make_trial("print(0.5)", argv=[sys.executable, "train.py"], env=env).launch(zygote)
    plain.start()
    plain.until("completed")
    zygote.close()
    said = [event for event in plain.events if event["kind"] == "fidelity"]
    assert [each["framework"] for each in said][-1:] == ["none"]


LIBRARY = """
import os
os.environ.update(PL_ONE="by the library", PL_TWO="by the library")
def __getattr__(name):
    if name in ("Lazy", "__path__"):
        raise AttributeError(name) if name == "__path__" else RuntimeError(name)
    os.environ["PL_LAZY"] = name
    return name
"""
SEES = """
import os, sys
print("library" in sys.modules, *(os.environ.get(f"PL_{name}") for name in ("ONE", "TWO", "LAZY")))
"""


def test_a_zygote_imports_libraries_ahead_with_what_they_set(
    make_trial: MakeTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PL_TWO", "by the study")
    zygote = Zygote(tmp_path / "z.sock", "no_such_library,library,library.Trainer,library.Lazy")
    env = environment(PYTHONPATH=str(tmp_path), PL_TWO="by the study")
    trial = make_trial(SEES, argv=[sys.executable, "train.py"], env=env).launch(zygote)
    trial.start()
    trial.until("completed")
    zygote.close()
    assert trial.output == "True by the library by the study Trainer\n"


THREADS = """
import json, os
import numpy, torch
many = numpy.ones((600, 600))
counts = [torch.get_num_threads(), torch.get_num_interop_threads()]
for work in (lambda: many @ many, lambda: torch.from_numpy(many) @ torch.from_numpy(many)):
    work()
    counts.append(len(os.listdir("/proc/self/task")))
json.dump(counts, open("threads", "w"))
"""


@pytest.mark.torch
def test_a_program_has_the_threads_that_its_cores_give_it_by_hand(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    usable = sorted(os.sched_getaffinity(0))
    first, last = str(usable[0]), str(usable[-1])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            patch.delenv(name, raising=False)
        patch.setenv("HERMES_CPU_CORES", first)
        zygote = Zygote(tmp_path / "z.sock", "torch")
    trial = make_trial(THREADS, env=environment(HERMES_CPU_CORES=last)).launch(zygote)
    trial.start()
    trial.until("completed")
    assert os.sched_getaffinity(trial.host_pid) == set(usable)
    zygote.close()
    by_hand = ["taskset", "-c", last, sys.executable, "-c", THREADS]
    subprocess.run(by_hand, cwd=tmp_path, env=environment(), check=True)
    found = trial.directory / "work" / "threads"
    assert found.read_text() == (tmp_path / "threads").read_text()


def test_it_ends_where_no_daemon_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon was killed while it imported."""
    monkeypatch.setattr(process, "CONNECT_SECONDS", 0.05)
    assert process._serve(str(tmp_path / "z.sock")) is None
    assert list(tmp_path.iterdir()) == []
