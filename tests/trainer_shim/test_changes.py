"""A finished trial that is given another value trains on with it, or says by name that it can't.

What it computes is compared, bit for bit, with a run that sets the value itself amid its epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import keras_backend_programs, keras_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, Zygote, environment
from tests.trainer_shim.suspending import Runs, outcome, warm_zygote
from trainer_shim.adapters.changes import found
from trainer_shim.agent import Change

_ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("epochs", type=int)
parser.add_argument("--rate", "--learning_rate", type=float, default=0.001)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--depth", type=int, default=1)
parser.add_argument("--later", type=float)  # the rate from the third epoch on
args = parser.parse_args()
"""

KERAS = (
    _ARGUMENTS
    + """
class Later(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if args.later and epoch == 2:
            self.model.optimizer.learning_rate = args.later

model = keras.Sequential([layers.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])
model.compile(keras.optimizers.SGD(args.rate, momentum=args.momentum), "mse")
model.fit(x, y, batch_size=20, epochs=args.epochs, verbose=0, callbacks=[Later()])
final(model, float(model.optimizer.learning_rate))
"""
)

TORCH = (
    _ARGUMENTS
    + """
torch.manual_seed(4)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=args.momentum)
for epoch in range(args.epochs):
    if args.later and epoch == 2:
        optimizer.param_groups[0]["lr"] = args.later
    for inputs, targets in DataLoader(data, batch_size=10, shuffle=True):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
final(digest(model), optimizer.param_groups[0]["lr"])
"""
)


@pytest.fixture(scope="module")
def torch_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as warm:
        yield warm


FRAMEWORKS = [
    pytest.param("keras", marks=pytest.mark.tensorflow),
    pytest.param("torch", marks=pytest.mark.torch),
]


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    """Runs of the program of a framework."""
    if request.param == "keras":
        program = keras_programs.program(KERAS, seeded=True)
        return Runs(request.getfixturevalue("zygote"), tmp_path, program)
    if request.param == "keras on jax":
        program = keras_backend_programs.program(KERAS, seeded=True)
        jax_zygote = request.getfixturevalue("jax_zygote")
        return Runs(jax_zygote, tmp_path, program, KERAS_BACKEND="jax")
    program = torch_programs.program(TORCH, seeded=True)
    return Runs(request.getfixturevalue("torch_zygote"), tmp_path, program)


def ended(runs: Runs, epochs: str, restore: str | None = None, **values: object) -> Trial:
    """A trial of so many epochs with these values, once it is over; perhaps from a checkpoint."""
    number = len(list(runs.folder.iterdir()))
    with runs.trial(f"t{number}", epochs, **values) as trial:
        trial.start(restore=restore)
        trial.until("completed", "failed")
        return trial


def checkpoint_of(trial: Trial) -> str:
    path: str = trial.events[-1]["checkpoint"]["path"]
    return path


@pytest.mark.parametrize(
    ("runs", "name"),
    [
        pytest.param("keras", "learning_rate", marks=pytest.mark.tensorflow),
        pytest.param("keras", "rate", marks=pytest.mark.tensorflow),  # known by its value alone
        pytest.param("keras on jax", "learning_rate", marks=pytest.mark.jax),
        pytest.param("torch", "learning_rate", marks=pytest.mark.torch),
    ],
    indirect=["runs"],
)
def test_a_trial_trains_on_with_the_learning_rate_that_it_is_given(runs: Runs, name: str) -> None:
    losses, final = outcome(ended(runs, "4", rate=0.001, later=0.05))
    first = ended(runs, "2", **{name: 0.001})
    more = ended(runs, "4", checkpoint_of(first), **{name: 0.05})
    assert more.events[-1]["kind"] == "completed", more.events[-1]
    assert outcome(first)[0] | outcome(more)[0] == losses
    assert outcome(more)[1] == final
    # And on from there: what was set is not set again.
    again = ended(runs, "5", checkpoint_of(more), **{name: 0.05})
    assert again.events[-1]["kind"] == "completed"


@pytest.mark.parametrize("runs", FRAMEWORKS, indirect=True)
@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({}, {"depth": 3}, "depth to 3"),
        ({"depth": 2}, {"depth": 3}, "depth to 3 (it was 2)"),
        ({"rate": 0.001}, {"rate": 0.001, "later": 0.05}, "later to 0.05"),
    ],
)
def test_what_cannot_be_put_into_effect_is_refused_by_name(
    runs: Runs, then: dict[str, object], now: dict[str, object], words: str
) -> None:
    """No step is trained under a name that is not true of it."""
    first = ended(runs, "2", **then)
    failed = ended(runs, "4", checkpoint_of(first), **now).events[-1]
    assert (failed["kind"], failed["error_kind"]) == ("failed", "restore")
    assert f"an extension cannot set {words}" in failed["detail"]
    assert "learning_rate" in failed["detail"]


@pytest.mark.tensorflow
@pytest.mark.parametrize("runs", ["keras"], indirect=True)
def test_an_optimizer_with_other_variables_is_refused_by_the_values_name(runs: Runs) -> None:
    first = ended(runs, "2", momentum=0)
    failed = ended(runs, "4", checkpoint_of(first), momentum=0.9).events[-1]
    assert failed["kind"] == "failed"
    assert "an extension cannot set momentum to 0.9 (it was 0)" in failed["detail"]


@pytest.mark.torch
@pytest.mark.parametrize("runs", ["torch"], indirect=True)
def test_a_momentum_of_pytorch_is_put_into_effect(runs: Runs) -> None:
    first = ended(runs, "2", momentum=0)
    with_it = ended(runs, "4", checkpoint_of(first), momentum=0.9)
    assert with_it.events[-1]["kind"] == "completed"
    without, _ = outcome(ended(runs, "4", checkpoint_of(first), momentum=0))
    losses, _ = outcome(with_it)
    assert [step for step in losses if losses[step] != without[step]] == [*range(13, 21)]


def test_a_program_that_restores_itself_is_given_the_new_values(make_trial: MakeTrial) -> None:
    script = """
import json, trainer_shim.api as hermes
trial = hermes.attach()
def save(folder):
    open(f"{folder}/state", "w").write("")
for step in range(trial.resume.step if trial.resume else 0, trial.params["epochs"]):
    trial.report(step + 1, loss=trial.params["rate"], save=save)
"""
    given = {"lengths": ["epochs"], "env": environment()}
    first = make_trial(script, parameters={"epochs": 2, "rate": 0.1}, **given).launch()
    first.start()
    path = first.until("completed")["checkpoint"]["path"]
    more = make_trial(script, parameters={"epochs": 4, "rate": 0.2}, **given).launch()
    more.start(restore=path)
    more.until("completed")
    assert more.losses() == {3: 0.2, 4: 0.2}


def test_a_value_is_found_among_what_an_optimizer_is_made_with() -> None:
    made = {"learning_rate": 0.05000000074505806, "momentum": 0.9, "nesterov": True}
    then = {"learning_rate": 0.0010000000474974513, "momentum": 0.9, "nesterov": False}
    assert found(Change("lr", 0.001, 0.05), made, then) == ["learning_rate"]
    assert found(Change("lr", None, 0.05), made, None) == ["learning_rate"]
    assert found(Change("base", 0.001, 0.05), made, then) == ["learning_rate"]
    assert found(Change("base", 0.002, 0.05), made, then) == []
    assert found(Change("lr", 0.001, 0.01), made, then) == []  # the program has made it otherwise
    assert found(Change("nesterov", False, True), made, then) == ["nesterov"]
    assert found(Change("flag", 0, 1), made, then) == []
