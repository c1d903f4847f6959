"""Suspended and resumed, a Keras program on PyTorch or JAX computes what it computes undisturbed.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_shim import keras_backend_programs as own
from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote
from tests.trainer_shim.test_stages import (
    KERAS_BATCHES,
    KERAS_SETTINGS,
    batches_change,
    changed_batches,
    constants_change,
)

pytestmark = pytest.mark.timeout(300)

# With --own the program sets the rate itself, from its third epoch on.
RATES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("epochs", type=int)
parser.add_argument("--own")
args, _ = parser.parse_known_args()
class Own(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if args.own and epoch == 2:
            self.model.optimizer.learning_rate = 0.003
model = keras.Sequential([layers.Input((6,)), layers.Dense(5, "tanh"), layers.Dense(1)])
model.compile("adam", "mse")
model.optimizer.learning_rate = 0.01
model.fit(x, y, batch_size=20, epochs=args.epochs, verbose=0, callbacks=[Own()])
final(model)
"""


def on(backend: str, *values: Any, id: str = "") -> Any:
    """A case of a test, run where this backend is installed."""
    marks = getattr(pytest.mark, backend)
    return pytest.param(backend, *values, id=f"{backend}{id and '-'}{id}", marks=marks)


each_backend = pytest.mark.parametrize("warm", [on("torch"), on("jax")], indirect=True)


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Zygote]]:
    """By backend a process that has imported Keras with it, and run nothing."""
    with ExitStack() as stack:

        @functools.cache
        def zygote(backend: str) -> Zygote:
            folder = tmp_path_factory.mktemp("zygote")
            return stack.enter_context(warm_zygote(folder, "keras", KERAS_BACKEND=backend))

        yield zygote


@pytest.fixture
def warm(zygotes: Callable[[str], Zygote], request: pytest.FixtureRequest) -> tuple[Zygote, str]:
    """The process of a backend, and the backend's name."""
    return zygotes(request.param), request.param


def runs_of(warm: tuple[Zygote, str], folder: Path, body: str, seeded: bool = False) -> Runs:
    """Runs of the program with this body."""
    zygote, backend = warm
    return Runs(zygote, folder, own.program(body, seeded), KERAS_BACKEND=backend)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@each_backend
def test_every_boundary_parked_and_restored(warm: tuple[Zygote, str], tmp_path: Path) -> None:
    runs = runs_of(warm, tmp_path, programs.EVERYTHING)
    undisturbed = runs.undisturbed()
    parked, checkpoints, work = runs.parked_everywhere("exact")
    assert parked == undisturbed
    assert runs.resumed_wrongly(undisturbed, checkpoints, work) == []


@each_backend
def test_a_seeded_run_is_the_plain_one(warm: tuple[Zygote, str], tmp_path: Path) -> None:
    """A program that seeds itself computes the same as without Hermes, suspended or not."""
    runs = runs_of(warm, tmp_path, programs.EVERYTHING, seeded=True)
    undisturbed = runs.undisturbed()
    assert len(set(undisturbed[0].values())) == 40
    assert undisturbed[1] == runs.plain()
    assert runs.suspended(2, 20, 39) == undisturbed


@each_backend
def test_a_learning_rate_changes_as_if_the_program_changed_it(
    warm: tuple[Zygote, str], tmp_path: Path
) -> None:
    runs = runs_of(warm, tmp_path, RATES, seeded=True)
    rate_changes(runs)


@pytest.mark.parametrize("warm", [on("torch")], indirect=True)
def test_keras_has_its_rate_changed_beside_an_optimizer_of_pytorch(
    warm: tuple[Zygote, str], tmp_path: Path
) -> None:
    beside = "import torch\nbeside = torch.optim.SGD([torch.zeros(1)], lr=0.01)\n"
    rate_changes(runs_of(warm, tmp_path, beside + RATES, seeded=True))


def rate_changes(runs: Runs) -> None:
    """As by the program itself."""
    with runs.trial("own", "4", own=1) as own:
        own.start()
        own.until("completed")
        expected = outcome(own)
    changing = [(10, {"learning_rate": 0.01}), (None, {"learning_rate": 0.003})]
    with runs.trial("set", "4", stages=changing) as trial:
        trial.start()
        trial.until("completed")
        assert outcome(trial) == expected


@each_backend
def test_constants_of_a_step_change_as_if_the_program_changed_them(
    warm: tuple[Zygote, str], tmp_path: Path
) -> None:
    constants_change(runs_of(warm, tmp_path, KERAS_SETTINGS, seeded=True))


@each_backend
def test_other_batches_are_read_from_the_next_epoch_on(
    warm: tuple[Zygote, str], tmp_path: Path
) -> None:
    batches_change(runs_of(warm, tmp_path, KERAS_BATCHES, seeded=True))


@each_backend
def test_the_order_of_other_batches_is_drawn(warm: tuple[Zygote, str], tmp_path: Path) -> None:
    runs = runs_of(warm, tmp_path, KERAS_BATCHES, seeded=True)
    assert list(changed_batches(runs, shuffle=1)[0]) == [*range(1, 17)]


@each_backend
def test_why_a_value_cannot_be_taken_is_said(warm: tuple[Zygote, str], tmp_path: Path) -> None:
    runs = runs_of(warm, tmp_path, KERAS_SETTINGS)
    without = failed(runs, "momentum", 0.0, 0.9, momentum=0.0)
    assert (
        "sequence cannot set momentum to 0.9 at step 3: what was made without momentum" in without
    )
    other = failed(runs, "momentum", 0.9, 0.5, momentum=0.0)
    assert "sequence cannot set momentum to 0.9 at step 1: what was made without momentum" in other
    assert "a whole number of examples, not 0.5" in failed(runs, "batch_size", 20, 0.5)


def failed(runs: Runs, name: str, first: float, then: float, **given: object) -> str:
    """How a trial ends of which this is to change at its third step."""
    changing = [(3, {name: first}), (None, {name: then})]
    with runs.trial(f"failed-{name}-{first}", "1", stages=changing, **given) as trial:
        trial.start()
        detail: str = trial.until("failed")["detail"]
        return detail


@pytest.mark.parametrize(
    ("warm", "body", "steps"),
    [
        on("torch", programs.TWO_FITS, (5, 16, 23), id="TWO_FITS"),
        on("torch", programs.STOPPED, (4, 9), id="STOPPED"),
        on("torch", programs.NESTED_LOGS, (5, 11), id="NESTED_LOGS"),
        on("torch", programs.OWN_NUMBERS, (3, 12), id="OWN_NUMBERS"),
        on("torch", programs.ENDLESS, (4, 10, 13), id="ENDLESS"),
        on("torch", own.LOADERS, (3, 9, 22), id="LOADERS"),
        on("torch", own.MODULES, (2, 11), id="MODULES"),
        on("torch", own.AVERAGES, (5, 25), id="AVERAGES"),
        on("torch", own.CHANGED_TENSORS, (5, 25), id="CHANGED_TENSORS"),
        on("torch", own.DRAWN, (4, 13), id="DRAWN"),
        on("torch", own.BY_BATCH, (3, 12), id="BY_BATCH"),
        on("jax", programs.TWO_FITS, (5, 16, 23), id="TWO_FITS"),
        on("jax", programs.LONG_PASSES, (2, 6, 10), id="LONG_PASSES"),
        on("jax", programs.STOPPED, (4, 9), id="STOPPED"),
        on("jax", programs.NESTED_LOGS, (5, 11), id="NESTED_LOGS"),
        on("jax", programs.ENDLESS, (4, 10, 13), id="ENDLESS"),
        on("jax", programs.ENDING, (7, 10, 18), id="ENDING"),
        on("jax", own.LOADERS, (3, 9, 22), id="LOADERS"),
        on("jax", own.OWN_STEP, (3, 10), id="OWN_STEP"),
        on("jax", own.DRAWN, (4, 13), id="DRAWN"),
        on("jax", own.AVERAGES, (5, 25), id="AVERAGES"),
    ],
    indirect=["warm"],
)
def test_suspends_of_other_programs(
    warm: tuple[Zygote, str], tmp_path: Path, body: str, steps: tuple[int, ...]
) -> None:
    """Several suspends in one run, each to a new process; the script has no seed of its own."""
    runs = runs_of(warm, tmp_path, body)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


@pytest.mark.parametrize(
    ("warm", "body", "level", "word"),
    [
        on("torch", own.OPTIMIZER, "park-only", "an optimizer of PyTorch's own", id="OPTIMIZER"),
        on("torch", own.COMPILED, "park-only", "jit_compile", id="COMPILED"),
        on("torch", programs.WORKERS, "park-only", "read by workers", id="WORKERS"),
        on("torch", own.MODULES, "exact-if-deterministic", "what Own keeps", id="MODULES"),
        on("jax", programs.EAGER, "park-only", "run_eagerly", id="EAGER"),
        on("jax", own.PIPELINE, "park-only", "position of a TFDataset", id="PIPELINE"),
        on("jax", programs.TWO_FITS, "exact", "arrays", id="TWO_FITS"),
    ],
    indirect=["warm"],
)
def test_what_is_promised(
    warm: tuple[Zygote, str], tmp_path: Path, body: str, level: str, word: str
) -> None:
    """It is known once a step is done, and a suspend of what only parks keeps the process."""
    runs = runs_of(warm, tmp_path, body)
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
