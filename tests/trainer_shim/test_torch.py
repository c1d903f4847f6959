"""Suspended anywhere and resumed, a PyTorch script computes what it computes without Hermes.

Every comparison is bit for bit: each step's loss, the parameters and everything printed last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import torch_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, promised, warm_zygote

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch, also what its first optimizer would, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as warm:
        yield warm


def runs_of(zygote: Zygote, folder: Path, body: str, seeded: bool = True) -> Runs:
    """Runs of the program with this body."""
    return Runs(zygote, folder, programs.program(body, seeded))


def seen(line: str) -> list[float]:
    """The losses as the script computed them."""
    losses: list[float] = json.loads(line.removeprefix("FINAL "))[0]
    return losses


EVERY = [
    pytest.param("USUAL", 21),
    pytest.param("WORKERS", 8),
    pytest.param("MIXED", 15),
    pytest.param("PAIR", 10),
    pytest.param("REDRAWN", 12),
    pytest.param("NESTED", 9),
    pytest.param("ITERATED", 21),
]


@pytest.mark.parametrize(("name", "steps"), EVERY[:3])
def test_parked_at_every_boundary(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    """It computes what the plain script does, and the losses reported are the script's."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    (losses, line), checkpoints, _ = runs.parked_everywhere("parameters-exact")
    assert line == runs.plain()
    assert list(checkpoints) == list(losses) == list(range(1, steps + 1))
    assert list(losses.values()) == seen(line)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), EVERY)
def test_each_boundary_resumed_from(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    """From the checkpoint of each boundary a new process computes the rest."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    (losses, line), checkpoints, work = runs.parked_everywhere("parameters-exact")
    assert len(checkpoints) == steps

    assert runs.resumed_wrongly((losses, line), checkpoints, work) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), EVERY)
def test_a_run_ended_at_every_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int
) -> None:
    """No process lives longer than one step."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=False)
    undisturbed = runs.undisturbed()
    assert runs.suspended(*range(1, steps + 1)) == undisturbed


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("USUAL", (1, 7, 10, 14)),  # the last of an epoch, and amid the next
        ("WORKERS", (3, 4)),  # amid a pass, and where it is broken off
        ("MIXED", (2, 5, 11)),
        ("PAIR", (4, 9)),
        ("REDRAWN", (2, 6, 11)),
        ("NESTED", (1, 3, 4, 8)),
        ("KEPT_ASIDE", (3, 5)),
        ("UNFROZEN", (4, 6)),
        ("COLLECTED", (3, 12, 20)),
        ("FOLDS", (3, 10, 18)),
        ("SCATTERED", (2, 4, 7)),
        ("BARS", (3, 9, 16, 18)),
        ("ITERATED", (2, 7, 8, 17)),
    ],
)
def test_several_suspends_in_one_run(
    zygote: Zygote, tmp_path: Path, name: str, steps: tuple[int, ...]
) -> None:
    """Each to a new process; the script has no seed of its own."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=False)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


def test_what_training_has_come_to_is_a_file_of_its_own(zygote: Zygote, tmp_path: Path) -> None:
    """Two programs that train the same differ in nothing there, whatever else they hold."""

    def sums(held: float) -> dict[str, str]:
        holding = f"running = 0.0; held = torch.full((9,), {held})"
        body = programs.USUAL.replace("running = 0.0", holding)
        folder = tmp_path / str(held)
        folder.mkdir()
        runs = runs_of(zygote, folder, body)
        with runs.trial("held") as trial:
            trial.start(limit=3)
            trial.until("parked")
            trial.suspend("checkpoint")
            saved = trial.until("suspended")["checkpoint"]["path"]
        files = json.loads((Path(saved) / "manifest.json").read_text())["files"]
        return {name: str(entry["sha256"]) for name, entry in files.items()}

    one, other = sums(7.0), sums(8.0)
    assert one["torch.arrays"] == other["torch.arrays"]
    assert one["torch.beside"] != other["torch.beside"]


def test_a_loop_with_a_running_sum_is_never_called_exact(zygote: Zygote, tmp_path: Path) -> None:
    """Plain variables come back, but what else a loop keeps in Python is not known."""
    runs = runs_of(zygote, tmp_path, programs.USUAL)
    with runs.trial("said") as trial:
        trial.start(limit=2)
        trial.until("parked")
        trial.suspend("checkpoint")
        saved = trial.until("suspended")["checkpoint"]
        trial.start(restore=saved["path"], limit=3)
        trial.until("parked")
        said = promised(trial)
    assert {level for level, _ in said} == {"parameters-exact"}
    assert all("keeps in Python are not" in reason and "attach()" in reason for _, reason in said)
    manifest = json.loads((Path(saved["path"]) / "manifest.json").read_text())
    assert manifest["fidelity"] == "parameters-exact"


def test_the_framework_that_trains_is_the_one_that_is_named(zygote: Zygote, tmp_path: Path) -> None:
    """What is imported besides trains nothing, as by PyTorch's writer for TensorBoard."""
    runs = runs_of(zygote, tmp_path, "import tensorflow, keras\n" + programs.USUAL)
    with runs.trial("named") as trial:
        trial.start(limit=2)
        trial.until("parked")
        named = [event["framework"] for event in trial.events if event["kind"] == "fidelity"]
    assert named[-1].startswith("torch ")


def test_what_functions_under_execution_and_the_script_count_comes_back(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Such counters do not cost a program its checkpoints."""
    runs = runs_of(zygote, tmp_path, programs.EXECUTED)
    with runs.trial("executed") as trial:
        trial.start(limit=4)
        trial.until("parked")
        assert fidelity(trial)[0] == "parameters-exact"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NO_LOADER", "for statement over a DataLoader"),
        ("BY_HAND", "not taken by a for statement"),
        ("ITERABLE", "position of the Stream"),
        ("ZIPPED", "zip()"),
        ("LOOKING_AHEAD", "generator ahead"),
        ("RETURNED", "left by return"),
        ("MADE_INSIDE", "made inside of a loop"),
        ("CLOSURE", "variable 'count' of a closure"),
        ("ON_A_CLASS", "attribute 'cls.count'"),
    ],
)
def test_what_cannot_be_rebuilt_only_parks(
    zygote: Zygote, tmp_path: Path, name: str, word: str
) -> None:
    """It says why, and a suspend keeps the process."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    with runs.trial("only") as trial:
        trial.start(limit=4)
        assert trial.until("parked")["step"] == 4
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        assert "trainer_shim.attach()" in reason
        # What is known from the first batch on is said at once.
        assert len(promised(trial)) == (1 if name not in ("RETURNED", "MADE_INSIDE") else 2)
        trial.suspend("checkpoint")
        trial.resume()
        trial.until("completed")
        losses, _ = outcome(trial)
    assert sorted(losses) == list(range(1, 7))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("", "[17, 6]"),  # another width
        (
            "x = x[: 50 - 40 * os.path.exists('../again')]; data = TensorDataset(x, y[: len(x)])",
            "end",
        ),
        ("again = os.path.exists('../again') and list(DataLoader(data))", "a pass runs in"),
        ("if os.path.exists('../again'): raise KeyError('again')", "KeyError: 'again'"),
        ("if os.path.exists('../again'): raise SystemExit", "before it came to where"),
    ],
)
def test_another_program_than_at_the_checkpoint_is_refused(
    zygote: Zygote, tmp_path: Path, change: str, word: str
) -> None:
    """A program that is not repeatable must not go on as if it were."""
    body = programs.USUAL
    if not change:
        body = body.replace("16", "(15 + 2 * os.path.exists('../again'))")
    body = f"{change}\n{body}"
    runs = runs_of(zygote, tmp_path, body)
    with runs.trial("other") as trial:
        trial.start(limit=5)
        trial.until("parked")
        trial.suspend("checkpoint")
        (trial.directory / "again").touch()
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="restore") as refused:
            trial.until("completed")
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (
            "GENERATOR_INSIDE",
            "a generator of random numbers was made inside of a loop: Generator in",
        ),
        ("GATHERED", "gathered, which has changed and holds a Decimal"),
        ("TAKEN_INSIDE", "rates, a cycle, and a pass has taken from it"),
    ],
)
def test_what_cannot_be_copied_is_said_at_the_first_step(
    zygote: Zygote, tmp_path: Path, name: str, word: str
) -> None:
    """Nobody has asked for a checkpoint yet."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    with runs.trial("only") as trial:
        trial.start(limit=1)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        trial.suspend("checkpoint")
        trial.until("checkpoint_failed")
        trial.resume()
        trial.until("completed")


def test_what_turns_out_at_a_checkpoint_only_parks_from_then_on(
    zygote: Zygote, tmp_path: Path
) -> None:
    """The suspend that finds it keeps the process."""
    word = "nested deeper than 16"
    runs = runs_of(zygote, tmp_path, programs.NESTED_DEEP)
    with runs.trial("only") as trial:
        trial.start(limit=4)
        trial.until("parked")
        trial.suspend("checkpoint")
        assert word in trial.until("checkpoint_failed")["reason"]
        trial.until("parked")
        trial.resume()
        trial.until("completed")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason


def test_a_program_that_speaks_for_itself_is_left_alone(zygote: Zygote, tmp_path: Path) -> None:
    """With the explicit interface, the program says what a step is, saves and restores."""
    runs = runs_of(zygote, tmp_path, programs.EXPLICIT)
    with runs.trial("explicit") as trial:
        trial.start(limit=3)
        assert trial.until("parked")["step"] == 3
        trial.suspend("checkpoint")
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        trial.until("completed")
        assert {level for level, _ in promised(trial)} == {"author"}
        resumed = outcome(trial)
    assert sorted(resumed[0]) == [1, 2, 3, 4, 5]
    assert resumed == runs.undisturbed()


@pytest.mark.parametrize("epochs", [["2", "4"], ["1", "3", "4"]])
def test_a_finished_trial_is_trained_further_as_if_asked_at_once(
    zygote: Zygote, tmp_path: Path, epochs: list[str]
) -> None:
    """2 epochs and then 4 are the 4 of one run, though the model had its best weights again."""
    runs = runs_of(zygote, tmp_path, programs.ASKED_FOR_EPOCHS)
    assert runs.extended(epochs) == runs.undisturbed("4")


def test_a_trial_whose_passes_break_off_is_trained_further(zygote: Zygote, tmp_path: Path) -> None:
    """With gradients that add up over two batches, and suspended once more on the way."""
    body = programs.WORKERS.replace("range(2)", "range(int(sys.argv[1]))")
    runs = runs_of(zygote, tmp_path, "import sys\n" + body)
    assert runs.extended(["2", "3"], suspend_at=10) == runs.undisturbed("3")


def test_why_a_trial_cannot_be_trained_further_is_said(zygote: Zygote, tmp_path: Path) -> None:
    """It is only parked, and has at its end what people load, and no more."""
    runs = runs_of(zygote, tmp_path, programs.NO_LOADER)
    with runs.trial("said") as trial:
        trial.start()
        assert trial.until("completed")["checkpoint"]["id"].startswith("result-")
        assert "for statement over a DataLoader" in fidelity(trial)[1]
