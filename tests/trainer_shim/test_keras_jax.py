"""Suspended and resumed, a Keras program on JAX computes what it computes undisturbed.

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

pytestmark = [pytest.mark.jax, pytest.mark.timeout(300)]
BACKEND = {"KERAS_BACKEND": "jax"}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported Keras with JAX, and run nothing."""
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
        pytest.param(programs.LONG_PASSES, (2, 6, 10), id="LONG_PASSES"),
        pytest.param(programs.STOPPED, (4, 9), id="STOPPED"),
        pytest.param(programs.ENDLESS, (4, 10, 13), id="ENDLESS"),
        pytest.param(programs.ENDING, (7, 10, 18), id="ENDING"),
        pytest.param(own.LOADERS, (3, 9, 22), id="LOADERS"),
        pytest.param(own.OWN_STEP, (3, 10), id="OWN_STEP"),
        pytest.param(own.AVERAGES, (5, 25), id="AVERAGES"),
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
        pytest.param(programs.EAGER, "park-only", "run_eagerly", id="EAGER"),
        pytest.param(own.PIPELINE, "park-only", "position of a TFDataset", id="PIPELINE"),
        pytest.param(programs.TWO_FITS, "exact", "arrays", id="TWO_FITS"),
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
