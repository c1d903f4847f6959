"""What a program has written stays as it was when it is run again from its first line."""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, Zygote, environment
from tests.trainer_shim.suspending import QUIET, complete, fidelity, suspend
from trainer_shim.rerun import open_writers, workdir_rollback
from trainer_shim.rerun.workdir_baseline import WorkdirBaseline

# All that a beginning does to files, and a training that writes to them.
PROGRAM = """
import csv, json, os, pathlib, shutil
if os.path.exists("old"):
    shutil.rmtree(path="old")
os.makedirs("out/plots")
pathlib.Path("out", "config.json").write_text("{}")
log = open("log.csv", "w", newline="")
rows = csv.writer(log)
rows.writerow(["step", "loss"])
both = os.open("both.bin", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(both, b"head")
open("rows.txt", "w").close()
notes = open("notes.txt", "a")
notes.write("begun\\n")
with open("best.tmp", "w") as file:
    file.write("none")
os.replace(src="best.tmp", dst="best.txt")
pathlib.Path("gone.txt").unlink(missing_ok=True)
open("only.txt", "x").write("once")
if os.path.exists("rows.tmp"):
    os.truncate(path="rows.tmp", length=0)
    os.remove(path="rows.tmp")
{training}
"""
EXPLICIT = PROGRAM.replace(
    "{training}",
    """
import trainer_shim
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps([state, step]))
while step < 6:
    state, step = state * 0.9, step + 1
    rows.writerow([step, state])
    os.write(both, bytes([step]))
    with open("rows.txt", "a") as file:
        file.write(f"{step}\\n")
    notes.write(f"step {step}\\n")
    pathlib.Path("best.tmp").write_text(f"best {step}")
    os.replace("best.tmp", "best.txt")
    pathlib.Path("gone.txt").write_text(f"gone {step}")
    pathlib.Path("rows.tmp").write_text(f"rows {step}")
    pathlib.Path("out", "plots", str(step)).touch()
    os.makedirs("old", exist_ok=True)
    pathlib.Path("old", str(step)).touch()
    trial.report(step, loss=state, save=save)
notes.write("ended\\n")
""",
)
KERAS = PROGRAM.replace(
    "{training}",
    """
import keras, numpy as np
x = np.random.default_rng(1).normal(size=(40, 3)).astype("float32")
def batch_end(batch, logs):
    rows.writerow([batch, f"{logs['loss']:.6f}"])
    notes.write(f"batch {batch}\\n")
def epoch_end(epoch, logs):
    with open("rows.txt", "a") as file:
        file.write(f"{epoch} {logs['loss']}\\n")
    os.write(both, bytes([epoch]))
model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])
model.compile("adam", "mse")
keras.utils.set_random_seed(3)
model.fit(x, x.sum(axis=1), batch_size=8, epochs=3, verbose=0, callbacks=[
    keras.callbacks.LambdaCallback(on_train_batch_end=batch_end, on_epoch_end=epoch_end),
    keras.callbacks.CSVLogger("keras.csv"),
])
notes.write("ended\\n")
""",
)


def files(trial: Trial) -> dict[str, bytes]:
    """Everything that the program has left in its working directory."""
    work = trial.directory / "work"
    paths = [path for path in work.rglob("*") if path.is_file()]
    return {str(path.relative_to(work)): path.read_bytes() for path in paths}


def run(trial: Trial, *steps: int, zygote: Zygote | None = None) -> dict[str, bytes]:
    """The files of a trial ended at these boundaries, and at the last one a second time."""
    trial.launch(zygote)
    complete(trial, *steps)
    assert not (trial.directory / "kept").exists()
    return files(trial)


@pytest.mark.parametrize("steps", [(1,), (6,), (1, 2, 3, 4, 5, 6)], ids=str)
def test_files_of_a_run_that_was_ended_are_those_of_one_that_was_not(
    make_trial: MakeTrial, steps: tuple[int, ...]
) -> None:
    undisturbed = run(make_trial(EXPLICIT))
    assert undisturbed["log.csv"].count(b"\n") == 7
    assert undisturbed["notes.txt"].startswith(b"begun\nstep 1\n")
    assert undisturbed["both.bin"] == b"head\1\2\3\4\5\6"
    assert run(make_trial(EXPLICIT), *steps) == undisturbed


def test_a_rerun_that_dies_before_it_is_back_has_lost_nothing(make_trial: MakeTrial) -> None:
    """Its beginning has truncated what the one after it finds again."""
    undisturbed = run(make_trial(EXPLICIT))
    dying = EXPLICIT.replace("import trainer_shim", "import trainer_shim\n{die}")
    die = "if os.path.exists('../die'): os._exit(9)"
    trial = make_trial(dying.replace("{die}", die)).launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.suspend("checkpoint")
    checkpoint = trial.until("suspended")["checkpoint"]["path"]
    (trial.directory / "die").touch()
    trial.start(restore=checkpoint)
    with pytest.raises(AssertionError, match="exit status 9"):
        trial.until("completed")
    (trial.directory / "die").unlink()
    trial.start(restore=checkpoint)
    trial.until("completed")
    assert {**files(trial), "train.py": undisturbed["train.py"]} == undisturbed


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_logs_of_an_unchanged_keras_program(make_trial: MakeTrial, zygote: Zygote) -> None:
    """Ended in two epochs and at the end of one; and back at an older checkpoint than the last."""
    env = environment(**QUIET)
    undisturbed = run(make_trial(KERAS, env=env, seed=1), zygote=zygote)
    assert undisturbed["log.csv"].count(b"\n") == 16
    assert undisturbed["keras.csv"].count(b"\n") == 4
    assert run(make_trial(KERAS, env=env, seed=1), 3, 5, 11, zygote=zygote) == undisturbed
    trial = make_trial(KERAS, env=env, seed=1).launch(zygote)
    trial.start(limit=7)
    trial.until("parked")
    trial.send("checkpoint", id="older")
    checkpoint = trial.until("checkpointed")["path"]
    trial.resume(limit=9)
    trial.until("parked")
    trial.send("kill")
    trial.until("suspended")
    trial.start(restore=checkpoint)
    trial.until("completed")
    assert files(trial) == undisturbed


def test_files_elsewhere_are_the_programs_own(tmp_path: Path) -> None:
    """Only what lies in the working directory itself, not what a link there leads to."""
    work, elsewhere = tmp_path / "work", tmp_path / "data"
    work.mkdir()
    elsewhere.mkdir()
    (elsewhere / "set.bin").write_text("data")
    (work / "data").symlink_to(elsewhere)
    (work / "log").write_text("rows")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / workdir_rollback.NAME).write_text(
        json.dumps({"logs": {"log": [2, 2]}, "folders": []})
    )
    looked_after = workdir_rollback.WorkdirRollback(str(work), str(tmp_path / "kept"))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "mkdir"), (os, "open"), (builtins, "open"), (io, "open")):
            patch.setattr(owner, name, getattr(owner, name))  # what is hooked for good is unhooked
        looked_after.begin(str(checkpoint))
        (work / "data" / "set.bin").write_text("new")
        (work / "log").write_text("again")
        log = open(work / "log", "a")  # noqa: SIM115
        log.write("more")
        looked_after.put_back()
    log.write("on")
    log.close()
    assert (elsewhere / "set.bin").read_text() == "new"
    assert (work / "log").read_text() == "roon"


@pytest.mark.parametrize("is_taken", [False, True], ids=["closed", "another file since"])
def test_a_file_that_another_thread_closes_meanwhile(tmp_path: Path, is_taken: bool) -> None:
    """As what saves in the background does while the program's files are put back."""
    work, checkpoint = tmp_path / "work", tmp_path / "checkpoint"
    work.mkdir()
    checkpoint.mkdir()
    (checkpoint / workdir_rollback.NAME).write_text(
        json.dumps({"logs": {"log": [2, 2]}, "folders": []})
    )
    looked_after = workdir_rollback.WorkdirRollback(str(work), str(tmp_path / "kept"))
    saved = os.open(work / "saved", os.O_WRONLY | os.O_CREAT)
    other = tmp_path / "other"
    other.write_text("other")

    class Log(io.FileIO):
        """Its flush, which putting back begins with, does what the thread would."""

        def flush(self) -> None:
            if path_of(saved) == str(work / "saved"):
                os.close(saved)
                if is_taken:
                    assert os.open(other, os.O_RDWR) == saved

    def path_of(fd: int) -> str:
        with contextlib.suppress(OSError):
            return open_writers.path_of(fd)
        return ""

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "mkdir"), (os, "open"), (builtins, "open"), (io, "open")):
            patch.setattr(owner, name, getattr(owner, name))  # what is hooked for good is unhooked
        looked_after.begin(str(checkpoint))
        log = Log(work / "log", "w")
        log.write(b"rows")
        looked_after.put_back()
    log.write(b"on")
    log.close()
    assert (work / "log").read_text() == "roon"
    if is_taken:
        assert os.read(saved, 9) == b"other"
        os.close(saved)


def test_files_opened_before_the_freeze_are_flushed_too(tmp_path: Path) -> None:
    log = open(tmp_path / "log", "w")  # noqa: SIM115
    log.write("kept back")
    open_writers.freeze()
    found = open_writers.flush(str(tmp_path))
    assert found == {log.fileno(): str(tmp_path / "log")}
    assert (tmp_path / "log").read_text() == "kept back"
    log.close()


FINDING = """
import os, pathlib, shutil
import trainer_shim
number = sum(1 for name in os.listdir() if name.startswith("run-"))
folder = pathlib.Path(f"run-{number}")
folder.mkdir()
(folder / "config").write_text("made before training")
if not os.path.exists("data"):
    os.mkdir("data")
    pathlib.Path("data", "set").write_text("rows")
    open("../downloads", "a").write("x")
last = pathlib.Path("last")
state = json.loads(last.read_text())[0] if last.exists() else 1.0
(folder / f"begun-{state}").touch()
trial = trainer_shim.attach()
step = 0
if trial.resume:
    assert (folder / "2").exists()
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(path):
    (pathlib.Path(path) / "state").write_text(json.dumps([state, step]))
while step < 6:
    state, step = state * 0.9, step + 1
    last.write_text(json.dumps([state, step]))
    (folder / str(step)).touch()
    if step == 1:
        os.symlink(folder, "newest")
    trial.report(step, loss=state, save=save)
""".replace("import os", "import json, os", 1)


def test_a_program_that_looks_for_its_own_files_finds_what_it_found_first(
    make_trial: MakeTrial,
) -> None:
    """The number of its run, and from where to go on; what it has downloaded it finds."""
    undisturbed = run(make_trial(FINDING))
    trial = make_trial(FINDING)
    assert run(trial, 2, 4) == undisturbed
    assert {"run-0/6", "run-0/begun-1.0", "data/set", "last"} <= undisturbed.keys()
    assert (trial.directory / "work" / "newest" / "6").exists()
    assert (trial.directory / "downloads").read_text() == "x"


# Of a program that has imported trainer_shim, json and pathlib; `each` is done in every step.
SIX_STEPS = """trial = trainer_shim.attach()
step = 0
if trial.resume:
    step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
while step < 6:
    step += 1
    {each}
    trial.report(
        step, save=lambda path: (pathlib.Path(path) / "state").write_text(json.dumps(step))
    )
"""

# A run folder that is numbered by what is there, and that training leaves alone for long.
COUNTING = """
import json, os, pathlib
import trainer_shim
os.makedirs("runs", exist_ok=True)
folder = pathlib.Path("runs", f"exp{len(os.listdir('runs'))}")
os.makedirs(folder / "plots")
{beginning}
""" + SIX_STEPS.replace("{each}", """if step == 5:
        (folder / "plots" / "5").touch()""") + """(folder / "end").touch()
"""  # fmt: skip


@pytest.mark.parametrize(
    "beginning",
    [
        "",
        "(folder / 'rows').touch()",
        "log = open(folder / 'log', 'w'); print('begun', file=log, flush=True)",
        "with open(folder / 'rows', 'a') as file: file.write('step,loss')",
        "(folder / 'events.out.tfevents.1').write_text('version')",
    ],
    ids=["no file", "an empty file", "an open log", "rows", "events"],
)
def test_a_folder_is_made_again_in_the_same_place_before_anything_is_written_there(
    make_trial: MakeTrial, beginning: str
) -> None:
    program = COUNTING.replace("{beginning}", beginning)
    undisturbed = run(make_trial(program))
    assert {"runs/exp0/plots/5", "runs/exp0/end"} <= undisturbed.keys()
    for steps in ((3,), (1, 2, 4, 5)):
        assert run(make_trial(program), *steps) == undisturbed, steps


def test_logs_of_an_earlier_program_that_are_left_alone_are_no_training(tmp_path: Path) -> None:
    folder, log, events = tmp_path / "work", "log", "events.out.tfevents.1"
    folder.mkdir()
    for name in (log, events):
        (folder / name).write_text("of before")
    found = WorkdirBaseline(str(folder), str(tmp_path / "found"))
    found.note(anew=True)
    (folder / f"{events}2").write_text("of now")
    found.training({log})
    assert found.since() == ([f"{events}2"], [])


FITTING = """(folder / "config").write_text("{}")
import keras, numpy as np
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((16, 3)), np.ones(16), batch_size=2, verbose=0)
"""


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_another_folder_than_at_first_is_no_exact_resume(
    make_trial: MakeTrial, zygote: Zygote
) -> None:
    """What was written there before training might be a download: it is found, and counted."""
    program = COUNTING.partition("{beginning}")[0] + FITTING
    trial = make_trial(program, env=environment(**QUIET), seed=1).launch(zygote)
    said, restore = [], None
    for step in (2, 4, 6):
        trial.start(restore=restore, limit=step)
        trial.until("parked")
        said.append(fidelity(trial))
        restore = suspend(trial)["checkpoint"]["path"]
    assert [level for level, _ in said] == ["exact"] + 2 * ["exact-if-deterministic"]
    assert "runs/exp1" in said[1][1]
    assert said[2] == said[1], "it stays so"


SAYING = (
    """
import json, pathlib
print("begun")
import trainer_shim
"""
    + SIX_STEPS.replace("{each}", "print(step)")
    + """print("ended")
"""
)


@pytest.mark.parametrize("line", ["> train.log", "| tee train.log", ">> train.log"])
def test_a_log_that_a_shell_makes_is_not_lost(make_trial: MakeTrial, line: str) -> None:
    """The shell has made it anew before anything of the trial is in any Python."""
    argv = ["/bin/sh", "-c", f"{sys.executable} -u train.py {line}; echo over >> over.log"]
    undisturbed = run(make_trial(SAYING, argv=argv))
    assert undisturbed["train.log"].split() == b"begun 1 2 3 4 5 6 ended".split()
    resumed = run(make_trial(SAYING, argv=argv), 2, 4)
    if "tee" in line:  # it writes on into what it has made
        assert resumed["train.log"].split()[-3:] == [b"5", b"6", b"ended"]
        assert resumed["train.log.earlier"].split()[:5] == b"begun 1 2 begun 3".split()
    else:
        assert resumed == undisturbed


def test_what_is_hidden_from_a_beginning_that_fails_is_there_afterward(
    make_trial: MakeTrial,
) -> None:
    program = EXPLICIT.replace("{}", "").replace(
        "import csv", "import os\nif os.path.exists('../die'): os._exit(9)\nimport csv"
    )
    trial = make_trial(program).launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.suspend("checkpoint")
    checkpoint = trial.until("suspended")["checkpoint"]["path"]
    before = files(trial)
    (trial.directory / "die").touch()
    trial.start(restore=checkpoint)
    with pytest.raises(AssertionError, match="exit status 9"):
        trial.until("completed")
    assert files(trial) == before


def test_rows_added_after_the_checkpoint_are_cut_though_the_file_was_closed(
    make_trial: MakeTrial,
) -> None:
    """And not only once: what was open before the first checkpoint was told of in it."""
    undisturbed = run(make_trial(EXPLICIT))
    trial = make_trial(EXPLICIT).launch()
    restore = None
    for step, last in ((2, 3), (4, 6)):
        trial.start(restore=restore, limit=step)
        trial.until("parked")
        trial.send("checkpoint", id=f"at-{step}")
        restore = trial.until("checkpointed")["path"]
        trial.resume(limit=last)
        trial.until("parked")
        trial.send("kill")
        trial.until("suspended")
    trial.start(restore=restore)
    trial.until("completed")
    assert files(trial) == undisturbed
