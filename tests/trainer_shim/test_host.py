"""A real host with real training processes: tiers, outcomes, deaths, reconnects."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, Zygote, environment
from tests.waiting import until
from trainer_shim.channel import frames
from trainer_shim.host import __main__
from trainer_shim.host.event_log import boottime

# Every step multiplies the state: one lost or repeated shows in every later loss.
LOOP = """
import json, pathlib, sys
import trainer_shim
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())
def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))
print("from", step)
while step < int(sys.argv[1]):
    state, step = state * 0.9, step + 1
    trial.report(step, loss=state, save=save)
print("end")
"""
FOREVER = "1000000000"


def expected(steps: int) -> dict[int, float]:
    losses, state = {}, 1.0
    for step in range(1, steps + 1):
        state *= 0.9
        losses[step] = state
    return losses


def gone(pid: int) -> None:
    """Wait until the process has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([fd], [], [])
    os.close(fd)


def states(pid: int) -> set[str]:
    """The states of a process's threads, as the kernel shows them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks}


@pytest.mark.parametrize("tier", ["park", "checkpoint"])
def test_suspended_at_every_boundary_it_is_the_uninterrupted_run(
    make_trial: MakeTrial, tier: str
) -> None:
    trial = make_trial(LOOP, "12").launch()
    trial.start(limit=1)
    for step in range(1, 13):
        assert trial.until("parked")["step"] == step
        if tier == "park":
            trial.resume(limit=step + 1)
        else:
            trial.send("demote", id=f"s{step}")
            saved = trial.until("suspended")
            assert saved["tier"] == "checkpoint"
            assert saved["checkpoint"]["id"] == f"s{step}"
            trial.start(restore=saved["checkpoint"]["path"], limit=step + 1)
    done = trial.until("completed")
    assert done["step"] == 12
    # A process that begins after the last step has reported nothing.
    assert done["metrics"] == ({"loss": expected(12)[12]} if tier == "park" else {})
    assert trial.losses() == expected(12)
    starts = 1 if tier == "park" else 13
    assert trial.output.count("from") == starts
    assert trial.output.count("end") == 1


def test_each_boundary_resumed_from_it_is_the_uninterrupted_run(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "12").launch()
    checkpoints = {}
    trial.start(limit=1)
    while trial.until("parked", "completed")["kind"] == "parked":
        step = trial.events[-1]["step"]
        trial.send("checkpoint", id=f"s{step}")
        checkpoints[step] = trial.until("checkpointed")["path"]
        trial.resume(limit=step + 1)
    assert list(checkpoints) == list(range(1, 13))
    for step, path in checkpoints.items():
        resumed = make_trial(LOOP, "12").launch()
        resumed.start(restore=path)
        assert resumed.until("started")["step"] == step
        assert resumed.until("completed")["step"] == 12
        assert resumed.losses() == {at: loss for at, loss in expected(12).items() if at > step}


def test_a_parked_process_has_every_thread_stopped(make_trial: MakeTrial) -> None:
    script = "import threading, time\nfor _ in range(3):\n"
    script += "    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
    trial = make_trial(script + LOOP, FOREVER).launch()
    trial.start()
    pid = trial.until("started")["worker_pid"]
    trial.suspend("park")
    trial.until("parked")
    assert len(os.listdir(f"/proc/{pid}/task")) == 4
    assert states(pid) == {"T"}
    trial.resume()
    trial.until("resumed")
    trial.quit()
    gone(pid)


def test_a_program_without_an_agent_is_parked_from_outside_with_its_children(
    make_trial: MakeTrial,
) -> None:
    argv = ["/bin/sh", "-c", "echo up; (setsid sleep 1000 & echo $! > pid); sleep 1000"]
    trial = make_trial("", argv=argv).launch()
    trial.start()
    started = trial.until("started")
    pid_file = trial.directory / "work" / "pid"
    until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    escaped = int(pid_file.read_text())
    trial.suspend("checkpoint")  # it cannot be rebuilt: it is kept
    assert not trial.until("parked")["at_boundary"]
    assert states(started["worker_pid"]) == {"T"}
    assert states(escaped) == {"T"}
    trial.resume()
    trial.until("resumed")
    assert states(escaped) != {"T"}
    trial.send("kill")
    assert trial.until("suspended")["tier"] == "kill"
    gone(escaped)


def test_a_missed_deadline_ends_the_run_at_its_last_checkpoint(make_trial: MakeTrial) -> None:
    script = LOOP.replace(
        "    state, step = state",
        "    if step == 5:\n        open('stuck', 'w').close()\n"
        "        while True: pass\n    state, step = state",
    )
    trial = make_trial(script, "10").launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.send("checkpoint", id="at-3")
    trial.until("checkpointed")
    trial.resume()
    until((trial.directory / "work" / "stuck").exists)
    trial.suspend("checkpoint", deadline=0.05)
    ended = trial.until("suspended")
    assert (ended["tier"], ended["checkpoint"]["id"], ended["step"]) == ("kill", "at-3", 3)
    assert "deadline" in ended["cause"]


def test_a_program_that_ignores_its_resume_is_told_of_it(make_trial: MakeTrial) -> None:
    script = """
import trainer_shim
trial = trainer_shim.attach()
for step in range(1, 7):
    trial.report(step, loss=1.0, save=lambda folder: open(folder + "/state", "w").close())
"""
    trial = make_trial(script).launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    told = trial.until("failed")["error_signature"]
    assert "this trial was resumed at step 3" in told
    assert "trial.resume" in told


OUTCOMES = {
    "print('fine')": ("completed", {"exit_code": 0}),
    "raise SystemExit(0)": ("completed", {"exit_code": 0}),
    "import sys; print('one', file=sys.stderr); print('\\x1b[1mtwo\\x1b[0m\\n'); sys.exit(2)": (
        "failed",
        {"error_kind": "exit", "detail": "the program called sys.exit(2): two"},
    ),
    "import os; os.write(2, b'late\\n'); os._exit(2)": (
        "failed",
        {"detail": "exit status 2: late"},
    ),
    "raise SystemExit(3)": ("failed", {"error_kind": "exit", "exit_code": 3}),
    "1 / 0": (
        "failed",
        {"error_kind": "exception", "error_signature": "ZeroDivisionError: division by zero"},
    ),
    "import trainer_shim as t; r = t.attach().report; r(2, loss=1.0); r(2, acc=0.5); r(1, acc=9)": (
        "completed",
        {"step": 2, "metrics": {"loss": 1.0, "acc": 0.5}},
    ),
    "import trainer_shim as t; r = t.attach().report; r(1, loss=2.0, a=10**400, b=None, c='x',"
    " **{chr(0xd800): 1}); r('two'); r(10**400); r(10**5000); r(2, loss=[], save=3)": (
        "completed",
        {"step": 2, "metrics": {"loss": 2.0}},
    ),
    "import os, trainer_shim as t; t.attach().report(1, loss=2.0); os._exit(0)": (
        "completed",
        {"step": 1, "metrics": {"loss": 2.0}},
    ),
    "import os; os._exit(4)": ("failed", {"error_kind": "exit", "exit_code": 4}),
    "import os; os.kill(os.getpid(), 9)": ("failed", {"error_kind": "killed", "exit_code": -9}),
    "import os, signal; os.kill(os.getpid(), 11)": ("failed", {"error_kind": "signal"}),
}


@pytest.mark.parametrize("script", OUTCOMES, ids=lambda script: script[-20:])
def test_every_way_to_end_has_its_outcome(make_trial: MakeTrial, script: str) -> None:
    kind, fields = OUTCOMES[script]
    trial = make_trial(script).launch()
    trial.start()
    assert trial.daemon is not None
    ended = trial.until("completed", "failed")
    assert ended["kind"] == kind
    assert {name: ended[name] for name in fields} == fields
    record = (trial.directory / "events.jsonl").read_text().splitlines()
    assert json.loads(record[-1]) == ended


def test_what_nobody_heard_of_a_run_outlives_its_host(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "20").launch()
    trial.start(limit=7)
    trial.until("parked")
    trial.resume()
    trial.detach()
    record = trial.directory / "events.jsonl"
    until(lambda: '"completed"' in record.read_text())
    os.kill(trial.host_pid, signal.SIGKILL)
    trial.events = [json.loads(line) for line in record.read_text().splitlines() if line]
    assert trial.losses() == {s: loss for s, loss in expected(20).items() if s > 7}
    assert trial.events[-1]["metrics"] == {"loss": expected(20)[20]}


def test_kill_9_of_the_trainer_is_told_and_the_next_attempt_goes_on(
    make_trial: MakeTrial,
) -> None:
    trial = make_trial(LOOP, "20").launch()
    trial.start(limit=7)
    pid = trial.until("started")["worker_pid"]
    trial.until("parked")
    trial.send("checkpoint", id="at-7")
    path = trial.until("checkpointed")["path"]
    os.kill(pid, signal.SIGKILL)
    assert trial.until("failed")["error_kind"] == "killed"
    trial.start(restore=path)
    assert trial.until("started")["step"] == 7
    trial.until("completed")
    assert trial.losses() == expected(20)


def test_kill_9_of_the_host_takes_the_trainer_along(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, FOREVER).launch()
    trial.start()
    pid = trial.until("started")["worker_pid"]
    os.kill(trial.host_pid, signal.SIGKILL)
    gone(pid)
    assert trial.process is not None
    trial.process.wait()
    trial.launch()  # the stale socket is in nobody's way
    assert trial.attached["phase"] == "idle"
    trial.quit()


def test_a_reconnect_replays_exactly_what_was_not_acknowledged(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "30").launch()
    trial.start(limit=10)
    parked = trial.until("parked")
    trial.detach()
    attached = trial.attach(after=0)
    assert (attached["phase"], attached["step"]) == ("parked", 10)
    first = trial.events
    trial.events = []
    trial.until("parked")
    assert trial.events == first
    trial.send("ack", seq=parked["seq"] - 1)
    attached = trial.attach(after=0)
    judged = next(event for event in first if event["kind"] == "fidelity")
    assert attached["fidelity"]["level"] == judged["level"], "what stands is said again"
    trial.events = []
    trial.until("parked")
    assert trial.events == [parked]
    trial.attach(after=parked["seq"])
    trial.events = []
    trial.resume()
    assert trial.until("resumed")["seq"] == parked["seq"] + 1


@pytest.mark.parametrize("cause", ["orphan", "lease"])
def test_a_trial_that_nobody_looks_after_rests_at_a_checkpoint(
    make_trial: MakeTrial, cause: str
) -> None:
    trial = make_trial(LOOP, FOREVER, orphan_seconds=0 if cause == "orphan" else 600).launch()
    trial.start()
    pid = trial.until("started")["worker_pid"]
    if cause == "orphan":
        trial.detach()
        gone(pid)
        trial.attach()
    else:
        trial.send("lease", expires_boottime=boottime())
    ended = trial.until("suspended")
    assert (ended["tier"], ended["cause"]) == ("checkpoint", cause)
    assert ended["checkpoint"]["step"] == ended["step"] > 0


def test_a_host_without_a_program_waits_for_no_daemon_for_long(make_trial: MakeTrial) -> None:
    """What its program came to is written down; nobody else would ever end the host."""
    impatient = (
        "import sys; from trainer_shim.host import __main__ as host; host._EMPTY_SECONDS = 0.1"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{impatient}; host.main(sys.argv[1:])", str(make_trial("").spec)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        cwd=Path(__main__.__file__).parents[1],
        start_new_session=True,
    )
    assert process.wait() == 0


def test_a_lease_says_how_long_its_last_checkpoint_may_take(make_trial: MakeTrial) -> None:
    stuck = "import time, trainer_shim; t = trainer_shim.attach(); t.report(1, 1.0, save=print)"
    trial = make_trial(f"{stuck}; time.sleep(1e6)", lease_grace_seconds=1e6).launch()
    trial.start()
    trial.until("started")
    trial.send("lease", expires_boottime=boottime(), grace_seconds=0.0)
    assert trial.until("suspended")["cause"] == "lease: deadline missed"


def test_a_program_reports_at_a_mark_and_goes_on(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "20").launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.send("report", at_step=5)
    trial.resume(limit=8)
    assert trial.until("reported")["last_step"] == 5, "within its first second"
    assert trial.until("reported", "parked")["last_step"] == 8
    assert trial.until("parked")["cause"] == "limit"


@pytest.mark.parametrize("damaged", ["state.json", "manifest"])
def test_a_corrupt_checkpoint_fails_the_restore_and_an_older_one_serves(
    make_trial: MakeTrial, damaged: str
) -> None:
    trial = make_trial(LOOP, "20").launch()
    trial.start(limit=4)
    trial.until("parked")
    trial.send("checkpoint", id="old")
    old = trial.until("checkpointed")["path"]
    trial.resume(limit=8)
    trial.until("parked")
    trial.send("demote", id="new")
    new = trial.until("suspended")["checkpoint"]["path"]
    if damaged == "manifest":
        manifest = Path(new, "manifest.json")
        manifest.write_text(manifest.read_text().replace('"step": 8', '"step": 9'))
    else:
        state = Path(new, "state.json")
        state.write_bytes(state.read_bytes()[:-1] + b" ")
    trial.start(restore=new)
    failed = trial.until("failed")
    assert failed["error_kind"] == "restore"
    assert damaged in failed["detail"]
    assert failed["restored_from"] == new
    trial.start(restore=old)
    trial.until("completed")
    assert trial.losses() == expected(20)


def test_a_flood_of_output_is_capped_and_its_end_is_kept(make_trial: MakeTrial) -> None:
    script = "import sys\nfor _ in range(1024): sys.stdout.write('x' * (1 << 20))\nprint('last')"
    trial = make_trial(script, output_limit_bytes=1 << 20).launch()
    trial.start()
    trial.until("completed")
    sizes = [path.stat().st_size for path in trial.directory.glob("output.log*")]
    assert sum(sizes) <= 1 << 20
    assert trial.output.endswith("last\n")


def test_a_report_that_is_asked_for_comes_at_the_next_boundary(make_trial: MakeTrial) -> None:
    script = "gate = open('gate')\n" + LOOP.replace(
        "    state, step =", "    gate.readline()\n    state, step ="
    )
    trial = make_trial(script, "3").launch()
    os.mkfifo(trial.directory / "work" / "gate")
    trial.start()
    with open(trial.directory / "work" / "gate", "w", buffering=1) as gate:
        gate.write("\n")
        started = trial.until("started")
        trial.send("report")
        trial.send("attach", after=started["seq"])
        trial.until("attached")  # the host has passed it on
        gate.write("\n")
        assert trial.until("reported")["last_step"] < 3, "it waits before the third"
        gate.write("\n")
    trial.until("completed")
    assert trial.losses() == expected(3)


def test_a_program_without_boundaries_is_reported_by_its_host(make_trial: MakeTrial) -> None:
    trial = make_trial("", argv=["/bin/sh", "-c", "sleep 1000"]).launch()
    trial.start()
    trial.until("started")
    trial.send("report")
    report = trial.until("reported")
    assert report["count"] == 0
    assert report["memory_bytes"] > 0
    trial.quit()


def test_stale_doubled_and_unknown_requests_change_nothing(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP, "30").launch()
    trial.start(limit=5)
    trial.until("parked")
    trial.attempt = 2
    assert trial.daemon is not None
    doubled = ({"kind": "resume", "attempt": 2, "limit_step": limit} for limit in (9, 20))
    trial.daemon.sendall(b"".join(map(frames.encode, doubled)))  # the first one counts
    trial.send("no-such-request")
    trial.attempt = 1
    trial.send("kill")  # of an attempt that is over
    trial.attempt = 2
    assert trial.until("parked")["step"] == 9
    trial.send("suspend", tier="park", deadline_seconds=1)
    trial.start(limit=20)  # a process lives: no second one
    trial.resume()
    trial.until("completed")
    assert [event["kind"] for event in trial.events].count("parked") == 2
    assert trial.losses() == expected(30)


def test_the_environment_and_the_cores_are_the_trials(make_trial: MakeTrial) -> None:
    script = "import json, os, sys; json.dump([dict(os.environ), sys.argv, sys.path[0],"
    script += "list(os.sched_getaffinity(0)), __name__], open('seen', 'w'))"
    core = min(os.sched_getaffinity(0))
    env = environment(HERMES_CPU_CORES=str(core), MARK="1")
    trial: Trial = make_trial(script, "--x", "1", env=env, parameters={"x": 1}, seed=7).launch()
    trial.start()
    trial.until("completed")
    seen_env, argv, path, cores, name = json.loads((trial.directory / "work" / "seen").read_text())
    extra = {"HERMES_TRIAL", "HERMES_ATTEMPT", "HERMES_PARAMETERS", "HERMES_SEED"}
    assert {k: v for k, v in seen_env.items() if k not in extra} == env
    assert seen_env["HERMES_PARAMETERS"] == '{"x": 1}'
    assert seen_env["HERMES_SEED"] == "7"
    assert (argv, name, cores) == (["train.py", "--x", "1"], "__main__", [core])
    assert path == str(trial.directory / "work")


@contextmanager
def careless() -> Iterator[None]:
    """What is started meanwhile inherits what nohup, a shell's `&` and odd services leave."""
    ignored = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


SIGNALS = """
import json, os, signal, subprocess
lines = [line.split() for line in open("/proc/self/status") if line.startswith("Sig")]
seen = {name[:-1]: int(mask, 16) for name, mask in lines if name in ("SigBlk:", "SigIgn:")}
seen["child"] = subprocess.run(["false"]).returncode
seen["interrupt"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
json.dump(seen, open("seen", "w"))
"""


@pytest.mark.parametrize("way", ["cold", "zygote"])
def test_a_trial_inherits_no_signals_of_its_daemon(
    make_trial: MakeTrial, tmp_path: Path, way: str
) -> None:
    subprocess.run([sys.executable, "-c", SIGNALS], cwd=tmp_path, check=True)
    at_a_prompt = json.loads((tmp_path / "seen").read_text())
    assert at_a_prompt["child"] == 1
    trial = make_trial(SIGNALS)
    with ExitStack() as stack:
        with careless():
            zygote = None if way == "cold" else Zygote(tmp_path / "zygote.sock")
            if zygote is not None:
                stack.callback(zygote.close)
            trial.launch(zygote)
        trial.start()
        trial.until("completed")
    assert json.loads((trial.directory / "work" / "seen").read_text()) == at_a_prompt


def test_a_shell_as_program_is_ended_by_a_broken_pipe(make_trial: MakeTrial) -> None:
    argv = ["/bin/sh", "-c", "grep SigIgn /proc/self/status > seen"]
    trial = make_trial("", argv=argv).launch()
    trial.start()
    trial.until("completed")
    ignored = int((trial.directory / "work" / "seen").read_text().split()[1], 16)
    # Those of the threads' library, from 32 on, are nobody's to set.
    assert ignored & 0x7FFF_FFFF == 0


def test_a_program_that_is_execd_can_attach(make_trial: MakeTrial) -> None:
    argv = ["/bin/sh", "-c", f"exec {sys.executable} -X utf8 train.py 6"]
    trial = make_trial(LOOP, argv=argv).launch()
    trial.start()
    trial.until("completed")
    assert trial.losses() == expected(6)


@pytest.mark.parametrize("argv", [None, ["/bin/sh", "-c", "true"]], ids=["python", "shell"])
def test_a_program_that_nothing_is_seen_of_tells_of_itself_what_can_be_told(
    make_trial: MakeTrial, argv: list[str] | None
) -> None:
    trial = make_trial("sum(range(10**6))", **({} if argv is None else {"argv": argv})).launch()
    trial.start()
    trial.until("completed")
    assert [event["kind"] for event in trial.events] == [
        "fidelity",
        "started",
        "reported",
        "completed",
    ]
    fidelity, _, used, _ = trial.events
    assert fidelity["level"] == "park-only"
    assert "Hermes" in fidelity["reason"]
    assert used["busy_seconds"] > 0
    assert used["memory_bytes"] > 0


def test_a_program_that_may_yet_show_boundaries_starts_at_its_end_at_the_latest(
    make_trial: MakeTrial,
) -> None:
    trial = make_trial("if False: import keras").launch()
    trial.start()
    trial.until("completed")
    kinds = [event["kind"] for event in trial.events]
    assert kinds == ["fidelity", "started", "reported", "completed"]
    assert trial.events[0]["framework"] == ""


@pytest.mark.parametrize("exec_", [False, True], ids=["here", "exec"])
def test_a_program_that_saves_itself_has_a_checkpoint_of_its_end(
    make_trial: MakeTrial, exec_: bool
) -> None:
    """So a short one, too, can be trained further."""

    def argv(steps: int) -> list[str]:
        if exec_:
            return ["/bin/sh", "-c", f"exec {sys.executable} -X utf8 train.py {steps}"]
        return [sys.executable, "train.py", str(steps)]

    trial = make_trial(LOOP, argv=argv(6)).launch()
    trial.start()
    checkpoint = trial.until("completed")["checkpoint"]
    assert checkpoint["step"] == 6
    further = make_trial(LOOP, argv=argv(9)).launch()
    further.start(restore=checkpoint["path"])
    assert further.until("started")["step"] == 6
    further.until("completed")
    assert {**trial.losses(), **further.losses()} == expected(9)


def test_a_program_that_saves_at_some_of_its_steps_is_saved_there(make_trial: MakeTrial) -> None:
    """What is promised of it does not change from step to step, and its `save` is never called
    for a step that was reported without."""
    seldom = "trial.report(step, loss=state, save=None if step % 5 else save)"
    program = LOOP.replace("trial.report(step, loss=state, save=save)", seldom)
    trial = make_trial(program, "30").launch()
    trial.start(limit=10)
    trial.until("parked")
    trial.send("checkpoint", id="at-10")
    path = trial.until("checkpointed")["path"]
    trial.resume(limit=12)
    trial.until("parked")
    trial.suspend("checkpoint")
    stays = trial.until("parked")
    assert stays["step"] == 12
    assert stays["cause"].endswith("no checkpoint: the program's last report has no save=")
    levels = [event["level"] for event in trial.events if event["kind"] == "fidelity"]
    assert levels[levels.index("author") :] == ["author"]
    further = make_trial(program, "30").launch()
    further.start(restore=path)
    assert further.until("started")["step"] == 10
    further.until("completed")


def test_a_checkpoint_that_cannot_be_read_for_now_is_no_failure_of_the_program(
    make_trial: MakeTrial,
) -> None:
    trial = make_trial(LOOP, "30").launch()
    trial.start(limit=7)
    trial.until("parked")
    trial.suspend("checkpoint")
    path = Path(trial.until("suspended")["checkpoint"]["path"])
    (path / "state.json").unlink()
    (path / "state.json").symlink_to("state.json")
    trial.start(restore=str(path))
    with pytest.raises(AssertionError):
        trial.until("started")
    failed = trial.events[-1]
    assert (failed["kind"], failed["error_kind"]) == ("failed", "not_started")
    assert failed["detail"] == "its checkpoint can't be read: Too many levels of symbolic links"


def test_an_array_that_the_program_changes_in_place_is_told_as_it_was(
    make_trial: MakeTrial,
) -> None:
    program = """
import numpy as np, trainer_shim
trial, total = trainer_shim.attach(), np.zeros(1)
for step in range(1, 31):
    total += 1
    trial.report(step, loss=total)
"""
    trial = make_trial(program).launch()
    trial.start()
    trial.until("completed")
    reports = [event for event in trial.events if event["kind"] == "reported"]
    points = {step: values["loss"] for report in reports for step, values in report["points"]}
    assert points == {step: float(step) for step in range(1, 31)}


def test_the_save_of_a_step_may_come_with_its_last_report(make_trial: MakeTrial) -> None:
    """What was told of the step before its checkpoint is kept, and nothing is told of it after."""
    twice = "trial.report(step, loss=state)\n    trial.report(step, acc=step * 2.0, save=save)"
    program = LOOP.replace("trial.report(step, loss=state, save=save)", twice)
    trial = make_trial(program, "30").launch()
    trial.start(limit=7)
    trial.until("parked")
    trial.send("checkpoint", id="at-7")
    path = trial.until("checkpointed")["path"]
    trial.suspend("kill")
    trial.until("suspended")
    further = make_trial(program, "30").launch()
    further.start(restore=path)
    assert further.until("started")["step"] == 7
    further.until("completed")
    levels = [event["level"] for event in further.events if event["kind"] == "fidelity"]
    assert levels[-1] == "author"
    assert len(levels) <= 3, "what is promised does not change with each report"

    def points(of: Trial, name: str) -> dict[int, float]:
        reports = [event for event in of.events if event["kind"] == "reported"]
        found = [point for report in reports for point in report["points"]]
        return {step: values[name] for step, values in found if name in values}

    assert {**points(trial, "loss"), **points(further, "loss")} == expected(30)
    both = {**points(trial, "acc"), **points(further, "acc")}
    assert both == {step: step * 2.0 for step in range(1, 31)}


def test_a_save_that_fails_at_the_end_is_no_failure_of_the_program(make_trial: MakeTrial) -> None:
    trial = make_trial(LOOP + "del state", "3").launch()
    trial.start()
    assert trial.until("checkpoint_failed")["reason"].startswith("NameError")
    done = trial.until("completed")
    assert (done["step"], done["checkpoint"]) == (3, None)
    assert list(trial.checkpoints.iterdir()) == []


def test_nothing_is_saved_of_a_program_that_ends_badly(make_trial: MakeTrial) -> None:
    argv = ["/bin/sh", "-c", f"exec {sys.executable} -X utf8 train.py 6"]
    trial = make_trial(LOOP + "1 / 0", argv=argv).launch()
    trial.start()
    with pytest.raises(AssertionError, match="exit status 1"):
        trial.until("completed")
    assert "checkpointed" not in [event["kind"] for event in trial.events]


def test_what_a_program_leaves_to_its_exit_is_done(make_trial: MakeTrial) -> None:
    """Threads, handlers, files that nobody closed, and objects that end their work when dropped."""
    script = """
import atexit, sys, threading, zipfile
class Farewell:
    def __del__(self): print("dropped", file=sys.stdout)
farewell = Farewell()
archive = zipfile.ZipFile("archive.zip", "w")
archive.writestr("a", "b")
plain = open("plain", "w")
plain.write("text")
atexit.register(print, "handler")
def last_words():
    threading.main_thread().join()
    print("thread")
threading.Thread(target=last_words).start()
sys.stdout.write("no newline")
"""
    trial = make_trial(script).launch()
    trial.start()
    trial.until("completed")
    assert trial.output.split() == ["no", "newlinethread", "handler", "dropped"]
    work = trial.directory / "work"
    assert (work / "plain").read_text() == "text"
    assert zipfile.ZipFile(work / "archive.zip").read("a") == b"b"


def test_a_stop_while_it_restores_ends_it_at_the_checkpoint_it_came_from(
    make_trial: MakeTrial,
) -> None:
    script = "import pathlib\nwhile pathlib.Path('wait').exists(): pass\n" + LOOP
    trial = make_trial(script, FOREVER).launch()
    trial.start(limit=5)
    trial.until("parked")
    trial.send("demote", id="at-5")
    checkpoint = trial.until("suspended")["checkpoint"]
    (trial.directory / "work" / "wait").touch()
    trial.start(restore=checkpoint["path"])
    trial.send("stop", deadline_seconds=60)
    ended = trial.until("suspended")
    assert (ended["tier"], ended["cause"], ended["checkpoint"]) == ("kill", "stop", checkpoint)


MANY_METRICS = LOOP.replace(
    "loss=state", "loss=state, **{f'metric_{step}_{i}': i for i in range(3000)}"
)
RAISES_AT_LENGTH = LOOP.replace(
    "def save(folder):\n", "def save(folder):\n    raise ValueError('x' * 100_000)\n"
)


@pytest.mark.parametrize("script", [MANY_METRICS, RAISES_AT_LENGTH], ids=["metrics", "an error"])
def test_more_words_than_a_frame_has_room_for_fail_no_program(
    make_trial: MakeTrial, script: str
) -> None:
    trial = make_trial(script, "5").launch()
    trial.start()
    trial.until("completed")
    assert trial.losses() == expected(5)
    reasons = [event["reason"] for event in trial.events if event["kind"] == "fidelity"]
    assert script != MANY_METRICS or "more metrics than the first" in reasons[-1]
