"""Sessions in the style of TensorFlow 1: held between two steps, with their losses told.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import tf1_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity
from trainer_shim import checkpoint_dir

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("name", "planned", "steps"),
    [
        ("FEED_FETCHED", 12, range(1, 13)),
        ("FEED_NOT_FETCHED", 12, (5, 12)),
        ("AVERAGED", 8, (2, 5)),
        ("BY_HAND", 6, (1, 4)),
        ("IN_A_BRANCH", 6, (1, 4)),
        ("MONITORED", 12, (1, 4, 9)),
        ("HOOKED", 14, (2, 6, 13)),
        ("SUPERVISOR", 9, (3, 8)),
    ],
)
def test_sessions_are_held_between_two_steps(
    zygote: Zygote, tmp_path: Path, name: str, planned: int, steps: tuple[int, ...]
) -> None:
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded=False))
    losses, _ = undisturbed = runs.undisturbed()
    assert sorted(losses) == list(range(1, planned + 1))
    assert len(set(losses.values())) == planned
    assert runs.parked(*steps) == undisturbed


@pytest.mark.parametrize(
    "name",
    [
        "FEED_FETCHED",
        "BY_HAND",
        pytest.param("FEED_NOT_FETCHED", marks=pytest.mark.slow),
        pytest.param("MONITORED", marks=pytest.mark.slow),
        pytest.param("SUPERVISOR", marks=pytest.mark.slow),
    ],
)
def test_a_seeded_run_is_the_plain_one(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """A program that seeds itself computes the same as without Hermes."""
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded=True))
    assert runs.undisturbed()[1] == runs.plain()


def test_no_checkpoint_is_made_of_a_session(zygote: Zygote, tmp_path: Path) -> None:
    runs = Runs(zygote, tmp_path, programs.program(programs.FEED_FETCHED, seeded=True))
    with runs.trial("asked") as trial:
        trial.start(limit=3)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert (level, "image" in reason) == ("park-only", True)
        trial.send("checkpoint", id="asked")
        assert reason in trial.until("checkpoint_failed")["reason"]
        trial.resume()
        trial.until("completed")


def test_a_checkpoint_of_an_earlier_version_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    """It is not trained from the start under the steps that were trained before."""
    builder = checkpoint_dir.Builder(str(tmp_path), "former")
    builder.add("session.json", [b"{}"])
    fields = {"trial": "t/1", "attempt": 1, "framework": "tensorflow", "fidelity": "exact"}
    former = builder.finish({**fields, "reason": "", "step": 3})["path"]
    runs = Runs(zygote, tmp_path, programs.program(programs.FEED_FETCHED, seeded=True))
    with runs.trial("refused") as trial:
        trial.start(restore=former)
        failed = trial.until("failed")
    assert (failed["error_kind"], "session" in failed["detail"]) == ("restore", True)


def test_a_program_that_reports_by_itself_is_heard_alone(zygote: Zygote, tmp_path: Path) -> None:
    """Its own steps count, and it may save what no checkpoint of Hermes holds."""
    body = "import trainer_shim\ntold = trainer_shim.attach()\n" + programs.FEED_FETCHED.replace(
        "session.run(lower)",
        'session.run(lower)\n        told.report(epoch + 1, loss=checked["loss"])',
    )
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    assert sorted(runs.undisturbed()[0]) == [1, 2, 3]
