"""One suspend a run, at every boundary there is or at every fifth; and a run ended at each.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs, tf_programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, tensorflow_zygote

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]


def resumed_at_each(
    runs: Runs, boundaries: Sequence[int], promise: str = "exact", every: int = 1
) -> None:
    """From the checkpoint of each boundary, or of every so many of them back from the last one, a
    new process computes the rest; held at each, the first one does."""
    undisturbed = runs.undisturbed()
    parked, checkpoints, work = runs.parked_everywhere(promise)
    assert parked == undisturbed
    assert list(checkpoints) == list(boundaries)
    chosen = {step: checkpoints[step] for step in boundaries[::-every]}
    assert runs.resumed_wrongly(undisturbed, chosen, work) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("RETURNED", 16), ("ITERATOR", 8)])
def test_a_tf_function_resumed_at_each_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int
) -> None:
    program = tf_programs.program(getattr(tf_programs, name), seeded=False)
    resumed_at_each(Runs(zygote, tmp_path, program), range(1, steps + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "boundaries", "promise"),
    [
        ("OWN_STEP", range(1, 16), "exact"),
        ("DATASET", range(1, 19), "exact-if-deterministic"),
        ("PIPELINE", range(2, 37, 2), "exact-if-deterministic"),  # two steps in one execution
    ],
)
def test_a_fit_resumed_at_every_fifth_boundary(
    zygote: Zygote, tmp_path: Path, name: str, boundaries: range, promise: str
) -> None:
    program = keras_programs.program(getattr(keras_programs, name), seeded=False)
    resumed_at_each(Runs(zygote, tmp_path, program), boundaries, promise, every=5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "boundaries"),
    [
        ("EVERYTHING", range(1, 41)),
        ("DATASET", range(1, 19)),
        ("PIPELINE", range(2, 37, 2)),
        ("GLOBAL_NUMBERS", range(1, 16)),
        ("ENDLESS", range(1, 16)),
        ("ENDING", range(1, 27)),
    ],
)
def test_a_fit_ended_at_every_boundary(
    zygote: Zygote, tmp_path: Path, name: str, boundaries: range
) -> None:
    """No process lives longer than one step, whatever the fit reads its data from."""
    program = keras_programs.program(getattr(keras_programs, name), seeded=False)
    runs = Runs(zygote, tmp_path, program)
    undisturbed = runs.undisturbed()
    assert max(undisturbed[0]) == boundaries[-1]
    assert runs.suspended(*boundaries) == undisturbed


@pytest.mark.slow
@pytest.mark.tf_keras
def test_keras_2_resumed_at_each_boundary(tmp_path: Path) -> None:
    legacy = {"TF_USE_LEGACY_KERAS": "1"}
    with tensorflow_zygote(tmp_path, **legacy) as zygote:
        program = tf_programs.program(tf_programs.LEGACY, seeded=False)
        resumed_at_each(Runs(zygote, tmp_path, program, **legacy), range(1, 10))
