"""What is read off a program's text that a zygote imports ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.node.runner import imports_ahead
from trainer_shim.host.warm_start_rules import LIBRARIES


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("import numpy", None),
        ("import tensorflow as tf", "tensorflow"),
        ("from tensorflow import keras", "keras"),
        ("import torch.nn as nn", "torch"),
        (
            "from lightning.pytorch import Trainer",
            "torch,lightning.pytorch,lightning.pytorch.Trainer",
        ),
        ("from transformers import Trainer", "torch,transformers,transformers.Trainer"),
        ("lightning and transformers", None),
        ("my_kerastic = 1", None),
        ("import pandas as pd\nimport sklearn.svm", "pandas,sklearn.svm"),
        (
            "import torch\nfrom scipy import (\n    stats,  # to sum\n    fft as f)",
            "torch,scipy,scipy.stats,scipy.fft",
        ),
        ("from sklearn.svm import *", "sklearn.svm"),
        ("import sklearning", None),
        # Later than the beginning of a program, the numbers that an import draws may be its own.
        ("def f():\n    import pandas", None),
        ("import random\nrandom.seed(1)\nimport pandas", None),
        (
            "import os, torch\nos.environ['HF_HOME'] = '/models'\nfrom transformers import Trainer",
            "torch",
        ),
    ],
)
def test_a_framework_and_what_is_imported_of_libraries(
    tmp_path: Path, text: str, ahead: str | None
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "model.py").write_text(text)
    assert imports_ahead.imports_ahead(tmp_path) == ahead


@pytest.mark.parametrize("own", ["pandas.py", "pandas/frame.py", "lib/pandas/__init__.py"])
def test_a_programs_own_module_is_not_the_library_of_that_name(tmp_path: Path, own: str) -> None:
    (tmp_path / own).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / own).write_text("")
    (tmp_path / "train.py").write_text("import torch\nimport pandas\nimport scipy.stats\n")
    assert imports_ahead.imports_ahead(tmp_path) == "torch,scipy.stats"


def test_a_program_that_imports_what_sets_a_seed_imports_libraries_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nimport rng\nimport pandas\n")
    (tmp_path / "rng.py").write_text("import random\n\ndef seeded():\n    random.seed(0)\n")
    assert imports_ahead.imports_ahead(tmp_path) == "torch,pandas"
    (tmp_path / "rng.py").write_text("import random\nrandom.seed(0)\n")
    assert imports_ahead.imports_ahead(tmp_path) == "torch"


def test_a_program_that_names_a_variable_of_a_library_imports_it_itself(tmp_path: Path) -> None:
    for prefix in LIBRARIES:
        (tmp_path / "train.py").write_text(f"import torch\nimport pandas\nx = '{prefix}ORCH'\n")
        assert imports_ahead.imports_ahead(tmp_path) == "torch"
