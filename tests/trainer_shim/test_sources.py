"""A program that is installed as a package is a program all the same."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import ROOT, environment
from tests.trainer_shim.suspending import suspend
from trainer_shim.program.framework_scan import is_blind
from trainer_shim.program.source_files import is_programs_own, packages_of, syntax_tree

# It names its run by the time of day, which only its own lines are told again.
PROGRAM = """
import time
from pathlib import Path
import trainer_shim
Path(f"run-{time.time_ns()}").mkdir()
trial = trainer_shim.attach()
step = int((Path(trial.resume.path) / "step").read_text()) if trial.resume else 0
while step < 4:
    step += 1
    trial.report(step, loss=1 / step, save=lambda f: Path(f, "step").write_text(str(step)))
"""


def test_an_installed_program_reads_the_time_that_it_read_first(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    package = tmp_path / "lib" / "site-packages" / "lab"
    package.mkdir(parents=True)
    (package / "train.py").write_text(PROGRAM)
    env = environment(PYTHONPATH=str(package.parent))
    trial = make_trial("", argv=[sys.executable, "-m", "lab.train"], env=env).launch()
    trial.start(limit=2)
    trial.until("parked")
    trial.start(restore=suspend(trial)["checkpoint"]["path"])
    trial.until("completed")
    assert len(list((trial.directory / "work").glob("run-*"))) == 1


@pytest.mark.parametrize(
    ("module", "script", "packages"),
    [
        ("lab.train", None, {"lab"}),
        ("torch.distributed.run", None, set()),
        (None, "train.py", set()),
        (None, "bin/lab", {"lab", "sys"}),
        (None, "bin/torchrun", set()),
        (None, "lib/site-packages/lab/train.py", {"lab"}),
    ],
)
def test_which_packages_are_a_program(
    tmp_path: Path, module: str | None, script: str | None, packages: set[str]
) -> None:
    files = {
        "bin/python": "",
        "bin/lab": "import sys\nfrom lab.cli import main",
        "bin/torchrun": "from torch.distributed.run import main",
        "train.py": "import lab",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert packages_of(module, script and str(tmp_path / script)) == packages


def test_what_is_ours_is_none_of_it_where_it_is_imported_through_a_link(tmp_path: Path) -> None:
    """As a node has its hosts do."""
    (tmp_path / "trainer_shim").symlink_to(ROOT / "trainer_shim")
    asked = (
        "from trainer_shim import agent; from trainer_shim.program.source_files import"
        " is_programs_own; print(is_programs_own(agent.__file__))"
    )
    command = [sys.executable, "-c", asked]
    assert subprocess.check_output(command, cwd=tmp_path, env=environment()) == b"False\n"


def test_other_packages_are_none_of_it() -> None:
    """Here pytest is the program."""
    assert not is_programs_own("/venv/lib/python3.11/site-packages/torch/nn/functional.py")
    assert not is_programs_own("<string>")
    assert is_programs_own("/home/me/train.py")


def test_packages_may_lie_in_folders_of_any_name(tmp_path: Path) -> None:
    """What an installer has recorded there is another's; what lies beside it is the program's."""
    files = {
        "target/lab-1.0.dist-info/RECORD": "lab/__init__.py,sha256=x,0\nsolo.py,,\n../bin/lab,,\n",
        "target/lab/__init__.py": "",
        "target/solo.py": "",
        "target/mine.py": "",
        "checkout/jax/__init__.py": "",
        "work/ray/__init__.py": "",
        "work/train.py": (
            "import jax, lab, mine, ray, solo\n"
            "from trainer_shim.program.source_files import is_programs_own\n"
            "modules = dict(globals())\n"
            "print(*(name for name, one in sorted(modules.items())"
            " if is_programs_own(getattr(one, '__file__', None))))\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = os.pathsep.join(str(one) for one in (tmp_path / "target", tmp_path / "checkout", ROOT))
    command = [sys.executable, str(tmp_path / "work" / "train.py")]
    assert subprocess.check_output(command, env=environment(PYTHONPATH=path)) == b"mine ray\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import argparse", True),  # what lies beside it is another program's
        ("from nets import make", False),
        ("from tools.loop import run", False),
        ("import plain", True),
    ],
)
def test_only_what_a_program_names_says_whether_it_shows_iterations(
    tmp_path: Path, script: str, expected: bool
) -> None:
    files = {
        "train.py": script,
        "plain.py": "import csv",
        "nets.py": "import plain, layers",
        "layers.py": "import torch",
        "tools/loop.py": "import keras",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert is_blind(str(tmp_path / "train.py")) == expected


def test_a_program_is_parsed_though_a_finalizer_parses_another_meanwhile() -> None:
    class Dropped:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            deeper(5)

    def deeper(calls: int) -> None:
        if calls:
            deeper(calls - 1)
        else:
            ast.parse("parsed")

    for _ in range(30):
        for _ in range(20):
            Dropped()
        syntax_tree("f(x, [y, {z: -1}])\n" * 1000)
