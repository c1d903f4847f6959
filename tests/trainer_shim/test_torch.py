"""Suspended anywhere and resumed, a PyTorch script computes what it computes without Hermes.

Every comparison is bit for bit: each step's loss, the parameters and everything printed last.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trainer_shim import torch_programs as programs
from tests.trainer_shim.driving import Trial, Zygote, ending, environment

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
Outcome = tuple[dict[int, float], str]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch, also what its first optimizer would, and run nothing."""
    warm = Zygote(tmp_path_factory.mktemp("zygote") / "sock", "torch")
    yield warm
    warm.close()


class Runs:
    """Runs of one program, each in a folder of its own."""

    def __init__(self, zygote: Zygote, folder: Path, body: str, seeded: bool = True) -> None:
        self.zygote = zygote
        self.spawning = threading.Lock()
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(programs.program(body, seeded))

    def trial(self, name: str) -> Trial:
        """A new trial of the program."""
        argv = [sys.executable, str(self.script)]
        return Trial(self.folder / name, argv, env=environment(), seed=7)

    def plain(self) -> str:
        """What the script prints last without Hermes."""
        run = subprocess.run(
            [sys.executable, str(self.script)],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return run.stdout.splitlines()[-1]

    def undisturbed(self) -> Outcome:
        """From start to end."""
        with ending(self.trial("undisturbed").launch(self.zygote)) as trial:
            trial.start()
            trial.until("completed")
            return outcome(trial)

    def parked_everywhere(self) -> tuple[Outcome, dict[int, str], Path]:
        """One process, held and saved at every boundary: its outcome and the checkpoints."""
        checkpoints: dict[int, str] = {}
        with ending(self.trial("parked").launch(self.zygote)) as trial:
            trial.start(limit=1)
            while (event := trial.until("parked", "completed"))["kind"] == "parked":
                step = event["step"]
                trial.send("checkpoint", id=f"at-{step}")
                checkpoints[step] = trial.until("checkpointed")["path"]
                trial.resume(limit=step + 1)
            assert [level for level, _ in fidelity(trial)] == ["parameters-exact"]
            return outcome(trial), checkpoints, trial.directory / "work"

    def resumed(self, step: int, checkpoint: str, work: Path) -> Outcome:
        """From a checkpoint of another trial to the end; the losses after it only."""
        trial = self.trial(f"resumed-{step}")
        shutil.copytree(work, trial.directory / "work", dirs_exist_ok=True)
        with self.spawning:  # the zygote answers one at a time
            trial.launch(self.zygote)
        with ending(trial):
            trial.start(restore=checkpoint)
            started = trial.until("started")
            assert started["step"] == step
            trial.until("completed")
            return outcome(trial)

    def suspended(self, *steps: int) -> Outcome:
        """Ended at each of these boundaries, and begun again from the checkpoint."""
        with ending(self.trial("suspended").launch(self.zygote)) as trial:
            restore = None
            for step in steps:
                trial.start(restore=restore, limit=step)
                assert trial.until("parked")["step"] == step
                trial.suspend("checkpoint")
                restore = trial.until("suspended")["checkpoint"]["path"]
            trial.start(restore=restore)
            trial.until("completed")
            return outcome(trial)


def outcome(trial: Trial) -> Outcome:
    """The losses, and what the program printed last."""
    (line,) = [line for line in trial.output.splitlines() if line.startswith("FINAL")]
    return trial.losses(), line


def seen(line: str) -> list[float]:
    """The losses as the script computed them."""
    losses: list[float] = json.loads(line.removeprefix("FINAL "))[0]
    return losses


def fidelity(trial: Trial) -> list[tuple[str, str]]:
    """What was promised, in order."""
    said = [event for event in trial.events if event["kind"] == "fidelity"]
    return [(event["level"], event["reason"]) for event in said]


EVERY = [
    pytest.param("USUAL", 21),
    pytest.param("WORKERS", 8),
    pytest.param("MIXED", 15),
    pytest.param("PAIR", 10),
    pytest.param("REDRAWN", 12),
    pytest.param("NESTED", 9),
]


@pytest.mark.parametrize(("name", "steps"), EVERY[:3])
def test_parked_at_every_boundary(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    """It computes what the plain script does, and the losses reported are the script's."""
    runs = Runs(zygote, tmp_path, getattr(programs, name))
    (losses, line), checkpoints, _ = runs.parked_everywhere()
    assert line == runs.plain()
    assert list(checkpoints) == list(losses) == list(range(1, steps + 1))
    assert list(losses.values()) == seen(line)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), EVERY)
def test_each_boundary_resumed_from(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    """From the checkpoint of each boundary a new process computes the rest."""
    runs = Runs(zygote, tmp_path, getattr(programs, name))
    (losses, line), checkpoints, work = runs.parked_everywhere()
    assert len(checkpoints) == steps

    def differs(step: int) -> bool:
        after = {at: loss for at, loss in losses.items() if at > step}
        return runs.resumed(step, checkpoints[step], work) != (after, line)

    with ThreadPoolExecutor(2) as pool:
        wrong = dict(zip(checkpoints, pool.map(differs, checkpoints), strict=True))
    assert [step for step in checkpoints if wrong[step]] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), EVERY)
def test_a_run_ended_at_every_boundary(
    zygote: Zygote, tmp_path: Path, name: str, steps: int
) -> None:
    """No process lives longer than one step."""
    runs = Runs(zygote, tmp_path, getattr(programs, name), seeded=False)
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
    ],
)
def test_several_suspends_in_one_run(
    zygote: Zygote, tmp_path: Path, name: str, steps: tuple[int, ...]
) -> None:
    """Each to a new process; the script has no seed of its own."""
    runs = Runs(zygote, tmp_path, getattr(programs, name), seeded=False)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


def test_a_loop_with_a_running_sum_is_never_called_exact(zygote: Zygote, tmp_path: Path) -> None:
    """Plain variables come back, but what else a loop keeps in Python is not known."""
    runs = Runs(zygote, tmp_path, programs.USUAL)
    with ending(runs.trial("said").launch(zygote)) as trial:
        trial.start(limit=2)
        trial.until("parked")
        trial.suspend("checkpoint")
        saved = trial.until("suspended")["checkpoint"]
        trial.start(restore=saved["path"], limit=3)
        trial.until("parked")
        said = fidelity(trial)
    assert {level for level, _ in said} == {"parameters-exact"}
    assert all("keeps in Python are not" in reason and "attach()" in reason for _, reason in said)
    manifest = json.loads((Path(saved["path"]) / "manifest.json").read_text())
    assert manifest["fidelity"] == "parameters-exact"


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
    ],
)
def test_what_cannot_be_rebuilt_only_parks(
    zygote: Zygote, tmp_path: Path, name: str, word: str
) -> None:
    """It says why, and a suspend keeps the process."""
    runs = Runs(zygote, tmp_path, getattr(programs, name))
    with ending(runs.trial("only").launch(zygote)) as trial:
        trial.start(limit=4)
        assert trial.until("parked")["step"] == 4
        level, reason = fidelity(trial)[-1]
        assert level == "park-only"
        assert word in reason
        # What is known from the first batch on is said at once.
        assert len(fidelity(trial)) == (1 if name not in ("RETURNED", "MADE_INSIDE") else 2)
        trial.suspend("checkpoint")
        trial.resume()
        trial.until("completed")
        losses, _ = outcome(trial)
    assert sorted(losses) == list(range(1, 7))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("", "[17, 6]"),  # another width
        ("x = x[: 50 - 40 * os.path.exists('again')]; data = TensorDataset(x, y[: len(x)])", "end"),
        ("again = os.path.exists('again') and list(DataLoader(data))", "a pass in"),
        ("if os.path.exists('again'): raise KeyError('again')", "KeyError: 'again'"),
        ("if os.path.exists('again'): raise SystemExit", "before it came to where"),
    ],
)
def test_another_program_than_at_the_checkpoint_is_refused(
    zygote: Zygote, tmp_path: Path, change: str, word: str
) -> None:
    """A program that is not repeatable must not go on as if it were."""
    body = programs.USUAL
    if not change:
        body = body.replace("16", "(15 + 2 * os.path.exists('again'))")
    body = f"{change}\n{body}"
    runs = Runs(zygote, tmp_path, body)
    with ending(runs.trial("other").launch(zygote)) as trial:
        trial.start(limit=5)
        trial.until("parked")
        trial.suspend("checkpoint")
        (trial.directory / "work" / "again").touch()
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="restore") as refused:
            trial.until("completed")
        assert word in str(refused.value)


def test_a_program_that_speaks_for_itself_is_left_alone(zygote: Zygote, tmp_path: Path) -> None:
    """With the explicit interface, the program says what a step is, saves and restores."""
    runs = Runs(zygote, tmp_path, programs.EXPLICIT)
    with ending(runs.trial("explicit").launch(zygote)) as trial:
        trial.start(limit=3)
        assert trial.until("parked")["step"] == 3
        trial.suspend("checkpoint")
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        trial.until("completed")
        assert {level for level, _ in fidelity(trial)} == {"author"}
        resumed = outcome(trial)
    assert sorted(resumed[0]) == [1, 2, 3, 4, 5]
    assert resumed == runs.undisturbed()
