"""Suspends that are asked for at moments that are no boundary: while a program starts, amid a
validation and amid the last step.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.trainer_shim import (
    keras_programs,
    tf_programs,
    torch_programs,
    trainer_programs,
)
from tests.trainer_shim.driving import Trial, Zygote
from tests.trainer_shim.suspending import Outcome, Runs, outcome, suspend, warm_zygote
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

# A program says that it is in a place if it is to wait there, and waits until it was asked.
PAUSE = """
import os
def pause(place, here):
    if here and os.path.exists("../" + place):
        os.rename("../" + place, "../reached")
        while not os.path.exists("../asked"):
            pass

pause("starting", True)
"""

FIT = """
class Places(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_begin(self, batch, logs=None):
        pause("last", (self.epoch, batch) == (2, 3))
    def on_test_batch_begin(self, batch, logs=None):
        pause("validating", (self.epoch, batch) == (1, 1))

model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse")
x, y, held_x, held_y = x[:48], y[:48], x[48:60], y[48:60]
"""
ARRAYS = """
history = model.fit(x, y, batch_size=12, epochs=3, validation_data=(held_x, held_y),
                    validation_batch_size=6, verbose=0, callbacks=[Places()])
final({final}, history.history)
"""
DATASETS = """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48).batch(12).prefetch(2)
held = tf.data.Dataset.from_tensor_slices((held_x, held_y)).shuffle(12).batch(6)
history = model.fit(data, epochs=3, validation_data=held, verbose=0, callbacks=[Places()])
final(model, history.history)
"""
GENERATORS = """
def batches(x, y, size):
    random = np.random.default_rng(size)
    while True:
        rows = random.permutation(len(x))[:size]
        yield x[rows], y[rows]

history = model.fit(batches(x, y, 12), steps_per_epoch=4, epochs=3, verbose=0, validation_steps=2,
                    validation_data=batches(held_x, held_y, 6), callbacks=[Places()])
final(model, history.history)
"""
LEGACY = """
keras = tf.keras
layers, callbacks = keras.layers, keras.callbacks
"""

TF_FUNCTION = """
data = tf.data.Dataset.from_tensor_slices((x[:48], y[:48])).shuffle(48).batch(12)
held = tf.data.Dataset.from_tensor_slices((x[48:], y[48:])).batch(6)
weight = tf.Variable(tf.random.normal([6, 1]))

@tf.function
def error(x, y):
    return tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)

@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = error(tf.nn.dropout(x, 0.2), y)
    weight.assign_sub(0.05 * tape.gradient(loss, weight))
    return loss

losses, checked = [], []
for epoch in range(3):
    for index, batch in enumerate(data):
        pause("last", (epoch, index) == (2, 3))
        losses.append(float(train(*batch)))
    for index, batch in enumerate(held):
        pause("validating", (epoch, index) == (1, 1))
        checked.append(float(error(*batch)))
final([weight.numpy()], losses, checked)
"""

LOOP = """
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
loader = DataLoader(data, batch_size=14, shuffle=True)
held = DataLoader(data, batch_size=25)
seen, checked = [], []
for epoch in range(3):
    model.train()
    for index, (inputs, target) in enumerate(loader):
        pause("last", (epoch, index) == (2, 3))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    model.eval()
    right = 0
    with torch.no_grad():
        for index, (inputs, target) in enumerate(held):
            pause("validating", (epoch, index) == (1, 1))
            right += (model(inputs).argmax(dim=1) == target).sum().item()
    checked.append(right)
final(seen, digest(model), checked)
"""

LIGHTNING = trainer_programs.LIGHTNING_USUAL.replace(
    "callbacks=[stop, best]", "callbacks=[stop, best, Places()]"
).replace(
    "model = Base()",
    """
class Places(pl.Callback):
    def on_train_batch_start(self, trainer, module, batch, index):
        pause("last", (trainer.current_epoch, index) == (2, 6))
    def on_validation_batch_start(self, trainer, module, batch, index, *_):
        pause("validating", (trainer.current_epoch, index) == (1, 1))

model = Base()""",
)
TRANSFORMERS = trainer_programs.TRANSFORMERS_USUAL.replace(
    "callbacks=[", "callbacks=[Places(), "
).replace(
    "model = Model()",
    """
class Places(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        pause("last", state.global_step == 13)
    def on_prediction_step(self, args, state, control, **_):
        pause("validating", state.global_step == 7)

model = Model()""",
)

EXPLICIT = """
import json, pathlib, random, trainer_shim
trial = trainer_shim.attach()
state, step = [1.0, []], 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())
def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))
while step < 12:
    if step and step % 4 == 0 and len(state[1]) < step // 4:
        for index in range(2):
            pause("validating", (step, index) == (8, 1))
        state[1].append(state[0] / 2)
    pause("last", step == 11)
    state[0], step = state[0] * 0.9, step + 1
    trial.report(step, loss=state[0], save=save)
print("FINAL", json.dumps(state))
"""

# What is imported before a program starts, and with what in its environment.
PRELOADED = {
    "legacy": ("tensorflow", {"TF_USE_LEGACY_KERAS": "1"}),
    "torch": ("tests.trainer_shim.preloaded", {}),
    "nothing": ("", {}),
}


class Kind(NamedTuple):
    """A program, what is preloaded for it, and what is needed to run it."""

    body: str
    preloaded: str = "keras"
    program: Callable[[str, bool], str] = keras_programs.program
    done: int = 8  # steps when it validates
    steps: int = 12
    needs: tuple[str, ...] = ("tensorflow",)


KINDS = {
    "arrays": Kind(FIT + ARRAYS.format(final="model")),
    "datasets": Kind(FIT + DATASETS),
    "generators": Kind(FIT + GENERATORS),
    "keras-2": Kind(
        LEGACY + FIT + ARRAYS.format(final="model.get_weights()"), "legacy", tf_programs.program
    ),
    "tf-function": Kind(TF_FUNCTION, program=tf_programs.program),
    "torch": Kind(LOOP, "torch", torch_programs.program, needs=("torch",)),
    # It validates before it has done with the last step of an epoch.
    "lightning": Kind(
        LIGHTNING, "torch", trainer_programs.program, 13, 21, needs=("torch", "lightning")
    ),
    "transformers": Kind(
        TRANSFORMERS, "torch", trainer_programs.program, 7, 14, needs=("torch", "transformers")
    ),
    "explicit": Kind(EXPLICIT, "nothing", lambda body, seeded: body, needs=()),
}


def case(name: str, tier: str) -> Any:
    """A case of a test; a few are fast enough to be run each time."""
    marks = [getattr(pytest.mark, needed) for needed in KINDS[name].needs]
    if name == "keras-2":
        marks.append(pytest.mark.tf_keras)
    if name != "explicit" and (name, tier) != ("arrays", "checkpoint"):
        marks.append(pytest.mark.slow)
    return pytest.param(name, tier, marks=marks)


CASES = [case(name, tier) for name in KINDS for tier in ("park", "checkpoint")]
each_case = pytest.mark.parametrize(("name", "tier"), CASES)
RunsOf = Callable[[str], tuple[Runs, Outcome]]


@pytest.fixture(scope="module")
def runs_of(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunsOf]:
    """By the name of a kind: runs of its program, and how one ends that nobody disturbs."""
    with ExitStack() as stack:

        @functools.cache
        def started(preloaded: str) -> Zygote:
            if preloaded == "keras":
                shared: Zygote = request.getfixturevalue("zygote")
                return shared
            module, variables = PRELOADED[preloaded]
            folder = tmp_path_factory.mktemp("zygote")
            return stack.enter_context(warm_zygote(folder, module, **variables))

        @functools.cache
        def runs(name: str) -> tuple[Runs, Outcome]:
            kind = KINDS[name]
            program = kind.program(PAUSE + kind.body, False)
            variables = PRELOADED.get(kind.preloaded, ("", {}))[1]
            folder = tmp_path_factory.mktemp(name)
            made = Runs(started(kind.preloaded), folder, program, **variables)
            undisturbed = made.undisturbed()
            assert max(undisturbed[0]) == kind.steps
            return made, undisturbed

        yield runs


@contextmanager
def waiting(runs: Runs, place: str, tier: str) -> Iterator[Trial]:
    """A trial that waits in this place."""
    with runs.trial(f"{place}-{tier}") as trial:
        (trial.directory / place).touch()
        trial.start()
        if place != "starting":
            trial.until("started")
        until((trial.directory / "reached").exists)
        yield trial


def go_on(trial: Trial) -> None:
    """Let the program go on, which has been asked by now."""
    trial.send("attach", after=trial.events[-1]["seq"])
    trial.until("attached")
    (trial.directory / "asked").touch()


@each_case
def test_asked_while_it_starts(runs_of: RunsOf, name: str, tier: str) -> None:
    """There is nothing to save yet: it is held wherever it is, and goes on from there."""
    runs, undisturbed = runs_of(name)
    with waiting(runs, "starting", tier) as trial:
        trial.suspend(tier)
        held = trial.until("parked")
        assert (held["step"], held["at_boundary"]) == (0, False)
        (trial.directory / "asked").touch()
        if tier == "park":
            trial.resume()
        else:
            trial.resume(limit=1)
            assert trial.until("parked")["step"] == 1
            trial.start(restore=suspend(trial)["checkpoint"]["path"])
        trial.until("completed")
        assert outcome(trial) == undisturbed


@each_case
def test_asked_while_it_validates(runs_of: RunsOf, name: str, tier: str) -> None:
    """It is stopped amid the validation where that outlasts the deadline; else it gives the
    device back after the first step of the next epoch."""
    runs, undisturbed = runs_of(name)
    done = KINDS[name].done
    with waiting(runs, "validating", tier) as trial:
        if tier == "park":
            trial.suspend("park", deadline=0.2)
            held = trial.until("parked")
            assert (held["step"], held["at_boundary"]) == (done, False)
            (trial.directory / "asked").touch()
            trial.resume()
        else:
            trial.suspend("checkpoint")
            go_on(trial)
            suspended = trial.until("suspended")
            assert (suspended["tier"], suspended["step"]) == ("checkpoint", done + 1)
            trial.start(restore=suspended["checkpoint"]["path"])
        trial.until("completed")
        assert outcome(trial) == undisturbed


@each_case
def test_asked_amid_the_last_step(runs_of: RunsOf, name: str, tier: str) -> None:
    """What is left to do after it is done by the process that is held, or by a new one."""
    runs, undisturbed = runs_of(name)
    last = KINDS[name].steps
    with waiting(runs, "last", tier) as trial:
        trial.suspend(tier)
        go_on(trial)
        if tier == "park":
            held = trial.until("parked")
            assert (held["step"], held["at_boundary"]) == (last, True)
            trial.resume()
        else:
            suspended = trial.until("suspended")
            assert (suspended["tier"], suspended["step"]) == ("checkpoint", last)
            trial.start(restore=suspended["checkpoint"]["path"])
        trial.until("completed")
        assert outcome(trial) == undisturbed


@pytest.mark.tensorflow
def test_asked_before_it_has_begun(runs_of: RunsOf) -> None:
    """Its first line may not have been reached yet."""
    runs, undisturbed = runs_of("arrays")
    with runs.trial("at-once") as trial:
        trial.start()
        trial.suspend("checkpoint")
        held = trial.until("parked")
        assert (held["step"], held["at_boundary"]) == (0, False)
        trial.resume()
        trial.until("completed")
        assert outcome(trial) == undisturbed
