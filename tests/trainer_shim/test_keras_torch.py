"""Suspended and resumed, a Keras program on PyTorch computes what it computes undisturbed.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import keras_backend_programs as own
from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
BACKEND = {"KERAS_BACKEND": "torch"}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported Keras with PyTorch, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "keras", **BACKEND) as warm:
        yield warm


def runs_of(zygote: Zygote, folder: Path, body: str, seeded: bool = False) -> Runs:
    """Runs of the program with this body."""
    return Runs(zygote, folder, own.program(body, seeded), **BACKEND)


@pytest.mark.slow
def test_every_boundary_parked_and_restored(zygote: Zygote, tmp_path: Path) -> None:
    runs = runs_of(zygote, tmp_path, programs.EVERYTHING)
    undisturbed = runs.undisturbed()
    parked, checkpoints, work = runs.parked_everywhere("exact")
    assert parked == undisturbed
    assert runs.resumed_wrongly(undisturbed, checkpoints, work) == []


def test_a_seeded_run_is_the_plain_one(zygote: Zygote, tmp_path: Path) -> None:
    """A program that seeds itself computes the same as without Hermes, suspended or not."""
    runs = runs_of(zygote, tmp_path, programs.EVERYTHING, seeded=True)
    undisturbed = runs.undisturbed()
    assert len(set(undisturbed[0].values())) == 40
    assert undisturbed[1] == runs.plain()
    assert runs.suspended(2, 20, 39) == undisturbed


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        pytest.param(programs.TWO_FITS, (5, 16, 23), id="TWO_FITS"),
        pytest.param(programs.STOPPED, (4, 9), id="STOPPED"),
        pytest.param(programs.OWN_NUMBERS, (3, 12), id="OWN_NUMBERS"),
        pytest.param(programs.ENDLESS, (4, 10, 13), id="ENDLESS"),
        pytest.param(own.LOADERS, (3, 9, 22), id="LOADERS"),
        pytest.param(own.MODULES, (2, 11), id="MODULES"),
        pytest.param(own.AVERAGES, (5, 25), id="AVERAGES"),
        pytest.param(own.CHANGED_TENSORS, (5, 25), id="CHANGED_TENSORS"),
        pytest.param(own.BY_BATCH, (3, 12), id="BY_BATCH"),
    ],
)
def test_suspends_of_other_programs(
    zygote: Zygote, tmp_path: Path, body: str, steps: tuple[int, ...]
) -> None:
    """Several suspends in one run, each to a new process; the script has no seed of its own."""
    runs = runs_of(zygote, tmp_path, body)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


@pytest.mark.parametrize(
    ("body", "level", "word"),
    [
        pytest.param(own.OPTIMIZER, "park-only", "an optimizer of PyTorch's own", id="OPTIMIZER"),
        pytest.param(own.COMPILED, "park-only", "jit_compile", id="COMPILED"),
        pytest.param(programs.WORKERS, "park-only", "read by workers", id="WORKERS"),
        pytest.param(own.MODULES, "exact-if-deterministic", "what Own keeps", id="MODULES"),
    ],
)
def test_what_is_promised(zygote: Zygote, tmp_path: Path, body: str, level: str, word: str) -> None:
    """It is known once a step is done, and a suspend of what only parks keeps the process."""
    runs = runs_of(zygote, tmp_path, body)
    with runs.trial("only") as trial:
        trial.start(limit=3)
        assert trial.until("parked")["step"] == 3
        assert fidelity(trial)[0] == level
        assert word in fidelity(trial)[1]
        trial.resume()
        trial.until("completed")
        losses, _ = outcome(trial)
    assert all(loss == loss for loss in losses.values())
    assert len(losses) == max(losses)
