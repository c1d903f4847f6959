"""Data that Keras reads from Python are read again up to where they were, by a suspended program.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, suspend

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


def runs_of(zygote: Zygote, folder: Path, name: str) -> Runs:
    """Runs of the program called `name`."""
    return Runs(zygote, folder, programs.program(getattr(programs, name), seeded=True))


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("OWN_NUMBERS", (3, 5, 12)),
        ("GLOBAL_NUMBERS", (2, 10, 14)),
        ("ENDLESS", (4, 10, 13)),
        ("ENDING", (7, 13, 18, 24)),
    ],
)
def test_suspended_anywhere(
    zygote: Zygote, tmp_path: Path, name: str, steps: tuple[int, ...]
) -> None:
    runs = runs_of(zygote, tmp_path, name)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    # Keras reads a generator ahead of a validation, by more or less: no plain run repeats another.
    assert name == "ENDLESS" or undisturbed[1] == runs.plain()
    assert runs.suspended(*steps) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [("OWN_NUMBERS", 15), ("GLOBAL_NUMBERS", 15), ("ENDLESS", 15), ("ENDING", 26)],
)
def test_each_boundary_resumed_from(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    runs = runs_of(zygote, tmp_path, name)
    undisturbed = runs.undisturbed()
    parked, checkpoints, work = runs.parked_everywhere("exact-if-deterministic")
    assert parked == undisturbed
    assert len(checkpoints) == steps
    assert runs.resumed_wrongly(undisturbed, checkpoints, work) == []


def test_a_finished_trial_is_trained_further(zygote: Zygote, tmp_path: Path) -> None:
    """From its end, where its data are read again."""
    runs = runs_of(zygote, tmp_path, "OWN_NUMBERS")
    assert runs.extended(["2", "3"]) == runs.undisturbed("3")


@pytest.mark.parametrize("step", [5, 7, 12])
def test_data_that_share_their_numbers_with_others_are_not_read_again(
    zygote: Zygote, tmp_path: Path, step: int
) -> None:
    """Read again, they draw what the validation between has drawn: none goes on with that."""
    body = programs.ENDLESS.replace("numbers(1)", "np.random").replace("numbers(2)", "np.random")
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("shared") as trial:
        trial.start(limit=step)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        if step == 5:  # before the first validation
            trial.until("completed")
        else:
            with pytest.raises(AssertionError, match="is another one when it is read again"):
                trial.until("completed")


def test_it_is_said_that_the_data_must_repeat_themselves(zygote: Zygote, tmp_path: Path) -> None:
    runs = runs_of(zygote, tmp_path, "ENDLESS")
    with runs.trial("said") as trial:
        trial.start(limit=2)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "exact-if-deterministic"
        assert "when they are read again" in reason
