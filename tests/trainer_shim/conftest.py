"""Trials and zygotes whose processes end with the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_shim.driving import Trial, Zygote, ending
from tests.trainer_shim.suspending import tensorflow_zygote, warm_zygote

MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial(tmp_path: Path) -> Iterator[MakeTrial]:
    """A trial of the script given as text, not yet launched."""
    with ExitStack() as stack:

        def make(script: str, *arguments: str, **fields: Any) -> Trial:
            number = len(list(tmp_path.iterdir()))
            folder = tmp_path / f"t{number}"
            argv = fields.pop("argv", [sys.executable, "train.py", *arguments])
            trial = Trial(folder, argv, **fields)
            (folder / "work" / "train.py").write_text(script)
            return stack.enter_context(ending(trial))

        yield make


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported TensorFlow and Keras, and run nothing."""
    with tensorflow_zygote(tmp_path_factory.mktemp("zygote")) as warm:
        yield warm


@pytest.fixture(scope="session")
def jax_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported Keras on JAX, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "keras", KERAS_BACKEND="jax") as warm:
        yield warm
