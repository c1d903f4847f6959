"""Suspended anywhere and resumed, a script on Lightning or the Hugging Face Trainer computes what
it computes without Hermes.

Every comparison is bit for bit: each step's loss, the parameters and everything printed last.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import trainer_programs as programs
from tests.trainer_shim.driving import ROOT, Trial, Zygote, environment
from tests.trainer_shim.suspending import Runs, fidelity, outcome, promised, warm_zygote

lightning, transformers = pytest.mark.lightning, pytest.mark.transformers
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch and the frameworks, and run nothing."""
    preloaded = "tests.trainer_shim.preloaded"
    with warm_zygote(tmp_path_factory.mktemp("zygote"), preloaded) as warm:
        yield warm


def runs_of(zygote: Zygote, folder: Path, body: str, seeded: bool = True) -> Runs:
    """Runs of the program with this body."""
    return Runs(zygote, folder, programs.program(body, seeded))


EVERY = [
    pytest.param("LIGHTNING_USUAL", 21, marks=lightning),
    pytest.param("LIGHTNING_TWO", 12, marks=lightning),
    pytest.param("LIGHTNING_MANUAL", 13, marks=lightning),
    pytest.param("TRANSFORMERS_USUAL", 14, marks=transformers),
    pytest.param("TRANSFORMERS_OWN", 10, marks=transformers),
    pytest.param("TRANSFORMERS_BERT", 8, marks=transformers),
]
# The first step, the last of an epoch, amid one, where it validates, the very last.
SOME = [
    pytest.param("LIGHTNING_USUAL", (1, 7, 10, 21), marks=lightning),
    pytest.param("LIGHTNING_RICH_BAR", (3, 7, 10, 17), marks=lightning),
    pytest.param("LIGHTNING_TQDM_BAR", (3, 7, 10, 17), marks=lightning),
    pytest.param("LIGHTNING_TWO", (3, 5, 6, 8), marks=lightning),
    pytest.param("LIGHTNING_MANUAL", (3, 4, 9), marks=lightning),
    pytest.param("TRANSFORMERS_USUAL", (3, 7, 10, 14), marks=transformers),
    pytest.param("TRANSFORMERS_BAR", (3, 7, 10), marks=transformers),
    pytest.param("TRANSFORMERS_OWN", (2, 4, 5, 10), marks=transformers),
    pytest.param("TRANSFORMERS_BERT", (2, 4, 7), marks=transformers),
]


@pytest.mark.parametrize(("name", "steps"), EVERY)
def test_parked_at_every_boundary(zygote: Zygote, tmp_path: Path, name: str, steps: int) -> None:
    """Held and saved at each, it computes what the plain script does."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    (losses, line), checkpoints, _ = runs.parked_everywhere("parameters-exact")
    assert line == runs.plain()
    assert list(checkpoints) == list(losses) == list(range(1, steps + 1))


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


@pytest.mark.parametrize(("name", "steps"), SOME)
def test_several_suspends_in_one_run(
    zygote: Zygote, tmp_path: Path, name: str, steps: tuple[int, ...]
) -> None:
    """Each to a new process; the script has no seed of its own."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name), seeded=False)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


@lightning
def test_a_framework_may_lie_apart_from_the_packages_it_needs(tmp_path: Path) -> None:
    """As after `pip install --target`, or with packages of the system's Python."""
    spec = importlib.util.find_spec("lightning")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    apart = tmp_path / "apart"
    for folder in (installed, *installed.parent.glob("lightning-*.dist-info")):
        shutil.copytree(folder, apart / folder.name)
    program = programs.program(programs.LIGHTNING_USUAL, seeded=False)
    runs = Runs(None, tmp_path, program, PYTHONPATH=str(apart))
    undisturbed = runs.undisturbed()
    assert runs.suspended(1, 10) == undisturbed


@pytest.mark.parametrize(
    ("name", "metrics", "ends"),
    [
        pytest.param(
            "LIGHTNING_USUAL",
            {"train_loss_step", "train_loss_epoch", "val_loss", "val_right"},
            [7, 14, 21],
            marks=lightning,
        ),
        pytest.param(
            "TRANSFORMERS_USUAL",
            {"eval_loss", "eval_right", "learning_rate", "grad_norm"},
            [7, 14],
            marks=transformers,
        ),
    ],
)
def test_what_is_logged_is_reported_once(
    zygote: Zygote, tmp_path: Path, name: str, metrics: set[str], ends: list[int]
) -> None:
    """Under the step it was logged at, beside the loss of each step; no durations are."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name))
    with runs.trial("reported") as trial:
        trial.start(limit=8)
        assert trial.until("parked")["step"] == 8
        trial.suspend("checkpoint")
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        trial.until("completed")
        reported = points(trial)
    ((_, level),) = {("said", level) for level, _ in promised(trial)}
    assert level == "parameters-exact"
    assert metrics <= set().union(*reported.values())
    validated = {"val_loss", "eval_loss"}
    assert [step for step, values in reported.items() if validated & values.keys()] == ends
    assert all(isinstance(values["loss"], float) for values in reported.values())
    assert not [name for values in reported.values() for name in values if "runtime" in name]


def points(trial: Trial) -> dict[int, dict[str, float]]:
    """What was reported of each step; told twice, it must be the same."""
    found: dict[int, dict[str, float]] = {}
    for event in trial.events:
        if event["kind"] == "reported":
            for step, values in event["points"]:
                assert not found.get(step, {}).keys() & values.keys()
                found.setdefault(step, {}).update(values)
    return found


@pytest.mark.parametrize(
    ("name", "word", "steps"),
    [
        pytest.param("LIGHTNING_STREAM", "position of the Stream", 5, marks=lightning),
        pytest.param("LIGHTNING_RELOADED", "reload_dataloaders", 5, marks=lightning),
        pytest.param("LIGHTNING_AFTER_A_LOOP", "had trained before", 5, marks=lightning),
        pytest.param("TRANSFORMERS_TWICE", "had trained before", 6, marks=transformers),
    ],
)
def test_what_cannot_be_rebuilt_only_parks(
    zygote: Zygote, tmp_path: Path, name: str, word: str, steps: int
) -> None:
    """It says why, a suspend keeps the process, and it trains on."""
    runs = runs_of(zygote, tmp_path, getattr(programs, name) + "final(seen, digest(model))\n")
    with runs.trial("only") as trial:
        trial.start(limit=steps - 1)
        assert trial.until("parked")["step"] == steps - 1
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        trial.suspend("checkpoint")
        trial.resume()
        trial.until("completed")
        assert outcome(trial)[1] == runs.plain()


@transformers
def test_a_batch_read_ahead_that_cannot_be_copied_keeps_the_process(
    zygote: Zygote, tmp_path: Path
) -> None:
    runs = runs_of(zygote, tmp_path, programs.TRANSFORMERS_ODD_BATCHES)
    with runs.trial("odd") as trial:
        trial.start(limit=2)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert "a Batch" in reason
        trial.send("checkpoint", id="one")
        assert "a Batch" in trial.until("checkpoint_failed")["reason"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("LIGHTNING_USUAL", marks=lightning),
        pytest.param("TRANSFORMERS_USUAL", marks=transformers),
    ],
)
def test_another_program_than_at_the_checkpoint_is_refused(
    zygote: Zygote, tmp_path: Path, name: str
) -> None:
    """A model of another width is named, not trained."""
    body = getattr(programs, name)
    change = "Net.__init__.__defaults__ = (8 + os.path.exists('../again'),)\n"
    runs = runs_of(zygote, tmp_path, change + body)
    with runs.trial("other") as trial:
        trial.start(limit=5)
        trial.until("parked")
        trial.suspend("checkpoint")
        (trial.directory / "again").touch()
        trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
        with pytest.raises(AssertionError, match="restore") as refused:
            trial.until("completed")
        assert "[9, 6]" in str(refused.value)


@lightning
def test_a_finished_fit_is_trained_further_as_if_asked_at_once(
    zygote: Zygote, tmp_path: Path
) -> None:
    """2 epochs and then 4 are the 4 of one run, callbacks and what they saved included."""
    runs = runs_of(zygote, tmp_path, programs.LIGHTNING_ASKED)
    assert runs.extended(["2", "4"], suspend_at=5) == runs.undisturbed("4")


@transformers
def test_a_finished_train_is_trained_further(zygote: Zygote, tmp_path: Path) -> None:
    """The schedule of the learning rate does not depend on how long it trains."""
    runs = runs_of(zygote, tmp_path, programs.TRANSFORMERS_ASKED)
    assert runs.extended(["2", "4"], suspend_at=5) == runs.undisturbed("4")


CHECK = """
from trainer_shim.adapters import private_names
from trainer_shim.adapters.torch import private
for name in "lightning.pytorch", "pytorch_lightning", private.HF_TRAINER:
    print(private.missing_of(name), "/", private.untested_of(name))
    if name != private.HF_TRAINER:
        optional = [(f"{name}.{one}", *rest) for one, *rest in private.LIGHTNING_OPTIONAL_USES]
        print(private.first_unused(optional, name))
private.LIGHTNING_USES += (("loops.loop", "_Loop.__init__", "_no_such_attribute"),)
print(private.missing_of("pytorch_lightning"))
private.LIGHTNING_NAMES += (("trainer.trainer", "Trainer.no_such_method"),)
print(private.missing_of("lightning.pytorch"))
private.TRANSFORMERS_USES += ((private.HF_TRAINER, "Trainer._run_epoch", "no_such_variable"),)
print(private.missing_of(private.HF_TRAINER))
private_names.TESTED["accelerate"] = ("0.1", "0.1")
print(private.untested_of(private.HF_TRAINER))
"""


@lightning
@transformers
def test_a_name_that_is_gone_and_a_version_untested_are_named() -> None:
    env = environment(PYTHONPATH=str(ROOT))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *here, unused, gone, variable, untested = run.stdout.splitlines()
    assert here == ["None / None", "None"] * 2 + ["None / None"]
    where = "pytorch_lightning.loops.loop._Loop.__init__"
    assert unused == f"pytorch_lightning has no _no_such_attribute in {where}"
    assert (
        gone == "lightning.pytorch has no lightning.pytorch.trainer.trainer.Trainer.no_such_method"
    )
    assert variable == (
        "transformers has no no_such_variable in transformers.trainer.Trainer._run_epoch"
    )
    assert untested.startswith("resuming is tested with accelerate 0.1, this is ")
