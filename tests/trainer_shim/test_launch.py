"""However a program is started, it is reached if it can be, and says why if it cannot."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial, environment
from tests.trainer_shim.suspending import IMPORTING_KERAS, complete
from trainer_shim.host.launch import python_arguments
from trainer_shim.program import command_line

# Each step multiplies the state; what the interpreter was told is printed once, at the start.
PROGRAM = """
import json, pathlib, sys, warnings
import trainer_shim
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps([state, step]))
def main():
    global state, step
    print("RAN", sys.argv[1:], sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions, sys.prefix)
    while step < 6:
        state, step = state * 0.9, step + 1
        trial.report(step, loss=state, save=save)
if __name__ == "__main__":
    main()
"""
LOSSES = {step: pytest.approx(0.9**step) for step in range(1, 7)}
PYTHON = sys.executable


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of another environment: ours has lent it its packages, and Hermes is not there."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, with_pip=False, symlinks=True)
    lib = next((folder / "lib").glob("python*/site-packages"))
    (lib / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


def script(path: Path, *lines: str) -> str:
    """An executable file of these lines."""
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


def suspended_and_resumed(trial: Trial) -> str:
    """What a trial prints that is ended at a boundary, and goes on in a new process."""
    trial.launch().start(limit=2)
    assert trial.until("parked")["step"] == 2
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    assert trial.until("started")["step"] == 2
    trial.until("completed")
    assert trial.losses() == LOSSES
    return trial.output


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([PYTHON, "train.py", "a"], "['a'] 0 False []"),
        ([PYTHON, "-u", "train.py"], "[] 0 False []"),
        ([PYTHON, "-m", "train", "-u"], "['-u'] 0 False []"),
        ([PYTHON, "-OO", "-X", "dev", "-Wignore", "train.py"], "[] 2 True ['default', 'ignore']"),
        ([PYTHON, "-c", "import train; train.main()", "b"], "['b'] 0 False []"),
        (["/bin/sh", "-c", f"true; {PYTHON} train.py c; true"], "['c'] 0 False []"),
        (["/bin/sh", "-c", f"{PYTHON} -c 'import json'; exec {PYTHON} -m train"], "[] 0 False []"),
    ],
    ids=lambda value: " ".join(value).replace(PYTHON, "python")[:40] if value else "",
)
def test_forms_of_a_command(make_trial: MakeTrial, words: list[str], printed: str) -> None:
    trial = make_trial(PROGRAM, argv=words)
    (trial.directory / "work" / "train.py").write_text(PROGRAM)
    assert f"RAN {printed}" in suspended_and_resumed(trial)


THROUGH_TENSORFLOW = """
import tensorflow as tf
import numpy as np
tf.keras.utils.set_random_seed(3)
x = np.random.rand(40, 3).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(1), batch_size=10, epochs=2, verbose=0)
"""


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_keras_is_seen_though_tensorflow_imports_it(make_trial: MakeTrial) -> None:
    """Nothing is imported before the program: TensorFlow asks where Keras is, long before that."""
    trial = make_trial(THROUGH_TENSORFLOW, env=environment(**IMPORTING_KERAS), seed=7).launch()
    trial.start(limit=5)
    trial.until("parked")
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    trial.until("completed")
    assert [event["level"] for event in trial.events if event["kind"] == "fidelity"][-1] == "exact"
    assert sorted(trial.losses()) == list(range(1, 9))


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_program_that_is_over_without_its_checkpoint_has_not_completed(
    make_trial: MakeTrial, ends: str
) -> None:
    """Started through a shell, it finds what it did before and takes that for all; one that was
    where its checkpoint was taken, and has nothing left to do, has completed."""
    early = "if os.path.exists('done'):\n    raise SystemExit(0)\nopen('done', 'w').close()\n"
    late = "if trial.resume:\n    raise SystemExit(0)\n"
    lines = PROGRAM.splitlines(keepends=True)
    at = 1 + next(n for n, line in enumerate(lines) if "attach()" in line)
    program = "".join([*lines[:at], late, *lines[at:]]) if ends == "after" else PROGRAM
    trial = make_trial(
        "import os\n" + (early if ends == "before" else "") + program,
        argv=["/bin/sh", "-c", f"exec {PYTHON} -B train.py"],
    )
    trial.launch().start(limit=2)
    trial.until("parked")
    trial.suspend("checkpoint")
    path = trial.until("suspended")["checkpoint"]["path"]
    trial.start(restore=path)
    event = trial.until("completed", "failed")
    if ends == "after":
        assert event["kind"] == "completed"
    else:
        assert (event["kind"], event["error_kind"]) == ("failed", "restore")
        assert "before it came to where its checkpoint was taken" in event["detail"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "another"])
@pytest.mark.parametrize("by", ["itself", "shell", "exec"])
def test_a_console_script(
    make_trial: MakeTrial, tmp_path: Path, other: Path, ours: bool, by: str
) -> None:
    """By the interpreter on its first line, also of an environment that has no Hermes."""
    python = PYTHON if ours else str(other)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script(bin_folder / "train-it", f"#!{python}", "from train import main", "main()")
    script(bin_folder / "run.sh", "#!/bin/sh", "echo preparing", "train-it $1")
    script(bin_folder / "exec.sh", "#!/usr/bin/env sh", 'exec train-it "$@"')
    name = {"itself": "train-it", "shell": "run.sh", "exec": "exec.sh"}[by]
    env = environment(PYTHONPATH=str(tmp_path / "lib"))
    env["PATH"] = f"{bin_folder}:{env['PATH']}"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "train.py").write_text(PROGRAM)
    prefix = sys.prefix if ours else str(other.parent.parent)
    output = suspended_and_resumed(make_trial("", argv=[name, "x"], env=env))
    assert f"RAN ['x'] 0 False [] {prefix}" in output


def test_the_users_own_sitecustomize_runs(make_trial: MakeTrial, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("import sys; sys.mine = __file__")
    check = "import sys, os\nprint('MINE', sys.mine, sys.modules['sitecustomize'].__file__)\n"
    check += "print('PATH', any('entry' in part for part in sys.path))\n"
    env = environment(PYTHONPATH=str(tmp_path / "lib"))
    trial = make_trial(check + PROGRAM, argv=[PYTHON, "-X", "utf8", "train.py"], env=env)
    output = suspended_and_resumed(trial)
    mine = str(tmp_path / "lib" / "sitecustomize.py")
    assert f"MINE {mine} {mine}\nPATH False\n" in output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([PYTHON, "-I", "plain.py"], "python -I lets nothing of Hermes into the program"),
        ([PYTHON, "-Bs", "plain.py"], "the program uses no framework that Hermes can see into"),
        (["/bin/sh", "plain.sh"], "/bin/sh is no Python program: Hermes can see only into"),
    ],
    ids=["isolated", "plain", "shell"],
)
def test_what_cannot_be_seen_into_says_why(
    make_trial: MakeTrial, words: list[str], reason: str
) -> None:
    trial = make_trial("", argv=words)
    (trial.directory / "work" / "plain.py").write_text("print('done')")
    (trial.directory / "work" / "plain.sh").write_text("echo done")
    trial.launch().start()
    said = trial.until("fidelity")
    assert said["level"] == "park-only"
    assert said["reason"].startswith(reason)
    trial.until("completed")
    assert trial.output == "done\n"


def test_a_command_may_be_longer_than_a_variable(make_trial: MakeTrial) -> None:
    words = ["x" * 100_000] * 3
    trial = make_trial("", argv=["/bin/sh", "-c", 'echo "$# words"', "sh", *words])
    trial.launch().start()
    trial.until("completed")
    assert trial.output == "3 words\n"


@pytest.mark.parametrize("form", ["script", "ranks"])
def test_a_record_may_be_longer_than_a_variable(make_trial: MakeTrial, form: str) -> None:
    """Of thousands of changes of a parameter, say; each process of several finds its own files."""
    stages = [[step, {"lr": 1 / step}, False] for step in range(1, 10_000)]
    own = [{"RANK": "0"}, {"RANK": "1"}] if form == "ranks" else []
    tells = (
        "from trainer_shim import child_interpreters as reach\n"
        "agent = reach.claim()\n"
        "print(agent.checkpoints, agent.several)\n"
    )
    shell = f"{sys.executable} tells.py"
    trial = make_trial("", argv=["/bin/sh", "-c", shell], stages=stages, ranks=own)
    (trial.directory / "work" / "tells.py").write_text(tells)
    trial.launch().start()
    trial.until("completed")
    assert trial.output == f"{trial.checkpoints} {bool(own)}\n"
    if own:
        said = (trial.directory / "output.log.rank1").read_text()
        assert said == f"{trial.directory / 'ranks' / '1' / 'checkpoints'} True\n"


def test_children_find_the_environment_of_the_study(make_trial: MakeTrial) -> None:
    """Once the program is reached, nothing of ours is left for what it starts."""
    check = "\nimport os; print('LEFT', [n for n in os.environ if n.endswith('_FD')])"
    trial = make_trial(PROGRAM + check, argv=[PYTHON, "-B", "train.py"])
    assert "LEFT []" in suspended_and_resumed(trial)


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
@pytest.mark.in_depth
@pytest.mark.parametrize("form", [pytest.param("other", marks=pytest.mark.slow), "shell"])
def test_a_framework_in_another_environment(make_trial: MakeTrial, other: Path, form: str) -> None:
    """A Keras program of a python that has no Hermes, prepared by one that imports it too."""
    program = """
import hashlib, sys
import keras, numpy as np
assert "trainer_shim" not in [p.rpartition("/")[2] for p in sys.path]
rng = np.random.default_rng()
x = rng.normal(size=(40, 3)).astype("float32")
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, verbose=0)
weights = b"".join(w.tobytes() for w in model.get_weights())
print("FINAL", sys.prefix, hashlib.sha256(weights).hexdigest())
"""
    env = environment(**IMPORTING_KERAS)
    # What only prepares does so once: each import of the framework takes seconds.
    line = f"[ -e ready ] || {other} -c 'import keras' && : > ready; {other} -u train.py"
    direct = [str(other), "train.py"]
    asked = direct if form == "other" else ["/bin/sh", "-c", line]
    outcomes = []
    for argv, steps in ((direct, ()), (asked, (7,))):
        trial = make_trial(program, argv=argv, env=env, seed=3).launch()
        complete(trial, *steps)
        said = [event["level"] for event in trial.events if event["kind"] == "fidelity"]
        assert said[-1] == "exact"
        outcomes.append((trial.losses(), trial.output.splitlines()[-1]))
    assert len(outcomes[0][0]) == 10
    assert outcomes[0][1].startswith(f"FINAL {other.parent.parent}")
    assert outcomes[0] == outcomes[1]


COMMAND_LINES = [
    ("x.py -u", [], ["x.py", "-u"]),
    ("-Bu -Wignore -W error -Xdev -X utf8 x.py", ["-B", "-u", "-W", "-W", "-X", "-X"], ["x.py"]),
    ("-um mod a", ["-u"], ["-m", "mod", "a"]),
    ("-mmod a", [], ["-m", "mod", "a"]),
    ("-Ic code a", ["-I"], ["-c", "code", "a"]),
    ("--check-hash-based-pycs never x.py", ["--check-hash-based-pycs"], ["x.py"]),
    ("-", [], []),
    ("-i", ["-i"], []),
    ("-- x.py", [], ["x.py"]),
]


@pytest.mark.parametrize(
    ("words", "options", "program"), COMMAND_LINES, ids=lambda value: str(value)
)
def test_a_command_line_is_read_as_python_reads_it(
    words: str, options: list[str], program: list[str]
) -> None:
    assert command_line.split(words.split()) == (options, program)


def test_what_runs_in_the_hosts_own_process(tmp_path: Path, other: Path) -> None:
    ours = script(tmp_path / "ours", f"#!{PYTHON}", "print()")
    theirs = script(tmp_path / "theirs", f"#!{other}", "print()")
    assert python_arguments([PYTHON, "-u", "x.py", "a"], None) == ["x.py", "a"]
    assert python_arguments([PYTHON, "-m", "mod"], None) == ["-m", "mod"]
    assert python_arguments([ours, "a"], None) == [ours, "a"]
    for argv in ([theirs], [str(other), "x.py"], [PYTHON, "-O", "x.py"], [PYTHON, "-c", "1"]):
        assert python_arguments(argv, None) is None
