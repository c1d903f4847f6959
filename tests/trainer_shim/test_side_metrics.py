"""Metrics that a program tells beside its framework: under the step where the trial stands, once.

Without Hermes, and whatever they are given, they change nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainer_shim
from tests.trainer_shim import keras_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import ROOT, Trial, Zygote
from tests.trainer_shim.suspending import Runs, complete, promised
from tests.trainer_shim.test_api import VALUES
from tests.trainer_shim.test_reporter import Told, told
from trainer_shim.side_metrics import FOUND, SAMPLED, TOLD, Rounds, SideMetrics, logged

__all__ = ["told"]


def points(trial: Trial) -> dict[int, dict[str, float]]:
    """Every metric of each step as reported; what is told twice must agree."""
    found: dict[int, dict[str, float]] = {}
    for event in trial.events:
        for step, values in event["points"] if event["kind"] == "reported" else ():
            known = found.setdefault(step, {})
            for name, value in values.items():
                assert known.setdefault(name, float(value)) == float(value), (step, name)
    return found


def curve(trial: Trial, metric: str) -> dict[int, float]:
    """One metric by its steps."""
    return {step: values[metric] for step, values in points(trial).items() if metric in values}


# -- what is kept of what was told


def test_a_point_has_the_values_of_its_step_from_everywhere(told: Told) -> None:
    told.reporter.side.add(0, {"val_acc": 0.1}, TOLD)
    told.reporter.record_signal(1, 3.0)
    told.reporter.side.add(1, {"val_acc": 0.25, "loss": 9.0}, TOLD)
    told.reporter.side.add(1, {"val_acc": 0.5}, TOLD)
    report = told.report()
    assert report["points"] == [[0, {"val_acc": 0.1}], [1, {"val_acc": 0.5, "loss": 3.0}]]
    assert (report["first_step"], report["last_step"]) == (1, 1)
    assert report["signal"]["count"] == 1


def test_each_name_has_its_surest_source(told: Told) -> None:
    side = told.reporter.side
    told.reporter.record(1, {"accuracy": 0.91234})
    side.add(1, {"Accuracy": 0.91, "auc": 0.75}, FOUND)
    side.add(1, {"AUC": 0.7512}, TOLD)
    assert told.report()["points"] == [[1, {"accuracy": 0.91234, "AUC": 0.7512}]]
    side.add(2, {"accuracy": 0.9, "auc": 0.8}, FOUND)
    side.add(2, {"accuracy": 0.9, "f1": 0.5}, TOLD)
    side.add(2, {"f1": 0.4}, FOUND)
    assert told.report()["points"] == [[2, {"f1": 0.5}]]


def test_a_less_sure_value_that_comes_later_replaces_nothing(told: Told) -> None:
    told.reporter.side.add(1, {"lr": 0.5}, FOUND)
    told.reporter.side.add(1, {"lr": 0.25, "f1": 0.1}, SAMPLED)
    report = told.report()
    assert report["points"] == [[1, {"lr": 0.5, "f1": 0.1}]]
    assert report["sampled"] == ["f1"]


def test_a_signal_that_is_told_beside_has_one_value_a_step(told: Told) -> None:
    """A curve with two of them would be refused, and with it all that the report says."""
    side = told.reporter.side
    side.add(3, {"loss": 2.0}, TOLD)
    assert told.report()["signal"]["last"] == 2.0
    side.add(3, {"loss": 1.0, "f1": 0.5}, TOLD)
    report = told.report()
    assert (report["points"], report["signal"]["count"]) == ([[3, {"f1": 0.5}]], 0)


def test_the_signal_is_known_however_it_is_written(told: Told) -> None:
    """`Loss: 0.15` is what policies read; other names stay as they were printed."""
    told.reporter.side.add(1, {"Loss": 0.5, "Val-Loss": 0.25}, FOUND)
    report = told.report()
    assert report["points"] == [[1, {"loss": 0.5, "Val-Loss": 0.25}]]
    assert (report["signal"]["count"], report["signal"]["last"]) == (1, 0.5)
    side = SideMetrics("val_loss")
    side.add(1, {"Val-Loss": 0.25, "Loss": 0.5}, FOUND)
    side.add(2, {"val loss": 0.125}, TOLD)
    assert side.take() == {1: {"Loss": 0.5}, 2: {"val_loss": 0.125}}, "of one name the surest"


def test_of_what_a_logger_is_given_the_numbers_are_metrics() -> None:
    given = {"val": {"acc": 0.5, "note": "well"}, "Loss/test": 2, "image": object(), "step": 7}
    assert logged({**given, 3: 1.0, "epoch": 1}) == {"val.acc": 0.5, "Loss/test": 2.0, "3": 1.0}


# -- trainer_shim.log

KERAS = keras_programs.program(
    keras_programs.EVERYTHING.replace(
        'callbacks.CSVLogger("log.csv"),',
        'callbacks.CSVLogger("log.csv"), callbacks.LambdaCallback(on_epoch_end=tell),',
    ).replace(
        "model = keras.Sequential([",
        "import trainer_shim\n"
        "def tell(epoch, logs):\n"
        '    trainer_shim.log(double=2 * logs["val_mae"], val_mae=-1.0, epoch_number=epoch)\n'
        "model = keras.Sequential([",
        1,
    ),
    seeded=True,
)


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_line_in_a_callback_tells_what_the_adapter_does_not(
    zygote: Zygote, tmp_path: Path
) -> None:
    """The adapter stays, and so does its value of a metric; suspended at the last step of an epoch
    and amid one, the trial tells the same at the same steps."""
    runs = Runs(zygote, tmp_path, KERAS)
    with runs.trial("undisturbed") as trial:
        trial.start()
        trial.until("completed")
        whole = points(trial)
        assert promised(trial)[-1][0] != "park-only"
    assert [step for step in whole if "val_mae" in whole[step]] == [10, 20, 30, 40]
    doubled = {step: 2 * whole[step]["val_mae"] for step in (10, 20, 30, 40)}
    assert {step: values["double"] for step, values in whole.items() if "double" in values} == (
        doubled
    )
    with runs.trial("suspended") as trial:
        complete(trial, 10, 15, 20)
        assert points(trial) == whole


TORCH = torch_programs.program(
    "import trainer_shim\n"
    + torch_programs.USUAL.replace(
        "        optimizer.step()\n",
        "        optimizer.step()\n        trainer_shim.log(double=2 * loss)\n",
    ).replace(
        "    scheduler.step()\n",
        "    scheduler.step()\n    trainer_shim.log({'val/acc': accuracy}, loss=7.0)\n",
    ),
    seeded=True,
)


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_torch_loop_tells_its_validation_once(tmp_path: Path) -> None:
    """What the body of an iteration tells belongs to that iteration, and what comes after a pass to
    the pass's last step; what is run again on the way back to a checkpoint is not told again."""
    runs = Runs(None, tmp_path, TORCH)
    with runs.trial("undisturbed") as trial:
        trial.start()
        trial.until("completed")
        whole = points(trial)
        final = trial.output.splitlines()[-1]
    assert sorted(whole) == list(range(1, 22))
    assert all(values["double"] == pytest.approx(2 * values["loss"]) for values in whole.values())
    assert [step for step, values in whole.items() if "val/acc" in values] == [7, 14, 21]
    with runs.trial("suspended") as trial:
        complete(trial, 7, 10, 14)
        assert points(trial) == whole
        assert trial.output.splitlines()[-1] == final == runs.plain()


PLAIN = """
import trainer_shim
for epoch in range(5):
    trainer_shim.log(train_loss=1 / (epoch + 1))
    trainer_shim.log(val_acc=epoch / 10)
"""


def test_a_program_without_steps_counts_its_rounds(make_trial: MakeTrial) -> None:
    trial = make_trial(PLAIN).launch()
    trial.start()
    outcome = trial.until("completed")
    kinds = [event["kind"] for event in trial.events]
    assert kinds.index("started") < kinds.index("reported")
    assert curve(trial, "train_loss") == {step: 1 / step for step in range(1, 6)}
    assert curve(trial, "val_acc") == {step: (step - 1) / 10 for step in range(1, 6)}
    assert outcome["step"] == 5


def length(*counters: tuple[int, int] | None) -> int | None:
    """How many steps are known to come after a step with each of these counters."""
    rounds = Rounds()
    for counter in counters:
        rounds.step_of(["loss"], counter)
        rounds.step_of(["val_loss"], counter)  # of the same step
    return rounds.length


def test_a_counter_that_goes_up_with_each_step_tells_how_many_there_will_be() -> None:
    assert length((1, 60)) is None, "it may be of the batches of an epoch"
    assert length((1, 60), (2, 60)) == 60
    assert length((0, 59), (1, 59)) == 60
    assert length(None, (1, 60), (2, 60), (3, 60)) == 61, "the first step came before"
    assert length((1, 2), (2, 2), (1, 2)) == 4, "it begins anew, as for the next fold"


def test_a_counter_of_anything_but_steps_tells_no_length() -> None:
    assert length((51, 10), (52, 10), (53, 10)) is None, "it counts on from an earlier training"
    assert length((10, 500), (20, 500), (21, 500)) is None, "of batches, of which few are told of"
    assert length((1, 5), (1, 5), (2, 5), (3, 5)) is None, "of epochs, with several steps each"
    assert length((1, 5), (1, 9), (2, 9)) is None
    assert length((2, 60), None, (3, 60), (4, 60)) is None


def test_what_a_forked_child_tells_is_not_the_trials(make_trial: MakeTrial) -> None:
    program = """
import os, trainer_shim
child = os.fork()
trainer_shim.log(acc=0.0 if child == 0 else 1.0)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    trial = make_trial(program).launch()
    trial.start()
    trial.until("completed")
    assert curve(trial, "acc") == {1: 1.0}


@given(st.one_of(VALUES, st.dictionaries(st.text(), VALUES)), st.dictionaries(st.text(), VALUES))
def test_nothing_that_log_is_given_ends_a_program(
    metrics: object, named: dict[str, object]
) -> None:
    trainer_shim.log(metrics, **named)  # type: ignore[arg-type]


def test_without_hermes_what_is_no_number_is_said_once() -> None:
    program = """
import trainer_shim
for value in ("high", "higher", 0.5):
    trainer_shim.log(acc=value)
trainer_shim.log(0.5)
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    said = run.stderr.splitlines()
    assert (run.returncode, run.stdout, len(said)) == (0, "", 2)
    assert said[0].startswith("hermes: trainer_shim.log: value of 'acc': 'high': expected one")
    assert said[1].startswith("hermes: trainer_shim.log: metrics: 0.5: expected a mapping")
