"""A program is over with its last thread; what it forks is not the trial."""

from __future__ import annotations

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.test_host import expected
from tests.trainer_shim.test_workdir_rollback import run

# The first thread has come to its end before the other one begins to train.
IN_A_THREAD = """
import json, pathlib, sys, threading
import trainer_shim
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())
def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))
def train():
    global state, step
    threading.main_thread().join()
    while step < 6:
        state, step = state * 0.9, step + 1
        trial.report(step, loss=state, save=save)
    print("trained")
threading.Thread(target=train).start()
"""


def test_a_program_is_over_when_its_last_thread_is(make_trial: MakeTrial) -> None:
    trial = make_trial(IN_A_THREAD).launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    event = trial.until("completed")
    assert trial.losses() == expected(6)
    assert trial.output == "trained\n"
    assert (event["exit_code"], event["checkpoint"]["step"]) == (0, 6)
    assert event["metrics"] == {"loss": expected(6)[6]}


@pytest.mark.parametrize("end", ["raise ValueError('early')", "sys.exit('early')"])
def test_how_the_first_thread_ended_is_how_the_program_ends(
    make_trial: MakeTrial, end: str
) -> None:
    trial = make_trial(IN_A_THREAD + end).launch()
    trial.start(limit=6)
    trial.until("parked")
    trial.resume()
    with pytest.raises(AssertionError, match="early"):
        trial.until("completed")
    assert trial.events[-1]["exit_code"] == 1
    assert trial.losses() == expected(6)
    assert trial.output.endswith("trained\n")


# Of each step's child the parent knows how it ended; one works on through the whole run.
FORKING = """
import json, os, pathlib, sys
import trainer_shim
asked, answered = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(asked[1])
    while number := os.read(asked[0], 1):
        with open("child.txt", "w") as file:
            file.write(f"child {number[0]}")
        os.write(answered[1], b".")
    os._exit(0)
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())
def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))
def child():
    trial.report(step + 100, loss=0.0, save=save)
    if step % 2:
        raise ValueError("of a child")
    sys.exit(step)
while step < 6:
    state, step = state * 0.9, step + 1
    os.write(asked[1], bytes([step]))
    os.read(answered[0], 1)
    pid = os.fork()
    if pid == 0:
        child()
    with open("codes", "a") as file:
        file.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])} ")
    trial.report(step, loss=state, save=save)
"""


def test_what_a_program_forks_is_not_the_trial(make_trial: MakeTrial) -> None:
    """It reports, saves and fails for itself alone; and its files are as the program's."""
    trial = make_trial(FORKING)
    files = run(trial, 2, 4)
    assert trial.losses() == expected(6)
    assert trial.events[-1]["checkpoint"]["step"] == 6
    assert files["codes"] == b"1 2 1 4 1 6 "
    assert files["child.txt"] == b"child 6"
    assert trial.output.count("ValueError: of a child") == 3
