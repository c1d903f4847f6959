"""Sessions in the style of TensorFlow 1, suspended anywhere, compute what they would.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import tf1_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, promised, suspend

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


def ended_at(runs: Runs, planned: int, *steps: int) -> None:
    """The losses are all there; parked and ended at these boundaries, they come out the same."""
    undisturbed = runs.undisturbed()
    assert sorted(undisturbed[0]) == list(range(1, planned + 1))
    assert len(set(undisturbed[0].values())) == planned
    assert runs.parked(*steps) == undisturbed
    assert runs.suspended(*steps) == undisturbed


def test_ended_at_every_boundary(zygote: Zygote, tmp_path: Path) -> None:
    """No process lives longer than one step. And held at each, in one process."""
    runs = Runs(zygote, tmp_path, programs.program(programs.FEED_FETCHED, seeded=True))
    ended_at(runs, 12, *range(1, 13))


@pytest.mark.parametrize(
    ("name", "planned", "steps"),
    [
        ("FEED_NOT_FETCHED", 12, (5, 12)),
        ("AVERAGED", 8, (2, 5)),
        ("MONITORED", 12, (1, 4, 9)),
        ("HOOKED", 14, (2, 6, 13)),
        ("SUPERVISOR", 9, (3, 8)),
    ],
)
def test_suspends_of_other_programs(
    zygote: Zygote, tmp_path: Path, name: str, planned: int, steps: tuple[int, ...]
) -> None:
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded=False))
    ended_at(runs, planned, *steps)


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(
    ("name", "planned"),
    [
        ("FEED_NOT_FETCHED", 12),
        ("AVERAGED", 8),
        ("MONITORED", 12),
        ("HOOKED", 14),
        ("SUPERVISOR", 9),
    ],
)
def test_other_programs_ended_at_every_boundary(
    zygote: Zygote, tmp_path: Path, name: str, planned: int, seeded: bool
) -> None:
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded))
    ended_at(runs, planned, *range(1, planned + 1))


@pytest.mark.parametrize(
    "name",
    [
        "FEED_FETCHED",
        pytest.param("FEED_NOT_FETCHED", marks=pytest.mark.slow),
        pytest.param("MONITORED", marks=pytest.mark.slow),
        pytest.param("SUPERVISOR", marks=pytest.mark.slow),
    ],
)
def test_a_seeded_run_is_the_plain_one(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """A program that seeds itself computes the same as without Hermes."""
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded=True))
    assert runs.undisturbed()[1] == runs.plain()


@pytest.mark.parametrize(
    ("name", "level", "word"),
    [
        ("RACING", "exact-if-deterministic", "a step reads two while it updates it"),
        ("RACING_FETCH", "exact-if-deterministic", "a step reads one while it updates it"),
        ("FREE_ORDER", "parameters-exact", "is free"),
        ("PARALLEL_NOISE", "parameters-exact", "in parallel"),
        ("IN_ORDER", "exact", "told again"),
        ("FEED_FETCHED", "exact", "told again"),
        ("MONITORED", "exact", "told again"),
    ],
)
def test_only_what_repeats_itself_is_called_exact(
    zygote: Zygote, tmp_path: Path, name: str, level: str, word: str
) -> None:
    runs = Runs(zygote, tmp_path, programs.program(getattr(programs, name), seeded=True))
    with runs.trial("said") as trial:
        trial.start()
        trial.until("completed")
        assert {said for said, _ in promised(trial)} == {level}
        assert word in fidelity(trial)[1]


def test_a_queue_only_parks(zygote: Zygote, tmp_path: Path) -> None:
    """What threads have filled cannot be brought back, and that is said."""
    runs = Runs(zygote, tmp_path, programs.program(programs.QUEUE, seeded=True))
    with runs.trial("queue") as trial:
        trial.start(limit=3)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert "QueueDequeue" in reason
        trial.resume()
        trial.until("completed")


def test_other_data_than_at_the_checkpoint_are_refused(zygote: Zygote, tmp_path: Path) -> None:
    """A program that is not repeatable must not go on as if it were."""
    body = "x = x + np.float32(int.from_bytes(os.urandom(2), 'big'))\n" + programs.FEED_FETCHED
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("other") as trial:
        trial.start(limit=2)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="the data of the last step differ"):
            trial.until("completed")


@pytest.mark.parametrize(
    ("name", "length", "asked", "epochs"),
    [
        ("FEED_FETCHED", "range(3)", "range(int(sys.argv[1]))", ["1", "3"]),
        ("FEED_NOT_FETCHED", "range(3)", "range(int(sys.argv[1]))", ["2", "3", "4"]),
        ("MONITORED", "num_steps=12", "num_steps=4 * int(sys.argv[1])", ["2", "3"]),
        ("SUPERVISOR", "range(3)", "range(int(sys.argv[1]))", ["2", "4"]),
    ],
)
def test_a_finished_trial_is_trained_further_as_if_asked_at_once(
    zygote: Zygote, tmp_path: Path, name: str, length: str, asked: str, epochs: list[str]
) -> None:
    """From its last step on, though its session is closed and something was assigned since."""
    body = getattr(programs, name)
    assert length in body
    body = "import sys\n" + body.replace(length, asked)
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    assert runs.extended(epochs) == runs.undisturbed(epochs[-1])
