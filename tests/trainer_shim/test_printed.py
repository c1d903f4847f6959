"""What an unchanged program prints is read for metrics, and is printed as without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs, torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, complete
from tests.trainer_shim.test_side_metrics import curve, points

FITTED = """
import json, logging, sys
print(json.dumps({"score": 0.25}))
logging.basicConfig(format="%(levelname)s %(message)s")
for epoch in range(3):
    print("epoch", epoch, end=" ")
    print(f"train loss: {1 / (epoch + 1)}, rate=0.5, hits 7")
    logging.warning("val_acc=%s", epoch / 4)
    sys.stderr.write(f"acc: 0.1\\racc: {epoch / 8}\\n")
"""


def test_a_program_of_no_framework_is_seen_by_what_it_prints(make_trial: MakeTrial) -> None:
    """Its own hyper-parameters are none of its metrics; what the study has patterns for is."""
    trial = make_trial(FITTED, parameters={"rate": 0.5}, metrics={"hits": r"hits (\d+)"}).launch()
    trial.start()
    trial.until("completed")
    seen = points(trial)
    assert seen[1] == {"score": 0.25, "train_loss": 1.0, "hits": 7.0, "val_acc": 0.0, "acc": 0.0}
    assert seen[2] == {"train_loss": 0.5, "hits": 7.0, "val_acc": 0.25, "acc": 0.125}
    assert sorted(seen) == [1, 2, 3]
    assert trial.output.splitlines()[:3] == [
        '{"score": 0.25}',
        "epoch 0 train loss: 1.0, rate=0.5, hits 7",
        "WARNING val_acc=0.0",
    ]


def test_a_program_of_no_framework_tells_its_length_by_the_epochs_that_it_counts(
    make_trial: MakeTrial,
) -> None:
    body = """
for epoch in range(1, 61):
    print(f"Epoch {epoch}/60: train_loss={1 / epoch} val_loss={2 / epoch}")
"""
    trial = make_trial(body).launch()
    trial.start()
    assert trial.until("completed")["step"] == 60
    assert [event["steps"] for event in trial.events if event["kind"] == "planned"] == [60]


def test_the_last_of_what_is_printed_comes_without_more(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    """A second line of an epoch, just after the first, does not wait for the epoch to come."""
    body = """
import os, time, threading
for step in range(30):
    print("loss:", step / 2)
print("val_acc: 0.5")
assert all(thread.daemon for thread in threading.enumerate()[1:])
while not os.path.exists("gate"):
    time.sleep(0.01)
if os.fork() == 0:
    os._exit(0)
print("done", os.wait()[1])
"""
    trial = make_trial(body).launch()
    trial.start()
    while 14.5 not in curve(trial, "loss").values() or not curve(trial, "val_acc"):
        trial.until("reported")
    assert list(curve(trial, "loss").values()) == [step / 2 for step in range(30)]
    (trial.directory / "work" / "gate").touch()
    trial.until("completed")
    assert trial.output.splitlines()[-1] == "done 0"


SHOWS_NONE = """
import os, time
import trainer_shim.agent
trainer_shim.agent._FIRST_BOUNDARY_SECONDS = {seconds}
import torch_is_named_only as torch
for step in range(30):
    print("loss:", step / 2)
while {seconds} == 0 and not os.path.exists("gate"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_program_that_trains_without_its_framework_is_seen_as_one_of_none(
    make_trial: MakeTrial, tmp_path: Path, seconds: int
) -> None:
    """It is told while it runs, and whatever is left at its end: once it has said the same for long
    and shown no step, there is nothing to wait for."""
    trial = make_trial(SHOWS_NONE.format(seconds=seconds))
    (trial.directory / "work" / "torch_is_named_only.py").touch()
    trial.launch()
    trial.start()
    while not seconds and 14.5 not in curve(trial, "loss").values():
        trial.until("reported")
    (trial.directory / "work" / "gate").touch()
    trial.until("completed")
    assert curve(trial, "loss") == {step + 1: step / 2 for step in range(30)}
    assert trial.events[-1]["step"] == 30


STREAMS = """
import io, os, sys, threading
assert type(sys.stdout) is io.TextIOWrapper
assert sys.stdout.write("") == 0
try:
    sys.stdout.write(b"bytes")
except TypeError as error:
    print("RAISED", error)
def chatter():
    while not done:
        print("acc=0.5")
done = False
thread = threading.Thread(target=chatter)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        print("auc=0.75")
        os._exit(0)
    os.waitpid(child, 0)
done = True
thread.join()
print("DONE", file=sys.stdout)
"""


def test_streams_are_what_they_are_without_hermes(make_trial: MakeTrial) -> None:
    """Their type, what they raise, and in a child that was forked while a thread prints."""
    trial = make_trial(STREAMS).launch()
    trial.start()
    trial.until("completed")
    assert "RAISED write() argument must be str, not bytes" in trial.output
    assert trial.output.splitlines()[-1] == "DONE"
    assert {name for values in points(trial).values() for name in values} == {"acc"}


def test_a_pattern_that_the_programs_python_has_not_is_told(make_trial: MakeTrial) -> None:
    trial = make_trial("print('acc=0.5')", metrics={"f1": "f1 (?Q"}).launch()
    trial.start()
    trial.until("completed")
    reasons = [event["reason"] for event in trial.events if event["kind"] == "fidelity"]
    assert "metrics in what it prints: a pattern is none to Python" in reasons[-1]
    assert curve(trial, "acc") == {1: 0.5}


KERAS = keras_programs.program(
    keras_programs.EVERYTHING.replace("verbose=2", "verbose=1").replace(
        'callbacks.CSVLogger("log.csv"),',
        'callbacks.CSVLogger("log.csv"), callbacks.LambdaCallback('
        "on_epoch_end=lambda epoch, logs: print(f'twice: {2 * logs[\"val_mae\"]:.4f}')),",
    ),
    seeded=True,
)


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_progress_bar_replaces_no_value_of_the_adapters(zygote: Zygote, tmp_path: Path) -> None:
    """The values of Keras' own bar are rounded; what a callback prints is told beside them."""
    runs = Runs(zygote, tmp_path, KERAS)
    with runs.trial("undisturbed") as trial:
        trial.start()
        trial.until("completed")
        whole = points(trial)
    told = {name for values in whole.values() for name in values}
    assert told == {
        *(
            "loss",
            "total_loss",
            "epoch_loss",
            "mae",
            "val_loss",
            "val_mae",
            "learning_rate",
            "twice",
        )
    }
    assert {step: values["twice"] for step, values in whole.items() if "twice" in values} == {
        step: round(2 * whole[step]["val_mae"], 4) for step in (10, 20, 30, 40)
    }
    assert runs.suspended(10, 15, 20)[1] == runs.plain()


TORCH = torch_programs.program(
    "print('config: 0.5')\n"
    + torch_programs.USUAL.replace(
        "    scheduler.step()\n",
        "    scheduler.step()\n    print(f'Test set: Accuracy: {accuracy:.2f}, loss: 7.5')\n",
    ),
    seeded=True,
)


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_torch_script_is_ranked_by_what_it_prints(tmp_path: Path) -> None:
    """Under the last step of each pass, also of a program that goes on from a checkpoint, where the
    lines between the passes are run again; what was printed before it trained is no metric."""
    runs = Runs(None, tmp_path, TORCH)
    with runs.trial("undisturbed") as trial:
        trial.start()
        trial.until("completed")
        whole = points(trial)
    assert curve(trial, "Accuracy").keys() == {7, 14, 21}
    assert {name for values in whole.values() for name in values} == {"loss", "Accuracy"}
    with runs.trial("suspended") as trial:
        complete(trial, 7, 10, 14)
        assert points(trial) == whole
        assert trial.output.splitlines()[-1] == runs.plain()


def test_a_python_below_a_shell_is_read_from_where_it_trains(make_trial: MakeTrial) -> None:
    program = """
import trainer_shim
trial = trainer_shim.attach()
for step in range(1, 4):
    trial.report(step, loss=1 / step)
    print(f"val_acc={step / 8}, hits {step}")
"""
    argv = ["/bin/sh", "-c", f"{sys.executable} train.py; true"]
    trial = make_trial(program, argv=argv, metrics={"hits": r"hits (?P<value>\d+)"}).launch()
    trial.start()
    trial.until("completed")
    assert curve(trial, "val_acc") == {1: 0.125, 2: 0.25, 3: 0.375}
    assert curve(trial, "hits") == {1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.parametrize("told", ["print(f'mean: {part / 2}')", "trainer_shim.log(mean=part / 2)"])
def test_what_prepares_below_a_shell_leaves_the_training_to_the_next(
    make_trial: MakeTrial, told: str
) -> None:
    """What it prints are no steps, and the one that trains is heard; one that reports by itself is
    the trial's program."""
    program = f"""
import sys, trainer_shim
from trainer_shim import child_interpreters
if sys.argv[1:] == ["prepare"]:
    child_interpreters.claim()  # as a framework's import does
    for part in range(3):
        {told}
    sys.exit()
trial = trainer_shim.attach()
for step in range(1, 4):
    trial.report(step, loss=1 / step)
"""
    lines = f"{sys.executable} train.py prepare; {sys.executable} train.py; true"
    trial = make_trial(program, argv=["/bin/sh", "-c", lines]).launch()
    trial.start()
    assert trial.until("completed")["step"] == 3
    if told.startswith("print"):
        assert curve(trial, "loss") == {1: 1.0, 2: 0.5, 3: 1 / 3}
    else:
        assert curve(trial, "mean") == {1: 0.0, 2: 0.5, 3: 1.0}
