"""Hyper-parameters that change at given steps: a program without a schedule of its own computes,
bit for bit, what one computes that sets the values itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import keras_backend_programs, keras_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Event, Trial, Zygote, environment
from tests.trainer_shim.suspending import Outcome, Runs, outcome, warm_zygote
from trainer_shim.spec import Stages

_ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("epochs", type=int)
parser.add_argument("--learning_rate", type=float, default=0.01)
parser.add_argument("--rates", type=lambda text: [float(each) for each in text.split(",")])
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--rate_of_its_own", type=int, default=0)
parser.add_argument("--size", type=int, default=0)
args, _ = parser.parse_known_args()
"""

# With --rates a rate for each epoch, set by the program itself.
KERAS = (
    _ARGUMENTS
    + """
class Rates(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if args.rates:
            self.model.optimizer.learning_rate = args.rates[epoch]

rate = args.learning_rate
if args.rate_of_its_own:
    rate = keras.optimizers.schedules.ExponentialDecay(rate, 5, 0.5)
model = keras.Sequential([layers.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate, momentum=args.momentum), "mse")
model.fit(x, y, batch_size=20, epochs=args.epochs, verbose=0, callbacks=[Rates()])
final(model)
"""
)

TORCH = (
    _ARGUMENTS
    + """
torch.manual_seed(4)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)
if args.rate_of_its_own:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
for epoch in range(args.epochs):
    if args.rates:
        optimizer.param_groups[0]["lr"] = args.rates[epoch]
    for inputs, targets in DataLoader(data, batch_size=10, shuffle=True):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
final(digest(model))
"""
)


@pytest.fixture(scope="module")
def torch_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as warm:
        yield warm


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of the program of a framework."""
    # The name of a test is too long for a path of sockets.
    folder = tmp_path_factory.mktemp("runs")
    if request.param == "keras":
        program = keras_programs.program(KERAS, seeded=True)
        return Runs(request.getfixturevalue("zygote"), folder, program)
    if request.param == "keras on jax":
        program = keras_backend_programs.program(KERAS, seeded=True)
        jax_zygote = request.getfixturevalue("jax_zygote")
        return Runs(jax_zygote, folder, program, KERAS_BACKEND="jax")
    program = torch_programs.program(TORCH, seeded=True)
    return Runs(request.getfixturevalue("torch_zygote"), folder, program)


FRAMEWORKS = [
    pytest.param("keras", marks=pytest.mark.tensorflow),
    pytest.param("keras on jax", marks=[pytest.mark.jax, pytest.mark.timeout(300)]),
    pytest.param("torch", marks=pytest.mark.torch),
]
RATES = ("0.01,0.01,0.003,0.1", "0.01,0.01,0.2,0.05")  # two schedules with two epochs in common


def stages(rates: str, epoch_steps: int) -> list[tuple[int | None, dict[str, object]]]:
    """A stage for each epoch."""
    values = [float(each) for each in rates.split(",")]
    ends = [*range(epoch_steps, epoch_steps * len(values), epoch_steps), None]
    return [(end, {"learning_rate": value}) for end, value in zip(ends, values, strict=True)]


def alone(runs: Runs, rates: str) -> Outcome:
    """What the program comes to that sets its rates itself."""
    with runs.trial(f"alone-{RATES.index(rates)}", "4", rates=rates) as trial:
        trial.start()
        trial.until("completed")
        return outcome(trial)


@pytest.mark.parametrize("runs", FRAMEWORKS, indirect=True)
def test_stages_come_to_what_the_programs_own_schedule_comes_to(runs: Runs) -> None:
    """In one process; and as a fork: where two schedules part, the second goes on from the first's
    checkpoint there."""
    one, other = (alone(runs, rates) for rates in RATES)
    assert one[1] != other[1]
    epoch = len(one[0]) // 4
    with runs.trial("first", "4", stages=stages(RATES[0], epoch)) as first:
        first.start(limit=2 * epoch)
        assert first.until("parked")["step"] == 2 * epoch
        first.send("checkpoint", id="fork")
        fork = first.until("checkpointed")["path"]
        first.resume()
        first.until("completed")
        assert outcome(first) == one
    with runs.trial("second", "4", stages=stages(RATES[1], epoch)) as second:
        second.start(restore=fork)
        # Amid a stage, too.
        second.until("started")
        second.until("completed")
        losses, final = outcome(second)
    assert final == other[1]
    assert losses == {step: loss for step, loss in other[0].items() if step > 2 * epoch}


@pytest.mark.parametrize("runs", FRAMEWORKS, indirect=True)
def test_where_another_parts_a_checkpoint_is_written_in_passing(runs: Runs) -> None:
    """The first goes on in its process, as by itself, and the second from there."""
    one, other = (alone(runs, rates) for rates in RATES)
    epoch = len(one[0]) // 4
    forks = [(*stage, stage[0] == 2 * epoch) for stage in stages(RATES[0], epoch)]
    with runs.trial("first", "4", stages=forks) as first:
        first.start()
        fork = first.until("checkpointed")
        assert (fork["id"], fork["step"]) == (f"a1-fork-s{2 * epoch}", 2 * epoch)
        first.until("completed")
        assert outcome(first) == one
    with runs.trial("second", "4", stages=stages(RATES[1], epoch)) as second:
        second.start(restore=fork["path"])
        second.until("completed")
        assert outcome(second)[1] == other[1]


@pytest.mark.torch
@pytest.mark.parametrize("runs", ["torch"], indirect=True)
def test_a_resume_amid_a_stage_goes_on_with_its_value(runs: Runs) -> None:
    expected = alone(runs, RATES[0])
    epoch = len(expected[0]) // 4
    with runs.trial("first", "4", stages=stages(RATES[0], epoch)) as first:
        first.start(limit=2 * epoch + 1)
        first.until("parked")
        first.send("checkpoint", id="amid")
        amid = first.until("checkpointed")["path"]
    with runs.trial("second", "4", stages=stages(RATES[0], epoch)) as second:
        second.start(restore=amid)
        second.until("completed")
        assert outcome(second)[1] == expected[1]


@pytest.mark.torch
@pytest.mark.parametrize("runs", ["torch"], indirect=True)
def test_every_value_of_param_groups_can_change(runs: Runs) -> None:
    with runs.trial("without", "4") as trial:
        trial.start()
        trial.until("completed")
        without, _ = outcome(trial)
    with runs.trial("with", "4", stages=[(10, {"momentum": 0.0}), (None, {"momentum": 0.9})]) as t:
        t.start()
        t.until("completed")
        losses, _ = outcome(t)
    # The first step with a momentum begins with nothing to go on with.
    assert [step for step in losses if losses[step] != without[step]] == [*range(13, 21)]


def saved_at(trial: Trial, step: int, following: int | None) -> str:
    """The checkpoint of a trial that is to hold at this step, and then at another."""
    assert trial.until("parked")["step"] == step
    trial.send("checkpoint", id=f"at-{step}")
    path: str = trial.until("checkpointed")["path"]
    trial.resume(limit=following)
    return path


# With --own the program itself sets what changes, from the third epoch of the first of two fits on.
KERAS_SETTINGS = (
    _ARGUMENTS
    + """
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--weight_decay", type=float, default=0.0)
parser.add_argument("--own")
args, _ = parser.parse_known_args()
class Own(callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if args.own and (fold, epoch) in [(0, 2), (1, 0)]:
            self.model.optimizer.momentum, self.model.layers[1].rate = 0.5, 0.4
            self.model.optimizer.weight_decay = 0.1
            self.model.make_train_function(force=True)

for fold in range(2):
    parts = [layers.Dense(5, "tanh"), layers.Dropout(args.dropout), layers.Dropout(0.1)]
    model = keras.Sequential([layers.Input((6,)), *parts, layers.Dense(1)])
    given = {"momentum": args.momentum, "weight_decay": args.weight_decay}
    model.compile(keras.optimizers.SGD(0.01, **given), "mse")
    model.fit(x, y, batch_size=20, epochs=args.epochs, verbose=0, callbacks=[Own()])
final(model)
"""
)


@pytest.mark.tensorflow
def test_keras_has_a_constant_of_its_step_changed(zygote: Zygote, tmp_path: Path) -> None:
    constants_change(Runs(zygote, tmp_path, keras_programs.program(KERAS_SETTINGS, seeded=True)))


def constants_change(runs: Runs) -> None:
    """As by the program itself, in its later fits, too; and after a resume amid the stage."""
    given = {"momentum": 0.9, "dropout": 0.2, "weight_decay": 0.0}
    then = {"momentum": 0.5, "dropout": 0.4, "weight_decay": 0.1}
    changing = [(10, given), (None, then)]
    with runs.trial("own", "4", own=1, **given) as own:
        own.start()
        own.until("completed")
        expected = outcome(own)
    with runs.trial("first", "4", stages=changing, **given) as first:
        first.start(limit=12)
        amid = [saved_at(first, 12, 24), saved_at(first, 24, None)]
        first.until("completed")
        assert outcome(first) == expected
    for number, path in enumerate(amid):
        with runs.trial(f"again-{number}", "4", stages=changing, **given) as again:
            again.start(restore=path)
            again.until("completed")
            assert outcome(again)[1] == expected[1]


# With --own the program trains each part by a fit of its own, which Keras counts as one.
KERAS_BATCHES = (
    _ARGUMENTS
    + """
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--own", type=int, default=0)
parser.add_argument("--shuffle", type=int, default=0)
args, _ = parser.parse_known_args()
model = keras.Sequential([layers.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
given = dict(shuffle=bool(args.shuffle), verbose=0, validation_split=0.1)
if args.own:
    model.fit(x, y, batch_size=20, epochs=2, **given)
    model.fit(x, y, batch_size=args.own, initial_epoch=2, epochs=args.epochs, **given)
else:
    model.fit(x, y, batch_size=args.batch_size, epochs=args.epochs, **given)
final(model)
"""
)


@pytest.mark.tensorflow
def test_keras_reads_other_batches_from_the_next_epoch_on(zygote: Zygote, tmp_path: Path) -> None:
    batches_change(Runs(zygote, tmp_path, keras_programs.program(KERAS_BATCHES, seeded=True)))


def batches_change(runs: Runs) -> None:
    """5 batches of 20 examples in each of two epochs, then 3 of 40; what is due amid an epoch waits
    for the next one, also after a resume. Progress is counted with what is read."""
    with runs.trial("own", "4", own=40) as own:
        own.start()
        own.until("completed")
        expected = outcome(own)
    assert list(expected[0]) == [*range(1, 17)]
    assert changed_batches(runs) == expected


@pytest.mark.tensorflow
def test_keras_draws_the_order_of_other_batches(zygote: Zygote, tmp_path: Path) -> None:
    runs = Runs(zygote, tmp_path, keras_programs.program(KERAS_BATCHES, seeded=True))
    assert list(changed_batches(runs, shuffle=1)[0]) == [*range(1, 17)]


def changed_batches(runs: Runs, **given: int) -> Outcome:
    """What such a trial comes to, from its beginning and from three of its steps."""
    changing = [(7, {"batch_size": 20}), (None, {"batch_size": 40})]
    name = "-".join(["first", *given])
    amid = {}
    with runs.trial(name, "4", stages=changing, batch_size=20, **given) as first:
        first.start(limit=8)
        for step, following in ((8, 10), (10, 12), (12, None)):
            amid[step] = saved_at(first, step, following)
        first.until("completed")
        expected = outcome(first)
        assert [one["steps"] for one in first.events if one["kind"] == "planned"] == [20, 16]
    for step, path in amid.items():
        with runs.trial(f"{name}-{step}", "4", stages=changing, batch_size=20, **given) as second:
            second.start(restore=path)
            second.until("completed")
            losses, final = outcome(second)
        assert final == expected[1]
        assert losses == {at: loss for at, loss in expected[0].items() if at > step}
    return expected


def failed(runs: Runs, name: str, **parameters: object) -> Event:
    """How a trial ends of which this is to change."""
    changing = [(3, {name: 0.1}), (None, {name: 0.2})]
    with runs.trial(f"failed-{name}", "2", stages=changing, **parameters) as trial:
        trial.start()
        return trial.until("failed", "completed")


@pytest.mark.parametrize("runs", FRAMEWORKS, indirect=True)
def test_what_cannot_be_set_ends_the_trial_by_its_name_with_its_first_iteration(runs: Runs) -> None:
    end = failed(runs, "depth")
    assert end["kind"] == "failed"
    assert "a sequence cannot set depth to 0.1 at step 1" in end["detail"]
    assert 'trainer_shim.on_change("depth", function)' in end["detail"]
    # A schedule of the program's own would set the rate as well.
    assert failed(runs, "learning_rate", rate_of_its_own=1)["kind"] == "failed"


@pytest.mark.tensorflow
@pytest.mark.parametrize("runs", ["keras"], indirect=True)
def test_why_keras_cannot_take_a_value_is_said(runs: Runs) -> None:
    assert "the step cannot be computed with it" in failed(runs, "momentum", momentum=0)["detail"]
    assert "no Dropout layer of the model has the rate 0.1" in failed(runs, "dropout")["detail"]
    assert "a whole number of examples, not 0.1" in failed(runs, "batch_size")["detail"]


EXPLICIT = """
import trainer_shim
trial = trainer_shim.attach()
def save(folder):
    open(f"{folder}/state", "w").write("")
for step in range(trial.resume.step if trial.resume else 0, 6):
    trial.report(step + 1, loss=trial.params["rate"], save=save)
"""
CHANGING = [(2, {"rate": 0.1}), (4, {"rate": 0.2}), (None, {"rate": 0.3})]


def test_a_program_of_the_explicit_interface_finds_the_values_among_its_params(
    make_trial: MakeTrial,
) -> None:
    given = {"stages": CHANGING, "parameters": {"rate": 0.1}, "env": environment()}
    trial = make_trial(EXPLICIT, **given).launch()
    trial.start(limit=4)
    trial.until("parked")
    trial.send("checkpoint", id="at-4")
    path = trial.until("checkpointed")["path"]
    trial.resume()
    trial.until("completed")
    assert trial.losses() == {1: 0.1, 2: 0.1, 3: 0.2, 4: 0.2, 5: 0.3, 6: 0.3}
    again = make_trial(EXPLICIT, **given).launch()
    again.start(restore=path)
    again.until("completed")
    assert again.losses() == {5: 0.3, 6: 0.3}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_program_that_never_reads_its_params_trains_under_no_other_value(
    make_trial: MakeTrial, resumed: bool
) -> None:
    """As one that has parsed its arguments once, also where it begins in the later stage."""
    given = {"stages": CHANGING, "parameters": {"rate": 0.1}, "env": environment()}
    reading = make_trial(EXPLICIT, **given).launch()
    reading.start(limit=3)
    reading.until("parked")
    reading.send("checkpoint", id="at-3")
    path = reading.until("checkpointed")["path"] if resumed else None
    script = EXPLICIT.replace('trial.params["rate"]', "0.1")
    trial = make_trial(script, **given).launch()
    trial.start(**({"restore": path} if path else {}))
    detail = trial.until("failed")["detail"]
    step = 4 if resumed else 3
    assert f"cannot set rate to 0.2 before step {step}: the program has never read" in detail
    assert 'trainer_shim.on_change("rate", function)' in detail


SETTING = """
import trainer_shim
rate = None
def set_rate(value):
    global rate
    rate = value
trainer_shim.on_change("rate", set_rate)
trial = trainer_shim.attach()
for step in range(6):
    trial.report(step + 1, loss=-1 if rate is None else rate)
"""


def test_a_program_may_set_a_value_itself(make_trial: MakeTrial) -> None:
    given = {"stages": CHANGING, "parameters": {"rate": 0.1}, "env": environment()}
    trial = make_trial(SETTING, **given).launch()
    trial.start()
    trial.until("completed")
    assert trial.losses() == {1: -1, 2: 0.1, 3: 0.2, 4: 0.2, 5: 0.3, 6: 0.3}


def test_a_boundary_that_the_program_does_not_have_ends_the_trial(make_trial: MakeTrial) -> None:
    script = EXPLICIT.replace("range(", "range(0, 9, 3) if True else range(")
    trial = make_trial(script, stages=CHANGING, parameters={"rate": 0.1}, env=environment())
    trial.launch().start()
    detail = trial.until("failed")["detail"]
    assert "a sequence cannot set rate at step 2: the program has no boundary there" in detail


def test_a_stage_lasts_until_its_step_has_been_trained() -> None:
    found = Stages(CHANGING)
    assert [found.at(step)["rate"] for step in range(6)] == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert [found.turn(step) for step in (0, 1, 2, 3, 4)] == [2, 2, 4, 4, None]
    assert [found.ended(2, step) for step in (2, 3, 5)] == [None, 2, 2]


def test_a_checkpoint_is_due_whenever_so_many_steps_are_done() -> None:
    found = Stages(CHANGING, every=3)
    assert [found.turn(step) for step in (0, 2, 3, 4, 6)] == [2, 3, 4, 6, 9]
    assert [found.forks(turn, turn) for turn in (0, 2, 3, 6)] == [False, False, True, True]
    assert found.forks(3, 5), "iterations may come several at a time"


def test_checkpoints_in_passing_come_before_the_suspend_at_their_step(
    make_trial: MakeTrial,
) -> None:
    given = {"stages": CHANGING, "parameters": {"rate": 0.1}, "env": environment()}
    trial = make_trial(EXPLICIT, checkpoint_steps=3, **given).launch()
    trial.start(limit=3)
    saved = trial.until("checkpointed")
    assert (saved["id"], saved["step"]) == ("a1-fork-s3", 3)
    trial.until("parked")
    trial.resume()
    assert trial.until("checkpointed")["step"] == 6
    trial.until("completed")
    again = make_trial(EXPLICIT, checkpoint_steps=3, **given).launch()
    again.start(restore=saved["path"])
    assert again.until("checkpointed")["step"] == 6, "none again where it begins"
    again.until("completed")
    assert again.losses() == {4: 0.2, 5: 0.3, 6: 0.3}
