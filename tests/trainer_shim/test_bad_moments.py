"""Things that go wrong at the worst moment: deadlines that pass, kills and full disks in the
middle of a save, a restore, or a rebuild ahead of its turn."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial
from tests.trainer_shim.test_host import FOREVER, LOOP, expected
from tests.waiting import until
from trainer_shim import checkpoint_dir


def is_there(path: Path) -> None:
    """Wait for a file."""
    until(path.exists)


def saved_at(trial: Trial, step: int) -> str:
    """Let the trial train to a step and be saved there, parked; the checkpoint's path."""
    trial.start(limit=step)
    trial.until("parked")
    trial.send("checkpoint", id=f"at-{step}")
    return str(trial.until("checkpointed")["path"])


def test_a_step_that_outlasts_the_deadline_is_parked_from_outside_and_goes_on(
    make_trial: MakeTrial,
) -> None:
    script = LOOP.replace(
        "    state, step = state",
        "    if step == 5:\n        open('stuck', 'w').close()\n"
        "        while not pathlib.Path('over').exists(): pass\n    state, step = state",
    )
    trial = make_trial(script, "10").launch()
    trial.start()
    work = trial.directory / "work"
    is_there(work / "stuck")
    trial.suspend("park", deadline=0.2)
    parked = trial.until("parked")
    assert not parked["at_boundary"]
    assert parked["step"] == 5
    # Nothing of the wait is called training: it is the price of this suspend.
    assert parked["boundary_seconds"] == 0.0
    trial.resume()
    assert trial.until("resumed")["step"] == 5  # also what it has not told yet is done
    used = [event["last_step"] for event in trial.events if event["kind"] == "reported"]
    assert used[-1] == 5
    (work / "over").touch()
    trial.until("completed")
    assert trial.losses() == expected(10)


def slow_to_save(word: str) -> str:
    """The program whose save takes until it is told to go on."""
    wait = f"while not pathlib.Path('{word}').exists(): pass"
    return LOOP.replace(
        "def save(folder):\n",
        "def save(folder):\n    if step > 3:\n        open('saving', 'w').close()\n"
        f"        {wait}\n",
    )


def test_kill_9_during_a_save_leaves_the_checkpoint_before_it(make_trial: MakeTrial) -> None:
    trial = make_trial(slow_to_save("never"), "10").launch()
    before = saved_at(trial, 3)
    trial.resume(limit=6)
    trial.until("parked")
    trial.send("demote", id="at-6")
    work = trial.directory / "work"
    is_there(work / "saving")
    trial.attach(after=trial.events[-1]["seq"])
    os.kill(trial.attached["worker_pid"], signal.SIGKILL)
    assert trial.until("failed")["error_kind"] == "killed"
    newest = checkpoint_dir.newest_undamaged(str(trial.checkpoints))
    assert newest is not None
    assert newest["path"] == before, "what was half written does not count"
    (work / "never").touch()
    trial.start(restore=before)
    trial.until("completed")
    assert trial.losses() == expected(10)


@pytest.mark.parametrize("victim", ["trainer", "host"])
def test_kill_9_after_a_save_leaves_the_points_of_every_step_before_it(
    make_trial: MakeTrial, victim: str
) -> None:
    """What goes on from there does not report them again."""
    script = LOOP.replace(
        "    state, step = state",
        "    if step == 5: open('waits', 'w').close()\n"
        "    while step == 5 and not pathlib.Path('go').exists(): pass\n"
        "    while step == 6: pass\n    state, step = state",
    )
    trial = make_trial(script, "10").launch()
    trial.start()
    work = trial.directory / "work"
    is_there(work / "waits")
    trial.until("started")
    trial.send("checkpoint", id="at-6")
    trial.send("attach", after=0)  # answered when the request was passed on
    trial.until("attached")
    (work / "go").touch()
    path = trial.until("checkpointed")["path"]
    assert checkpoint_dir.verify(path)["step"] == 6
    trial.attach()
    os.kill(trial.attached["worker_pid" if victim == "trainer" else "host_pid"], signal.SIGKILL)
    if victim == "trainer":
        trial.until("failed")
    else:
        lines = (trial.directory / "events.jsonl").read_text().splitlines()
        trial.events = [json.loads(line) for line in lines if line]
    assert trial.losses() == {step: loss for step, loss in expected(10).items() if step < 7}


def test_kill_9_during_a_restore_costs_that_attempt_alone(make_trial: MakeTrial) -> None:
    script = LOOP.replace(
        "trial = trainer_shim.attach()",
        "import os, time\n"
        "if 'HERMES_ATTEMPT' in os.environ and os.environ['HERMES_ATTEMPT'] == '2':\n"
        "    print(os.getpid(), file=open('restoring', 'w'), flush=True)\n"
        "    time.sleep(1000)\n"
        "trial = trainer_shim.attach()",
    )
    trial = make_trial(script, "10").launch()
    path = saved_at(trial, 4)
    trial.send("kill")
    trial.until("suspended")
    trial.start(restore=path)
    note = trial.directory / "work" / "restoring"
    is_there(note)
    until(lambda: note.read_text().endswith("\n"))
    os.kill(int(note.read_text()), signal.SIGKILL)
    failed = trial.until("failed")
    assert failed["error_kind"] == "killed"
    trial.start(restore=path)
    assert trial.until("started")["step"] >= 4
    trial.until("completed")
    assert trial.losses() == expected(10)


@pytest.mark.parametrize("when", ["running", "parked"])
def test_a_disk_that_is_full_in_a_save_costs_the_save_alone(
    make_trial: MakeTrial, when: str
) -> None:
    script = "import resource\n" + LOOP.replace(
        "def save(folder):\n",
        "def save(folder):\n    limits = (1, resource.RLIM_INFINITY) if step > 4 else"
        " (resource.RLIM_INFINITY,) * 2\n    resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n",
    ).replace("print(", "0 and print(")
    trial = make_trial(script, "10" if when == "parked" else FOREVER).launch()
    before = saved_at(trial, 4)
    trial.resume(limit=8 if when == "parked" else None)
    if when == "running":
        trial.until("resumed")
        trial.suspend("checkpoint")
        parked = trial.until("parked", "suspended")
        assert parked["kind"] == "parked", "it keeps its progress in memory"
        assert "no checkpoint" in parked["cause"]
    else:
        trial.until("parked")
        trial.send("demote", id="at-8")
        assert "no checkpoint" in trial.until("parked")["cause"]
        trial.resume()
        trial.until("completed", "failed")
        assert trial.losses() == expected(10)
    newest = checkpoint_dir.newest_undamaged(str(trial.checkpoints))
    assert newest is not None
    assert newest["path"] == before
    assert list(trial.checkpoints.iterdir()) == [Path(before)], "the room is free again"


@pytest.mark.parametrize("fails", ["copying", "writing"])
def test_a_save_in_the_background_that_fails_leaves_nothing_behind(
    make_trial: MakeTrial, fails: str
) -> None:
    raising = (
        "raise OSError(28, 'full')" if fails == "copying" else "os.symlink('/no', folder+'/x')"
    )
    script = "import os\n" + LOOP.replace(
        "def save(folder):\n", f"def save(folder):\n    {raising}\n"
    )
    trial = make_trial(script, FOREVER).launch()
    trial.start()
    trial.until("started")
    trial.send("checkpoint", id="never")
    assert trial.until("checkpoint_failed")["id"] == "never"
    assert list(trial.checkpoints.iterdir()) == []


@pytest.mark.parametrize("raising", ["raise RuntimeError('write failed')", "sys.exit('full')"])
@pytest.mark.parametrize("when", ["running", "parked"])
def test_whatever_a_save_raises_it_ends_no_training(
    make_trial: MakeTrial, when: str, raising: str
) -> None:
    """A framework's own way to save tells of a full disk by errors of its own; it is said beside
    what a resume promises, until one was written again."""
    failing = f"    if pathlib.Path('full').exists():\n        {raising}\n"
    script = LOOP.replace("def save(folder):\n", f"def save(folder):\n{failing}")
    trial = make_trial(script, "10" if when == "parked" else FOREVER).launch()
    (trial.directory / "work" / "full").touch()
    trial.start(limit=4 if when == "parked" else None)
    trial.until("parked" if when == "parked" else "started")
    trial.send("checkpoint", id="fails")
    reason = trial.until("checkpoint_failed")["reason"]
    assert "write failed" in reason or "full" in reason
    if when == "parked":
        trial.resume(limit=6)
        trial.until("parked")
    (trial.directory / "work" / "full").unlink()
    trial.send("checkpoint", id="works")
    trial.until("checkpointed")
    if when == "parked":
        trial.resume()
        trial.until("completed")
        assert trial.losses() == expected(10)
    said = [event["reason"] for event in trial.events if event["kind"] == "fidelity"]
    assert any(each.endswith(f"could not be written: {reason}") for each in said)
    assert "could not be written" not in said[-1]


def test_a_save_that_was_interrupted_is_gone_with_the_next_start(make_trial: MakeTrial) -> None:
    trial = make_trial(slow_to_save("never"), FOREVER).launch()
    before = Path(saved_at(trial, 3))
    trial.resume(limit=6)
    trial.until("parked")
    trial.send("demote", id="at-6")
    is_there(trial.directory / "work" / "saving")
    half, fetched = (trial.checkpoints / name for name in ("at-6.partial", "b.fetched.partial"))
    fetched.mkdir()
    assert half.exists()
    os.kill(trial.host_pid, signal.SIGKILL)
    assert trial.process is not None
    trial.process.wait()
    trial.launch()
    assert set(trial.checkpoints.iterdir()) == {before, fetched}


def test_what_is_rebuilt_trains_nothing_before_it_is_let_go(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "10").launch()
    path = saved_at(trial, 4)
    trial.send("kill")
    trial.until("suspended")
    heard = len(trial.events)
    trial.attempt += 1
    trial.send("start", restore=path, limit_step=None, hold=True)
    held = trial.until("parked")
    assert (held["step"], held["cause"]) == (4, "rebuilt")
    kinds = {event["kind"] for event in trial.events[heard:]}
    assert not kinds & {"started", "reported", "resumed"}
    trial.attempt += 1
    trial.send("resume", limit_step=None)
    started = trial.until("started")
    assert started["attempt"] == trial.attempt
    trial.until("completed")
    assert trial.losses() == expected(10)


def test_kill_9_of_what_is_rebuilt_is_told_and_the_checkpoint_serves(
    make_trial: MakeTrial,
) -> None:
    trial = make_trial(LOOP, "10").launch()
    path = saved_at(trial, 4)
    trial.send("kill")
    trial.until("suspended")
    trial.attempt += 1
    trial.send("start", restore=path, limit_step=None, hold=True)
    trial.until("parked")
    assert trial.attach()["worker_pid"] is not None
    os.kill(trial.attached["worker_pid"], signal.SIGKILL)
    trial.until("failed")
    trial.start(restore=path)
    trial.until("completed")
    assert trial.losses() == expected(10)
