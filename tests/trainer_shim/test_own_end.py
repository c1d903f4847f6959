"""A program that comes to its own end around a suspend has ended, in whatever tier it was asked to
give its device back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Event, Trial
from tests.trainer_shim.test_bad_moments import is_there
from tests.trainer_shim.test_host import LOOP, expected
from tests.trainer_shim.test_supervisor import Sleeping
from trainer_shim.host.event_log import boottime

STEPS = 4
OUTCOMES = ("completed", "parked", "suspended")
# Each step, the end and the exit wait until the test lets them go on.
GATED = """
import atexit, os, time
def gate(name):
    open("at-" + name, "w").close()
    while not os.path.exists("open-" + name):
        time.sleep(0.001)
"""
GATED += LOOP.replace("    state, step = state", "    gate(f'step{step}')\n    state, step = state")
GATED = GATED.replace('print("end")', 'gate("end")\nprint("end")\natexit.register(gate, "exit")')
GATES = [*(f"step{step}" for step in range(STEPS)), "end", "exit"]


def gated(make_trial: MakeTrial, upto: str) -> Trial:
    """A program that runs until a gate and stands there."""
    trial = make_trial(GATED, str(STEPS)).launch()
    trial.start()
    work = trial.directory / "work"
    for name in GATES[: GATES.index(upto)]:
        (work / f"open-{name}").touch()
    is_there(work / f"at-{upto}")
    return trial


def has_heard(trial: Trial) -> None:
    """Wait until the host has taken in what it was asked."""
    trial.send("attach", after=10**9)
    trial.until("attached")


def outcome(trial: Trial, before: int) -> Event:
    """How the run ended or was suspended, if it was not before event number `before`."""
    known = [event for event in trial.events[before:] if event["kind"] in OUTCOMES]
    return known[0] if known else trial.until(*OUTCOMES)


def open_all(trial: Trial) -> None:
    for name in GATES:
        (trial.directory / "work" / f"open-{name}").touch()


@pytest.mark.parametrize("upto", GATES)
@pytest.mark.parametrize("tier", ["park", "checkpoint", "kill"])
@pytest.mark.parametrize("is_heard_first", [True, False])
def test_whatever_the_moment_each_step_counts_once_and_the_program_ends(
    make_trial: MakeTrial, tier: str, upto: str, is_heard_first: bool
) -> None:
    trial = gated(make_trial, upto)
    trial.suspend(tier)
    if is_heard_first and tier != "kill":
        has_heard(trial)
    open_all(trial)
    before = 0
    while (event := outcome(trial, before))["kind"] != "completed":
        before = len(trial.events)
        if event["kind"] == "parked":
            trial.resume()
        else:
            trial.start(restore=event["checkpoint"] and event["checkpoint"]["path"])
    assert trial.losses() == expected(STEPS)
    starts = sum(line.startswith("from") for line in trial.output.splitlines())
    assert starts == 1 or tier != "park", "what is parked begins once"
    assert trial.output.count("end") == 1


@pytest.mark.parametrize("tier", ["park", "checkpoint", "kill"])
def test_a_program_on_its_way_out_is_let_out(make_trial: MakeTrial, tier: str) -> None:
    trial = gated(make_trial, "exit")
    trial.suspend(tier)
    if tier != "kill":
        has_heard(trial)
    open_all(trial)
    assert trial.until("completed")["attempt"] == 1
    assert {"parked", "suspended"}.isdisjoint(event["kind"] for event in trial.events)


def test_one_that_takes_longer_to_exit_than_the_deadline_is_parked_and_exits_later(
    make_trial: MakeTrial,
) -> None:
    trial = gated(make_trial, "exit")
    trial.suspend("park", deadline=0.2)
    parked = trial.until("parked")
    assert (parked["step"], parked["at_boundary"]) == (STEPS, False)
    trial.resume()
    trial.until("resumed")
    open_all(trial)
    assert trial.until("completed")["attempt"] == 2


@pytest.mark.parametrize("tier", ["park", "checkpoint", "kill"])
def test_a_process_that_has_exited_and_is_not_reaped_yet_has_ended(
    tmp_path: Path, tier: str
) -> None:
    """None of its threads goes on, so that it looks frozen, and a kill has nothing to kill."""
    sleeping = Sleeping(tmp_path, command=("true",))
    os.waitid(os.P_PID, sleeping.process.pid, os.WEXITED | os.WNOWAIT)
    sleeping.supervisor.suspend(tier, 60.0)
    for _ in range(3):
        sleeping.supervisor.tick(boottime())
    assert sleeping.supervisor.phase == "running"
    _, status, _ = os.wait4(sleeping.process.pid, 0)
    sleeping.process.returncode = os.waitstatus_to_exitcode(status)
    sleeping.supervisor.exited(status, 0.0, 0)
    assert sleeping.kinds()[-1] == "completed"
    assert sleeping.supervisor.phase == "ended"
    sleeping.close()
